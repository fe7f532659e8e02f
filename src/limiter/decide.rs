//! The steps of a decision, numbered as in [`docs::design`](crate::docs::design#the-path-of-a-decision).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::block_cache::Permit;
use super::future::{Answer, DecisionFuture};
use super::guard::{BlockedBy, SignalIds};
use super::leases::Spent;
use super::notices::NoticeContent;
use super::observer::{Blocked, Decided, Failed, Requested};
use super::overrides::Overridden;
use super::shards::{Others, other_takes, undivided};
use super::{Inner, RateLimiter};
use crate::algorithm::{Ask, Steps};
use crate::backend::{Error, ErrorKind, RowId, Take};
use crate::policy::{DecidedBy, Decision, Decisions, Key, Part, Policy, Signals, Subject};

/// Everything about a call except its charges.
#[derive(Clone, Copy)]
pub(crate) struct CallContext<'a> {
    pub(crate) take: bool,
    /// Whether the caller can await a remote backend.
    pub(crate) waits: bool,
    /// Whether deny lists, blocks and pauses can deny the call.
    pub(crate) guarded: bool,
    /// The longest time for which a pause may hold the call.
    pub(crate) patience: Duration,
    pub(crate) signals: &'a Signals,
}

impl<'a> CallContext<'a> {
    pub(crate) fn of(take: bool, signals: &'a Signals) -> CallContext<'a> {
        CallContext { take, waits: true, guarded: true, patience: Duration::ZERO, signals }
    }
}

pub(super) struct CallState {
    take: bool,
    waits: bool,
    /// The shards to try if the call is denied.
    others: Others,
    /// Whether any charge is enforced.
    enforced: bool,
    shadow: bool,
    /// The initial decisions on all charges, kept while only the enforced charges are decided again.
    first_decisions: Option<Box<Decisions>>,
    began: Option<Instant>,
    permit: Option<Permit>,
    caller: Option<Box<CallerIds>>,
}

impl CallState {
    fn of(take: bool, waits: bool, takes: &[Take<'_>]) -> CallState {
        let enforced = takes.iter().any(|take| take.part.enforced);
        let shadow = takes.iter().any(|take| !take.part.enforced);
        let others = Others::new();
        let (first_decisions, began, permit, caller) = (None, None, None, None);
        CallState { take, waits, others, enforced, shadow, first_decisions, began, permit, caller }
    }

    /// Returns the takes to try after a denial, or `None` if there are none or they were already tried.
    #[inline]
    fn other_takes<'a>(&mut self, takes: &[Take<'a>], steps: &Steps) -> Option<Takes<'a>> {
        if self.others.is_empty() { None } else { other_takes(takes, &std::mem::take(&mut self.others), steps) }
    }

    /// Allows a call that was denied only in shadow mode. Returns `Err` if the enforced charges must be decided again.
    #[cold]
    fn enforce(mut self, decided: Decisions) -> Result<(CallState, Decisions), Box<CallState>> {
        if let Some(first) = self.first_decisions.take() {
            return Ok((self, first.with_enforced(decided)));
        }
        if decided.is_allowed() || decided.violated().next().is_some() {
            return Ok((self, decided));
        }
        if !self.enforced {
            return Ok((self, decided.let_through()));
        }
        self.first_decisions = Some(Box::new(decided));
        Err(Box::new(self))
    }
}

/// The keys and signals by which a caller can be blocked. Boxed in `CallState`, because few limiters count denials.
struct CallerIds {
    signal_ids: SignalIds,
    /// One key per charge.
    keys: Vec<Option<Key>>,
}

pub(super) type Takes<'a> = SmallVec<[Take<'a>; 4]>;

impl RateLimiter {
    pub(crate) fn decide<'a>(
        &self,
        charges: &[(&'a Policy, &'a Subject, Ask)],
        context: CallContext<'_>,
    ) -> DecisionFuture<Answer> {
        let Inner { guard, .. } = &*self.inner;
        let CallContext { take, waits, guarded, patience, signals } = context;

        // 1. Resolve the row and the quotas of each charge. Quotas set at run time take precedence, followed by the
        //    caller's own, the tier's and the policy's. If the caller has its own quotas, `changed.quotas`
        //    contains only quotas set for its key.
        let (overridden, none) = (self.overridden(charges), Overridden::default());
        let (mut takes, mut keys) = (Takes::new(), Vec::new());
        let is_guarded = guarded && guard.is_needed();
        for (number, (policy, subject, ask)) in charges.iter().enumerate() {
            let changed = overridden.get(number).unwrap_or(&none);
            let row =
                RowId { policy: changed.name.as_ref().unwrap_or(policy.name()), key: self.row_key(subject.key()) };
            self.inner.check_conflicts(policy);
            let tier = subject.tier_name();
            let of_tier = tier.and_then(|tier| policy.quotas_of_tier(tier));
            if let (Some(tier), None) = (tier, of_tier) {
                self.inner.unknown_tier(policy, tier);
            }
            let tier = match tier.filter(|_| of_tier.is_some() && !self.inner.observers.is_empty()) {
                Some(tier) => self.inner.tier_names.number(tier),
                None => 0,
            };
            if self.inner.observes_keys && take {
                self.show_key(row, subject);
            }
            let quotas = changed.quotas.as_deref().or(subject.quotas()).or(of_tier).unwrap_or(policy.quotas());
            let (windows, count) = (policy.windows(quotas), quotas.len() as u8);
            let enforce = changed.enforcement.unwrap_or(policy.enforcement());
            let enforced = enforce.covers(|| row.lasting_digest());
            let leased = policy.uses_leases();
            for (index, (quota, window)) in (0..).zip(quotas.iter().zip(windows)) {
                takes.push(Take::part(
                    row,
                    window,
                    quota,
                    *ask,
                    Part { index, count, enforced, leased, tier, ..Part::WHOLE },
                ));
            }
            if is_guarded {
                keys.push(subject.key());
            }
        }
        let mut call = CallState::of(take, waits, &takes);

        // 2. Blocked: deny calls from blocked or deny-listed callers. If a row is paused, hold or deny the call.
        if is_guarded {
            if let Some(blocked) = self.blocked(&keys, &takes, signals, &mut call) {
                let blocked = if call.enforced { blocked } else { blocked.let_through() };
                self.observe(&call, &blocked);
                return DecisionFuture::ready(Ok(blocked));
            }
            if let Some(paused) = self.paused(&takes, patience) {
                // A held call is decided and observed at the end of the pause.
                if !paused.is_allowed() {
                    self.observe(&call, &paused);
                }
                return DecisionFuture::ready(Ok(paused));
            }
        }

        self.decide_unblocked(call, takes)
    }

    pub(super) fn decide_again(&self, takes: Takes<'_>) -> DecisionFuture<Answer> {
        self.decide_unblocked(CallState::of(true, true, &takes), takes)
    }

    /// 3. Shards: choose one shard of each quota that has several. A check reads all shards, or a sample of them.
    #[inline]
    fn decide_unblocked(&self, mut call: CallState, mut takes: Takes<'_>) -> DecisionFuture<Answer> {
        if call.take {
            call.others = self.inner.shards.choose(&mut takes);
        } else {
            self.inner.shards.expand(&mut takes);
        }
        self.attempt(call, &takes)
    }

    /// 4. Known: allow the call if this process's leases cover it, or deny it if a recently read row shows that the
    ///    backend would deny it.
    #[inline]
    fn attempt(&self, mut call: CallState, takes: &[Take<'_>]) -> DecisionFuture<Answer> {
        let Inner { backend, leases, block_cache, time, .. } = &*self.inner;
        let mut holds = false;
        if let Some(leases) = leases.as_ref().filter(|_| call.take) {
            match leases.spend(takes) {
                Spent::All(reports, steps) => {
                    let part = |i: usize| Part { lease: reports[i], ..takes[i].part };
                    let decided =
                        Decisions::of(takes.len(), |i| Take { part: part(i), ..takes[i] }.decision(&steps[i], true));
                    return self.conclude(call, takes, decided.by(DecidedBy::Lease));
                }
                Spent::Denied(steps) => {
                    if let Some(others) = call.other_takes(takes, &steps) {
                        return self.attempt(call, &others);
                    }
                    return self.conclude(call, takes, decisions(takes, &steps).by(DecidedBy::Lease));
                }
                Spent::Nothing { holds: tokens } => holds = tokens,
            }
        }
        let skips_cache = holds || takes.iter().any(|take| take.part.shard > 0);
        if let Some(cache) = block_cache.as_ref().filter(|_| !skips_cache) {
            let now = time.now();
            if let Some(steps) = cache.denies(takes, now) {
                if let Some(others) = call.other_takes(takes, &steps) {
                    return self.attempt(call, &others);
                }
                return self.conclude(call, takes, decisions(takes, &steps).by(DecidedBy::BlockCache));
            }
            call.permit = Some(cache.permit(takes, now));
        }
        if backend.is_remote() && !call.waits {
            return DecisionFuture::ready(Err(cannot_wait()));
        }
        self.ask(call, takes)
    }

    /// Returns the run-time settings for each charge, or an empty list if no settings have been changed at run time.
    #[inline]
    fn overridden(&self, charges: &[(&Policy, &Subject, Ask)]) -> SmallVec<[Overridden; 1]> {
        let Inner { overrides, .. } = &*self.inner;
        if overrides.is_empty() {
            return SmallVec::new();
        }
        let of = |(policy, subject, _): &(&Policy, &Subject, Ask)| {
            overrides.of(policy, subject, Some(self.row_key(subject.key())))
        };
        charges.iter().map(of).collect()
    }

    pub(super) fn observe_late(&self, denied: &Decisions) {
        self.observe(&CallState::of(true, true, &[]), denied);
    }

    /// 5. The backend decides all takes at the same instant, and grants all or none of them.
    #[inline]
    fn ask(&self, mut call: CallState, takes: &[Take<'_>]) -> DecisionFuture<Answer> {
        let Inner { backend, leases, observers, .. } = &*self.inner;
        if backend.is_remote() {
            call.began = call.began.or_else(|| (!observers.is_empty()).then(Instant::now));
        }
        let leases = leases.as_ref().filter(|_| call.take);
        if let Some(leases) = leases {
            leases.give_back(takes);
        }
        let answer = if call.take { backend.acquire(takes) } else { backend.peek(takes) };
        if let Some(leases) = leases {
            leases.ask(takes);
        }
        match answer.try_ready() {
            Ok(answer) => self.answered(call, takes, answer),
            Err(answer) => DecisionFuture::pending(self, call, takes, answer),
        }
    }

    /// Tries the other shards after a denial, or continues with steps 6 to 8.
    #[inline]
    pub(super) fn answered(
        &self,
        mut call: CallState,
        takes: &[Take<'_>],
        mut answer: Result<Steps, Error>,
    ) -> DecisionFuture<Answer> {
        if let (Ok(steps), Some(leases), false) = (&mut answer, &self.inner.leases, call.take) {
            leases.add_held(takes, steps);
        }
        if let Ok(steps) = &answer {
            self.inner.shards.observe(takes, steps);
            if let (Some(cache), Some(permit)) = (&self.inner.block_cache, &call.permit) {
                let pause =
                    |take: &Take<'_>| self.inner.leases.as_ref().map_or(Duration::ZERO, |leases| leases.pause(take));
                cache.store(takes, steps, call.take, permit, self.inner.time.now(), pause);
            }
            if let Some(others) = call.other_takes(takes, steps) {
                return self.attempt(call, &others);
            }
        }
        match self.decided(&call, takes, answer) {
            Ok(decided) if call.take => self.conclude(call, takes, decided),
            Ok(decided) => self.conclude(call, takes, decided.uncharged().by_best_shards()),
            Err(error) => DecisionFuture::ready(Err(error)),
        }
    }

    /// Lets a call proceed if it was denied only in shadow mode, and continues with steps 7 and 8.
    #[inline]
    fn conclude(&self, mut call: CallState, takes: &[Take<'_>], mut decided: Decisions) -> DecisionFuture<Answer> {
        if call.shadow {
            (call, decided) = match call.enforce(decided) {
                Ok(enforced) => enforced,
                Err(call) => return self.ask_enforced(*call, takes),
            };
        }
        self.protect_and_observe(&call, &decided);
        DecisionFuture::ready(Ok(decided))
    }

    /// Decides the enforced charges by themselves, after other charges of the call were denied in shadow mode.
    #[cold]
    fn ask_enforced(&self, call: CallState, takes: &[Take<'_>]) -> DecisionFuture<Answer> {
        self.decide_unblocked(call, undivided(takes).filter(|take| take.part.enforced).collect())
    }

    /// 6. Failure: if the backend failed, the failure mode decides instead, or the error is returned.
    #[inline]
    fn decided(&self, call: &CallState, takes: &[Take<'_>], answer: Result<Steps, Error>) -> Result<Decisions, Error> {
        let steps = match answer {
            Ok(steps) if steps.len() == takes.len() => steps,
            // A malformed answer also counts as a failure.
            Ok(steps) => return self.failed(call, takes, wrong_number(takes.len(), steps.len())),
            Err(error) => return self.failed(call, takes, error),
        };
        Ok(decisions(takes, &steps))
    }

    /// 7. Protect: count denials, and block callers with too many denials. 8. Observe: notify the observers.
    #[inline]
    fn protect_and_observe(&self, call: &CallState, decided: &Decisions) {
        if call.take && (!decided.is_allowed() || decided.is_shadowed()) {
            decided
                .binding()
                .filter(|decision| decision.is_violated())
                .for_each(|decision| self.inner.denied(decision));
        }
        if let Some(caller) = &call.caller {
            self.protect(caller, decided);
        }
        if !self.inner.observers.is_empty() {
            self.observe(call, decided);
        }
    }

    /// Returns the denial if the caller is blocked. Otherwise, stores the caller's identity in `call` for step 7.
    fn blocked(
        &self,
        keys: &[Option<&Key>],
        takes: &[Take<'_>],
        signals: &Signals,
        call: &mut CallState,
    ) -> Option<Decisions> {
        let Inner { guard, hash, time, .. } = &*self.inner;
        let (signal_ids, now) = (guard.signal_ids(signals, hash), time.now());
        let charges = takes.iter().filter(|take| take.part.is_first());
        let callers = keys.iter().zip(charges).map(|(key, take)| (take.row.policy, *key, take.row.key));
        let Some(BlockedBy { rule, until }) = guard.blocked_by(callers, signals, &signal_ids, now) else {
            if guard.counts() && call.take && call.enforced {
                let keys = keys.iter().map(|key| key.cloned()).collect();
                call.caller = Some(Box::new(CallerIds { signal_ids, keys }));
            }
            return None;
        };
        let (calendar, retry) = (time.calendar(), until.map(|until| until.since(now)));
        let blocked = |take: &Take<'_>| Decision::blocked(take.charged(), Some(Arc::clone(&rule)), calendar, retry);
        Some(takes.iter().map(blocked).collect())
    }

    #[cold]
    fn failed(&self, call: &CallState, takes: &[Take<'_>], error: Error) -> Result<Decisions, Error> {
        let latency = call.began.map(|began| began.elapsed());
        // The failure mode ignores shards and treats each quota as a whole.
        let takes: Takes<'_> = undivided(takes).collect();
        for take in takes.iter().filter(|take| take.part.is_first()) {
            let failed = Failed { policy: take.row.policy, key: take.row.key, error: &error, latency };
            self.inner.observers.iter().for_each(|observer| observer.failed(&failed));
        }
        self.inner.failure.decide(&takes, call.take, error)
    }

    #[cold]
    fn protect(&self, caller: &CallerIds, decided: &Decisions) {
        let Inner { guard, time, observers, .. } = &*self.inner;
        if decided.is_allowed() {
            let is_evidence = |decision: &&Decision| {
                decision.decided_by() != DecidedBy::FailOpen && decision.cost() > 0 && !decision.is_shadowed()
            };
            let seen = decided.binding().filter(is_evidence);
            return guard.allowed(seen.map(|decision| (decision.policy(), decision.key())), &caller.signal_ids);
        }
        let denied = decided.binding().zip(&caller.keys).filter(|(decision, _)| decision.is_violated());
        let denied = denied.map(|(decision, key)| (decision.policy(), key.as_ref(), decision.key()));
        for block in guard.denied(denied, &caller.signal_ids, time.now()) {
            self.inner.publish_later(&NoticeContent::Block(block.id, Some((block.lasts, block.times))));
            let rule = block.signal.to_rule();
            let blocked = Blocked { rule: &rule, lasts: block.lasts, times: block.times };
            observers.iter().for_each(|observer| observer.blocked(&blocked));
        }
    }

    #[cold]
    fn show_key(&self, row: RowId<'_>, subject: &Subject) {
        let anonymous = Key::anonymous();
        let requested = Requested { policy: row.policy, digest: row.key, key: subject.key().unwrap_or(&anonymous) };
        let observers = self.inner.observers.iter().filter(|observer| observer.needs_keys());
        observers.for_each(|observer| observer.requested(&requested));
    }

    fn observe(&self, call: &CallState, decided: &Decisions) {
        let observers = &self.inner.observers;
        let latency = call.began.map(|began| began.elapsed());
        for decision in decided.binding() {
            let tier = self.inner.tier_names.name(decision.of().part.tier);
            let observed = Decided { decision, latency, check: !call.take, tier };
            observers.iter().for_each(|observer| observer.decided(&observed));
        }
    }
}

#[inline]
fn decisions(takes: &[Take<'_>], steps: &Steps) -> Decisions {
    let all_granted = steps.all_granted();
    Decisions::of(takes.len(), |i| takes[i].decision(&steps[i], all_granted))
}

#[cold]
pub(super) fn cannot_wait() -> Error {
    Error::new(ErrorKind::Unsupported, "a remote backend must be awaited, so it was not called; await `limit` instead")
}

#[cold]
fn wrong_number(expected: usize, found: usize) -> Error {
    Error::new(ErrorKind::Protocol, format!("expected {expected} steps, found {found}; this is a bug in the backend"))
}

impl fmt::Debug for CallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallState").field("take", &self.take).field("enforced", &self.enforced).finish_non_exhaustive()
    }
}
