//! What several tests need.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The answer of a limiter in memory, which is there at the first poll.
pub(crate) fn now<T, E: std::fmt::Debug>(future: impl IntoFuture<Output = Result<T, E>>) -> T {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer.expect("a backend in memory always decides"),
        Poll::Pending => panic!("a backend in memory never waits"),
    }
}
