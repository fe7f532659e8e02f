//! The Redis backend on a real redis-server, started by each test on a port of its own.

mod conformance;
mod errors;
mod faults;
mod hostile;
mod outage;
mod proxy;
mod retries;
mod server;
