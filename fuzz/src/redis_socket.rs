//! [`redis_server`](crate::redis_server) once more, over real sockets and in real time: a hundred inputs a second, so only
//! the kept ones are run (`tests/replay.rs`). Here the backend connects, and connects again, by itself.

use tokio::net::TcpListener;
use tollgate::RateLimiter;

use crate::redis_server::{Script, ask, builder, mislead};

/// Reads `data` as [`redis_server::one`](crate::redis_server::one) does.
pub fn one(data: &[u8]) {
    let Some((shape, script)) = Script::read(data) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("redis://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let _ = socket.set_nodelay(true);
                tokio::spawn(mislead(socket, script.clone()));
            }
        });
        let backend = builder(shape).lazy().connect(&url).await.expect("an address");
        ask(&RateLimiter::new(backend), shape).await;
    });
}
