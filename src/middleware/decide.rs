//! Deciding a request: its parts become charges, the limiter's answer on them a verdict.

use std::sync::Arc;

use http::HeaderValue;
use http::request::Parts;
use smallvec::SmallVec;

use super::headers::{HeaderFamily, Report};
use super::key::{Extraction, Found};
use super::on_response::Unsettled;
use super::refusal::{Cause, random_up_to};
use super::rule::Rule;
use super::shared::Shared;
use super::soon::Soon;
use super::status::RateLimitStatus;
use crate::algorithm::{Ask, Micros};
use crate::backend::Error;
use crate::limiter::{CallContext, Receipt, Reservation, WaitSlot};
use crate::policy::{Decisions, KeyError, KeyFault, Policy, Signals, Subject};

/// What becomes of a request.
#[allow(clippy::large_enum_variant)] // Moved once or twice; a box would be an allocation for each request.
pub(super) enum Verdict {
    /// On to the service.
    Go(Pass),
    /// The same at its turn, which is given back if this is dropped before. Until then it has a place among those who
    /// wait.
    Wait(Box<Reservation>, Option<WaitSlot>),
    Refuse(Cause),
}

/// What a request that goes on takes with it, and what its response needs.
pub(super) struct Pass {
    pub(super) report: Report,
    pub(super) status: Option<RateLimitStatus>,
    /// The charges, if somebody may want to settle them.
    pub(super) unsettled: Option<Unsettled>,
}

/// The charges of a request.
#[derive(Default)]
pub(super) struct Charges {
    pub(super) lines: SmallVec<[Line; 1]>,
    /// Why a rule could not find its key: the request cannot be charged.
    pub(super) refused: Option<KeyError>,
}

/// A rule that limits a request: its number, the number of the policy that applies, whom it counts, what it costs.
pub(super) struct Line {
    pub(super) rule: usize,
    pub(super) policy: usize,
    pub(super) subject: Subject,
    pub(super) cost: u64,
}

/// The same before all of it is known.
struct Asked {
    rule: usize,
    policy: usize,
    caller: Extraction,
    /// The extension that the request lacks to be counted, if it does.
    missing: Option<&'static str>,
    /// `None` = the layer's.
    cost: Option<Soon<u64>>,
}

impl Shared {
    /// The verdict on a request.
    pub(super) fn decide(self: &Arc<Self>, parts: &Parts) -> Soon<Verdict> {
        if self.skip.iter().any(|skip| skip(parts)) {
            return Soon::Now(self.unlimited());
        }
        let cost = self.cost.of(parts);
        let charges = self.charges(parts, cost, |rule| {
            let policy = (rule.choose)(parts)?;
            Some((policy, rule.cost.as_ref().map(|cost| cost.of(parts))))
        });
        let signals = self.signals(parts);
        match charges {
            Soon::Now(charges) => self.ask(charges, &signals),
            Soon::Later(charges) => {
                let shared = Arc::clone(self);
                Soon::later(async move { shared.ask(charges.await, &signals).known().await })
            }
        }
    }

    /// The charges of a request by the rules that apply to it. `cost` is of those that have none of their own.
    pub(super) fn charges(
        self: &Arc<Self>,
        parts: &Parts,
        cost: Soon<u64>,
        applied: impl Fn(&Rule) -> Option<(usize, Option<Soon<u64>>)>,
    ) -> Soon<Charges> {
        let asked = |(number, rule): (usize, &Rule)| {
            let (policy, cost) = applied(rule)?;
            let caller = rule.key.extract(parts);
            let is_known = matches!(&caller, Extraction::Now(Found::Subject(subject)) if subject.key().is_some());
            let missing = if is_known { None } else { rule.key.missing_extension(parts) };
            Some(Asked { rule: number, policy, caller, cost, missing })
        };
        let mut asked = self.rules.iter().enumerate().filter_map(asked);
        let mut charges = Charges::default();
        while let Some(next) = asked.next() {
            match (next.caller, next.cost.as_ref().unwrap_or(&cost)) {
                (Extraction::Now(found), Soon::Now(cost)) => {
                    self.note_missing(&found, next.missing);
                    charges.add(next.rule, next.policy, found, *cost);
                }
                (caller, _) => {
                    let rest = std::iter::once(Asked { caller, ..next }).chain(asked).collect();
                    let shared = Arc::clone(self);
                    return Soon::later(async move { charges.and_later(&shared, rest, cost).await });
                }
            }
            if charges.refused.is_some() {
                break;
            }
        }
        Soon::Now(charges)
    }

    /// Reports a caller who is anonymous because the request lacks an extension, and a request without the peer's address.
    fn note_missing(&self, found: &Found, missing: Option<&'static str>) {
        match (found, missing) {
            (Found::Subject(subject), Some(wanted)) if subject.key().is_none() => {
                self.limiter.missing_extension(wanted);
            }
            (Found::Refuse(error), _) if error.fault() == KeyFault::NoPeerAddress => self.limiter.missing_peer(),
            _ => {}
        }
    }

    /// Asks the limiter, with a place to wait if there is one.
    fn ask(self: &Arc<Self>, charges: Charges, signals: &Signals) -> Soon<Verdict> {
        let Charges { lines, refused } = charges;
        let enforced = self.is_enforced(&lines);
        match refused {
            Some(error) if enforced => return Soon::Now(Verdict::Refuse(Cause::NoKey(error))),
            // Where limits are not enforced, that refuses nobody either.
            Some(_) => return Soon::Now(self.uncharged(Decisions::from_iter([]), true)),
            None if lines.is_empty() => return Soon::Now(self.unlimited()),
            None => {}
        }
        let place = self.wait.filter(|_| enforced).and_then(|_| self.limiter.wait_slot());
        // What is not enforced is decided as if, and nobody waits.
        let wait = self.wait.filter(|_| place.is_some() || !enforced);
        let ask = |cost| wait.map_or(Ask::cost(cost), |wait| Ask::cost(cost).wait_up_to(wait));
        let charges = lines.iter().map(|line| (self.policy(line), &line.subject, ask(line.cost)));
        let charges: SmallVec<[_; 2]> = charges.collect();
        let patience = wait.filter(|_| place.is_some()).unwrap_or_default();
        let around = CallContext { enforced, patience, ..CallContext::of(true, signals) };
        let place = place.map(|place| (place, self.limiter.latest(patience)));
        match self.limiter.decide(&charges, around).try_ready() {
            Ok(answer) => Soon::Now(self.verdict(answer, enforced, place)),
            Err(answer) => {
                let shared = Arc::clone(self);
                Soon::later(async move { shared.verdict(answer.await, enforced, place) })
            }
        }
    }

    /// `place`: to wait, and until when.
    fn verdict(
        self: &Arc<Self>,
        answer: Result<Decisions, Error>,
        enforced: bool,
        place: Option<(WaitSlot, Micros)>,
    ) -> Verdict {
        let decisions = match answer {
            Ok(decisions) if decisions.is_allowed() => decisions,
            Ok(decisions) if enforced => return Verdict::Refuse(Cause::Denied(decisions)),
            Ok(decisions) => return self.uncharged(decisions, true),
            Err(error) if enforced => return Verdict::Refuse(Cause::Unavailable(error)),
            // A limit that is not enforced must not refuse because it cannot be told either.
            Err(_) => return self.unlimited(),
        };
        if enforced && !decisions.delay().is_zero() {
            let (place, last) = place.unzip();
            let reservation = Reservation::new(&self.limiter, decisions, random_up_to(self.wait_jitter), last);
            return Verdict::Wait(Box::new(reservation), place);
        }
        let pass = self.pass(&decisions, enforced);
        let unsettled = self.keeps_charges().then(|| self.unsettled(decisions));
        Verdict::Go(Pass { unsettled, ..pass })
    }

    /// What a request takes with it that goes on by these decisions, but for its charges.
    pub(super) fn pass(&self, decisions: &Decisions, enforced: bool) -> Pass {
        let family = if enforced { self.headers } else { HeaderFamily::None };
        let report = Report::new(family, decisions, |decision| self.items_of(decision));
        let status = self.status.then(|| RateLimitStatus::new(decisions.clone(), false));
        Pass { report, status, unsettled: None }
    }

    /// On to the service without a decision. A handler that asks for the status, or for the charges, finds none.
    fn unlimited(self: &Arc<Self>) -> Verdict {
        self.uncharged(Decisions::from_iter([]), false)
    }

    /// On to the service. `shadowed`: only since a refusal is not enforced.
    fn uncharged(self: &Arc<Self>, decisions: Decisions, shadowed: bool) -> Verdict {
        let header = self.shadow_header.clone().filter(|_| shadowed);
        Verdict::Go(Pass {
            report: header.map_or_else(Report::default, |name| Report::field(name, HeaderValue::from_static("denied"))),
            status: self.status.then(|| RateLimitStatus::new(decisions, shadowed)),
            unsettled: self.settlement.then(|| self.unsettled(Decisions::from_iter([]))),
        })
    }

    fn unsettled(self: &Arc<Self>, decisions: Decisions) -> Unsettled {
        Unsettled { shared: Arc::clone(self), charges: Receipt::new(&self.limiter, decisions) }
    }

    pub(super) fn is_enforced(&self, lines: &[Line]) -> bool {
        let is_below = |line: &Line, seed| self.limiter.digest(line.subject.key()).seed() < seed;
        self.enforced_below.is_none_or(|seed| lines.first().is_some_and(|line| is_below(line, seed)))
    }

    pub(super) fn policy(&self, line: &Line) -> &Policy {
        &self.rules[line.rule].policies[line.policy].policy
    }
}

impl Charges {
    fn add(&mut self, rule: usize, policy: usize, found: Found, cost: u64) {
        match found {
            Found::Subject(subject) => self.lines.push(Line { rule, policy, subject, cost }),
            Found::Skip => {}
            Found::Refuse(error) => self.refused = Some(error),
        }
    }

    async fn and_later(mut self, shared: &Shared, rest: Vec<Asked>, mut common: Soon<u64>) -> Charges {
        for Asked { rule, policy, caller, cost, missing } in rest {
            let found = caller.found().await;
            shared.note_missing(&found, missing);
            let cost = match (&found, cost) {
                // There is no charge, so no cost is needed.
                (Found::Skip | Found::Refuse(_), _) => 0,
                (_, Some(own)) => own.known().await,
                (_, None) => {
                    let cost = common.known().await;
                    common = Soon::Now(cost);
                    cost
                }
            };
            self.add(rule, policy, found, cost);
            if self.refused.is_some() {
                break;
            }
        }
        self
    }
}
