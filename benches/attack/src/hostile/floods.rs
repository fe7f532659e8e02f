//! Floods of requests, either each with a new key, or all with a few keys whose tokens are spent.

use std::net::Ipv4Addr;

use super::client::ReconnectingClient;
use super::{STORM_KEYS, Target, pace, scatter, start};

/// Sends each request with a new key, to fill the table and evict other rows.
pub async fn new_keys(target: Target, per_second: u64) {
    for lane in 0..CONNECTIONS {
        let mut connection = ReconnectingClient::new(target.clone(), Ipv4Addr::new(127, 64, 0, lane as u8 + 1));
        start(async move {
            let mut pace = pace(per_second as f64 / (CONNECTIONS * BATCH) as f64);
            for batch in 0_u64.. {
                pace.tick().await;
                let mut requests = String::new();
                for i in 0..BATCH {
                    let key = scatter((lane << 56) | (batch * BATCH + i));
                    requests += &format!("GET /api HTTP/1.1\r\nhost: flood\r\nx-api-key: {key:016x}\r\n\r\n");
                }
                connection.exchange(requests.as_bytes(), BATCH).await;
            }
        });
    }
}

/// Sends requests with a few keys, whose tokens are spent in the first seconds, so nearly all requests are denied.
pub async fn storm(target: Target, per_second: u64) {
    for key in 0..STORM_KEYS {
        let mut connection = ReconnectingClient::new(target.clone(), Ipv4Addr::new(127, 65, 0, key as u8 + 1));
        start(async move {
            let mut pace = pace(per_second as f64 / (STORM_KEYS * BATCH) as f64);
            let request = format!("GET /api HTTP/1.1\r\nhost: storm\r\nx-api-key: storm-{key}\r\n\r\n");
            let requests = request.repeat(BATCH as usize);
            loop {
                pace.tick().await;
                connection.exchange(requests.as_bytes(), BATCH).await;
            }
        });
    }
}

/// The number of connections.
const CONNECTIONS: u64 = 4;
/// The number of requests that are sent together. A larger burst would itself delay honest clients.
const BATCH: u64 = 5;
