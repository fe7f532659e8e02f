//! How the limits of whoever sent a request stand: what a status endpoint tells. Nothing is charged.

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::key::{Extraction, Found, KeyError};
use super::layer::RateLimitLayer;
use super::refusal::Cause;
use super::service::{Line, Lines};
use super::shared::Shared;
use crate::algorithm::{Ask, Micros};
use crate::backend::Error;
use crate::limiter::{Circumstances, Snapshot};
use crate::policy::Signals;

/// The limits of a caller, and the time by the clock that they go by.
pub(crate) struct Standing {
    /// None of a caller who is not limited.
    pub(crate) limits: Vec<Snapshot>,
    pub(crate) now: Micros,
}

impl RateLimitLayer {
    /// How the limits of whoever sent the request with these parts stand, under every policy of every rule, whatever
    /// route it is for. The layer's own refusal, if it cannot tell.
    pub(crate) async fn standing(&self, parts: &Parts) -> Result<Standing, Response<Bytes>> {
        self.shared.standing(parts).await.map_err(|cause| self.shared.refuse(&cause, parts))
    }

    /// Whether there is just one policy, so that there is one limit or none.
    pub(crate) fn has_one_policy(&self) -> bool {
        matches!(&self.shared.rules[..], [rule] if rule.policies.len() == 1)
    }
}

impl Shared {
    async fn standing(&self, parts: &Parts) -> Result<Standing, Cause> {
        let lines = match self.lines(parts).await {
            Ok(lines) => lines,
            Err(error) => return Err(Cause::NoKey(error)),
        };
        // Who is not held to a limit is told of none: a page that disabled a button for it would enforce it.
        let limits = if lines.is_empty() || !self.is_enforced(&lines) {
            Vec::new()
        } else {
            self.snapshots(parts, &lines).await.map_err(Cause::Unavailable)?
        };
        let now = match limits.first() {
            Some(limit) => limit.now(),
            None => self.limiter.now().await.map_err(Cause::Unavailable)?,
        };
        Ok(Standing { limits, now })
    }

    /// Every policy of every rule that limits this caller.
    async fn lines(&self, parts: &Parts) -> Result<Lines, KeyError> {
        let mut lines = Lines::new();
        if self.skip.iter().any(|skip| skip(parts)) {
            return Ok(lines);
        }
        for (number, rule) in self.rules.iter().enumerate() {
            let found = match rule.key.extract(parts) {
                Extraction::Now(found) => found,
                Extraction::Later(found) => found.await,
            };
            match found {
                Found::Subject(subject) => {
                    let line = |policy| Line { rule: number, policy, subject: subject.clone(), cost: 0 };
                    lines.extend((0..rule.policies.len()).map(line));
                }
                Found::Skip => {}
                Found::Refuse(error) if self.is_enforced(&lines) => return Err(error),
                // As with requests: where limits are not enforced, that refuses nobody either.
                Found::Refuse(_) => return Ok(Lines::new()),
            }
        }
        Ok(lines)
    }

    async fn snapshots(&self, parts: &Parts, lines: &Lines) -> Result<Vec<Snapshot>, Error> {
        let signals = self.signals(parts);
        let limits = self.ask_for(lines.iter(), &signals).await?;
        let is_chosen = |line: &Line| self.rules[line.rule].policies.len() > 1;
        if !limits.iter().any(|limit| limit.not_before().is_some()) || !lines.iter().any(is_chosen) {
            return Ok(limits);
        }
        // A key may be blocked under some policies only, and a request is under one of those that a rule chooses from: so
        // each by itself, with those that apply to every request.
        let mut limits = Vec::with_capacity(lines.len());
        for line in lines {
            let others = lines.iter().filter(|other| !is_chosen(other) && other.rule != line.rule);
            limits.extend(self.ask_for(std::iter::once(line).chain(others), &signals).await?.into_iter().next());
        }
        Ok(limits)
    }

    async fn ask_for<'a>(
        &'a self,
        lines: impl Iterator<Item = &'a Line>,
        signals: &Signals,
    ) -> Result<Vec<Snapshot>, Error> {
        let asked = lines.map(|line| (&self.prepared(line).policy, &line.subject, Ask::cost(line.cost)));
        let asked: Vec<_> = asked.collect();
        let decided = self.limiter.decide(&asked, Circumstances { take: false, enforced: true, waits: true, signals });
        Ok(decided.await?.iter().map(Snapshot::of).collect())
    }
}
