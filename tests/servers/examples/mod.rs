//! Runs the examples as separate processes, in real time and on real sockets. The tests quote the expected output from
//! each example's top comment.

mod admin;
mod anonymous_sessions;
mod behind_proxy;
mod config_file;
mod custom_response;
mod customer_limits;
mod grpc;
mod job_scheduling;
mod llm_tokens;
mod login_protection;
mod observability;
mod outgoing;
mod plots;
mod redis;
mod routes;
mod running;
#[cfg(unix)] // The test sends a signal.
mod save_and_load;
mod service;
mod shadow;
mod status;
mod status_ui;
mod tiers;
