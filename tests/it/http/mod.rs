//! Tests of the layer in axum, as clients see it. Most tests use a socket and a manual clock.

mod addresses;
mod callers;
mod counting;
mod handler_errors;
mod handlers;
mod headers;
mod keys;
mod quickstart;
mod random_limits;
mod refusals;
