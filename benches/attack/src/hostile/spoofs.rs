//! Attackers that forge addresses to appear as a new client each time, or to spend another client's tokens.

use std::net::Ipv4Addr;

use super::client::ReconnectingClient;
use super::{SPOOFERS, Target, pace, scatter, start};
use crate::honest::PROXY;

/// Half of the attackers connect directly, so the server must ignore the header. The others connect through the proxy,
/// which appends their actual address.
pub async fn spoof(target: Target, per_second: u64) {
    for spoofer in 0..SPOOFERS {
        let direct = spoofer % 2 == 0;
        let from = if direct { Ipv4Addr::new(127, 66, 0, spoofer as u8 + 1) } else { PROXY };
        let mut connection = ReconnectingClient::new(target.clone(), from);
        start(async move {
            let mut pace = pace(per_second as f64 / SPOOFERS as f64);
            for count in 0_u64.. {
                pace.tick().await;
                let mut request = "GET /page HTTP/1.1\r\nhost: spoof\r\n".to_owned() + &forged_header(count, spoofer);
                if !direct {
                    request += &format!("x-forwarded-for: 203.0.113.{}\r\n", spoofer + 1);
                }
                request += "\r\n";
                connection.exchange(request.as_bytes(), 1).await;
            }
        });
    }
}

/// Returns a different forged header each time.
fn forged_header(count: u64, spoofer: u64) -> String {
    let random = Ipv4Addr::from_bits(scatter((spoofer << 48) | count) as u32);
    let honest = count % 20;
    match count % 10 {
        0 => format!("x-forwarded-for: {random}\r\n"),
        1 => format!("x-forwarded-for: 198.51.100.{honest}\r\n"),
        2 => format!("x-forwarded-for: 127.1.0.{}\r\nx-forwarded-for: {random}\r\n", honest + 1),
        3 => format!("forwarded: for={random};proto=https, for=\"[::ffff:198.51.100.{honest}]:4711\"\r\n"),
        4 => format!("x-real-ip: {random}\r\ntrue-client-ip: {random}\r\ncf-connecting-ip: {random}\r\n"),
        5 => format!("x-forwarded-for: ::ffff:{random}, \"{random}\", unknown, _hidden\r\n"),
        6 => format!("x-forwarded-for: {}\r\n", format!("{random}, ").repeat(200)),
        7 => "x-forwarded-for: ,,,;;;\"\\\"\u{fc}\u{0f1}, 127.9.0.1\r\n".to_owned(),
        8 => format!("X-Forwarded-For: {PROXY}, {PROXY}\r\nx-client-ip: {random}\r\n"),
        _ => String::new(),
    }
}
