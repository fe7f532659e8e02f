//! A call on its way through the gates: what the later ones have to know of it.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::block_cache::Permit;
use super::future::{Line, decisions};
use super::guard::{Barred, Known};
use super::notices::News;
use super::observer::{Blocked, Failed, Observed};
use super::{Circumstances, Inner, RateLimiter};
use crate::algorithm::Ask;
use crate::backend::{Error, Steps, Take};
use crate::policy::{DecidedBy, Decision, Decisions, Key, Policy, Signals, Subject};

/// What is asked.
pub(super) type Lines<'a> = SmallVec<[(&'a Policy, &'a Subject, Ask); 2]>;

/// What is known of a call besides its charges.
pub(super) struct Call {
    pub(super) take: bool,
    enforced: bool,
    /// For observers.
    began: Option<Instant>,
    /// By what the caller may be blocked, besides the keys.
    known: Known,
    /// The keys, one for each charge, where their denials may count.
    keys: SmallVec<[Option<Key>; 1]>,
    /// To learn what the backend says.
    pub(super) permit: Option<Permit>,
}

impl Call {
    pub(super) fn new(limiter: &RateLimiter, lines: &Lines<'_>, around: Circumstances<'_>) -> Call {
        let Inner { guard, hash, backend, observers, .. } = &*limiter.inner;
        let keys = lines.iter().filter(|_| guard.counts()).map(|(_, subject, _)| subject.key().cloned());
        Call {
            take: around.take,
            enforced: around.enforced,
            began: (backend.is_remote() && !observers.is_empty()).then(Instant::now),
            known: guard.known(around.signals, hash),
            keys: keys.collect(),
            permit: None,
        }
    }
}

impl RateLimiter {
    /// 2. Who is kept out whatever the quotas say.
    pub(super) fn barred(
        &self,
        lines: &Lines<'_>,
        takes: &[Take<'_>],
        signals: &Signals,
        call: &Call,
    ) -> Option<Decisions> {
        let Inner { guard, time, .. } = &*self.inner;
        if !guard.is_needed() {
            return None;
        }
        let now = time.now();
        let keys =
            lines.iter().zip(takes).map(|((policy, subject, _), take)| (policy.name(), subject.key(), take.row.key));
        let Barred { rule, until } = guard.bars(keys, signals, &call.known, now)?;
        let calendar = time.calendar();
        let retry = until.map(|until| until.since(now));
        let barred = takes.iter().map(|Take { row, quota, ask }| {
            Decision::barred(row.policy.clone(), row.key, *quota, ask.tokens(), Arc::clone(&rule), calendar, retry)
        });
        Some(barred.collect())
    }

    /// 4. What the backend said before tells that it would deny.
    pub(super) fn remembered(&self, call: &Call, takes: &[Take<'_>], steps: &Steps) -> Result<Decisions, Error> {
        let lines: SmallVec<[Line; 1]> = takes.iter().map(Line::of).collect();
        let denied = decisions(&lines, steps)?;
        let denied = denied.into_iter().map(|decision| decision.by(DecidedBy::BlockCache)).collect();
        self.protected(call, &denied);
        Ok(denied)
    }

    /// What comes after the backend.
    pub(super) fn conclude(
        &self,
        mut call: Call,
        lines: &[Line],
        answer: Result<Steps, Error>,
    ) -> Result<Decisions, Error> {
        // An answer that is none is a failure like any other.
        let decided = answer.and_then(|steps| Ok((decisions(lines, &steps)?, steps)));
        let error = match decided {
            Ok((decided, steps)) => {
                if let (Some(cache), Some(permit)) = (&self.inner.block_cache, call.permit.take()) {
                    let answers = lines.iter().zip(steps.iter()).map(|(line, step)| (line.row(), &line.quota, step));
                    cache.learn(answers, call.take, &permit, self.inner.time.now());
                }
                self.protected(&call, &decided);
                return Ok(decided);
            }
            Err(error) => error,
        };
        if !self.inner.observers.is_empty() {
            let latency = call.began.map(|began| began.elapsed());
            for line in lines {
                let failed = Failed { policy: &line.policy, key: line.key, error: &error, latency };
                self.inner.observers.iter().for_each(|observer| observer.failed(&failed));
            }
        }
        // 6. The failure mode.
        let decided = self.failed(lines, call.take, error)?;
        self.protected(&call, &decided);
        Ok(decided)
    }

    /// 7. Denials are counted, and who has too many is blocked. Then 8.
    pub(super) fn protected(&self, call: &Call, decided: &Decisions) {
        let Inner { guard, time, .. } = &*self.inner;
        if call.take && call.enforced && guard.counts() {
            if decided.is_allowed() {
                // What nobody saw says nothing of who asked, nor does a charge of nothing.
                let says = |decision: &&Decision| decision.decided_by() != DecidedBy::Nobody && decision.cost() > 0;
                let seen = decided.iter().filter(says);
                guard.allowed(seen.map(|decision| (decision.policy(), decision.row_key())), &call.known);
            } else {
                let now = time.now();
                let denied = decided.iter().zip(&call.keys).filter(|(decision, _)| decision.is_violated());
                let denied = denied.map(|(decision, key)| (decision.policy(), key.as_ref(), decision.row_key()));
                for earned in guard.denied(denied, &call.known, now) {
                    // In this process it holds whether the others learn of it or not.
                    self.inner.tell(&News::Block(earned.id, Some((earned.lasts, earned.times))));
                    let rule = earned.signal.to_rule();
                    let blocked = Blocked { rule: &rule, lasts: earned.lasts, times: earned.times };
                    self.inner.observers.iter().for_each(|observer| observer.blocked(&blocked));
                }
            }
        }
        self.observed(call, decided);
    }

    /// 8. Observers are told.
    pub(super) fn observed(&self, call: &Call, decided: &Decisions) {
        if !self.inner.observers.is_empty() {
            let latency = call.began.map(|began| began.elapsed());
            for decision in decided {
                let observed = Observed { decision, latency, check: !call.take, enforced: call.enforced };
                self.inner.observers.iter().for_each(|observer| observer.decided(&observed));
            }
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("take", &self.take).field("enforced", &self.enforced).finish_non_exhaustive()
    }
}
