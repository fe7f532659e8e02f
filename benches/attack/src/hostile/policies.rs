//! A flood under one policy. The invented keys exhaust their quotas, so all of their rows deny requests. Honest
//! newcomers also arrive during the flood, under the flooded policy and under another policy.

use std::net::Ipv4Addr;

use super::client::ReconnectingClient;
use super::{Target, pace, scatter, start};
use crate::honest::PROXY;

/// Sends requests with each invented key until they are denied.
pub async fn flood(target: Target, keys_per_second: u64) {
    for lane in 0..CONNECTIONS {
        let mut connection = ReconnectingClient::new(target.clone(), Ipv4Addr::new(127, 67, 0, lane as u8 + 1));
        start(async move {
            let mut pace = pace(keys_per_second as f64 / CONNECTIONS as f64);
            for count in 0_u64.. {
                pace.tick().await;
                let request = trial(&format!("{:016x}", scatter((lane << 56) | count)));
                connection.exchange(request.repeat(REQUESTS as usize).as_bytes(), REQUESTS).await;
            }
        });
    }
}

/// Sends requests under the flooded policy, each from a new caller. While the table is full, some of these callers
/// share a quota.
pub async fn newcomers(target: Target, per_second: u64) {
    let mut connection = ReconnectingClient::new(target, Ipv4Addr::new(127, 68, 0, 1));
    start(async move {
        let mut pace = pace(per_second as f64);
        for count in 0_u64.. {
            pace.tick().await;
            connection.exchange(trial(&format!("newcomer-{count}")).as_bytes(), 1).await;
        }
    });
}

/// Sends requests under another policy, each from a new caller. The flood must not affect these callers.
pub async fn newcomers_of_another(target: Target, per_second: u64) {
    let mut connection = ReconnectingClient::new(target, PROXY);
    start(async move {
        let mut pace = pace(per_second as f64);
        for count in 0_u32.. {
            pace.tick().await;
            let address = Ipv4Addr::from_bits(0x0a00_0000 + count);
            let request = format!("GET /page HTTP/1.1\r\nhost: new\r\nx-forwarded-for: {address}\r\n\r\n");
            connection.exchange(request.as_bytes(), 1).await;
        }
    });
}

fn trial(name: &str) -> String {
    format!("GET /trial HTTP/1.1\r\nhost: trial\r\nx-api-key: {name}\r\n\r\n")
}

/// The number of connections.
const CONNECTIONS: u64 = 2;
/// The number of requests with each invented key, which is one more than its quota.
const REQUESTS: u64 = 4;
