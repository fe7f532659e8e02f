//! Tests of the Redis backend. Most tests start a real server: the installed `redis-server`, or the Redis or Valkey
//! server that `TOLLGATE_REDIS_SERVER` names. `make servers` runs all tests on three different servers.

mod across_processes;
#[cfg(feature = "admin")]
mod admin;
mod cluster;
mod cluster_server;
mod coalescing;
mod concurrency;
mod conformance;
mod connecting;
mod dropped;
mod errors;
mod expiry;
mod failover;
mod failure_modes;
mod faults;
mod foreign;
mod histories;
mod hostile;
mod keys;
mod leased;
mod leased_cluster;
mod leased_processes;
mod leases;
mod least_privilege;
mod messages;
mod notices;
#[path = "../support/random.rs"]
mod numbers;
mod outage;
mod pauses;
mod ports;
mod processes;
mod proxy;
// The Redis tests do not use all of the generators in this module.
#[allow(dead_code)]
#[path = "../model/random.rs"]
mod random;
mod regressions;
mod resets;
mod retries;
mod roundings;
mod rows;
mod run_time;
mod sentinel;
mod server;
mod set_clock;
#[cfg(feature = "axum")]
mod status;
#[cfg(feature = "redis-tls")]
mod tls;
