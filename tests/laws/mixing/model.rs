//! The slow, obvious model of a limiter in memory. It decides what each operation should answer.
//!
//! Rows are entries of a map, and time is a number. The arithmetic of one call on its rows is the crate's own, which
//! `tests/properties` compares with exact arithmetic. Everything around it is written down here once more: which quota
//! applies, which row and window it uses, what is enforced, who is blocked, what a failure mode does, what a receipt
//! settles, and how waiting calls take over reservations.
//!
//! If an answer depends on chance (which shard is charged), the model lists all permitted outcomes, and takes the one
//! that was seen.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::ledger::Ledger;
use crate::mixing::shared::adapter::{self, Answered, Asked, Facts, Record, Row, Rule};
use crate::mixing::shared::known::Finding;
use crate::mixing::shared::terms::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    policy: usize,
    generation: u64,
    key: Option<u8>,
    shard: usize,
    window: u8,
}

/// One quota of one charge.
#[derive(Clone, Debug)]
struct Take {
    charge: usize,
    policy: usize,
    key: Option<u8>,
    cost: u64,
    wait: Option<Time>,
    enforced: bool,
    window: u8,
    spec: Spec,
    /// One rule for each shard.
    rules: Vec<Rule>,
}

/// The decision on a take.
#[derive(Clone, Debug)]
struct Decision {
    take: Take,
    row: RowKey,
    rule: Rule,
    answer: Answered,
    why: Why,
    by: By,
    shadowed: bool,
    /// The rows that `remaining` counts.
    counted: Vec<(Rule, Row)>,
    record: Option<Record>,
    at: Time,
    /// The number of the charge in the ledger.
    number: u64,
}

/// A possible outcome of a call: the decisions, and the rows that change.
#[derive(Clone, Debug, Default)]
struct Outcome {
    decisions: Vec<Decision>,
    rows: Vec<(RowKey, Row)>,
    fallback: Vec<(RowKey, Row)>,
    /// Whether blocks or pauses decided.
    guarded: bool,
}

/// The backend failed, and the failure mode is to fail.
#[derive(Clone, Copy, Debug)]
struct Down;

type Outcomes = Vec<Result<Outcome, Down>>;

#[derive(Clone, Debug)]
struct Receipt {
    decisions: Vec<Decision>,
    settled: Vec<bool>,
}

#[derive(Debug)]
struct Reservation {
    decisions: Vec<Decision>,
    open: bool,
    kept: bool,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    of: ChargeOf,
    ip: Option<u8>,
    last: Time,
    decisions: Vec<Decision>,
    /// Whether the charges are made. They are not while a pause holds the call.
    open: bool,
    due: Option<Time>,
    queue: Option<QueueKey>,
    asked_to_join: bool,
}

type QueueKey = (RowKey, u64, Rule);

#[derive(Debug, Default)]
struct Queue {
    reserved: Vec<Decision>,
    /// The numbers of the waiting calls. Call `i` holds reservation `i`.
    waiters: Vec<(u64, u64)>,
    joined: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Offender {
    count: u32,
    since: Time,
    until: Time,
    times: u32,
}

/// Fault 2.
pub(crate) const STALE: &str = "a held call was decided under the settings from before the pause";

/// Fault 103.
pub(crate) const LET_THROUGH: &str = "a blocked caller in shadow mode that may wait is charged";

pub(crate) type Facts2 = Rc<RefCell<Facts>>;

pub(crate) struct Model {
    world: World,
    facts: Facts2,
    now: Time,
    /// The latest time that the clock has shown.
    latest: Time,
    rows: HashMap<RowKey, Row>,
    fallback: HashMap<RowKey, Row>,
    /// Until when the rows (or with `true`, those of the fallback) remember what was given back.
    carries: HashMap<(bool, RowKey), Time>,
    generations: Vec<u64>,
    set: Vec<(usize, Scope, Vec<Spec>)>,
    enforcement: Vec<Option<Enforcement>>,
    pauses: HashMap<(usize, Option<u8>), Time>,
    blocks: HashMap<Whom, Time>,
    offenders: HashMap<Whom, Offender>,
    listed: HashSet<Whom>,
    failing: bool,
    receipts: Vec<Receipt>,
    reservations: Vec<Reservation>,
    waiting: Vec<Waiting>,
    queues: HashMap<QueueKey, Queue>,
    ledger: Ledger<RowKey>,
    numbers: u64,
    pub(crate) findings: Vec<Finding>,
}

/// Reads the rows of a policy and a caller from the limiter, if they can be seen.
pub(crate) type Probe<'a> = &'a dyn Fn(usize, &Caller) -> Option<Vec<Vec<(f64, Time, u32)>>>;

impl Model {
    pub(crate) fn new(world: &World, facts: &Facts2) -> Model {
        let policies = world.policies.len();
        Model {
            world: world.clone(),
            facts: Rc::clone(facts),
            now: world.start,
            latest: world.start,
            rows: HashMap::new(),
            fallback: HashMap::new(),
            carries: HashMap::new(),
            generations: vec![0; policies],
            set: Vec::new(),
            enforcement: vec![None; policies],
            pauses: HashMap::new(),
            blocks: HashMap::new(),
            offenders: HashMap::new(),
            listed: HashSet::new(),
            failing: false,
            receipts: Vec::new(),
            reservations: Vec::new(),
            waiting: Vec::new(),
            queues: HashMap::new(),
            ledger: Ledger::default(),
            numbers: 0,
            findings: Vec::new(),
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Returns whether the model cannot know what an operation does: it cannot be seen which shard a charge of 0 tokens
    /// has refilled. The quotas of a waiting call may change before it is decided.
    pub(crate) fn is_hidden(&self, op: &Op) -> bool {
        match op {
            // A check of two charges to one row, under two quotas, tells only roughly what is left.
            Op::Call { charges, how: How::Check, .. } => {
                let rows = || charges.iter().map(|of| (of.policy, of.caller.key));
                rows().enumerate().any(|(i, row)| rows().take(i).any(|earlier| earlier == row))
            }
            Op::Call { charges, how: How::Wait(_), .. } => charges.iter().any(|of| of.cost == 0),
            Op::Call { charges, .. } => {
                self.resolve(charges, None).iter().any(|take| take.cost == 0 && take.spec.shards > 1)
            }
            _ => false,
        }
    }

    /// Returns whether a row had expired that would not have expired at an earlier instant. The limiter may have
    /// dropped such a row, so that it does not come back with the clock.
    pub(crate) fn has_expired_since(&self, instant: Time) -> bool {
        let is_between = |row: &Row| row.spent + row.carry > 0.0 && (instant..=self.latest).contains(&row.clear.get());
        self.rows.values().chain(self.fallback.values()).any(is_between)
    }

    /// Checks the answer to an operation, and carries the operation out.
    pub(crate) fn apply(&mut self, op: &Op, seen: &Answer, probe: Probe<'_>) -> Result<(), String> {
        let expected = match op {
            Op::Call { charges, ip, how } => return self.call(charges, *ip, *how, seen, probe),
            Op::Settle { pick, actual, only_first } => match position(self.receipts.len(), *pick) {
                Some(index) => {
                    let mut receipt = self.receipts[index].clone();
                    let answer = self.settle(&mut receipt, *actual, *only_first);
                    self.receipts[index] = receipt;
                    return self.check_settled(&answer, seen);
                }
                None => Answer::Nothing,
            },
            Op::ResetReceipt { pick } => match position(self.receipts.len(), *pick) {
                Some(index) => {
                    let receipt = &mut self.receipts[index];
                    receipt.settled.fill(true);
                    let decisions = receipt.decisions.iter();
                    let rows: Vec<(RowKey, u64)> =
                        decisions.map(|decision| (decision.row, decision.rule_shards())).collect();
                    return self.reset(&rows, seen);
                }
                None => Answer::Nothing,
            },
            Op::Cancel { pick } => match position(self.reservations.len(), *pick) {
                Some(index) => {
                    let reservation = self.reservations.remove(index);
                    if reservation.open {
                        let answer = self.give_back(reservation.decisions);
                        return self.check_settled(&answer, seen);
                    }
                    Answer::Flag(false)
                }
                None => Answer::Nothing,
            },
            Op::Drop { pick } => match position(self.reservations.len(), *pick) {
                Some(index) => {
                    let reservation = self.reservations.remove(index);
                    self.dropped(reservation);
                    Answer::Done
                }
                None => Answer::Nothing,
            },
            Op::Keep { pick } => match position(self.reservations.len(), *pick) {
                Some(index) => {
                    let Reservation { decisions, .. } = self.reservations.remove(index);
                    self.receipts.push(Receipt::new(decisions));
                    Answer::Done
                }
                None => Answer::Nothing,
            },
            Op::StopWaiting { pick } => match position(self.waiting.len(), *pick) {
                Some(index) => {
                    self.stop_waiting(index);
                    Answer::Done
                }
                None => Answer::Nothing,
            },
            Op::Credit { policy, caller, tokens } => self.credit(*policy, caller, *tokens),
            Op::ResetKey { policy, caller } => {
                let (generation, key) = (self.generations[*policy], caller.key);
                let quotas = self.quotas(*policy, caller);
                let shards = lists(&self.world.policies[*policy]).chain([&quotas]).map(|list| list[0].shards).max();
                let shards = shards.unwrap_or(1);
                let row = RowKey { policy: *policy, generation, key, shard: 0, window: 0 };
                if !self.failing && self.has_other_shards(&row, shards) {
                    let text = format!("a reset leaves the shards from {shards} on, which a larger quota has used");
                    self.findings.push(Finding::of(Some(102), text));
                }
                return self.reset(&[(row, shards)], seen);
            }
            Op::ResetPolicy { policy } => {
                self.numbers += 1;
                self.generations[*policy] = self.numbers;
                Answer::Done
            }
            Op::SetQuota { policy, scope, quotas } => self.set_quota(*policy, *scope, quotas.as_ref()),
            Op::SetEnforcement { policy, to } => {
                self.enforcement[*policy] = *to;
                Answer::Done
            }
            Op::Pause { policy, key, lasts } => {
                let end = self.now + lasts;
                let until = self.pauses.entry((*policy, *key)).or_insert(end);
                *until = end.max(*until);
                Answer::Done
            }
            Op::Resume { policy, key } => {
                self.pauses.remove(&(*policy, *key));
                Answer::Done
            }
            Op::Block { whom, lasts } => {
                self.blocks.insert(*whom, self.now + lasts);
                Answer::Done
            }
            Op::Unblock { whom } => {
                self.blocks.remove(whom);
                self.offenders.remove(whom);
                Answer::Done
            }
            Op::Deny { whom, listed: true } => Answer::Flag(self.listed.insert(*whom)),
            Op::Deny { whom, listed: false } => Answer::Flag(self.listed.remove(whom)),
            Op::Fail { failing } => {
                self.failing = *failing;
                Answer::Done
            }
            Op::SaveAndLoad => {
                self.restart();
                Answer::Done
            }
            Op::Forward(by) => {
                self.now = self.now.saturating_add(*by).min(adapter::LAST);
                self.latest = self.latest.max(self.now);
                Answer::Done
            }
            Op::ToPromise(_) => unreachable!("the runner replaces it"),
            Op::Back(by) => {
                self.now = self.now.saturating_sub(*by);
                Answer::Done
            }
        };
        if expected == *seen { Ok(()) } else { Err(format!("expected {expected:?}, found {seen:?}")) }
    }

    // Calls.

    fn call(
        &mut self,
        charges: &[ChargeOf],
        ip: Option<u8>,
        how: How,
        seen: &Answer,
        probe: Probe<'_>,
    ) -> Result<(), String> {
        let mut ask = match how {
            How::Reserve(within) => Some(within.unwrap_or(Time::MAX)),
            How::Wait(wait) => Some(wait),
            _ => None,
        };
        let mut patience = if let How::Wait(wait) = how { wait } else { 0 };
        let allowed = charges.iter().all(|of| self.allows_reservations(of));
        if ask.is_some() && !allowed {
            return same(&Answer::NoReservations, seen);
        }
        if matches!(how, How::Wait(_)) && self.waiting.len() >= self.world.max_waiting {
            (ask, patience) = (None, 0);
        }
        let takes = self.resolve(charges, ask);
        let outcomes = self.decide(&takes, charges, ip, patience, how != How::Check);
        let single = charges.len() == 1;
        let answer = |outcome: &Result<Outcome, Down>| match outcome {
            Err(Down) => Answer::Failed,
            Ok(outcome) if single && matches!(how, How::Limit | How::Check) => {
                Answer::Lines(vec![self.line(binding(&outcome.decisions))])
            }
            Ok(outcome) if matches!(how, How::Wait(_)) && outcome.is_allowed() && outcome.delay() > 0 => {
                Answer::Pending
            }
            Ok(outcome) => self.lines(&outcome.decisions),
        };
        let mut possible: Vec<Result<Outcome, Down>> =
            outcomes.iter().filter(|outcome| answer(outcome) == *seen).cloned().collect();
        if possible.is_empty() && matches!(how, How::Wait(_)) && outcomes.iter().flatten().any(Outcome::is_let_through)
        {
            return Err(LET_THROUGH.to_owned());
        }
        if possible.is_empty() {
            let expected: Vec<Answer> = outcomes.iter().map(answer).collect();
            return Err(format!("expected {}, found {seen:?}", any_of(&expected)));
        }
        if possible.len() > 1 && possible.iter().flatten().any(|outcome| !outcome.rows.is_empty()) {
            possible.retain(|outcome| outcome.as_ref().is_ok_and(|outcome| self.is_seen(outcome, charges, probe)));
            if possible.is_empty() {
                let rows: Vec<_> = charges.iter().map(|of| probe(of.policy, &of.caller)).collect();
                let rows = format!("{rows:?}; before, they were {:?}", self.rows);
                return Err(format!("{seen:?} is possible, but not with the rows {rows}"));
            }
        }
        let Ok(outcome) = possible.swap_remove(0) else { return Ok(()) };
        let decisions = self.commit(outcome, how != How::Check, charges, ip);
        let Some(decisions) = decisions else { return Ok(()) };
        let open = decisions.iter().all(|decision| decision.by != By::Limiter);
        match how {
            How::Hold | How::Reserve(_) => {
                let kept = single && matches!(how, How::Reserve(_));
                self.reservations.push(Reservation { decisions, open, kept });
            }
            How::Wait(_) if *seen == Answer::Pending => {
                let (of, last) = (charges[0].clone(), self.now + patience);
                let due = Some(due(&decisions));
                self.numbers += 1;
                let number = self.numbers;
                let (queue, asked_to_join) = (None, false);
                self.waiting.push(Waiting { number, of, ip, last, decisions, open, due, queue, asked_to_join });
                self.join(self.waiting.len() - 1);
            }
            How::Wait(_) => self.receipts.push(Receipt::new(decisions)),
            How::Limit | How::Check => {}
        }
        Ok(())
    }

    /// Carries out an outcome. Returns its decisions if the call is allowed.
    fn commit(&mut self, outcome: Outcome, take: bool, charges: &[ChargeOf], ip: Option<u8>) -> Option<Vec<Decision>> {
        let is_allowed = outcome.is_allowed();
        let Outcome { mut decisions, rows, fallback, guarded } = outcome;
        if take {
            let rule = |key: &RowKey| decisions.iter().rev().find(|of| of.row == *key).map(|of| of.rule);
            let changed = |(key, row): (RowKey, Row)| rule(&key).map(|rule| (key, rule, row));
            let fallback: Vec<_> = fallback.into_iter().filter_map(changed).collect();
            let stored: Vec<_> = rows.iter().copied().filter_map(changed).collect();
            fallback.into_iter().for_each(|(key, rule, row)| self.store(true, key, &rule, row));
            for decision in decisions.iter().filter(|decision| decision.record.is_some()) {
                let row = self.loaded(false, &decision.row, &decision.rule);
                self.ledger.roll(decision.row, decision.rule.level(&row, self.now));
            }
            for decision in decisions.iter_mut().filter(|decision| decision.record.is_some() && !decision.shadowed) {
                self.numbers += 1;
                decision.number = self.numbers;
                if decision.by == By::Backend && rows.iter().any(|(key, _)| *key == decision.row) {
                    self.ledger.charge(decision.row, decision.number, decision.take.cost);
                }
            }
            stored.into_iter().for_each(|(key, rule, row)| self.store(false, key, &rule, row));
            if !guarded {
                self.protect(&decisions, charges, ip);
            }
        }
        is_allowed.then_some(decisions)
    }

    /// Returns whether the limiter's rows are those of this outcome.
    fn is_seen(&self, outcome: &Outcome, charges: &[ChargeOf], probe: Probe<'_>) -> bool {
        charges.iter().all(|of| {
            let Some(quotas) = probe(of.policy, &of.caller) else { return true };
            let takes = self.resolve(std::slice::from_ref(of), None);
            takes.iter().zip(&quotas).all(|(take, shards)| {
                shards.iter().enumerate().all(|(shard, (spent, at, stamp))| {
                    let key = self.row_key(take, shard);
                    let changed = outcome.rows.iter().find(|(changed, _)| *changed == key).map(|(_, row)| *row);
                    let row = changed.unwrap_or_else(|| self.loaded(false, &key, &take.rules[shard]));
                    let asked = Asked { row: 0, rule: take.rules[shard], cost: 0, wait: None };
                    // A row is read as it is stored, or refilled.
                    let refilled = adapter::decide(&mut [row], &[asked], self.now)[0].row;
                    let is_same = |row: Row| {
                        (row.spent, row.at.get(), row.stamp) == (*spent, *at, *stamp) || row.spent + *spent == 0.0
                    };
                    is_same(row) || is_same(refilled)
                })
            })
        })
    }

    fn resolve(&self, charges: &[ChargeOf], wait: Option<Time>) -> Vec<Take> {
        let mut takes = Vec::new();
        for (charge, of) in charges.iter().enumerate() {
            let spec = &self.world.policies[of.policy];
            let (quotas, key) = (self.quotas(of.policy, &of.caller), of.caller.key);
            let windows = windows(spec, &quotas);
            let mut facts = self.facts.borrow_mut();
            let enforced = match self.enforcement[of.policy].unwrap_or(spec.enforcement) {
                Enforcement::Always => true,
                Enforcement::Never => false,
                Enforcement::Half => facts.is_in_half(&spec.name, key),
            };
            takes.extend(quotas.iter().zip(windows).map(|(quota, window)| Take {
                charge,
                policy: of.policy,
                key,
                cost: of.cost,
                wait,
                enforced,
                window,
                spec: *quota,
                rules: facts.rules(&spec.name, key, quota),
            }));
        }
        takes
    }

    /// Returns the quotas in force: those set for the key, the caller's own, those set for the tier or for all, the
    /// tier's, or the policy's.
    fn quotas(&self, policy: usize, caller: &Caller) -> Vec<Spec> {
        let set = |scope: Scope| self.set.iter().find(|(of, at, _)| (*of, *at) == (policy, scope)).map(|set| &set.2);
        let spec = &self.world.policies[policy];
        let tier = caller.tier.filter(|tier| usize::from(*tier) < spec.tiers.len());
        let of_key = set(Scope::Key(caller.key)).or(caller.own.as_ref());
        let of_set = of_key.or_else(|| tier.and_then(|tier| set(Scope::Tier(tier)))).or_else(|| set(Scope::All));
        let of_tier = of_set.or_else(|| tier.map(|tier| &spec.tiers[usize::from(tier)]));
        of_tier.unwrap_or(&spec.quotas).clone()
    }

    fn allows_reservations(&self, of: &ChargeOf) -> bool {
        let spec = &self.world.policies[of.policy];
        let of_tier = of.caller.tier.and_then(|tier| spec.tiers.get(usize::from(tier))).unwrap_or(&spec.quotas);
        of_tier.iter().any(Spec::reserves) || self.quotas(of.policy, &of.caller).iter().any(Spec::reserves)
    }

    fn decide(&self, takes: &[Take], charges: &[ChargeOf], ip: Option<u8>, patience: Time, take: bool) -> Outcomes {
        let is_enforced = takes.iter().any(|take| take.enforced);
        let guarded = |decisions| vec![Ok(Outcome { decisions, guarded: true, ..Outcome::default() })];
        if let Some(until) = self.blocked(charges, ip) {
            let (why, retry) = match until {
                None => (Why::Listed, None),
                Some(until) => (Why::Blocked, Some(until - self.now)),
            };
            let blocked = takes.iter().map(|take| self.refused(take, why, retry));
            return guarded(
                blocked.map(|decision| if is_enforced { decision } else { decision.let_through() }).collect(),
            );
        }
        if let Some(until) = self.paused(takes) {
            let wait = until - self.now;
            if wait > patience {
                return guarded(takes.iter().map(|take| self.refused(take, Why::Blocked, Some(wait))).collect());
            }
            return guarded(takes.iter().map(|take| self.held(take, wait)).collect());
        }
        self.decide_unblocked(takes, take)
    }

    /// Decides all charges. If only charges in shadow mode are denied, decides the others by themselves.
    fn decide_unblocked(&self, takes: &[Take], take: bool) -> Outcomes {
        let Ok(first) = self.attempt(takes, take) else { return vec![Err(Down)] };
        let enforced: Vec<Take> = takes.iter().filter(|take| take.enforced).cloned().collect();
        let mut outcomes = Outcomes::new();
        for outcome in first {
            let is_denied = outcome.decisions.iter().any(Decision::is_violated);
            if outcome.is_allowed() || is_denied {
                outcomes.push(Ok(outcome));
            } else if enforced.is_empty() {
                let decisions = outcome.decisions.into_iter().map(Decision::let_through).collect();
                outcomes.push(Ok(Outcome { decisions, ..Outcome::default() }));
            } else {
                match self.attempt(&enforced, take) {
                    Err(Down) => outcomes.push(Err(Down)),
                    Ok(second) => outcomes.extend(second.into_iter().map(|second| Ok(outcome.with_enforced(second)))),
                }
            }
        }
        outcomes
    }

    fn attempt(&self, takes: &[Take], take: bool) -> Result<Vec<Outcome>, Down> {
        if self.failing {
            return self.fail(takes, take).map(|outcome| vec![outcome]);
        }
        Ok(if take { self.charge_shards(takes) } else { vec![self.check_shards(takes)] })
    }

    fn fail(&self, takes: &[Take], take: bool) -> Result<Outcome, Down> {
        let modes: Vec<OnFailure> = takes
            .iter()
            .map(|take| if take.enforced { self.world.policies[take.policy].on_failure } else { OnFailure::Allow })
            .collect();
        if modes.contains(&OnFailure::Deny) {
            return Err(Down);
        }
        let mut lines = Vec::new();
        for (take, mode) in takes.iter().zip(&modes) {
            if let OnFailure::Fallback(share) = mode {
                let name = &self.world.policies[take.policy].name;
                let rule = self.facts.borrow_mut().rules(name, take.key, &take.spec.scaled(*share))[0];
                lines.push((self.row_key(take, 0), rule, take));
            }
        }
        let (decided, fallback) = self.step(true, &lines, take);
        let all_granted = decided.iter().all(|decided| !matches!(decided.answer, Answered::Deny(_)));
        let mut local = decided.into_iter().map(|decision| Decision { by: By::Fallback, ..decision });
        let decisions = takes.iter().zip(&modes).map(|(take, mode)| match mode {
            OnFailure::Fallback(_) => local.next().expect("a decision for each charge"),
            _ => Decision {
                why: if all_granted { Why::FailOpen } else { Why::Elsewhere },
                by: By::FailOpen,
                ..self.decision(take, 0, Answered::Allow)
            },
        });
        Ok(Outcome { decisions: decisions.collect(), fallback, ..Outcome::default() })
    }

    /// Decides lines together on the limiter's rows, or on those of its fallback. Returns the decisions and, if all are granted, the changed rows.
    fn step(&self, is_local: bool, lines: &[(RowKey, Rule, &Take)], take: bool) -> (Vec<Decision>, Vec<(RowKey, Row)>) {
        let mut keys: Vec<RowKey> = Vec::new();
        let mut asked = Vec::new();
        for (key, rule, take) in lines {
            let row = keys.iter().position(|known| known == key).unwrap_or_else(|| {
                keys.push(*key);
                keys.len() - 1
            });
            asked.push(Asked { row, rule: *rule, cost: take.cost, wait: take.wait });
        }
        let first = |key: &RowKey| lines.iter().find(|(of, ..)| of == key).map(|(_, rule, _)| rule);
        let loaded = |key: &RowKey| first(key).map_or(Row::default(), |rule| self.loaded(is_local, key, rule));
        let before: Vec<Row> = keys.iter().map(loaded).collect();
        let mut after = before.clone();
        let decided = adapter::decide(&mut after, &asked, self.now);
        let all_granted = decided.iter().all(|decided| !matches!(decided.answer, Answered::Deny(_)));
        let decisions = lines.iter().zip(&decided).zip(&asked).map(|(((key, rule, of), decided), asked)| Decision {
            row: *key,
            rule: *rule,
            why: match decided.answer {
                Answered::Deny(_) => Why::Over,
                _ if !all_granted => Why::Elsewhere,
                Answered::Reserve(_) => Why::Reserved,
                Answered::Allow => Why::Granted,
            },
            counted: vec![(*rule, if take && all_granted { decided.row } else { before[asked.row] })],
            record: decided.record.filter(|_| take && all_granted),
            ..self.decision(of, key.shard, decided.answer)
        });
        let decisions = decisions.collect();
        let changed = if take && all_granted { keys.into_iter().zip(after).collect() } else { Vec::new() };
        (decisions, changed)
    }

    /// A charge uses one shard, which is drawn at random from those that are large enough. If it denies the charge,
    /// another one is tried.
    fn charge_shards(&self, takes: &[Take]) -> Vec<Outcome> {
        let charges: Vec<&[Take]> = takes.chunk_by(|one, other| one.charge == other.charge).collect();
        let drawable: Vec<usize> =
            charges.iter().map(|charge| charge.iter().map(Take::large_enough).min().unwrap_or(1).max(1)).collect();
        let mut choices: Vec<Vec<usize>> = vec![Vec::new()];
        for shards in &drawable {
            let longer =
                |choice: &Vec<usize>| (0..*shards).map(|shard| [&choice[..], &[shard]].concat()).collect::<Vec<_>>();
            choices = choices.iter().flat_map(longer).collect();
        }
        let mut outcomes: Vec<Outcome> = choices
            .iter()
            .map(|choice| {
                let of = charges.iter().zip(choice);
                let lines: Vec<(RowKey, Rule, &Take)> = of
                    .flat_map(|(charge, shard)| {
                        charge.iter().map(|take| (self.row_key(take, *shard), take.rules[*shard], take))
                    })
                    .collect();
                let (decisions, rows) = self.step(false, &lines, true);
                Outcome { decisions, rows, ..Outcome::default() }
            })
            .collect();
        // A denial by one shard is not enough if another one can be tried.
        if let ([shards], true) = (&drawable[..], outcomes.len() > 1) {
            let is_denied = |outcome: &Outcome| outcome.decisions.iter().any(|decision| !decision.is_granted());
            let denied = outcomes.iter().filter(|outcome| is_denied(outcome)).count();
            if *shards > 1 && denied < 2 {
                outcomes.retain(|outcome| !is_denied(outcome));
            }
        }
        outcomes
    }

    /// A check reads all shards of a charge, and answers for the best one.
    fn check_shards(&self, takes: &[Take]) -> Outcome {
        let charges: Vec<&[Take]> = takes.chunk_by(|one, other| one.charge == other.charge).collect();
        let mut lines = Vec::new();
        for charge in &charges {
            for shard in 0..charge[0].rules.len() {
                lines.extend(charge.iter().map(|take| (self.row_key(take, shard), take.rules[shard], take)));
            }
        }
        let (decided, _) = self.step(false, &lines, false);
        let (mut left, mut best) = (&decided[..], Vec::new());
        for charge in &charges {
            let (own, rest) = left.split_at(charge.len() * charge[0].rules.len());
            left = rest;
            let wait = |shard: &&[Decision]| shard.iter().map(|decision| wait_order(decision.answer)).max();
            let chosen = own.chunks(charge.len()).min_by_key(wait).expect("at least one shard");
            for (i, decision) in chosen.iter().enumerate() {
                let counted = own.iter().skip(i).step_by(charge.len()).map(|read| read.counted[0]).collect();
                best.push(Decision { counted, ..decision.clone() });
            }
        }
        let all_granted = best.iter().all(|decision| !matches!(decision.answer, Answered::Deny(_)));
        for decision in &mut best {
            decision.why = match decision.answer {
                Answered::Deny(_) => Why::Over,
                _ if !all_granted => Why::Elsewhere,
                Answered::Reserve(_) => Why::Reserved,
                Answered::Allow => Why::Granted,
            };
        }
        Outcome { decisions: best, ..Outcome::default() }
    }

    fn decision(&self, take: &Take, shard: usize, answer: Answered) -> Decision {
        Decision {
            take: take.clone(),
            row: self.row_key(take, shard),
            rule: take.rules[shard],
            answer,
            why: Why::Granted,
            by: By::Backend,
            shadowed: false,
            counted: Vec::new(),
            record: None,
            at: self.now,
            number: 0,
        }
    }

    fn refused(&self, take: &Take, why: Why, retry: Option<Time>) -> Decision {
        Decision { why, by: By::Limiter, ..self.decision(take, 0, Answered::Deny(retry)) }
    }

    fn held(&self, take: &Take, wait: Time) -> Decision {
        Decision { why: Why::Reserved, by: By::Limiter, ..self.decision(take, 0, Answered::Reserve(wait)) }
    }

    fn row_key(&self, take: &Take, shard: usize) -> RowKey {
        let generation = self.generations[take.policy];
        RowKey { policy: take.policy, generation, key: take.key, shard, window: take.window }
    }

    /// Returns the row as the limiter (or its fallback) loads it for a quota.
    fn loaded(&self, is_local: bool, key: &RowKey, rule: &Rule) -> Row {
        let rows = if is_local { &self.fallback } else { &self.rows };
        let row = rows.get(key).copied().unwrap_or_default();
        rule.loaded(row, self.carries.get(&(is_local, *key)).copied().unwrap_or(0), self.now)
    }

    fn store(&mut self, is_local: bool, key: RowKey, rule: &Rule, row: Row) {
        self.carries.insert((is_local, key), rule.carry_until(&row, self.now));
        let rows = if is_local { &mut self.fallback } else { &mut self.rows };
        rows.insert(key, row);
    }

    fn lines(&self, decisions: &[Decision]) -> Answer {
        Answer::Lines(decisions.iter().map(|decision| self.line(decision)).collect())
    }

    fn line(&self, decision: &Decision) -> Line {
        Line {
            policy: self.world.policies[decision.take.policy].name.clone(),
            allowed: decision.is_allowed(),
            shadowed: decision.shadowed,
            why: decision.why,
            by: decision.by,
            retry: decision.retry(),
            delay: decision.delay(),
            remaining: (decision.by != By::FailOpen).then(|| decision.remaining()),
        }
    }

    // Deny lists, blocks and pauses.

    /// Returns the end of the block that applies to a call (`None` within for a deny list), if there is one.
    fn blocked(&self, charges: &[ChargeOf], ip: Option<u8>) -> Option<Option<Time>> {
        let ip = ip.map(Whom::Ip);
        let keys = charges.iter().filter_map(|of| Some((of.policy, Whom::Key(of.caller.key?))));
        if ip.iter().any(|ip| self.listed.contains(ip)) || keys.clone().any(|(_, key)| self.listed.contains(&key)) {
            return Some(None);
        }
        let mut until = 0;
        let automatic = |whom: Whom| self.offenders.get(&whom).map_or(0, |offender| offender.until);
        if let Some(ip) = ip {
            until = until.max(self.blocks.get(&ip).copied().unwrap_or(0)).max(automatic(ip));
        }
        for (policy, key) in keys {
            until = until.max(self.blocks.get(&key).copied().unwrap_or(0));
            if self.world.blocking.as_ref().is_some_and(|rules| rules.keys && rules.policies.contains(&policy)) {
                until = until.max(automatic(key));
            }
        }
        (until > self.now).then_some(Some(until))
    }

    fn paused(&self, takes: &[Take]) -> Option<Time> {
        let enforced = takes.iter().filter(|take| take.enforced);
        let until = enforced.filter_map(|take| self.pauses.get(&(take.policy, take.key)).copied()).max();
        until.filter(|until| *until > self.now)
    }

    /// Counts denials, and blocks callers with too many.
    fn protect(&mut self, decisions: &[Decision], charges: &[ChargeOf], ip: Option<u8>) {
        let Some(rules) = self.world.blocking.clone() else { return };
        if !decisions.iter().any(|decision| decision.take.enforced) {
            return;
        }
        let binding: Vec<&Decision> =
            decisions.chunk_by(|one, other| one.take.charge == other.take.charge).map(binding).collect();
        let counted = |decision: &&&Decision| rules.policies.contains(&decision.take.policy);
        let ip = ip.map(Whom::Ip);
        if decisions.iter().all(Decision::is_allowed) {
            let evidence =
                |decision: &&&Decision| decision.by != By::FailOpen && decision.take.cost > 0 && !decision.shadowed;
            let mut counts = false;
            for decision in binding.iter().filter(evidence).filter(counted) {
                counts = true;
                if let (true, Some(key)) = (rules.resets_on_success, charges[decision.take.charge].caller.key) {
                    self.offenders.entry(Whom::Key(key)).or_default().count = 0;
                }
            }
            if let (true, true, Some(ip)) = (rules.resets_on_success, counts, ip) {
                self.offenders.entry(ip).or_default().count = 0;
            }
            return;
        }
        let mut whom = Vec::new();
        let mut counts = false;
        for decision in binding.iter().filter(|decision| decision.is_violated()).filter(counted) {
            counts = true;
            if let (true, Some(key)) = (rules.keys, charges[decision.take.charge].caller.key) {
                whom.push(Whom::Key(key));
            }
        }
        whom.sort_unstable();
        whom.dedup();
        whom.extend(ip.filter(|_| counts && rules.ips));
        for whom in whom {
            self.offenders.entry(whom).or_default().denied(self.now, &rules);
        }
    }

    // Settlements.

    fn settle(&mut self, receipt: &mut Receipt, actual: u64, only_first: bool) -> Settled {
        let first = receipt.decisions[0].take.charge;
        let len = match only_first {
            true => receipt.decisions.iter().take_while(|decision| decision.take.charge == first).count(),
            false => receipt.decisions.len(),
        };
        let shadowed = receipt.decisions[..len].iter().filter(|decision| decision.shadowed).count();
        let is_settled = (0..len).all(|index| receipt.settled[index] || receipt.decisions[index].shadowed);
        if receipt.settled[..len].iter().all(|is_settled| *is_settled) {
            return Settled { answer: Answer::Flag(false), is_repeated: false };
        }
        if is_settled {
            // A call that was let through has nothing to forfeit.
            return Settled { answer: Answer::Flag(shadowed == len), is_repeated: shadowed > 0 && shadowed < len };
        }
        let (mut local, mut remote) = (Vec::new(), Vec::new());
        for index in (0..len).rev() {
            let decision = &receipt.decisions[index];
            if decision.shadowed || std::mem::replace(&mut receipt.settled[index], true) {
                continue;
            }
            let Some(record) = decision.record.filter(|record| record.cost != actual) else { continue };
            match decision.by {
                By::Backend => remote.push((decision.clone(), record)),
                By::Fallback => local.push((decision.clone(), record)),
                _ => {}
            }
        }
        let mut took_effect = true;
        for (decision, record) in local {
            let row = self.loaded(true, &decision.row, &decision.rule);
            let (settled, done) = decision.rule.settle(&row, &record, self.now, actual);
            // A row that does not change is not written, even if it has expired.
            if settled != row {
                self.store(true, decision.row, &decision.rule, settled);
            }
            took_effect &= done;
        }
        if remote.is_empty() {
            return Settled { answer: Answer::Flag(took_effect), ..Settled::default() };
        }
        if self.failing {
            return Settled { answer: Answer::Failed, ..Settled::default() };
        }
        let mut forfeited = false;
        for (decision, record) in remote {
            let row = self.loaded(false, &decision.row, &decision.rule);
            let (settled, done) = decision.rule.settle(&row, &record, self.now, actual);
            took_effect &= done;
            if settled != row {
                self.store(false, decision.row, &decision.rule, settled);
            }
            let levels = (decision.rule.level(&row, self.now), decision.rule.level(&settled, self.now));
            self.ledger.roll(decision.row, levels.0);
            if let (Some(before), Some(after)) = levels {
                let given = before - after;
                if actual < record.cost {
                    let owed = self.ledger.outstanding(decision.row, decision.number);
                    if let Some(owed) = owed.filter(|owed| given > owed + 0.001) {
                        let text = format!("a refund gave back {given} tokens, but only {owed} were outstanding");
                        self.findings.push(Finding::of(Some(9), text));
                    }
                    forfeited |= given + 0.999 < (record.cost - actual) as f64;
                }
                self.ledger.refund(decision.row, decision.number, given);
            }
        }
        if forfeited && took_effect {
            let text = "a settlement answers that nothing was forfeited, although something was".to_owned();
            self.findings.push(Finding::of(Some(9), text));
        }
        Settled { answer: Answer::Flag(took_effect), ..Settled::default() }
    }

    fn give_back(&mut self, decisions: Vec<Decision>) -> Settled {
        self.settle(&mut Receipt::new(decisions), 0, false)
    }

    fn check_settled(&mut self, settled: &Settled, seen: &Answer) -> Result<(), String> {
        if settled.is_repeated && *seen == Answer::Flag(true) {
            let text = "a receipt with a shadowed charge answers `true` when nothing is left to settle".to_owned();
            self.findings.push(Finding::of(Some(101), text));
            return Ok(());
        }
        same(&settled.answer, seen)
    }

    fn dropped(&mut self, reservation: Reservation) {
        if reservation.open && !reservation.kept {
            self.give_back(reservation.decisions);
        }
    }

    fn credit(&mut self, policy: usize, caller: &Caller, tokens: u64) -> Answer {
        if tokens == 0 {
            return Answer::Flag(false);
        }
        if self.failing {
            return Answer::Failed;
        }
        let of = ChargeOf { policy, caller: caller.clone(), cost: 0 };
        let mut took_effect = false;
        for take in self.resolve(&[of], None) {
            let shards = take.rules.len() as u64;
            for (shard, rule) in take.rules.iter().enumerate() {
                let share = tokens / shards + u64::from((shard as u64) < tokens % shards);
                if share == 0 {
                    continue;
                }
                let key = self.row_key(&take, shard);
                let row = self.loaded(false, &key, rule);
                let (credited, done) = rule.settle(&row, &adapter::credit(share), self.now, 0);
                took_effect |= done;
                self.check_no_later(rule, &row, &credited);
                self.ledger.roll(key, rule.level(&row, self.now));
                self.ledger.roll(key, rule.level(&credited, self.now));
                if credited != row {
                    self.store(false, key, rule, credited);
                }
            }
        }
        Answer::Flag(took_effect)
    }

    /// A credit never makes a charge wait longer.
    fn check_no_later(&mut self, rule: &Rule, before: &Row, after: &Row) {
        for cost in [1, rule.capacity() / 2, rule.capacity()] {
            let never = |retry: Option<Time>| retry.unwrap_or(Time::MAX);
            let earlier = never(rule.denied_for(before, self.now, cost));
            let later = never(rule.denied_for(after, self.now, cost));
            if later > earlier {
                let known = rule.is_foreign(before, self.now).then_some(8);
                let text = format!("after a credit, {cost} tokens are denied for {later} µs instead of {earlier} µs");
                self.findings.push(Finding::of(known, text));
            }
        }
    }

    /// Returns whether a row has spent tokens in shards that the quotas now in force do not have.
    fn has_other_shards(&self, of: &RowKey, shards: u64) -> bool {
        let same = |key: &RowKey| (of.policy, of.generation, of.key) == (key.policy, key.generation, key.key);
        let is_left = |key: &RowKey, row: &Row| same(key) && key.shard as u64 >= shards && row.spent > 0.0;
        self.rows.iter().any(|(key, row)| is_left(key, row) && row.clear.get() > self.now)
    }

    /// Resets rows, each with a number of shards and all of its windows.
    fn reset(&mut self, rows: &[(RowKey, u64)], seen: &Answer) -> Result<(), String> {
        let is_of = |key: &RowKey| {
            let same = |row: &RowKey| (row.policy, row.generation, row.key) == (key.policy, key.generation, key.key);
            rows.iter().any(|(row, shards)| same(row) && (key.shard as u64) < *shards)
        };
        let now = self.now;
        let mut found: Vec<Row> = self.fallback.iter().filter(|(key, _)| is_of(key)).map(|(_, row)| *row).collect();
        self.fallback.retain(|key, _| !is_of(key));
        if self.failing {
            return same(&Answer::Failed, seen);
        }
        found.extend(self.rows.iter().filter(|(key, _)| is_of(key)).map(|(_, row)| *row));
        self.rows.retain(|key, _| !is_of(key));
        self.ledger.forget(is_of);
        let is_certain = found.iter().any(|row| row.spent > 0.0 && row.clear.get() > now);
        match seen {
            Answer::Flag(true) if !found.is_empty() => Ok(()),
            Answer::Flag(false) if !is_certain => Ok(()),
            _ => Err(format!("found {seen:?}, with the rows {found:?}")),
        }
    }

    fn set_quota(&mut self, policy: usize, scope: Scope, quotas: Option<&Vec<Spec>>) -> Answer {
        let spec = &self.world.policies[policy];
        if let Some(quotas) = quotas {
            let is_unknown = matches!(scope, Scope::Tier(tier) if usize::from(tier) >= spec.tiers.len());
            if is_unknown || !accepts(spec, quotas) {
                return Answer::Rejected;
            }
        }
        self.set.retain(|(of, at, _)| (*of, *at) != (policy, scope));
        self.set.extend(quotas.map(|quotas| (policy, scope, quotas.clone())));
        Answer::Done
    }

    fn restart(&mut self) {
        while !self.waiting.is_empty() {
            self.stop_waiting(0);
        }
        for reservation in std::mem::take(&mut self.reservations) {
            self.dropped(reservation);
        }
        self.receipts.clear();
        self.fallback.clear();
        let now = self.now;
        // Expired rows are not saved, and with them what was given back.
        self.rows.retain(|_, row| row.clear.get() > now || now >= adapter::LAST);
        self.offenders.retain(|_, offender| offender.until > now);
        self.blocks.retain(|_, until| *until > now);
        self.pauses.retain(|_, until| *until > now);
    }

    // Waiting calls.

    /// Checks what polling waiting call number `index` returned. Returns whether it has completed.
    pub(crate) fn polled(&mut self, index: usize, seen: Option<&Answer>, probe: Probe<'_>) -> Result<bool, String> {
        loop {
            self.join(index);
            self.move_up(index);
            if self.waiting[index].due.is_some_and(|due| due > self.now) {
                return pending(seen).map(|()| false);
            }
            self.waiting[index].due = None;
            self.leave(index, Queue::complete);
            if let Some((why, until)) = self.late_denial(index) {
                let waiting = self.waiting.remove(index);
                let wait = until - self.now;
                let denied: Vec<Decision> = waiting
                    .decisions
                    .iter()
                    .filter(|decision| decision.take.enforced)
                    .map(|decision| self.refused(&decision.take, why, Some(wait)))
                    .collect();
                let expected = self.lines(&denied);
                if waiting.open {
                    self.give_back(waiting.decisions);
                }
                return completed(&expected, seen).map(|()| true);
            }
            let takes: Vec<Take> = self.waiting[index].decisions.iter().map(|decision| decision.take.clone()).collect();
            if let Some(until) = self.paused(&takes) {
                if self.waiting[index].open {
                    let decisions = std::mem::take(&mut self.waiting[index].decisions);
                    self.give_back(decisions);
                }
                let wait = until - self.now;
                let held = takes.iter().map(|take| self.held(take, wait)).collect();
                let waiting = &mut self.waiting[index];
                (waiting.open, waiting.decisions, waiting.due) = (false, held, Some(until));
                continue;
            }
            if self.waiting[index].open {
                let waiting = self.waiting.remove(index);
                let expected = self.lines(&waiting.decisions);
                self.receipts.push(Receipt::new(waiting.decisions));
                return completed(&expected, seen).map(|()| true);
            }
            if self.ask_again(index, &takes, seen, probe)? {
                return Ok(true);
            }
        }
    }

    /// Makes the charges of a call that a pause has held. Returns whether the call has ended.
    fn ask_again(
        &mut self,
        index: usize,
        captured: &[Take],
        seen: Option<&Answer>,
        probe: Probe<'_>,
    ) -> Result<bool, String> {
        let Waiting { ref of, ip, last, .. } = self.waiting[index];
        let (of, wait) = (of.clone(), last.saturating_sub(self.now));
        let charges = std::slice::from_ref(&of);
        let takes = self.resolve(charges, Some(wait));
        let correct = self.decide(&takes, charges, ip, wait, true);
        let captured: Vec<Take> = captured.iter().map(|take| Take { wait: Some(wait), ..take.clone() }).collect();
        let stale = self.decide_unblocked(&captured, true);
        let of_known = |known: Option<u8>| move |outcome| (known, outcome);
        let all = correct.into_iter().map(of_known(None)).chain(stale.into_iter().map(of_known(Some(2))));
        let all: Vec<(Option<u8>, Result<Outcome, Down>)> = all.collect();
        let answer = |outcome: &Result<Outcome, Down>| match outcome {
            Err(Down) => Some(Answer::Failed),
            Ok(outcome) if outcome.is_allowed() && outcome.delay() > 0 => None,
            Ok(outcome) => Some(self.lines(&outcome.decisions)),
        };
        let mut possible: Vec<_> =
            all.iter().filter(|(_, outcome)| answer(outcome).as_ref() == seen).cloned().collect();
        if possible.is_empty() {
            let expected: Vec<Option<Answer>> = all.iter().map(|(_, outcome)| answer(outcome)).collect();
            return Err(format!("at the end of a pause, expected {}, found {seen:?}", any_of(&expected)));
        }
        if possible.len() > 1 {
            let is_seen = |outcome: &Result<Outcome, Down>| match outcome {
                Ok(outcome) => self.is_seen(outcome, charges, probe),
                Err(Down) => true,
            };
            possible.retain(|(_, outcome)| is_seen(outcome));
            if possible.is_empty() {
                return Err(format!("at the end of a pause, {seen:?} is possible, but not with these rows"));
            }
        }
        if possible.len() > 1 && possible[0].0.is_some() {
            // The stale charge is in rows that the settings in force do not use, so it cannot be seen which shard has it.
            return Err(STALE.to_owned());
        }
        let (known, outcome) = possible.swap_remove(0);
        if known.is_some() {
            self.findings.push(Finding::of(known, STALE.to_owned()));
        }
        let Ok(outcome) = outcome else {
            self.waiting.remove(index);
            return Ok(true);
        };
        // The denial of a held call is not counted toward a block.
        let outcome = Outcome { guarded: true, ..outcome };
        let Some(decisions) = self.commit(outcome, true, charges, ip) else {
            self.waiting.remove(index);
            return Ok(true);
        };
        let waiting = &mut self.waiting[index];
        waiting.open = true;
        waiting.asked_to_join = false;
        waiting.due = (delay(&decisions) > 0).then(|| due(&decisions));
        waiting.decisions = decisions;
        Ok(false)
    }

    /// Returns why a call whose turn has come is denied after all.
    fn late_denial(&self, index: usize) -> Option<(Why, Time)> {
        let Waiting { of, last, decisions, .. } = &self.waiting[index];
        let takes: Vec<Take> =
            decisions.iter().map(|decision| decision.take.clone()).filter(|take| take.enforced).collect();
        let blocked = of.caller.key.and_then(|key| self.blocks.get(&Whom::Key(key)).copied());
        if let Some(until) = blocked.filter(|until| *until > self.now && !takes.is_empty()) {
            return Some((Why::Blocked, until));
        }
        let until = self.paused(&takes)?;
        (until - self.now > last.saturating_sub(self.now)).then_some((Why::Blocked, until))
    }

    fn stop_waiting(&mut self, index: usize) {
        self.leave(index, Queue::leave);
        let waiting = self.waiting.remove(index);
        if waiting.open {
            self.give_back(waiting.decisions);
        }
    }

    fn join(&mut self, index: usize) {
        let waiting = &mut self.waiting[index];
        if waiting.due.is_none() || std::mem::replace(&mut waiting.asked_to_join, true) {
            return;
        }
        let [decision] = &waiting.decisions[..] else { return };
        if decision.by == By::Backend {
            let key = (decision.row, decision.take.cost, decision.rule);
            self.queues.entry(key).or_default().join(decision.clone(), waiting.number);
            waiting.queue = Some(key);
        }
    }

    fn move_up(&mut self, index: usize) {
        let waiting = &mut self.waiting[index];
        if let (Some(key), Some(due)) = (&waiting.queue, waiting.due) {
            let decision = self.queues[key].held_by(waiting.number);
            waiting.due = Some(due.min(decision.due()));
        }
    }

    fn leave(&mut self, index: usize, exit: fn(&mut Queue, u64) -> Decision) {
        let waiting = &mut self.waiting[index];
        if let Some(queue) = waiting.queue.take().and_then(|key| self.queues.get_mut(&key)) {
            waiting.decisions = vec![exit(queue, waiting.number)];
        }
    }
}

/// What a settlement answers.
#[derive(Debug)]
struct Settled {
    answer: Answer,
    /// Whether nothing is left to settle, but some charge of the receipt was shadowed.
    is_repeated: bool,
}

impl Default for Settled {
    fn default() -> Settled {
        Settled { answer: Answer::Flag(true), is_repeated: false }
    }
}

impl Take {
    /// Returns the number of shards that are large enough for the cost. Larger shards come first.
    fn large_enough(&self) -> usize {
        let shards = self.spec.shards;
        let share = |tokens: u64, shard: u64| tokens / shards + u64::from(shard < tokens % shards);
        let most = |shard: u64| {
            let reserved = match self.spec.max_reserved {
                _ if self.wait.is_none() => 0,
                None => u64::MAX / 2,
                Some(tokens) => share(tokens, shard),
            };
            share(self.spec.capacity, shard) + reserved
        };
        (0..shards).take_while(|shard| self.cost <= most(*shard)).count()
    }
}

impl Decision {
    fn is_granted(&self) -> bool {
        matches!(self.why, Why::Granted | Why::Reserved | Why::FailOpen)
    }

    fn is_allowed(&self) -> bool {
        self.shadowed || self.is_granted()
    }

    fn is_violated(&self) -> bool {
        !self.is_granted() && self.why != Why::Elsewhere && (self.shadowed || self.take.enforced)
    }

    fn let_through(self) -> Decision {
        Decision { shadowed: !self.take.enforced, ..self }
    }

    fn retry(&self) -> Option<Time> {
        if let Answered::Deny(retry) = self.answer { retry } else { None }
    }

    fn delay(&self) -> Time {
        match self.answer {
            Answered::Reserve(wait) if self.take.enforced => wait,
            _ => 0,
        }
    }

    fn due(&self) -> Time {
        self.at + self.delay()
    }

    fn remaining(&self) -> u64 {
        if self.by == By::Limiter {
            return 0;
        }
        let all: u64 = self.counted.iter().map(|(rule, row)| rule.remaining(row, self.at)).sum();
        let (read, shards) = (self.counted.len().max(1) as u64, self.rule_shards());
        if shards > 1 { (all * shards / read).min(self.take.spec.capacity) } else { all }
    }

    /// Returns the number of shards. A fallback does not divide its quota.
    fn rule_shards(&self) -> u64 {
        if self.by == By::Fallback { 1 } else { self.take.spec.shards }
    }
}

impl Outcome {
    fn is_allowed(&self) -> bool {
        self.decisions.iter().all(Decision::is_allowed)
    }

    /// Returns whether a block applies to the call, but is not enforced.
    fn is_let_through(&self) -> bool {
        self.guarded && self.decisions.iter().all(|decision| decision.shadowed)
    }

    fn delay(&self) -> Time {
        delay(&self.decisions)
    }

    /// Replaces the enforced decisions. The others are let through if the call is allowed.
    fn with_enforced(&self, second: Outcome) -> Outcome {
        let is_allowed = second.is_allowed();
        let mut enforced = second.decisions.into_iter();
        let replaced = |decision: &Decision| match decision.take.enforced {
            true => enforced.next().expect("a decision for each enforced charge"),
            false if is_allowed => decision.clone().let_through(),
            false => decision.clone(),
        };
        Outcome { decisions: self.decisions.iter().map(replaced).collect(), ..second }
    }
}

impl Receipt {
    fn new(decisions: Vec<Decision>) -> Receipt {
        Receipt { settled: vec![false; decisions.len()], decisions }
    }
}

impl Queue {
    fn join(&mut self, reservation: Decision, number: u64) {
        self.joined += 1;
        let rank = self.reserved.iter().take_while(|last| last.due() <= reservation.due()).count();
        self.reserved.insert(rank, reservation);
        self.waiters.insert(rank, (self.joined, number));
    }

    fn rank(&self, number: u64) -> usize {
        self.waiters.iter().position(|(_, waiter)| *waiter == number).expect("a call that has joined")
    }

    fn held_by(&self, number: u64) -> &Decision {
        &self.reserved[self.rank(number)]
    }

    fn complete(&mut self, number: u64) -> Decision {
        let rank = self.rank(number);
        self.waiters.remove(rank);
        self.reserved.remove(rank)
    }

    /// A call that stops waiting leaves its reservation to the calls behind it, and gives back the last one.
    fn leave(&mut self, number: u64) -> Decision {
        let rank = self.rank(number);
        self.waiters.remove(rank);
        let last = self.reserved.pop().expect("a reservation for each call");
        let mut begin = 0;
        while begin < self.reserved.len() {
            let due = self.reserved[begin].due();
            let end = begin + self.reserved[begin..].iter().take_while(|next| next.due() == due).count();
            self.waiters[begin..end].sort_unstable();
            begin = end;
        }
        last
    }
}

impl Offender {
    fn denied(&mut self, now: Time, rules: &Blocking) {
        if self.until > 0 && self.since < self.until && self.until <= now {
            (self.count, self.since) = (0, now);
        }
        if now.saturating_sub(self.since) >= rules.within {
            self.count = 0;
        }
        if self.count == 0 {
            self.since = now;
        }
        self.count += 1;
        if self.count < rules.threshold || self.until > now {
            return;
        }
        let lasts = |times: u32| match rules.escalation {
            None => rules.lasts,
            Some((factor, most)) => {
                rules.lasts.saturating_mul(u64::from(factor).saturating_pow(times)).min(most.max(rules.lasts))
            }
        };
        // A caller that was not blocked for as long as its last block lasted starts over.
        if self.times > 0 && now >= self.until + lasts(self.times - 1) {
            self.times = 0;
        }
        self.until = now + lasts(self.times);
        self.times += 1;
    }
}

/// The decision that counts for a charge: the longest denial, the latest reservation, or the fewest tokens.
fn binding(charge: &[Decision]) -> &Decision {
    let first = charge[0].take.charge;
    let charge: Vec<&Decision> = charge.iter().take_while(|decision| decision.take.charge == first).collect();
    let violated = charge.iter().filter(|decision| decision.is_violated());
    let longest = violated.max_by_key(|decision| decision.retry().unwrap_or(Time::MAX));
    let latest = charge.iter().filter(|decision| decision.delay() > 0).max_by_key(|decision| decision.delay());
    longest.or(latest).or_else(|| charge.iter().min_by_key(|decision| decision.remaining())).expect("a decision")
}

fn delay(decisions: &[Decision]) -> Time {
    decisions.iter().map(Decision::delay).max().unwrap_or(0)
}

/// Returns when the charge with the longest delay is due.
fn due(decisions: &[Decision]) -> Time {
    decisions.iter().max_by_key(|decision| decision.delay()).map_or(0, Decision::due)
}

fn wait_order(answer: Answered) -> (u8, Time) {
    match answer {
        Answered::Allow => (0, 0),
        Answered::Reserve(wait) => (0, wait),
        Answered::Deny(Some(retry)) => (1, retry),
        Answered::Deny(None) => (2, 0),
    }
}

fn lists(policy: &PolicySpec) -> impl Iterator<Item = &Vec<Spec>> {
    std::iter::once(&policy.quotas).chain(&policy.tiers)
}

/// Returns the periods of a policy with several quotas, longest first, with their algorithms.
fn periods(policy: &PolicySpec) -> Option<Vec<(Time, Kind)>> {
    let mut all: Vec<(Time, Kind)> = lists(policy).flatten().map(|quota| (quota.period, quota.kind)).collect();
    all.sort_by_key(|(period, _)| std::cmp::Reverse(*period));
    all.dedup_by_key(|(period, _)| *period);
    lists(policy).any(|list| list.len() > 1).then_some(all)
}

/// Returns the window of each quota in a list: the window of its period, or a free one.
fn windows(policy: &PolicySpec, quotas: &[Spec]) -> Vec<u8> {
    let known = periods(policy);
    if known.is_none() && quotas.len() == 1 {
        return vec![0];
    }
    let known = known.unwrap_or_default();
    let position = |quota: &Spec| known.iter().position(|(period, _)| *period == quota.period);
    let mut windows: Vec<Option<usize>> = quotas.iter().map(position).collect();
    let mut rest: Vec<usize> = (0..quotas.len()).filter(|i| windows[*i].is_none()).collect();
    rest.sort_by_key(|i| std::cmp::Reverse(quotas[*i].period));
    for i in rest {
        windows[i] = (0..8).find(|window| !windows.contains(&Some(*window)));
    }
    windows.into_iter().map(|window| window.expect("a free window") as u8).collect()
}

/// Returns whether quotas can be set for a policy: each needs the algorithm of its window.
fn accepts(policy: &PolicySpec, quotas: &[Spec]) -> bool {
    let known = periods(policy).unwrap_or_else(|| vec![(policy.quotas[0].period, policy.quotas[0].kind)]);
    let of = |window: u8| known.get(usize::from(window)).map(|(_, kind)| *kind);
    quotas.iter().zip(windows(policy, quotas)).all(|(quota, window)| of(window).is_none_or(|kind| kind == quota.kind))
}

fn position(len: usize, pick: u64) -> Option<usize> {
    (len > 0).then(|| (pick % len as u64) as usize)
}

fn same(expected: &Answer, seen: &Answer) -> Result<(), String> {
    if expected == seen { Ok(()) } else { Err(format!("expected {expected:?}, found {seen:?}")) }
}

fn pending(seen: Option<&Answer>) -> Result<(), String> {
    seen.map_or(Ok(()), |seen| Err(format!("a call should still be waiting, but it answered {seen:?}")))
}

fn completed(expected: &Answer, seen: Option<&Answer>) -> Result<(), String> {
    let seen = seen.ok_or_else(|| format!("a call is still waiting, but it should have answered {expected:?}"))?;
    same(expected, seen)
}

fn any_of<T: std::fmt::Debug + PartialEq>(all: &[T]) -> String {
    let mut different: Vec<&T> = Vec::new();
    all.iter().for_each(|one| {
        if !different.contains(&one) {
            different.push(one);
        }
    });
    different.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(" or ")
}
