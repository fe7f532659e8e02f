//! actix-extensible-rate-limit 0.4.

use std::net::TcpListener;
use std::time::Duration;

use actix_extensible_rate_limit::RateLimiter;
use actix_extensible_rate_limit::backend::memory::InMemoryBackend;
use actix_extensible_rate_limit::backend::{SimpleInputFunctionBuilder, SimpleInputFuture, SimpleOutput};
use actix_web::dev::{Server, ServiceRequest};
use actix_web::{App, HttpServer, web};

pub fn limits(
    backend: InMemoryBackend,
) -> RateLimiter<InMemoryBackend, SimpleOutput, impl Fn(&ServiceRequest) -> SimpleInputFuture> {
    let input = SimpleInputFunctionBuilder::new(Duration::from_secs(60), 5).peer_ip_key().build();
    RateLimiter::builder(backend, input).add_headers().rollback_server_errors().build()
}

pub fn serve(listener: TcpListener) -> std::io::Result<Server> {
    let backend = InMemoryBackend::builder().build();
    let app = move || App::new().wrap(limits(backend.clone())).route("/", web::get().to(async || "hello"));
    Ok(HttpServer::new(app).listen(listener)?.run())
}
