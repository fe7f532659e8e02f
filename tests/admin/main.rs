//! Tests of the admin router over sockets: access control, responses, changes by operators, and audit events.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests and their helpers fail by panicking.

mod access;
mod changes;
mod client;
#[allow(dead_code)] // This file is shared with `tests/sockets`, and not all of it is used here.
#[path = "../sockets/connections.rs"]
mod connections;
mod docs;
mod reading;
