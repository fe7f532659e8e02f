//! The status report, which contains a client's limits for a status endpoint. Creating a report charges nothing.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::decide::{RequestCharges, RuleCharge};
use super::layer::RateLimitLayer;
use super::maybe_ready::MaybeReady;
use super::options::LayerOptions;
use super::refusal::{Cause, refuse};
use crate::algorithm::{Ask, Micros};
use crate::backend::Error;
use crate::limiter::{CallContext, Snapshot};
use crate::policy::Signals;

impl RateLimitLayer {
    /// Returns the limits that every policy of every rule applies to the sender of the request, whatever its route, and
    /// the limiter's current time. The error is the layer's refusal.
    pub(crate) async fn status_report(&self, parts: &Parts) -> Result<(Vec<Snapshot>, Micros), Response<Bytes>> {
        self.options.status_report(parts).await.map_err(|cause| refuse(&cause, parts, Some(&self.options)))
    }

    pub(crate) fn has_one_policy(&self) -> bool {
        self.options.policies().count() == 1
    }
}

impl LayerOptions {
    async fn status_report(self: &Arc<Self>, parts: &Parts) -> Result<(Vec<Snapshot>, Micros), Cause> {
        let mut found = RequestCharges::default();
        if !self.skip.iter().any(|skip| skip(parts)) {
            found = self.charges(parts, MaybeReady::Ready(0), |_| Some((0, None))).resolve().await;
        }
        let RequestCharges { charges, key_error, .. } = found;
        let enforced = self.layer_enforces(&charges);
        let limits = match key_error {
            Some(error) if enforced => return Err(Cause::NoKey(error)),
            None if enforced && !charges.is_empty() => {
                let signals = self.signals(parts).map_err(Cause::NoKey)?;
                self.snapshots(&signals, &charges).await.map_err(Cause::Unavailable)?
            }
            // Limits in shadow mode are omitted, since a page that disables a button at the limit would enforce the
            // limit.
            _ => Vec::new(),
        };
        let now = match limits.first() {
            Some(limit) => limit.now(),
            None => self.limiter.now().await.map_err(Cause::Unavailable)?,
        };
        Ok((limits, now))
    }

    async fn snapshots(&self, signals: &Signals, charged: &[RuleCharge]) -> Result<Vec<Snapshot>, Error> {
        let mut charges = Vec::new();
        for charge in charged {
            let policies = 0..self.rules[charge.rule].policies.len();
            let of = |policy| RuleCharge { policy, subject: charge.subject.clone(), ..*charge };
            let is_enforced = |charge: &RuleCharge| self.limiter.enforces(self.policy(charge), &charge.subject);
            charges.extend(policies.map(of).filter(is_enforced));
        }
        let limits = self.peek(&charges, signals).await?;
        let is_chosen = |charge: &RuleCharge| self.rules[charge.rule].policies.len() > 1;
        if !limits.iter().any(|limit| limit.not_before().is_some()) || !charges.iter().any(is_chosen) {
            return Ok(limits);
        }
        // A key may be blocked under only some of the policies, and a request falls under only one of the policies that
        // a rule chooses from. Therefore, peek at each policy separately, together with the policies that apply to
        // every request.
        let mut limits = Vec::with_capacity(charges.len());
        for charge in &charges {
            let others = charges.iter().filter(|other| !is_chosen(other) && other.rule != charge.rule);
            limits.extend(self.peek(std::iter::once(charge).chain(others), signals).await?.into_iter().next());
        }
        Ok(limits)
    }

    async fn peek<'a>(
        &'a self,
        charges: impl IntoIterator<Item = &'a RuleCharge>,
        signals: &Signals,
    ) -> Result<Vec<Snapshot>, Error> {
        let charges = charges.into_iter().map(|charge| (self.policy(charge), &charge.subject, Ask::cost(0)));
        let charges: Vec<_> = charges.collect();
        let decided = self.limiter.decide(&charges, CallContext::of(false, signals));
        Ok(decided.await?.iter().map(Snapshot::of).collect())
    }
}
