//! Tests of the status endpoints: what they report, who can read them, and that reading them spends nothing.

mod access;
mod app;
mod blocked;
mod errors;
mod http;
mod matches_layer;
mod numbers;
mod projection;
mod reading;
