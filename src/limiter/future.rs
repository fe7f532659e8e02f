//! Decisions on their way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use smallvec::SmallVec;

use crate::algorithm::{Quota, Step};
use crate::backend::{BackendFuture, Error, RowId, Steps, Take};
use crate::policy::{Decision, Decisions, Digest, PolicyName};

/// The answer to one charge. In memory it is there at once.
///
/// The charge is made when the call is, not when this is awaited; dropping it takes nothing back.
#[derive(Debug)]
#[must_use = "the answer says whether to go on"]
pub struct DecisionFuture(One);

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // The large one is the usual one, and a box would be an allocation.
enum One {
    /// `None` once it was taken.
    Ready(Option<Result<Decision, Error>>),
    Pending(Line, BackendFuture<Steps>),
}

/// The answers to several charges. In memory they are there at once.
///
/// The charges are made when the call is, not when this is awaited; dropping it takes nothing back.
#[derive(Debug)]
#[must_use = "the answer says whether to go on"]
pub struct DecisionsFuture {
    lines: SmallVec<[Line; 1]>,
    steps: BackendFuture<Steps>,
}

/// What was asked, for the answer to tell.
#[derive(Clone, Debug)]
struct Line {
    policy: PolicyName,
    key: Digest,
    quota: Quota,
    cost: u64,
}

impl Line {
    fn of(take: &Take<'_>) -> Line {
        Line { policy: take.row.policy.clone(), key: take.row.key, quota: take.quota, cost: take.ask.tokens() }
    }

    fn decision(&self, step: Step, all_granted: bool) -> Decision {
        Decision::new(self.policy.clone(), self.key, self.quota, self.cost, step, all_granted)
    }
}

impl DecisionFuture {
    pub(super) fn new(take: &Take<'_>, steps: BackendFuture<Steps>) -> DecisionFuture {
        DecisionFuture(match steps.try_ready() {
            Ok(answer) => {
                One::Ready(Some(answer.and_then(|steps| only(take.row, take.quota, take.ask.tokens(), &steps))))
            }
            Err(steps) => One::Pending(Line::of(take), steps),
        })
    }
}

impl Future for DecisionFuture {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            One::Ready(answer) => match answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => panic!("a DecisionFuture was polled after it had answered"),
            },
            One::Pending(line, steps) => {
                let row = RowId { policy: &line.policy, key: line.key };
                Pin::new(steps).poll(context).map(|steps| only(row, line.quota, line.cost, &steps?))
            }
        }
    }
}

impl DecisionsFuture {
    pub(super) fn new(takes: &[Take<'_>], steps: BackendFuture<Steps>) -> DecisionsFuture {
        DecisionsFuture { lines: takes.iter().map(Line::of).collect(), steps }
    }

    /// The answer if it is there already, else the future to wait for.
    #[allow(clippy::result_large_err)] // It is moved once, and a box would be an allocation.
    pub(crate) fn try_ready(self) -> Result<Result<Decisions, Error>, DecisionsFuture> {
        match self.steps.try_ready() {
            Ok(steps) => Ok(steps.and_then(|steps| decisions(&self.lines, &steps))),
            Err(steps) => Err(DecisionsFuture { lines: self.lines, steps }),
        }
    }
}

impl Future for DecisionsFuture {
    type Output = Result<Decisions, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.steps).poll(context).map(|steps| decisions(&self.lines, &steps?))
    }
}

#[inline]
fn only(row: RowId<'_>, quota: Quota, cost: u64, steps: &Steps) -> Result<Decision, Error> {
    let step = steps.first().ok_or_else(too_few)?;
    Ok(Decision::new(row.policy.clone(), row.key, quota, cost, *step, step.is_allowed()))
}

fn decisions(lines: &[Line], steps: &Steps) -> Result<Decisions, Error> {
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
