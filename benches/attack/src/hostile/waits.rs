//! Requests that get a reservation and disconnect before it is due.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::client::Client;
use super::{Target, pace, scatter, start};

pub async fn hang_up(target: Target, per_second: u64) {
    let mut pace = pace(per_second as f64);
    for count in 0_u64.. {
        pace.tick().await;
        let target = target.clone();
        start(async move {
            let from = Ipv4Addr::new(127, 69, 0, (count % 8) as u8 + 1);
            let Ok(mut client) = Client::connect(from, target.server).await else { return target.tally.cut() };
            // There are two keys, so a fifth of these requests are allowed immediately, and the others would have to
            // wait.
            let request = format!("GET /wait HTTP/1.1\r\nhost: waits\r\nx-api-key: waits-{}\r\n\r\n", count % 2);
            if client.send(request.as_bytes()).await.is_err() {
                return target.tally.cut();
            }
            target.tally.sent(1);
            let patience = Duration::from_millis(scatter(count) % 1_000);
            // A response within that time is counted. Otherwise, dropping the connection is the attack.
            let _ = tokio::time::timeout(patience, client.read_responses(1, &target.tally)).await;
        });
    }
}
