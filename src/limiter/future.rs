//! The future that resolves to a decision.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;

use super::decide::CallState;
use super::{LimitError, RateLimiter};
use crate::algorithm::Steps;
use crate::backend::{BackendFuture, Error, OwnedTake, Take};
use crate::policy::{Allowed, Decision, Decisions};

/// The future returned by a call to a limiter. With a memory backend, it is ready immediately.
///
/// Charges are made when the limiter's method is called, not when the future is awaited. Dropping the future does not
/// refund the charge, unless the future already contains a [`Reservation`](super::Reservation) that refunds it.
///
/// ```
/// # use tollgate::{limiter::DecisionFuture, LimitError, Policy, Quota, RateLimiter, MINUTE};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LimitError> {
/// # static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
/// # let limiter = RateLimiter::default();
/// let answer: DecisionFuture = limiter.limit(&API, "ada");
/// drop(answer); // the token stays spent
/// assert_eq!(limiter.limit(&API, "ada").await?.remaining(), 8);
/// # Ok(()) }
/// ```
///
/// # Panics
/// Panics if the future is polled after it has completed.
#[must_use = "await the future to learn whether the call is allowed"]
pub struct DecisionFuture<T = Result<Allowed, LimitError>>(State<T>);

pub(super) type Answer = Result<Decisions, Error>;

pub(super) type Finish<T> = fn(&RateLimiter, Answer) -> T;

#[allow(clippy::large_enum_variant)] // `Ready` is the common case, and boxing it would allocate.
enum State<T> {
    /// `None` after the output has been returned.
    Ready(Option<T>),
    Pending(Box<Pending>, Finish<T>),
}

struct Pending {
    limiter: RateLimiter,
    takes: SmallVec<[OwnedTake; 1]>,
    /// `None` after the backend's answer has been processed.
    call: Option<CallState>,
    steps: BackendFuture<Steps>,
}

#[inline]
pub(super) fn only(_: &RateLimiter, answer: Answer) -> Result<Decision, Error> {
    Ok(answer?.into_binding().unwrap_or_else(no_decision))
}

#[inline]
pub(super) fn only_allowed(_: &RateLimiter, answer: Answer) -> Result<Allowed, LimitError> {
    Ok(answer?.into_result()?.into_binding().unwrap_or_else(no_decision))
}

#[cold]
fn no_decision<T>() -> T {
    unreachable!("every charge has a decision")
}

pub(super) fn all_allowed(_: &RateLimiter, answer: Answer) -> Result<Allowed<Decisions>, LimitError> {
    Ok(answer?.into_result()?)
}

impl<T> DecisionFuture<T> {
    #[inline]
    pub(super) fn ready(answer: T) -> DecisionFuture<T> {
        DecisionFuture(State::Ready(Some(answer)))
    }
}

impl DecisionFuture<Answer> {
    pub(super) fn pending(
        limiter: &RateLimiter,
        call: CallState,
        takes: &[Take<'_>],
        steps: BackendFuture<Steps>,
    ) -> DecisionFuture<Answer> {
        let takes = takes.iter().map(OwnedTake::of).collect();
        let pending = Pending { limiter: limiter.clone(), takes, call: Some(call), steps };
        DecisionFuture(State::Pending(Box::new(pending), |_, answer| answer))
    }

    /// Sets the function that converts the decisions into the output.
    #[inline]
    pub(super) fn finish<T>(self, limiter: &RateLimiter, finish: Finish<T>) -> DecisionFuture<T> {
        DecisionFuture(match self.0 {
            State::Ready(answer) => State::Ready(answer.map(|answer| finish(limiter, answer))),
            State::Pending(pending, _) => State::Pending(pending, finish),
        })
    }

    #[inline]
    #[allow(clippy::result_large_err)] // The result is moved once, and boxing it would allocate.
    pub(crate) fn try_ready(self) -> Result<Answer, DecisionFuture<Answer>> {
        match self.0 {
            State::Ready(Some(answer)) => Ok(answer),
            state => Err(DecisionFuture(state)),
        }
    }
}

impl<T> Future for DecisionFuture<T> {
    type Output = T;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.0 {
            State::Ready(answer) => answer.take(),
            State::Pending(pending, finish) => loop {
                let Pending { limiter, takes, call, steps } = &mut **pending;
                let steps = ready!(Pin::new(steps).poll(context));
                let takes: SmallVec<[Take<'_>; 4]> = takes.iter().map(OwnedTake::take).collect();
                let Some(call) = call.take() else { break None };
                let answer = limiter.answered(call, &takes, steps);
                drop(takes);
                match answer.0 {
                    State::Ready(answer) => break answer.map(|answer| finish(&pending.limiter, answer)),
                    // The backend has been called again, for example to try another shard.
                    State::Pending(next, _) => *pending = next,
                }
            },
        };
        match answer {
            Some(answer) => Poll::Ready(answer),
            None => panic!("a DecisionFuture was polled after it had completed"),
        }
    }
}

impl<T> Unpin for DecisionFuture<T> {}

impl<T> fmt::Debug for DecisionFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_ready = matches!(self.0, State::Ready(_));
        f.debug_struct("DecisionFuture").field("is_ready", &is_ready).finish_non_exhaustive()
    }
}
