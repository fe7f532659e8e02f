//! Tests of the admin router over sockets: access control, responses, changes by operators, and audit events.

mod access;
mod changes;
mod client;
mod docs;
mod reading;
