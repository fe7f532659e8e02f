//! The examples, run as their readers run them: other processes, real time, real sockets. Each has to do what the comment at its
//! top promises, and what is checked here has to stand there.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

mod anonymous_sessions;
mod behind_proxy;
mod config_file;
mod custom_response;
mod grpc;
mod job_scheduling;
mod llm_tokens;
mod login_protection;
mod observability;
mod outgoing;
mod plots;
#[path = "../redis/ports.rs"]
mod ports;
mod redis;
mod routes;
mod running;
#[path = "../redis/server.rs"]
#[allow(dead_code)] // Made for other tests, which break it too.
mod server;
mod shadow;
mod status;
mod status_ui;
mod tiers;
