//! The usual way of a request through the layer, kept short: one token under one policy, decided in memory.

use std::time::Duration;

use http::request::Parts;
use http::{Extensions, HeaderMap};

use super::headers::{HeaderFamily, Report};
use super::items::Told;
use super::key::{Extraction, Found, Head};
use super::rule::Rule;
use super::shared::{Enforce, Shared};
use crate::algorithm::{Ask, Micros, Quota, State, Stepped, Turn, left_of_whole};
use crate::backend::RowId;
use crate::limiter::{decided, usual};
use crate::policy::{Decision, Digest, Outlook, Policy};

/// What becomes of most requests: a charge of one token under the only rule, and nothing else to be done for them. Small:
/// what is handed on in memory comes late.
pub(super) enum Usual {
    /// On to the service.
    GoOn,
    /// On, and the response tells this.
    Tell(Left),
    /// Not on: it was denied.
    Denied,
    /// It is of another kind, and to be decided at length. Nothing was charged.
    AtLength,
    /// The request has to be taken apart to know whose it is.
    TakeApart,
}

/// What is left under the only policy, for the response to tell.
pub(super) struct Left {
    /// Which of the policy's quotas was applied. `None`: none that it was made with.
    item: Option<usize>,
    remaining: u64,
    /// In microseconds.
    window: u64,
}

impl Shared {
    /// Whether a layer asks nothing but whether one request fits under its only rule.
    pub(super) fn is_usual(&self) -> bool {
        let Shared { rules, cost, settle, wait, settlement, enforce, status, headers, .. } = self;
        let asks_more =
            !self.skip.is_empty() || cost.is_some() || settle.is_some() || wait.is_some() || *settlement || *status;
        matches!(&rules[..], [rule] if rule.is_usual())
            && !asks_more
            && *enforce == Enforce::Everybody
            && matches!(headers, HeaderFamily::None | HeaderFamily::Draft11)
    }

    /// Decides a request of which nothing is asked but whether it fits, without taking it apart if its key can be had so.
    /// A denial is put into `denied`: it is large, and rare.
    #[inline(never)]
    pub(super) fn usual(&self, headers: &HeaderMap, extensions: &Extensions, denied: &mut Option<Decision>) -> Usual {
        let [rule, ..] = &self.rules[..] else { return Usual::AtLength };
        match rule.key.at_once(Head { headers, extensions, hash: self.limiter.hash() }) {
            Some(key) => self.usual_of(rule, key, None, denied),
            None => Usual::TakeApart,
        }
    }

    /// The same, taken apart. What was found of who is asking is put into `extracted`.
    #[inline(never)]
    pub(super) fn usual_parts(
        &self,
        parts: &Parts,
        extracted: &mut Option<Extraction>,
        denied: &mut Option<Decision>,
    ) -> Usual {
        let [rule, ..] = &self.rules[..] else { return Usual::AtLength };
        let extraction = extracted.insert(rule.key.extract(parts));
        let Extraction::Now(Found::Subject(subject)) = extraction else { return Usual::AtLength };
        self.usual_of(rule, self.limiter.row_key(subject.key()), subject.tier_name(), denied)
    }

    #[inline(always)]
    fn usual_of(&self, rule: &Rule, key: Digest, tier: Option<&str>, denied: &mut Option<Decision>) -> Usual {
        let prepared = &rule.policies[0];
        let Some(memory) = self.limiter.rows_at_hand() else { return Usual::AtLength };
        let row = RowId { policy: prepared.policy.name(), key };
        usual(memory, row, prepared.policy.quota_for(tier), Ask::cost(1), true, |quota, step| {
            // What is rare is given the step in pieces: as a whole it would lie in memory for those too who need none of
            // it.
            let Stepped { turn, state, now } = step;
            if !turn.is_allowed() {
                *denied = Some(denial(&prepared.policy, key, quota, turn, state, now));
                return Usual::Denied;
            }
            if self.headers == HeaderFamily::None {
                return Usual::GoOn;
            }
            let (remaining, window) = match left_of_whole(quota, &step.told(quota)) {
                Some(known) => known,
                None => left(quota, turn, state, now),
            };
            Usual::Tell(Left { item: prepared.items.number_of(quota), remaining, window })
        })
    }

    pub(super) fn report(&self, Left { item, remaining, window }: Left) -> Report {
        let [rule, ..] = &self.rules[..] else { return Report::Nothing };
        let prepared = &rule.policies[0];
        match item.and_then(|item| prepared.items.numbered(item)) {
            Some(item) => Report::One(Told::new(item.clone(), remaining, Duration::from_micros(window))),
            None => Report::Nothing,
        }
    }
}

#[inline(never)]
fn denial(policy: &Policy, key: Digest, quota: &Quota, turn: Turn, state: State, now: Micros) -> Decision {
    let row = RowId { policy: policy.name(), key };
    decided(row, quota, Ask::cost(1), Stepped { turn, state, now })
}

/// What is left, and for how many microseconds.
#[cold]
#[inline(never)]
fn left(quota: &Quota, turn: Turn, state: State, now: Micros) -> (u64, u64) {
    let (remaining, window) = Outlook { quota, step: &Stepped { turn, state, now }.told(quota) }.remaining_and_window();
    (remaining, u64::try_from(window.as_micros()).unwrap_or(u64::MAX))
}
