//! Prints a limiter's decisions on random lists of quotas. Most of the quotas have shards.
//!
//! Each line is either an array of snapshots of the limits or an object with a decision. Every decision is based on the
//! most recent array, and is made at the time of the snapshots or later.

use std::future::Future;
use std::io::Write;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::algorithm::{Algorithm, Ask, Micros, Step, step};
use tollgate::clock::ManualClock;
use tollgate::limiter::{Reservation, Snapshot};
use tollgate::policy::{Decision, Decisions, Quotas};
use tollgate::{Charge, MemoryBackend, Policy, Quota, RateLimiter};

use super::random::{Random, ask, instant, quota};
use super::{SnapshotFields, object, or_null, verdict};

/// Prints at least `count` decisions.
pub fn print(count: u64, random: &mut Random, out: &mut impl Write) {
    let mut printed = 0;
    while printed < count {
        let clock = ManualClock::at(instant(random).min(LATEST));
        let backend = MemoryBackend::builder().max_rows(MAX_ROWS).clock(clock.clone()).build();
        // Some limiters read only a sample of the shards.
        let limiter = RateLimiter::builder(backend).sample_shards(if random.one_in(8) { 5 } else { 64 }).build();
        let limiter = Limiter { limiter, clock, policies: policies(random) };
        // Some rows were written under different quotas of the same policies.
        if random.one_in(3) {
            let policies = limiter.policies.iter().filter_map(|policy| changed(random, policy)).collect();
            Limiter { policies, ..limiter.clone() }.spend(random);
        }
        limiter.spend(random);
        let snapshots = limiter.snapshots();
        let json: Vec<String> = snapshots.iter().map(Snapshot::to_json).collect();
        writeln!(out, "[{}]", json.join(",")).expect("cannot write to stdout");
        for _ in 0..DECISIONS {
            let rows = snapshots[random.below(snapshots.len() as u64) as usize].rows();
            let (quota, state) = rows[random.below(rows.len() as u64) as usize];
            let ask = ask(random, &quota, state.spent);
            // The client's stores never make reservations, so most requests do not allow them.
            let ask = if random.one_in(2) { Ask::cost(ask.tokens()) } else { ask };
            let decisions = limiter.check(ask);
            writeln!(out, "{}", line(&snapshots, limiter.clock_now(), ask, &decisions))
                .expect("cannot write to stdout");
            printed += 1;
            limiter.clock.set(later(random, &quota, limiter.clock_now(), &decisions));
        }
    }
}

/// The number of decisions on each list of snapshots.
const DECISIONS: u64 = 16;
/// Enough for four quotas with 64 shards and two rows per shard, even if some parts of the table fill up before others.
const MAX_ROWS: usize = 16_384;
/// The year 2200, well before the last instant (in 2255), at which a memory backend considers all rows expired.
const LATEST: Micros = Micros::new(7_258_118_400_000_000);
const KEY: u64 = 7;

#[derive(Clone)]
struct Limiter {
    limiter: RateLimiter,
    clock: ManualClock,
    policies: Vec<Policy>,
}

impl Limiter {
    fn clock_now(&self) -> Micros {
        tollgate::clock::Clock::now(&self.clock)
    }

    /// Makes random charges, so that the shards have different numbers of tokens.
    fn spend(&self, random: &mut Random) {
        for policy in &self.policies {
            let quota = policy.quotas()[random.below(policy.quotas().len() as u64) as usize];
            let shards = quota.get_shards();
            for _ in 0..random.below(4 * shards) {
                let cost = match random.below(4) {
                    0 => quota.get_capacity() / shards,
                    1 => random.below(4),
                    _ => random.below(quota.get_capacity() / shards + 1),
                };
                let charge = Charge::new(policy, KEY).cost(cost);
                if quota.get_max_reserved() != Some(0) && random.one_in(3) {
                    // A dropped reservation is refunded. A dropped receipt is not.
                    let _receipt = ready(self.limiter.hold_all([charge.reserve()])).map(Reservation::into_receipt);
                } else {
                    let _decisions =
                        ready(self.limiter.try_limit_all([charge])).expect("the memory backend does not fail");
                }
                if random.one_in(8) {
                    let period = quota.period().as_micros() as u64;
                    self.clock.set(self.clock_now() + Duration::from_micros(random.near(period / shards)));
                }
            }
        }
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        let snapshots = |policy| ready(self.limiter.snapshot(policy, KEY)).expect("the memory backend does not fail");
        self.policies.iter().flat_map(snapshots).collect()
    }

    fn check(&self, ask: Ask) -> Decisions {
        let charge = |policy| {
            let charge = Charge::new(policy, KEY).cost(ask.tokens());
            ask.max_wait().map_or(charge.clone(), |wait| charge.reserve_within(wait))
        };
        ready(self.limiter.try_check_all(self.policies.iter().map(charge))).expect("the memory backend does not fail")
    }
}

fn line(snapshots: &[Snapshot], now: Micros, ask: Ask, decisions: &Decisions) -> String {
    let wait = match decisions.is_allowed() {
        true => Some(decisions.delay()),
        false => decisions.retry_after(),
    };
    let each: Vec<String> = snapshots.iter().map(|snapshot| projected(snapshot, now, ask)).collect();
    object(&[
        ("now", now.get().to_string()),
        ("cost", ask.tokens().to_string()),
        ("max_wait", or_null(ask.max_wait().map(|wait| wait.as_micros().min(1 << 53)))),
        ("allowed", decisions.is_allowed().to_string()),
        ("wait", or_null(wait.map(|wait| wait.as_micros()))),
        ("value", or_null(decisions.iter().map(Decision::remaining).min())),
        ("sampled", snapshots.iter().any(is_sampled).to_string()),
        ("each", format!("[{}]", each.join(","))),
    ])
}

/// Returns the decision computed from one snapshot, in JSON.
fn projected(snapshot: &Snapshot, now: Micros, ask: Ask) -> String {
    let best = snapshot.project(now, ask);
    let is_best = |(quota, state): &&(Quota, _)| step(quota, state, now, ask) == best;
    let (quota, _) = snapshot.rows().iter().find(is_best).expect("one of the rows determines the decision");
    let Step { state, .. } = best;
    let (verdict, time) = verdict(&best);
    let after = SnapshotFields::of(quota, &state);
    object(&[
        ("verdict", format!("{verdict:?}")),
        ("time", or_null(time)),
        ("available", snapshot.available(now).to_string()),
        ("spent", format!("{:?}", state.spent)),
        ("ts", state.at.get().to_string()),
        ("previous", after.previous),
        ("clear", after.clear),
        ("written_by", after.written_by),
    ])
}

/// Returns policies that have one to four quotas in total.
fn policies(random: &mut Random) -> Vec<Policy> {
    let mut policies: Vec<Policy> = Vec::new();
    for index in 0..=random.below(4) {
        let joined = policies.last().and_then(|last| last.quotas().try_and(divided(random, Some(last))).ok());
        match joined.filter(|_| random.one_in(2)) {
            Some(quotas) => {
                let last = policies.pop().expect("there is a last policy").name().to_string();
                policies.extend(Policy::try_new(last, quotas));
            }
            None => policies.extend(Policy::try_new(format!("p{index}"), divided(random, None))),
        }
    }
    policies
}

/// Returns a quota with the same number of shards as each quota of `like`, or a random number if `like` is `None`.
fn divided(random: &mut Random, like: Option<&Policy>) -> Quota {
    let shards = like.map_or([1, 2, 7, 64][random.below(4) as usize], |policy| policy.quotas()[0].get_shards());
    loop {
        // A policy must not deny everything.
        let divided = quota(random).and_then(|quota| quota.try_shards(shards).ok());
        if let Some(quota) = divided.filter(|quota| quota.get_capacity() > 0 || quota.get_max_reserved() != Some(0)) {
            return quota;
        }
    }
}

/// Returns a policy with the same name and different quotas. Some of these quotas keep their algorithm and period.
fn changed(random: &mut Random, policy: &Policy) -> Option<Policy> {
    let shards = policy.quotas()[0].get_shards();
    let mut quotas: Option<Quotas> = None;
    for quota in policy.quotas().iter() {
        let rate = random.near(quota.rate()).clamp(shards, Quota::MAX_TOKENS);
        let same_period = match quota.algorithm() {
            Algorithm::TokenBucket => Quota::try_token_bucket(rate, quota.period()),
            Algorithm::FixedWindow => Quota::try_fixed_window(rate, quota.period()),
            _ => Quota::try_sliding_window(rate, quota.period()),
        };
        let quota =
            if random.one_in(2) { same_period.ok()?.try_shards(shards).ok()? } else { divided(random, Some(policy)) };
        quotas = Some(quotas.map_or(Ok(quota.into()), |quotas| quotas.try_and(quota)).ok()?);
    }
    Policy::try_new(policy.name().to_string(), quotas?).ok()
}

/// Returns the instant of the next decision: the end of the wait in `decisions`, one microsecond before that, a random
/// later instant, or `now`.
fn later(random: &mut Random, quota: &Quota, now: Micros, decisions: &Decisions) -> Micros {
    let wait = if decisions.is_allowed() { Some(decisions.delay()) } else { decisions.retry_after() };
    let wait = wait.map_or(0, |wait| wait.as_micros() as u64);
    let period = quota.period().as_micros() as u64;
    let next = now
        + Duration::from_micros(match random.below(6) {
            0 => wait,
            1 => wait.saturating_sub(1),
            2 => random.near(period / quota.get_capacity().max(1)),
            3 => random.near(period / 16),
            _ => 0,
        });
    next.min(LATEST).max(now)
}

fn is_sampled(snapshot: &Snapshot) -> bool {
    (snapshot.rows().len() as u64) < snapshot.quota().get_shards()
}

/// Returns the output of a future that is ready. A memory backend's futures are always ready.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is not ready"),
    }
}
