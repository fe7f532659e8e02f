//! The same as [`redis_server`](crate::redis_server), over real sockets and in real time, so that the backend's own
//! connection code runs. Because it runs only a hundred inputs per second, it is used only for the stored inputs
//! (`tests/replay.rs`).

use tokio::net::TcpListener;
use tollgate::RateLimiter;

use crate::redis_server::{Script, ask, builder, mislead};

/// Reads `data` as [`redis_server::run`](crate::redis_server::run) does.
pub fn run(data: &[u8]) {
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
