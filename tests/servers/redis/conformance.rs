//! The conformance suite on a single server.

use tollgate::backend::conformance;

use crate::support::server::Server;

#[tokio::test]
async fn the_redis_backend_conforms() {
    let server = Server::start();
    conformance::all(&server.backend().await, tokio::time::sleep).await;
}
