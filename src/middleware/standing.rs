//! How the limits of whoever sent a request stand: what a status endpoint tells. Nothing is charged.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::decide::{Charges, Line};
use super::layer::RateLimitLayer;
use super::refusal::{Cause, refuse};
use super::shared::Shared;
use super::soon::Soon;
use crate::algorithm::{Ask, Micros};
use crate::backend::Error;
use crate::limiter::{CallContext, Snapshot};
use crate::policy::Signals;

impl RateLimitLayer {
    /// How the limits of whoever sent the request with these parts stand, under every policy of every rule, whatever
    /// route it is for (no limits of a caller who is not limited), and the time by the clock that they go by. The
    /// layer's own refusal, if it cannot tell.
    pub(crate) async fn standing(&self, parts: &Parts) -> Result<(Vec<Snapshot>, Micros), Response<Bytes>> {
        self.shared.standing(parts).await.map_err(|cause| refuse(&cause, parts, Some(&self.shared)))
    }

    /// Whether there is just one policy, so that there is one limit or none.
    pub(crate) fn has_one_policy(&self) -> bool {
        self.shared.policies().count() == 1
    }
}

impl Shared {
    async fn standing(self: &Arc<Self>, parts: &Parts) -> Result<(Vec<Snapshot>, Micros), Cause> {
        let mut charges = Charges::default();
        if !self.skip.iter().any(|skip| skip(parts)) {
            charges = self.charges(parts, Soon::Now(0), |_| Some((0, None))).known().await;
        }
        let enforced = self.is_enforced(&charges.lines);
        let limits = match charges.refused {
            Some(error) if enforced => return Err(Cause::NoKey(error)),
            None if enforced && !charges.lines.is_empty() => {
                self.snapshots(parts, &charges.lines).await.map_err(Cause::Unavailable)?
            }
            // Who is not held to a limit is told of none: a page that disabled a button for it would enforce it.
            _ => Vec::new(),
        };
        let now = match limits.first() {
            Some(limit) => limit.now(),
            None => self.limiter.now().await.map_err(Cause::Unavailable)?,
        };
        Ok((limits, now))
    }

    /// Of every policy of every rule that limits this caller.
    async fn snapshots(&self, parts: &Parts, callers: &[Line]) -> Result<Vec<Snapshot>, Error> {
        let signals = self.signals(parts);
        let mut lines = Vec::new();
        for line in callers {
            let policies = 0..self.rules[line.rule].policies.len();
            lines.extend(policies.map(|policy| Line { policy, subject: line.subject.clone(), ..*line }));
        }
        let limits = self.ask_for(&lines, &signals).await?;
        let is_chosen = |line: &Line| self.rules[line.rule].policies.len() > 1;
        if !limits.iter().any(|limit| limit.not_before().is_some()) || !lines.iter().any(is_chosen) {
            return Ok(limits);
        }
        // A key may be blocked under some policies only, and a request is under one of those that a rule chooses from: so
        // each by itself, with those that apply to every request.
        let mut limits = Vec::with_capacity(lines.len());
        for line in &lines {
            let others = lines.iter().filter(|other| !is_chosen(other) && other.rule != line.rule);
            limits.extend(self.ask_for(std::iter::once(line).chain(others), &signals).await?.into_iter().next());
        }
        Ok(limits)
    }

    async fn ask_for<'a>(
        &'a self,
        lines: impl IntoIterator<Item = &'a Line>,
        signals: &Signals,
    ) -> Result<Vec<Snapshot>, Error> {
        let asked = lines.into_iter().map(|line| (self.policy(line), &line.subject, Ask::cost(0)));
        let asked: Vec<_> = asked.collect();
        let around = CallContext::of(false, signals);
        let decided = self.limiter.decide(&asked, around);
        Ok(decided.await?.iter().map(Snapshot::of).collect())
    }
}
