//! Decisions on their way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;

use super::RateLimiter;
use super::decide::Call;
use crate::algorithm::Steps;
use crate::backend::{BackendFuture, Error, OwnedTake, Take};
use crate::policy::{Decision, Decisions};

/// The answer to one charge. In memory it is there at once.
///
/// The charge is made when the call is, not when this is awaited; dropping it takes nothing back.
///
/// ```
/// # use tollgate::{DecisionFuture, Policy, Quota, RateLimiter, MINUTE};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// # static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
/// # let limiter = RateLimiter::default();
/// let answer: DecisionFuture = limiter.limit(&API, "ada");
/// drop(answer); // charged all the same
/// assert_eq!(limiter.limit(&API, "ada").await?.remaining(), 8);
/// # Ok(())
/// # }
/// ```
///
/// Polled again after it has answered, it panics, as futures may.
#[derive(Debug)]
#[must_use = "the answer says whether to go on"]
pub struct DecisionFuture(pub(super) DecisionsFuture);

/// The answers to several charges. In memory they are there at once.
///
/// The charges are made when the call is, not when this is awaited; dropping it takes nothing back.
///
/// ```
/// # use tollgate::{Charge, DecisionsFuture, Policy, Quota, RateLimiter, MINUTE};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// # static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
/// # let limiter = RateLimiter::default();
/// let answer: DecisionsFuture = limiter.limit_all([Charge::new(&API, "ada"), Charge::new(&API, "eve")]);
/// assert_eq!(answer.await?.iter().count(), 2);
/// # Ok(())
/// # }
/// ```
///
/// Polled again after it has answered, it panics, as futures may.
#[derive(Debug)]
#[must_use = "the answer says whether to go on"]
pub struct DecisionsFuture(State);

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // The large one is the usual one, and a box would be an allocation.
enum State {
    /// `None` once it was taken.
    Ready(Option<Result<Decisions, Error>>),
    Pending(Box<Pending>),
}

/// A call that waits for a remote backend.
#[derive(Debug)]
struct Pending {
    limiter: RateLimiter,
    takes: SmallVec<[OwnedTake; 1]>,
    /// `None` once the steps after the backend have run.
    call: Option<Call>,
    steps: BackendFuture<Steps>,
}

impl DecisionFuture {
    /// The answer, if it is there already.
    pub(super) fn try_ready(self) -> Option<Result<Decision, Error>> {
        self.0.try_ready().ok().map(the_only)
    }
}

impl Future for DecisionFuture {
    type Output = Result<Decision, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(the_only)
    }
}

#[inline]
fn the_only(answer: Result<Decisions, Error>) -> Result<Decision, Error> {
    match answer?.into_only() {
        Some(decision) => Ok(decision),
        None => unreachable!("one charge, one decision"),
    }
}

impl DecisionsFuture {
    #[inline]
    pub(super) fn ready(answer: Result<Decisions, Error>) -> DecisionsFuture {
        DecisionsFuture(State::Ready(Some(answer)))
    }

    /// For callers that cannot await: the remote backend was not asked.
    pub(super) fn unanswered() -> DecisionsFuture {
        DecisionsFuture(State::Ready(None))
    }

    pub(super) fn pending(
        limiter: &RateLimiter,
        call: Call,
        takes: &[Take<'_>],
        steps: BackendFuture<Steps>,
    ) -> DecisionsFuture {
        let takes = takes.iter().map(OwnedTake::of).collect();
        DecisionsFuture(State::Pending(Box::new(Pending { limiter: limiter.clone(), takes, call: Some(call), steps })))
    }

    /// The answer if it is there already, else the future to wait for.
    #[inline]
    #[allow(clippy::result_large_err)] // It is moved once, and a box would be an allocation.
    pub(crate) fn try_ready(self) -> Result<Result<Decisions, Error>, DecisionsFuture> {
        match self.0 {
            State::Ready(Some(answer)) => Ok(answer),
            other => Err(DecisionsFuture(other)),
        }
    }
}

impl Future for DecisionsFuture {
    type Output = Result<Decisions, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.0 {
            State::Ready(answer) => answer.take(),
            State::Pending(pending) => {
                let Pending { limiter, takes, call, steps } = &mut **pending;
                let steps = ready!(Pin::new(steps).poll(context));
                let takes: SmallVec<[Take<'_>; 4]> = takes.iter().map(OwnedTake::take).collect();
                call.take().map(|call| limiter.conclude(&call, &takes, steps))
            }
        };
        match answer {
            Some(answer) => Poll::Ready(answer),
            None => panic!("a DecisionsFuture was polled after it had answered"),
        }
    }
}
