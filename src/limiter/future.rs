//! Decisions on their way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use smallvec::SmallVec;

use super::RateLimiter;
use super::call::Call;
use crate::algorithm::{Ask, Quota, Step};
use crate::backend::{BackendFuture, Error, RowId, Steps, Take};
use crate::policy::{Decision, Decisions, Digest, PolicyName};

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
pub struct DecisionFuture(One);

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // The large one is the usual one, and a box would be an allocation.
enum One {
    /// `None` once it was taken.
    Ready(Option<Result<Decision, Error>>),
    Pending(Box<Pending>),
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // In a box already.
enum Pending {
    Plain {
        line: Line,
        steps: BackendFuture<Steps>,
        limiter: RateLimiter,
        take: bool,
    },
    /// Gate by gate.
    Gated(DecisionsFuture),
}

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
pub struct DecisionsFuture(Several);

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // As above.
enum Several {
    /// `None` once it was taken.
    Ready(Option<Result<Decisions, Error>>),
    Pending {
        lines: SmallVec<[Line; 1]>,
        steps: BackendFuture<Steps>,
        limiter: RateLimiter,
        take: bool,
        /// `None` if nothing comes after the backend but the failure mode.
        call: Option<Box<Call>>,
    },
}

/// What was asked, for the answer to tell.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) policy: PolicyName,
    pub(super) key: Digest,
    pub(super) quota: Quota,
    pub(super) ask: Ask,
}

impl Line {
    pub(super) fn of(take: &Take<'_>) -> Line {
        Line { policy: take.row.policy.clone(), key: take.row.key, quota: take.quota, ask: take.ask }
    }

    pub(super) fn row(&self) -> RowId<'_> {
        RowId { policy: &self.policy, key: self.key }
    }

    fn decision(&self, step: Step, all_granted: bool) -> Decision {
        Decision::new(self.policy.clone(), self.key, self.quota, self.ask.tokens(), step, all_granted)
    }
}

impl DecisionFuture {
    pub(super) fn new(
        limiter: &RateLimiter,
        take: &Take<'_>,
        store: bool,
        steps: BackendFuture<Steps>,
    ) -> DecisionFuture {
        DecisionFuture(match steps.try_ready() {
            Ok(Ok(steps)) => One::Ready(Some(only(take.row, take.quota, take.ask.tokens(), &steps))),
            Ok(Err(error)) => One::Ready(Some(limiter.failed_one(&Line::of(take), store, error))),
            Err(steps) => {
                let limiter = limiter.clone();
                One::Pending(Box::new(Pending::Plain { line: Line::of(take), steps, limiter, take: store }))
            }
        })
    }

    #[inline]
    pub(super) fn ready(decision: Decision) -> DecisionFuture {
        DecisionFuture(One::Ready(Some(Ok(decision))))
    }

    /// The answer, if it is there already.
    pub(super) fn try_ready(self) -> Option<Result<Decision, Error>> {
        match self.0 {
            One::Ready(answer) => answer,
            One::Pending(_) => None,
        }
    }

    /// An answer to one charge that is there already.
    pub(super) fn of_one(answer: Result<Decisions, Error>) -> DecisionFuture {
        DecisionFuture(One::Ready(Some(the_only(answer))))
    }

    /// The answer of a call with one charge.
    pub(super) fn of(decisions: DecisionsFuture) -> DecisionFuture {
        DecisionFuture(match decisions.try_ready() {
            Ok(answer) => One::Ready(Some(the_only(answer))),
            Err(decisions) => One::Pending(Box::new(Pending::Gated(decisions))),
        })
    }
}

impl Future for DecisionFuture {
    type Output = Result<Decision, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            One::Ready(answer) => match answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => panic!("a DecisionFuture was polled after it had answered"),
            },
            One::Pending(pending) => match &mut **pending {
                Pending::Plain { line, steps, limiter, take } => {
                    Pin::new(steps).poll(context).map(|answer| match answer {
                        Ok(steps) => only(line.row(), line.quota, line.ask.tokens(), &steps),
                        Err(error) => limiter.failed_one(line, *take, error),
                    })
                }
                Pending::Gated(decisions) => Pin::new(decisions).poll(context).map(the_only),
            },
        }
    }
}

fn the_only(answer: Result<Decisions, Error>) -> Result<Decision, Error> {
    answer?.into_only().ok_or_else(too_few)
}

impl DecisionsFuture {
    pub(super) fn new(
        limiter: &RateLimiter,
        takes: &[Take<'_>],
        store: bool,
        call: Option<Call>,
        steps: BackendFuture<Steps>,
    ) -> DecisionsFuture {
        let lines: SmallVec<[Line; 1]> = takes.iter().map(Line::of).collect();
        DecisionsFuture(match steps.try_ready() {
            Ok(answer) => Several::Ready(Some(several(limiter, &lines, store, call, answer))),
            Err(steps) => {
                Several::Pending { lines, steps, limiter: limiter.clone(), take: store, call: call.map(Box::new) }
            }
        })
    }

    pub(super) fn ready(answer: Result<Decisions, Error>) -> DecisionsFuture {
        DecisionsFuture(Several::Ready(Some(answer)))
    }

    /// The answer if it is there already, else the future to wait for.
    #[allow(clippy::result_large_err)] // It is moved once, and a box would be an allocation.
    pub(crate) fn try_ready(self) -> Result<Result<Decisions, Error>, DecisionsFuture> {
        match self.0 {
            Several::Ready(Some(answer)) => Ok(answer),
            other => Err(DecisionsFuture(other)),
        }
    }
}

impl Future for DecisionsFuture {
    type Output = Result<Decisions, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Several::Ready(answer) => match answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => panic!("a DecisionsFuture was polled after it had answered"),
            },
            Several::Pending { lines, steps, limiter, take, call } => Pin::new(steps)
                .poll(context)
                .map(|answer| several(limiter, lines, *take, call.take().map(|call| *call), answer)),
        }
    }
}

/// What comes after the backend.
fn several(
    limiter: &RateLimiter,
    lines: &[Line],
    take: bool,
    call: Option<Call>,
    answer: Result<Steps, Error>,
) -> Result<Decisions, Error> {
    if let Some(call) = call {
        return limiter.conclude(call, lines, answer);
    }
    answer.and_then(|steps| decisions(lines, &steps)).or_else(|error| limiter.failed(lines, take, error))
}

#[inline]
fn only(row: RowId<'_>, quota: Quota, cost: u64, steps: &Steps) -> Result<Decision, Error> {
    let step = steps.first().ok_or_else(too_few)?;
    Ok(Decision::new(row.policy.clone(), row.key, quota, cost, *step, step.is_allowed()))
}

pub(super) fn decisions(lines: &[Line], steps: &Steps) -> Result<Decisions, Error> {
    if lines.len() != steps.len() {
        return Err(too_few());
    }
    let all_granted = steps.all_granted();
    Ok(lines.iter().zip(steps.iter()).map(|(line, step)| line.decision(*step, all_granted)).collect())
}

#[cold]
fn too_few() -> Error {
    Error::new(
        crate::backend::ErrorKind::Protocol,
        "it answered another number of steps than it was asked for; this is a bug in the backend",
    )
}
