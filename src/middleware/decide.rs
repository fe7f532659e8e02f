//! Decides whether to admit a request: converts its parts to charges, and the limiter's decisions to a verdict.

use std::sync::Arc;

use http::HeaderValue;
use http::request::Parts;
use smallvec::SmallVec;

use super::headers::{HeaderFamily, LimitHeaders};
use super::key::{Extraction, Found};
use super::maybe_ready::MaybeReady;
use super::on_response::PendingSettlement;
use super::options::LayerOptions;
use super::refusal::{Cause, random_up_to};
use super::rule::Rule;
use super::status::RateLimitStatus;
use crate::algorithm::{Ask, Micros};
use crate::backend::Error;
use crate::limiter::{CallContext, Receipt, Reservation, WaitSlot};
use crate::policy::{Decision, Decisions, Enforce, KeyError, KeyFault, Signals, Subject};

#[allow(clippy::large_enum_variant)] // A verdict is moved at most twice, and a box would cost an allocation.
pub(super) enum Verdict {
    Admit(Admission),
    /// Call the service when the reservation is due. The slot counts toward the bound on waiting requests.
    Wait(Box<Reservation>, Option<WaitSlot>),
    Refuse(Cause),
}

/// State that is kept from the admission of a request until its response.
pub(super) struct Admission {
    pub(super) limit_headers: LimitHeaders,
    pub(super) status: Option<RateLimitStatus>,
    /// The request's charges, or `None` if neither a rule nor a handler can settle them.
    pub(super) settlement: Option<PendingSettlement>,
}

#[derive(Default)]
pub(super) struct RequestCharges {
    pub(super) charges: SmallVec<[RuleCharge; 1]>,
    /// The first error that a key extractor returned. If there is an error, the request is not charged.
    pub(super) key_error: Option<KeyError>,
    /// Whether an extractor's error was ignored because the rule's policy exempts some or all keys from enforcement.
    has_ignored_error: bool,
}

/// A charge under the rule at index `rule`.
pub(super) struct RuleCharge {
    pub(super) rule: usize,
    pub(super) subject: Subject,
    pub(super) cost: u64,
}

/// A [`RuleCharge`] whose subject may not be known yet.
struct PendingCharge {
    rule: usize,
    extraction: Extraction,
    /// The type name of the extension that the extractor needs, if the request lacks it.
    missing: Option<&'static str>,
    cost: u64,
}

impl LayerOptions {
    pub(super) fn decide(self: &Arc<Self>, parts: &Parts) -> MaybeReady<Verdict> {
        if self.skip.iter().any(|skip| skip(parts)) {
            return MaybeReady::Ready(self.unlimited());
        }
        let charges = self.charges(parts);
        let signals = self.signals(parts);
        match charges {
            MaybeReady::Ready(charges) => self.decide_charges(charges, signals),
            MaybeReady::Pending(charges) => {
                let options = Arc::clone(self);
                MaybeReady::pending(async move { options.decide_charges(charges.await, signals).resolve().await })
            }
        }
    }

    /// Returns the charges under the rules chosen for the request's route and under the rules for all requests.
    fn charges(self: &Arc<Self>, parts: &Parts) -> MaybeReady<RequestCharges> {
        let chosen = self.choice.as_ref().and_then(|choice| choice.of(parts, &self.limiter));
        let (rules, route_cost) = chosen.map_or((&[][..], None), |target| (&target.rules[..], target.cost));
        let chosen = rules.iter().map(|&rule| (rule, route_cost));
        let all_requests = (self.chosen..self.rules.len()).map(|rule| (rule, None));
        let cost = self.cost.of(parts);
        let mut pending = chosen.chain(all_requests).map(|(index, route_cost)| {
            let rule = &self.rules[index];
            let (extraction, missing) = extract(rule, parts);
            let cost = rule.cost.as_ref().map(|cost| cost.of(parts)).or(route_cost).unwrap_or(cost);
            PendingCharge { rule: index, extraction, cost, missing }
        });
        let mut charges = RequestCharges::default();
        while let Some(next) = pending.next() {
            match next.extraction {
                Extraction::Now(found) => {
                    self.report_missing(&found, next.missing);
                    charges.add(self, next.rule, found, next.cost);
                }
                extraction => {
                    let rest = std::iter::once(PendingCharge { extraction, ..next }).chain(pending).collect();
                    let options = Arc::clone(self);
                    return MaybeReady::pending(async move { charges.resolve(&options, rest).await });
                }
            }
            if charges.key_error.is_some() {
                break;
            }
        }
        MaybeReady::Ready(charges)
    }

    /// Reports a missing peer address, or a missing extension that leaves the caller without a key.
    pub(super) fn report_missing(&self, found: &Found, missing: Option<&'static str>) {
        match (found, missing) {
            (Found::Subject(subject), Some(wanted)) if subject.key().is_none() => {
                self.limiter.missing_extension(wanted);
            }
            (Found::Refuse(error), _) => self.report_missing_peer(error),
            _ => {}
        }
    }

    fn report_missing_peer(&self, error: &KeyError) {
        if error.fault() == KeyFault::NoPeerAddress {
            self.limiter.missing_peer();
        }
    }

    fn decide_charges(
        self: &Arc<Self>,
        charges: RequestCharges,
        signals: Result<Signals, KeyError>,
    ) -> MaybeReady<Verdict> {
        let RequestCharges { charges, key_error, has_ignored_error } = charges;
        let enforced = self.is_enforced(&charges);
        let signals = match (key_error, signals) {
            (None, _) if charges.is_empty() => {
                return MaybeReady::Ready(self.uncharged(Decisions::from_iter([]), has_ignored_error));
            }
            (None, Ok(signals)) => signals,
            (None, Err(error)) if enforced => {
                self.report_missing_peer(&error);
                return MaybeReady::Ready(Verdict::Refuse(Cause::NoKey(error)));
            }
            (Some(error), _) if enforced => return MaybeReady::Ready(Verdict::Refuse(Cause::NoKey(error))),
            _ => return MaybeReady::Ready(self.uncharged(Decisions::from_iter([]), true)),
        };
        let longest = charges.iter().filter_map(|charge| self.wait_of(&self.rules[charge.rule])).max();
        let slot = longest.filter(|_| enforced).and_then(|_| self.limiter.wait_slot());
        // In shadow mode, the limiter decides as if the request could wait, but the request is never delayed.
        let can_wait = slot.is_some() || !enforced;
        let charges = charges.iter().map(|charge| {
            let (rule, ask) = (&self.rules[charge.rule], Ask::cost(charge.cost));
            let wait = self.wait_of(rule).filter(|_| can_wait);
            (rule.policy(), &charge.subject, wait.map_or(ask, |wait| ask.wait_up_to(wait)))
        });
        let charges: SmallVec<[_; 2]> = charges.collect();
        let patience = longest.filter(|_| slot.is_some()).unwrap_or_default();
        let context = CallContext { patience, ..CallContext::of(true, &signals) };
        let slot = slot.map(|slot| (slot, self.limiter.latest(patience)));
        match self.limiter.decide(&charges, context).try_ready() {
            Ok(answer) => MaybeReady::Ready(self.verdict(answer, enforced, slot)),
            Err(answer) => {
                let options = Arc::clone(self);
                MaybeReady::pending(async move { options.verdict(answer.await, enforced, slot) })
            }
        }
    }

    fn verdict(
        self: &Arc<Self>,
        answer: Result<Decisions, Error>,
        enforced: bool,
        slot: Option<(WaitSlot, Micros)>,
    ) -> Verdict {
        let decisions = match answer {
            Ok(decisions) if !decisions.is_allowed() => return Verdict::Refuse(Cause::Denied(decisions)),
            Ok(decisions) if decisions.iter().all(Decision::is_shadowed) => return self.uncharged(decisions, true),
            Ok(decisions) => decisions,
            Err(error) if enforced => return Verdict::Refuse(Cause::Unavailable(error)),
            Err(_) => return self.unlimited(),
        };
        if enforced && !decisions.delay().is_zero() {
            let (slot, last) = slot.unzip();
            let reservation = Reservation::new(&self.limiter, decisions, random_up_to(self.wait_jitter), last);
            return Verdict::Wait(Box::new(reservation), slot);
        }
        let admission = self.admission(&decisions, enforced);
        let settlement = self.settles_charges().then(|| self.settlement(decisions));
        Verdict::Admit(Admission { settlement, ..admission })
    }

    pub(super) fn admission(&self, decisions: &Decisions, enforced: bool) -> Admission {
        let family = if enforced { self.headers } else { HeaderFamily::None };
        let shadowed = decisions.is_shadowed();
        let mut limit_headers = LimitHeaders::new(family, decisions, |decision| self.items_of(decision));
        if let Some(name) = self.shadow_header.as_ref().filter(|_| shadowed) {
            limit_headers.add(name.clone(), HeaderValue::from_static("denied"));
        }
        let status = self.with_status.then(|| RateLimitStatus::new(decisions.clone()));
        Admission { limit_headers, status, settlement: None }
    }

    /// Admits a request without a decision. The request's status and receipt, if enabled, are empty.
    fn unlimited(self: &Arc<Self>) -> Verdict {
        self.uncharged(Decisions::from_iter([]), false)
    }

    /// Admits a request without charging it. `shadowed` means that only shadow mode prevented a refusal.
    fn uncharged(self: &Arc<Self>, decisions: Decisions, shadowed: bool) -> Verdict {
        let mut limit_headers = LimitHeaders::default();
        if let Some(name) = self.shadow_header.as_ref().filter(|_| shadowed) {
            limit_headers.add(name.clone(), HeaderValue::from_static("denied"));
        }
        Verdict::Admit(Admission {
            limit_headers,
            status: self.with_status.then(|| RateLimitStatus::new(decisions)),
            settlement: self.with_receipt.then(|| self.settlement(Decisions::from_iter([]))),
        })
    }

    fn settlement(self: &Arc<Self>, decisions: Decisions) -> PendingSettlement {
        PendingSettlement { options: Arc::clone(self), receipt: Receipt::new(&self.limiter, decisions) }
    }

    /// Returns whether at least one policy is enforced for these charges. A request without charges counts as enforced.
    fn is_enforced(&self, charges: &[RuleCharge]) -> bool {
        let is_enforced =
            |charge: &RuleCharge| self.limiter.enforces(self.rules[charge.rule].policy(), &charge.subject);
        charges.is_empty() || charges.iter().any(is_enforced)
    }
}

/// Returns the result of the rule's extractor. If the request lacks an extension that the extractor needs, also returns
/// the extension's type name.
pub(super) fn extract(rule: &Rule, parts: &Parts) -> (Extraction, Option<&'static str>) {
    let extraction = rule.key.extract(parts);
    let has_key = matches!(&extraction, Extraction::Now(Found::Subject(subject)) if subject.key().is_some());
    let missing = if has_key { None } else { rule.key.missing_extension(parts) };
    (extraction, missing)
}

impl RequestCharges {
    fn add(&mut self, options: &LayerOptions, rule: usize, found: Found, cost: u64) {
        let enforce = || options.limiter.enforcement(options.rules[rule].policy());
        match found {
            Found::Subject(subject) => self.charges.push(RuleCharge { rule, subject, cost }),
            Found::Skip => {}
            // Without a key, the limiter cannot determine whether the policy is enforced for this caller.
            Found::Refuse(_) if enforce() != Enforce::Always => self.has_ignored_error = true,
            Found::Refuse(error) => self.key_error = Some(error),
        }
    }

    /// Adds the remaining charges, whose subjects may be futures.
    async fn resolve(mut self, options: &LayerOptions, rest: Vec<PendingCharge>) -> RequestCharges {
        for PendingCharge { rule, extraction, cost, missing } in rest {
            let found = extraction.found().await;
            options.report_missing(&found, missing);
            self.add(options, rule, found, cost);
            if self.key_error.is_some() {
                break;
            }
        }
        self
    }
}
