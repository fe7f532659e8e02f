//! Headers up to the server's maximum size, and beyond.

use std::net::Ipv4Addr;

use http::Request;

use super::client::Client;
use super::{Target, pace, start};
use crate::Result;
use crate::honest::connect;

/// Sends large headers, both as the header that contains the key and as other headers, over HTTP/1 and HTTP/2. Each
/// request uses a new connection, because the server closes most of them.
pub async fn giants(target: Target, per_second: u64) {
    let mut pace = pace(per_second as f64);
    for count in 0_u64.. {
        pace.tick().await;
        let target = target.clone();
        let size = SIZES[count as usize % SIZES.len()];
        let from = Ipv4Addr::new(127, 70, 0, (count % 200) as u8 + 1);
        start(async move {
            let sent =
                if count % 3 == 0 { http2(&target, from, size).await } else { http1(&target, from, size, count).await };
            if sent.is_err() {
                target.tally.cut();
            }
        });
    }
}

async fn http1(target: &Target, from: Ipv4Addr, size: usize, count: u64) -> Result<()> {
    let mut client = Client::connect(from, target.server).await?;
    let name = ["x-api-key", "x-forwarded-for", "cookie"][count as usize / 3 % 3];
    let value = match name {
        "x-forwarded-for" => "192.0.2.1, ".repeat(size / 11),
        _ => format!("{count}{}", "a".repeat(size)),
    };
    let request = format!("GET /api HTTP/1.1\r\nhost: giants\r\n{name}: {value}\r\n\r\n");
    target.tally.sent(1);
    client.send(request.as_bytes()).await?;
    client.read_responses(1, &target.tally).await?;
    Ok(())
}

async fn http2(target: &Target, from: Ipv4Addr, size: usize) -> Result<()> {
    let (ready, work) = h2::client::handshake(connect(from, target.server).await?).await?;
    start(async move { drop(work.await) });
    let request = Request::get("http://giants/api").header("x-api-key", "a".repeat(size)).body(())?;
    let (response, _stream) = ready.ready().await?.send_request(request, true)?;
    target.tally.sent(1);
    target.tally.count_status(response.await?.status().as_u16());
    Ok(())
}

/// The server accepts 64 KiB over HTTP/1 and 16 KiB over HTTP/2.
const SIZES: [usize; 6] = [4_000, 15_000, 17_000, 60_000, 70_000, 400_000];
