//! Helpers that are shared by several tests.

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
