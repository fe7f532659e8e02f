//! The Redis backend on a real redis-server, started by each test on a port of its own.

mod cluster;
mod cluster_server;
mod coalescing;
mod conformance;
mod connecting;
mod crowds;
mod errors;
mod expiry;
mod failover;
mod failure_modes;
mod faults;
mod foreign;
mod histories;
mod hostile;
mod keys;
mod least_privilege;
mod notices;
mod outage;
mod ports;
mod processes;
mod proxy;
// The generators of the properties of the algebra, which use more of them.
#[allow(dead_code)]
#[path = "../model/random.rs"]
mod random;
mod regressions;
mod retries;
mod roundings;
mod rows;
mod server;
mod set_clock;
#[cfg(feature = "axum")]
mod status;
#[cfg(feature = "redis-tls")]
mod tls;
