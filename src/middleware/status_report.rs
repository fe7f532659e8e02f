//! Status reports, which list a client's limits for a status endpoint. Creating a report charges nothing.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::decide::{RequestCharges, RuleCharge, extract};
use super::key::{Found, KeyExtractor};
use super::layer::RateLimitLayer;
use super::options::LayerOptions;
use super::refusal::{Cause, refuse};
use crate::algorithm::{Ask, Micros};
use crate::backend::Error;
use crate::limiter::{CallContext, Snapshot};
use crate::policy::{Enforce, Signals};

impl RateLimitLayer {
    /// Returns the caller's limits and the limiter's current time. The limits of all rules are included, whatever route
    /// the request matches. The error is the response with which the layer refuses the request.
    pub(crate) async fn status_report(&self, parts: &Parts) -> Result<(Vec<Snapshot>, Micros), Response<Bytes>> {
        self.options.status_report(parts).await.map_err(|cause| refuse(&cause, parts, Some(&self.options)))
    }

    #[cfg(feature = "admin")]
    pub(crate) fn policies(&self) -> impl Iterator<Item = &crate::policy::Policy> {
        self.options.policies()
    }

    #[cfg(feature = "admin")]
    pub(crate) fn uses(&self, limiter: &crate::limiter::RateLimiter) -> bool {
        self.options.limiter.is_same(limiter)
    }

    pub(crate) fn has_one_policy(&self) -> bool {
        self.options.policies().count() == 1
    }
}

impl LayerOptions {
    async fn status_report(self: &Arc<Self>, parts: &Parts) -> Result<(Vec<Snapshot>, Micros), Cause> {
        let mut found = RequestCharges::default();
        if !self.skip.iter().any(|skip| skip(parts)) {
            found = self.charges_of_all_rules(parts).await;
        }
        let RequestCharges { mut charges, key_error, .. } = found;
        charges.retain(|charge| self.limiter.enforces(self.rules[charge.rule].policy(), &charge.subject));
        let limits = match key_error {
            Some(error) => return Err(Cause::NoKey(error)),
            None if !charges.is_empty() => {
                let signals = self.signals(parts).map_err(Cause::NoKey)?;
                self.snapshots(&signals, &charges).await.map_err(Cause::Unavailable)?
            }
            // Limits in shadow mode were omitted above: otherwise, a page that disables a button when a limit is reached
            // would enforce it.
            None => Vec::new(),
        };
        let now = match limits.first() {
            Some(limit) => limit.now(),
            None => self.limiter.now().await.map_err(Cause::Unavailable)?,
        };
        Ok((limits, now))
    }

    /// Returns the caller's charges under all rules, regardless of the route. An extractor that several rules share is
    /// called only once. A rule that applies only to some routes is omitted if its extractor refuses the request,
    /// because the extractor might work only on those routes. Such a refusal is returned only if there are no charges.
    async fn charges_of_all_rules(&self, parts: &Parts) -> RequestCharges {
        let mut known: Vec<(&Arc<dyn KeyExtractor>, Found)> = Vec::new();
        let mut found = RequestCharges::default();
        let mut refusal = None;
        for (index, rule) in self.rules.iter().enumerate() {
            let position = known.iter().position(|(key, _)| Arc::ptr_eq(key, &rule.key));
            let position = match position {
                Some(position) => position,
                None => {
                    let (extraction, missing) = extract(rule, parts);
                    let caller = extraction.found().await;
                    self.report_missing(&caller, missing);
                    known.push((&rule.key, caller));
                    known.len() - 1
                }
            };
            match &known[position].1 {
                Found::Subject(subject) => {
                    found.charges.push(RuleCharge { rule: index, subject: subject.clone(), cost: 0 });
                }
                Found::Skip => {}
                Found::Refuse(_) if self.limiter.enforcement(rule.policy()) != Enforce::Always => {}
                Found::Refuse(error) if index < self.chosen => refusal = refusal.or(Some(error.clone())),
                Found::Refuse(error) => {
                    found.key_error = Some(error.clone());
                    return found;
                }
            }
        }
        found.key_error = refusal.filter(|_| found.charges.is_empty());
        found
    }

    async fn snapshots(&self, signals: &Signals, charges: &[RuleCharge]) -> Result<Vec<Snapshot>, Error> {
        let limits = self.peek(charges, signals).await?;
        // If routes can choose from only one rule, the rule is treated as if it applied to every request.
        let is_chosen = |charge: &RuleCharge| charge.rule < self.chosen && self.chosen > 1;
        if !limits.iter().any(|limit| limit.not_before().is_some()) || !charges.iter().any(is_chosen) {
            return Ok(limits);
        }
        // A key can be blocked under only some policies, and a route can apply only some of the policies. Therefore,
        // peek at each charge separately, together with the policies that apply to every request.
        let mut limits = Vec::with_capacity(charges.len());
        for charge in charges {
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
        let charges = charges.into_iter();
        let charges = charges.map(|charge| (self.rules[charge.rule].policy(), &charge.subject, Ask::cost(0)));
        let charges: Vec<_> = charges.collect();
        let decided = self.limiter.decide(&charges, CallContext::of(false, signals));
        Ok(decided.await?.iter().map(Snapshot::of).collect())
    }
}
