//! Decides calls when the backend fails.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::SystemTime;

use smallvec::SmallVec;

use crate::algorithm::{Ask, Micros, State, Steps, step};
use crate::backend::{Adjustment, Backend, Error, ErrorKind, MemoryBackend, RowId, Take};
use crate::policy::{DecidedBy, Decision, Decisions};

/// What a limiter does when its backend cannot decide, for example because the backend is down or too slow.
///
#[cfg_attr(feature = "redis", doc = "```no_run")]
#[cfg_attr(not(feature = "redis"), doc = "```ignore")]
/// # use tollgate::{backend::RedisBackend, FailureMode, Policy, Quota, RateLimiter, SECOND};
/// static SEARCH: Policy = Policy::new("search", Quota::token_bucket(10, SECOND));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let limiter = RateLimiter::builder(RedisBackend::connect("redis://127.0.0.1").await?)
///     .on_failure(FailureMode::fallback(0.25)) // each of four processes allows a quarter of the quota
///     .on_failure_of(&SEARCH, FailureMode::Allow)
///     .build();
/// # Ok(()) }
/// ```
///
/// During a failure, a call that charges several policies fails if any of them uses `Deny`. A call that the
/// backend does not support ([`ErrorKind::Unsupported`]) fails in every mode. [`Decision::decided_by`] shows whether
/// the backend or the failure mode decided. A recovered backend does not know about charges made during the failure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum FailureMode {
    /// The call fails with the backend's error; the layer responds with 503 and `Retry-After`.
    #[default]
    Deny,
    /// The charge is granted without checking any quota.
    Allow,
    /// A limiter in this process decides, using a share of each quota. Created by [`fallback`](FailureMode::fallback).
    #[non_exhaustive]
    Fallback {
        /// The share, which is more than 0 and at most 1.
        share: f64,
    },
}

impl FailureMode {
    /// Lets a limiter in this process decide. Each quota's rate, capacity and maximum reservation are multiplied by
    /// `share` and rounded down, but not below one token. If `n` processes each use a share of 1/n, together they
    /// allow about the whole quota. Tokens spent during one outage still count in the next, unless they have been
    /// refilled by then.
    ///
    /// # Panics
    /// Panics unless `share` is above 0 and at most 1.
    #[track_caller]
    pub fn fallback(share: f64) -> FailureMode {
        assert!(share > 0.0 && share <= 1.0, "tollgate: expected a fallback share above 0 and up to 1, found {share}");
        FailureMode::Fallback { share }
    }
}

#[derive(Debug, Default)]
pub(super) struct Failure {
    pub(super) default: FailureMode,
    pub(super) of: HashMap<String, FailureMode>,
    pub(super) fallback: OnceLock<Box<dyn Backend>>,
}

impl Failure {
    pub(super) fn decide(&self, takes: &[Take<'_>], take: bool, error: Error) -> Result<Decisions, Error> {
        let modes: SmallVec<[FailureMode; 4]> = takes.iter().map(|take| self.mode(take)).collect();
        // Failure modes are for temporary failures. A call that the backend does not support fails every time.
        if modes.contains(&FailureMode::Deny) || error.kind() == ErrorKind::Unsupported {
            return Err(error);
        }
        let mut scaled: SmallVec<[Take<'_>; 4]> = SmallVec::new();
        for (asked, mode) in takes.iter().zip(&modes) {
            if let FailureMode::Fallback { share } = mode {
                scaled.push(Take { quota: asked.quota.scaled(*share), ..*asked });
            }
        }
        let mut steps = Steps::default();
        if !scaled.is_empty() {
            let backend = self.backend();
            let answer = if take { backend.acquire(&scaled) } else { backend.peek(&scaled) };
            steps = match answer.try_ready() {
                Ok(Ok(steps)) if steps.len() == scaled.len() => steps,
                Ok(Err(fallback_error)) => return Err(fallback_error),
                _ => return Err(error),
            };
        }
        let all_granted = steps.all_granted();
        let mut local = scaled.iter().zip(steps.iter());
        let decisions = takes.iter().zip(&modes).map(|(asked, mode)| {
            let scaled = if let FailureMode::Fallback { .. } = mode { local.next() } else { None };
            match scaled {
                Some((scaled, step)) => scaled.decision(step, all_granted).by(DecidedBy::Fallback),
                None => fail_open(asked, all_granted),
            }
        });
        Ok(decisions.collect())
    }

    pub(super) fn settle(&self, settlements: &[Adjustment<'_>]) -> bool {
        matches!(self.backend().settle(settlements).try_ready(), Ok(Ok(true)))
    }

    pub(super) fn reset(&self, rows: &[RowId<'_>]) -> bool {
        let found = self.fallback.get().map(|backend| backend.reset(rows).try_ready());
        matches!(found, Some(Ok(Ok(1..))))
    }

    fn mode(&self, take: &Take<'_>) -> FailureMode {
        if !take.part.enforced {
            return FailureMode::Allow;
        }
        self.of.get(take.row.policy.as_str()).copied().unwrap_or(self.default)
    }

    fn backend(&self) -> &dyn Backend {
        &**self.fallback.get_or_init(|| Box::new(MemoryBackend::new()))
    }
}

fn fail_open(take: &Take<'_>, all_granted: bool) -> Decision {
    let now = Micros::from(SystemTime::now());
    let step = step(&take.quota, &State::default(), now, Ask::cost(0));
    take.decision(&step, all_granted).by(DecidedBy::FailOpen)
}
