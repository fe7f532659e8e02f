//! Everything that names the crate's API: the limiter that a history runs against, and the arithmetic for its model.

use std::collections::HashMap;
use std::future::{Future, IntoFuture};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::algorithm::{self, Ask, ChargeRecord, Micros, State, Step, Verdict};
use tollgate::backend::{
    Adjustment, Backend, BackendFuture, Error, ErrorKind, Health, LoadedRows, RowId, SavedRows, Steps, Take,
};
use tollgate::clock::{Clock, ManualClock, Sleep};
use tollgate::key::Secret;
use tollgate::limiter::{RateLimiterBuilder, SetQuotaError};
use tollgate::policy::{DecidedBy, Decisions, Enforce, PolicyName, Quotas};
use tollgate::protection::{AutoBlock, DenyList, DenyRule, Signal, Signals};
use tollgate::{
    Charge, Decision, FailureMode, Key, LimitError, MemoryBackend, Policy, Quota, RateLimiter, Reason, Receipt,
    Reservation, Subject,
};

use super::terms::*;

// The arithmetic, which the model uses.

/// The state of a row.
pub(crate) type Row = State;

/// What a charge needs to be settled.
pub(crate) type Record = ChargeRecord;

/// A quota, or a shard of one, for one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule(Quota);

/// A charge on row number `row`. `wait` is the longest accepted wait, if the charge may reserve tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) row: usize,
    pub(crate) rule: Rule,
    pub(crate) cost: u64,
    pub(crate) wait: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Allow,
    Reserve(Time),
    Deny(Option<Time>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub(crate) answer: Answered,
    pub(crate) row: Row,
    pub(crate) record: Option<Record>,
}

pub(crate) const LAST: Time = Micros::MAX.get();

impl Rule {
    pub(crate) fn capacity(&self) -> u64 {
        self.0.get_capacity()
    }

    /// Returns the tokens that can be spent now without waiting: the largest cost that the arithmetic grants.
    pub(crate) fn remaining(&self, row: &Row, now: Time) -> u64 {
        let granted = |cost| algorithm::step(&self.0, row, Micros::new(now), Ask::cost(cost)).verdict == Verdict::Allow;
        let (mut low, mut high) = (0, self.0.get_capacity());
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            (low, high) = if granted(middle) { (middle, high) } else { (low, middle - 1) };
        }
        low
    }

    /// Returns how long a charge of `cost` would be denied: `Some(0)` if it is granted, `None` if for ever.
    pub(crate) fn denied_for(&self, row: &Row, now: Time, cost: u64) -> Option<Time> {
        match algorithm::step(&self.0, row, Micros::new(now), Ask::cost(cost)).verdict {
            Verdict::Deny { retry } => retry.map(micros),
            _ => Some(0),
        }
    }

    /// Returns the row as a backend loads it, which may have dropped it after it expired. What was given back is
    /// remembered until `carry_until`, for later settlements. At the last instant, nothing expires.
    pub(crate) fn loaded(&self, row: Row, carry_until: Time, now: Time) -> Row {
        if now >= LAST {
            return row;
        }
        let is_own = row.stamp == algorithm::stamp(&self.0);
        let is_count = !is_own || self.0.algorithm() == algorithm::Algorithm::SlidingWindow;
        let is_expired = row.clear.get() <= now;
        let carry = if is_count || carry_until > now { row.carry } else { 0.0 };
        match (is_expired, is_count || carry == 0.0) {
            (false, _) => State { carry, ..row },
            (true, true) => State::default(),
            (true, false) => State { carry, stamp: row.stamp, ..State::default() },
        }
    }

    /// Returns until when a backend remembers how much of a row was given back: until all of it would be repaid.
    pub(crate) fn carry_until(&self, row: &Row, now: Time) -> Time {
        let ceiling = self.0.get_max_reserved().map_or(f64::MAX, |reserved| (self.0.get_capacity() + reserved) as f64);
        let owed = State { spent: (row.spent + row.carry).min(ceiling), at: Micros::new(now), carry: 0.0, ..*row };
        let repaid = self.denied_for(&owed, now, self.0.get_capacity()).map_or(LAST, |wait| now.saturating_add(wait));
        repaid.div_ceil(1_000_000).saturating_mul(1_000_000)
    }

    /// Returns whether another quota wrote the row, so that this one has to convert it.
    pub(crate) fn is_foreign(&self, row: &Row, now: Time) -> bool {
        row.stamp != algorithm::stamp(&self.0) && row.stamp != 0 && row.spent + row.carry > 0.0 && now < row.clear.get()
    }

    /// Returns the tokens that are spent and not yet repaid, or `None` if another quota wrote the row or the quota is a
    /// sliding window.
    pub(crate) fn level(&self, row: &Row, now: Time) -> Option<f64> {
        if self.is_foreign(row, now) {
            return None;
        }
        let row = algorithm::step(&self.0, row, Micros::new(now), Ask::cost(0)).state;
        match self.0.algorithm() {
            algorithm::Algorithm::TokenBucket => {
                let elapsed = now.saturating_sub(row.at.get()) as f64;
                let repaid = elapsed * self.0.rate() as f64 / self.0.period().as_micros() as f64;
                Some((row.spent - repaid).max(0.0))
            }
            algorithm::Algorithm::FixedWindow => Some(row.spent),
            _ => None,
        }
    }

    pub(crate) fn settle(&self, row: &Row, record: &Record, now: Time, actual: u64) -> (Row, bool) {
        let now = Micros::new(now);
        let took_effect = algorithm::takes_effect(&self.0, row, record, now, actual);
        let settled = algorithm::settle(&self.0, row, record, now, actual);
        let is_empty = settled.spent == 0.0 && settled.carry == 0.0;
        (if settled != *row && is_empty { State::default() } else { settled }, took_effect)
    }
}

/// Decides all charges of a call together. Changes the rows if all are granted.
pub(crate) fn decide(rows: &mut [Row], asked: &[Asked], now: Time) -> Vec<Decided> {
    let lines: Vec<algorithm::Line<'_>> = asked
        .iter()
        .map(|line| {
            let ask = Ask::cost(line.cost);
            let ask = line
                .wait
                .map_or(ask, |wait| if wait == Time::MAX { ask.reserve() } else { ask.wait_up_to(time(wait)) });
            algorithm::Line { row: line.row, quota: &line.rule.0, ask }
        })
        .collect();
    let steps = algorithm::step_all(rows, &lines, Micros::new(now));
    let decided = |(step, line): (&Step, &Asked)| Decided {
        answer: match step.verdict {
            Verdict::Allow => Answered::Allow,
            Verdict::Reserve { wait } => Answered::Reserve(micros(wait)),
            Verdict::Deny { retry } => Answered::Deny(retry.map(micros)),
        },
        row: step.state,
        record: ChargeRecord::new(line.cost, step),
    };
    steps.iter().zip(asked).map(decided).collect()
}

pub(crate) fn credit(tokens: u64) -> Record {
    ChargeRecord::credit(tokens)
}

// The facts that depend on digests, which a model cannot compute. They are read from limiters that do nothing else.

/// Knows the boundaries of windows, the quotas of shards, and the keys in a share.
#[derive(Default)]
pub(crate) struct Facts {
    rules: HashMap<(String, Option<u8>, Spec), Vec<Rule>>,
    halves: HashMap<(String, Option<u8>), bool>,
}

impl Facts {
    /// Returns the rule of each shard of a quota, for one key under one policy.
    pub(crate) fn rules(&mut self, policy: &str, key: Option<u8>, spec: &Spec) -> Vec<Rule> {
        let read = || {
            let limiter = RateLimiter::builder(MemoryBackend::new()).secret(secret()).build();
            let policy = Policy::try_new(policy, quota(spec)).unwrap();
            let snapshots = now(limiter.snapshot(&policy, subject_of(key)));
            snapshots[0].rows().iter().map(|(quota, _)| Rule(*quota)).collect()
        };
        self.rules.entry((policy.to_owned(), key, *spec)).or_insert_with(read).clone()
    }

    /// Returns whether a key is in the half for which a policy is enforced.
    pub(crate) fn is_in_half(&mut self, policy: &str, key: Option<u8>) -> bool {
        let read = || {
            let limiter = RateLimiter::builder(MemoryBackend::new()).secret(secret()).build();
            let policy = Policy::try_new(policy, Quota::per_day(1)).unwrap().enforce(Enforce::Share(0.5));
            let _ = now(limiter.try_limit(&policy, subject_of(key)));
            !now(limiter.try_limit(&policy, subject_of(key))).is_allowed()
        };
        *self.halves.entry((policy.to_owned(), key)).or_insert_with(read)
    }
}

// The limiter.

/// Every limiter of a history has the same secret, so that states can be loaded.
fn secret() -> Secret {
    Secret::new([7; 16])
}

/// A limiter in memory, with everything that a program would keep: receipts, reservations and waiting calls.
pub(crate) struct Program {
    world: World,
    policies: Vec<Policy>,
    limiter: RateLimiter,
    clock: ManualClock,
    deny: DenyList,
    failing: Arc<AtomicBool>,
    receipts: Vec<Receipt>,
    reservations: Vec<Reservation>,
    waiting: Vec<WaitFuture>,
}

type WaitFuture = Pin<Box<dyn Future<Output = Result<Receipt, LimitError>> + Send>>;

impl Program {
    pub(crate) fn start(world: &World) -> Program {
        let clock = ManualClock::at(Micros::new(world.start));
        let (deny, failing) = (DenyList::new(), Arc::new(AtomicBool::new(false)));
        let policies: Vec<Policy> = world.policies.iter().map(policy).collect();
        let limiter = limiter(world, &policies, &clock, &deny, &failing);
        let (receipts, reservations, waiting) = (Vec::new(), Vec::new(), Vec::new());
        Program { world: world.clone(), policies, limiter, clock, deny, failing, receipts, reservations, waiting }
    }

    pub(crate) fn apply(&mut self, op: &Op) -> Answer {
        let Program { policies, limiter, .. } = &*self;
        match op {
            Op::Call { charges, ip, how } => self.call(charges, *ip, *how),
            Op::Settle { pick, actual, only_first } => {
                let Some(receipt) = picked(&self.receipts, *pick) else { return Answer::Nothing };
                let first = receipt.decisions().iter().next().map(|decision| decision.policy().as_str().to_owned());
                let of = first.filter(|_| *only_first).and_then(|policy| receipt.of(policy));
                flag(ready(of.as_ref().unwrap_or(receipt).settle(*actual)))
            }
            Op::ResetReceipt { pick } => {
                picked(&self.receipts, *pick).map_or(Answer::Nothing, |receipt| flag(ready(receipt.reset())))
            }
            Op::Cancel { pick } => match taken(&mut self.reservations, *pick) {
                Some(reservation) => flag(ready(reservation.cancel())),
                None => Answer::Nothing,
            },
            Op::Drop { pick } => taken(&mut self.reservations, *pick).map_or(Answer::Nothing, |_| Answer::Done),
            Op::Keep { pick } => match taken(&mut self.reservations, *pick) {
                Some(reservation) => {
                    self.receipts.push(reservation.into_receipt());
                    Answer::Done
                }
                None => Answer::Nothing,
            },
            Op::StopWaiting { pick } => taken(&mut self.waiting, *pick).map_or(Answer::Nothing, |_| Answer::Done),
            Op::Credit { policy, caller, tokens } => {
                flag(ready(limiter.credit(&policies[*policy], subject(caller), *tokens)))
            }
            Op::ResetKey { policy, caller } => flag(ready(limiter.reset(&policies[*policy], subject(caller)))),
            Op::ResetPolicy { policy } => changed(ready(limiter.reset_policy(&policies[*policy]))),
            Op::SetQuota { policy, scope, quotas } => {
                let (policy, quotas) = (&policies[*policy], quotas.as_deref().map(quota_list));
                changed(match scope {
                    Scope::All => ready(limiter.set_quota(policy, quotas)),
                    Scope::Tier(tier) => ready(limiter.set_tier_quota(policy, &tier_name(*tier), quotas)),
                    Scope::Key(key) => ready(limiter.set_key_quota(policy, subject_of(*key), quotas)),
                })
            }
            Op::SetEnforcement { policy, to } => {
                changed(ready(limiter.set_enforcement(&policies[*policy], to.map(enforce))))
            }
            Op::Pause { policy, key, lasts } => {
                done(ready(limiter.pause(&policies[*policy], subject_of(*key), time(*lasts))))
            }
            Op::Resume { policy, key } => done(ready(limiter.resume(&policies[*policy], subject_of(*key)))),
            Op::Block { whom, lasts } => done(ready(limiter.block(signal(*whom), time(*lasts)))),
            Op::Unblock { whom } => done(ready(limiter.unblock(signal(*whom)))),
            Op::Deny { whom, listed } => {
                let rule = match whom {
                    Whom::Key(key) => DenyRule::key(u64::from(*key)),
                    Whom::Ip(ip) => DenyRule::ip(address(*ip)),
                };
                Answer::Flag(if *listed { self.deny.insert(rule) } else { self.deny.remove(&rule) })
            }
            Op::Fail { failing } => {
                self.failing.store(*failing, Ordering::Relaxed);
                Answer::Done
            }
            Op::SaveAndLoad => self.restart(),
            Op::Forward(by) => {
                self.clock.set(Micros::new(self.clock.now().get().saturating_add(*by).min(LAST)));
                Answer::Done
            }
            Op::ToPromise(_) => unreachable!("the runner replaces it"),
            Op::Back(by) => {
                self.clock.set(Micros::new(self.clock.now().get().saturating_sub(*by)));
                Answer::Done
            }
        }
    }

    /// Polls waiting call number `index`. Returns its answer if it has completed. It is then no longer in the list.
    pub(crate) fn poll(&mut self, index: usize) -> Option<Answer> {
        let answer = match self.waiting[index].as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => return None,
            Poll::Ready(answer) => answer,
        };
        drop(self.waiting.remove(index));
        Some(self.received(answer))
    }

    /// Reads the rows of the quotas that now apply to a caller, shard by shard: the spent tokens, their time and stamp.
    /// Returns `None` if a block or a deny list hides them.
    pub(crate) fn rows(&self, policy: usize, caller: &Caller) -> Option<Vec<Vec<(f64, Time, u32)>>> {
        let failing = self.failing.swap(false, Ordering::Relaxed);
        let snapshots = now(self.limiter.snapshot(&self.policies[policy], subject(caller)));
        self.failing.store(failing, Ordering::Relaxed);
        let numbers = |(_, row): &(Quota, State)| (row.spent, row.at.get(), row.stamp);
        let is_hidden = snapshots.iter().any(|snapshot| snapshot.not_before().is_some());
        (!is_hidden).then(|| snapshots.iter().map(|quota| quota.rows().iter().map(numbers).collect()).collect())
    }

    pub(crate) fn waiting(&self) -> usize {
        assert_eq!(self.limiter.waiting(), self.waiting.len(), "the number of waiting calls");
        self.waiting.len()
    }

    fn call(&mut self, charges: &[ChargeOf], ip: Option<u8>, how: How) -> Answer {
        let Program { policies, limiter, .. } = &*self;
        if let [only] = charges {
            let (policy, subject) = (&policies[only.policy], subject(&only.caller));
            match how {
                How::Limit | How::Check => {
                    let mut call = limiter.try_acquire(policy, subject).cost(only.cost);
                    if let Some(ip) = ip {
                        call = call.ip(address(ip));
                    }
                    let decided = ready(if how == How::Limit { call.into_future() } else { call.check() });
                    return decided.map_or(Answer::Failed, |decision| Answer::Lines(vec![line(&decision)]));
                }
                How::Wait(wait) => {
                    let mut call = limiter.acquire(policy, subject).cost(only.cost);
                    if let Some(ip) = ip {
                        call = call.ip(address(ip));
                    }
                    let mut future: WaitFuture = Box::pin(call.wait_up_to(time(wait)));
                    return match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                        Poll::Ready(answer) => {
                            drop(future);
                            self.received(answer)
                        }
                        Poll::Pending => {
                            self.waiting.push(future);
                            Answer::Pending
                        }
                    };
                }
                How::Reserve(within) => {
                    let mut call = limiter.acquire(policy, subject).cost(only.cost);
                    if let Some(ip) = ip {
                        call = call.ip(address(ip));
                    }
                    let reserved = match within {
                        Some(within) => ready(call.reserve_within(time(within))),
                        None => ready(call.reserve()),
                    };
                    return self.reserved(reserved);
                }
                How::Hold => {}
            }
        }
        let list: Vec<Charge<'_>> = charges
            .iter()
            .map(|of| {
                let charge = Charge::new(&policies[of.policy], subject(&of.caller)).cost(of.cost);
                let charge = match how {
                    How::Reserve(Some(within)) => charge.reserve_within(time(within)),
                    How::Reserve(None) => charge.reserve(),
                    _ => charge,
                };
                ip.map_or(charge.clone(), |ip| charge.signals(Signals::new().ip(address(ip))))
            })
            .collect();
        match how {
            How::Limit => ready(limiter.try_limit_all(list)).map_or(Answer::Failed, |all| lines(&all)),
            How::Check => ready(limiter.try_check_all(list)).map_or(Answer::Failed, |all| lines(&all)),
            How::Hold | How::Reserve(_) | How::Wait(_) => {
                let held = ready(limiter.hold_all(list));
                self.reserved(held)
            }
        }
    }

    fn reserved(&mut self, answer: Result<Reservation, LimitError>) -> Answer {
        match answer {
            Ok(reservation) => {
                let answer = lines(reservation.decisions());
                self.reservations.push(reservation);
                answer
            }
            Err(error) => refused(&error),
        }
    }

    fn received(&mut self, answer: Result<Receipt, LimitError>) -> Answer {
        match answer {
            Ok(receipt) => {
                let answer = lines(receipt.decisions());
                self.receipts.push(receipt);
                answer
            }
            Err(error) => refused(&error),
        }
    }

    /// Saves the state and loads it into a new limiter. Waiting calls and reservations end with the process.
    fn restart(&mut self) -> Answer {
        self.waiting.clear();
        self.reservations.clear();
        self.receipts.clear();
        let mut state = Vec::new();
        self.limiter.save(&mut state).unwrap();
        let next = limiter(&self.world, &self.policies, &self.clock, &self.deny, &self.failing);
        let loaded = next.load(&state[..]).unwrap();
        assert_eq!((loaded.dropped, loaded.existing, loaded.age), (0, 0, Duration::ZERO), "{loaded:?}");
        self.limiter = next;
        Answer::Done
    }
}

fn limiter(
    world: &World,
    policies: &[Policy],
    clock: &ManualClock,
    deny: &DenyList,
    failing: &Arc<AtomicBool>,
) -> RateLimiter {
    let memory = || MemoryBackend::builder().clock(clock.clone()).secret(secret()).build();
    let backend = Failing { inner: memory(), failing: Arc::clone(failing) };
    let mut builder: RateLimiterBuilder =
        RateLimiter::builder(backend).deny_list(deny).fallback_backend(memory()).max_waiting(world.max_waiting);
    for (policy, spec) in policies.iter().zip(&world.policies) {
        let mode = match spec.on_failure {
            OnFailure::Deny => FailureMode::Deny,
            OnFailure::Allow => FailureMode::Allow,
            OnFailure::Fallback(percent) => FailureMode::fallback(percent as f64 / 100.0),
        };
        builder = builder.on_failure_of(policy, mode);
    }
    if let Some(rules) = &world.blocking {
        let mut auto = AutoBlock::new(rules.policies.iter().map(|policy| &policies[*policy]))
            .threshold(rules.threshold)
            .within(time(rules.within))
            .block_for(time(rules.lasts));
        if let Some((factor, most)) = rules.escalation {
            auto = auto.escalate(factor, time(most));
        }
        if rules.resets_on_success {
            auto = auto.reset_on_success();
        }
        if !rules.keys {
            auto = auto.without_keys();
        }
        if !rules.ips {
            auto = auto.without_ips();
        }
        builder = builder.auto_block(auto);
    }
    builder.build()
}

/// A memory backend that fails on demand.
#[derive(Debug)]
struct Failing {
    inner: MemoryBackend,
    failing: Arc<AtomicBool>,
}

impl Failing {
    fn or_fail<T: Send + 'static>(&self, answer: impl FnOnce(&MemoryBackend) -> BackendFuture<T>) -> BackendFuture<T> {
        if self.failing.load(Ordering::Relaxed) {
            return BackendFuture::ready(Err(Error::new(ErrorKind::Unavailable, "the server is down")));
        }
        answer(&self.inner)
    }
}

impl Backend for Failing {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.or_fail(|inner| inner.acquire(takes))
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.or_fail(|inner| inner.peek(takes))
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.or_fail(|inner| inner.settle(settlements))
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.or_fail(|inner| inner.reset(rows))
    }

    fn secret(&self) -> Option<Secret> {
        self.inner.secret()
    }

    fn sleep_until(&self, instant: Micros) -> Option<Sleep> {
        self.inner.sleep_until(instant)
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.inner.clock()
    }

    fn health(&self) -> Health {
        self.inner.health()
    }

    fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> {
        self.inner.rows_by_policy()
    }

    fn save_rows(&self) -> Option<SavedRows> {
        self.inner.save_rows()
    }

    fn load_rows(&self, bytes: &[u8]) -> Result<LoadedRows, Error> {
        self.inner.load_rows(bytes)
    }
}

// Conversions.

fn time(micros: Time) -> Duration {
    Duration::from_micros(micros)
}

fn micros(time: Duration) -> Time {
    time.as_micros() as Time
}

fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, number).into()
}

fn signal(whom: Whom) -> Signal {
    match whom {
        Whom::Key(key) => Signal::key(u64::from(key)),
        Whom::Ip(ip) => Signal::ip(address(ip)),
    }
}

fn tier_name(tier: u8) -> String {
    format!("t{tier}")
}

fn subject_of(key: Option<u8>) -> Subject {
    key.map_or(Subject::anonymous(), |key| Subject::new(Key::from(u64::from(key))))
}

fn subject(caller: &Caller) -> Subject {
    let subject = subject_of(caller.key);
    let subject = caller.tier.map_or(subject.clone(), |tier| subject.tier(tier_name(tier)));
    caller.own.as_deref().map_or(subject.clone(), |own| subject.quota(quota_list(own)))
}

fn quota(spec: &Spec) -> Quota {
    let period = time(spec.period);
    let quota = match spec.kind {
        Kind::Bucket => Quota::token_bucket(spec.rate, period).capacity(spec.capacity),
        Kind::Fixed => Quota::fixed_window(spec.rate, period).capacity(spec.capacity),
        Kind::Sliding => Quota::sliding_window(spec.rate, period),
    };
    let quota = match spec.max_reserved {
        Some(0) => quota,
        Some(tokens) => quota.max_reserved(tokens),
        None => quota.unlimited_reservations(),
    };
    let quota = if spec.aligned { quota.start(Duration::ZERO) } else { quota };
    quota.shards(spec.shards)
}

fn quota_list(specs: &[Spec]) -> Quotas {
    specs[1..].iter().fold(Quotas::from(quota(&specs[0])), |list, spec| list.and(quota(spec)))
}

fn enforce(enforcement: Enforcement) -> Enforce {
    match enforcement {
        Enforcement::Always => Enforce::Always,
        Enforcement::Never => Enforce::Never,
        Enforcement::Half => Enforce::Share(0.5),
    }
}

fn policy(spec: &PolicySpec) -> Policy {
    let mut policy = Policy::try_new(spec.name.clone(), quota_list(&spec.quotas)).unwrap();
    for (number, quotas) in (0..).zip(&spec.tiers) {
        policy = policy.tier(tier_name(number), quota_list(quotas));
    }
    let policy = policy.enforce(enforce(spec.enforcement));
    if spec.leases { policy.leases() } else { policy }
}

/// Returns whether the crate accepts these policies, so that generated worlds contain only valid ones.
pub(crate) fn is_valid(spec: &PolicySpec) -> bool {
    let Ok(policy) = Policy::try_new(spec.name.clone(), quota_list(&spec.quotas)) else { return false };
    (0..)
        .zip(&spec.tiers)
        .try_fold(policy, |policy, (i, quotas)| policy.try_tier(tier_name(i), quota_list(quotas)))
        .is_ok()
}

pub(crate) fn line(decision: &Decision) -> Line {
    let by = match decision.decided_by() {
        DecidedBy::Backend => By::Backend,
        DecidedBy::Fallback => By::Fallback,
        DecidedBy::FailOpen => By::FailOpen,
        DecidedBy::Limiter => By::Limiter,
        _ => By::Remembered,
    };
    Line {
        policy: decision.policy().as_str().to_owned(),
        allowed: decision.is_allowed(),
        shadowed: decision.is_shadowed(),
        why: match decision.reason() {
            Reason::WithinQuota => Why::Granted,
            Reason::Reserved => Why::Reserved,
            Reason::RefusedElsewhere => Why::Elsewhere,
            Reason::FailOpen => Why::FailOpen,
            Reason::DenyList => Why::Listed,
            Reason::Blocked => Why::Blocked,
            _ => Why::Over,
        },
        by,
        retry: decision.retry_after().map(micros),
        delay: micros(decision.delay()),
        remaining: (by != By::FailOpen).then(|| decision.remaining()),
    }
}

fn lines(decisions: &Decisions) -> Answer {
    Answer::Lines(decisions.iter().map(line).collect())
}

fn refused(error: &LimitError) -> Answer {
    match error {
        LimitError::Denied(denied) => lines(denied.decisions()),
        LimitError::NoReservations(_) => Answer::NoReservations,
        _ => Answer::Failed,
    }
}

pub(crate) fn flag(answer: Result<bool, Error>) -> Answer {
    answer.map_or(Answer::Failed, Answer::Flag)
}

fn done(answer: Result<(), Error>) -> Answer {
    answer.map_or(Answer::Failed, |()| Answer::Done)
}

fn changed(answer: Result<(), SetQuotaError>) -> Answer {
    match answer {
        Ok(()) => Answer::Done,
        Err(SetQuotaError::Quota(_)) => Answer::Rejected,
        Err(_) => Answer::Failed,
    }
}

fn picked<T>(list: &[T], pick: u64) -> Option<&T> {
    list.get((pick % list.len().max(1) as u64) as usize)
}

fn taken<T>(list: &mut Vec<T>, pick: u64) -> Option<T> {
    (!list.is_empty()).then(|| list.remove((pick % list.len() as u64) as usize))
}

/// Returns the answer of a future that is ready on the first poll, as with rows in memory.
fn ready<T>(future: impl IntoFuture<Output = T>) -> T {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the memory backend's future is not ready"),
    }
}

fn now<T, E: std::fmt::Debug>(future: impl Future<Output = Result<T, E>>) -> T {
    ready(future).expect("the memory backend failed")
}
