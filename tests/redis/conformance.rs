//! The suite that every backend must pass.

use tollgate::backend::conformance;

use crate::server::Server;

#[tokio::test]
async fn it_conforms() {
    let server = Server::start();
    conformance::all(&server.backend().await, tokio::time::sleep).await;
}
