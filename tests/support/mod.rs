//! Helpers that are shared by several test targets. No target uses all of them.

#![allow(dead_code)]

pub(crate) mod admitted;
pub(crate) mod answer;
pub(crate) mod backends;
pub(crate) mod client;
#[cfg(feature = "redis")]
pub(crate) mod cluster_server;
pub(crate) mod connections;
#[cfg(feature = "metrics")]
pub(crate) mod exporter;
pub(crate) mod generators;
pub(crate) mod model;
pub(crate) mod ports;
pub(crate) mod random;
#[cfg(feature = "redis")]
pub(crate) mod server;
pub(crate) mod shards;
pub(crate) mod test_backend;
pub(crate) mod windows;

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Returns the result of a memory-backend future. Such futures are ready on the first poll.
pub(crate) fn now<T, E: std::fmt::Debug>(future: impl IntoFuture<Output = Result<T, E>>) -> T {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer.expect("the memory backend failed"),
        Poll::Pending => panic!("the memory backend's future is not ready"),
    }
}
