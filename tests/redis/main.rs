//! The Redis backend on a real redis-server, started by each test on a port of its own.

mod conformance;
mod crowds;
mod errors;
mod expiry;
mod failure_modes;
mod faults;
mod hostile;
mod keys;
mod least_privilege;
mod outage;
mod proxy;
mod retries;
mod server;
#[cfg(feature = "redis-tls")]
mod tls;
