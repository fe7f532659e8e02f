//! Random histories with the block cache and without: whoever is admitted is the same.
//!
//! Both limiters have a store of their own, and see the same instants: what one is told by its cache the other asks at
//! that very moment, and what both ask travels as long.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tollgate::algorithm::{Ask, Micros, State, Step};
use tollgate::{
    Charge, Decisions, Policy, Quota, RateLimiter, Receipt, Subject,
    clock::{Clock, ManualClock},
    key::Secret,
    policy::DecidedBy,
};

use crate::random::{Raw, begin, bucket, cases, history, sliding, tiny, window};
use crate::store::Store;
use crate::support::now;

/// A limiter, somebody else's on the same rows, and what it holds.
struct Side {
    limiter: RateLimiter,
    other: RateLimiter,
    store: Arc<Store>,
    clock: ManualClock,
    held: Vec<Receipt>,
}

impl Side {
    fn new(begin: Micros, rows: usize) -> Side {
        let clock = ManualClock::at(begin);
        let store = Store::far(&clock);
        let secret = Secret::new([4; 16]);
        let limiter = RateLimiter::builder(Arc::clone(&store)).secret(secret).block_cache(rows).build();
        let other = RateLimiter::builder(Arc::clone(&store)).secret(secret).block_cache(0).build();
        Side { limiter, other, store, clock, held: Vec::new() }
    }
}

/// A policy with a tier: quotas of one algorithm.
fn policies() -> impl Strategy<Value = Vec<Policy>> {
    let is_bucket = |quota: &Quota| quota.algorithm() == tollgate::algorithm::Algorithm::TokenBucket;
    let pair = prop_oneof![
        2 => (bucket(), bucket()),
        2 => (window(), window()),
        2 => (sliding(), sliding()),
        6 => (tiny(), tiny()).prop_filter("two algorithms", move |(a, b)| is_bucket(a) == is_bucket(b)),
    ];
    prop::collection::vec(pair, 1..=2).prop_map(|pairs| {
        let names = ["one", "two"];
        pairs.into_iter().zip(names).map(|((own, tier), name)| Policy::new(name, own).tier("pro", tier)).collect()
    })
}

/// Of every policy, other callers: the rows of one are in one shard.
fn caller(policy: &Policy, key: u64) -> Subject {
    Subject::new((policy.name().as_str(), key))
}

/// `ask` under the quota that applies, which may have no turns.
fn charge<'a>(policy: &'a Policy, subject: Subject, ask: Ask, quota: &Quota) -> Charge<'a> {
    let charge = Charge::new(policy, subject).cost(ask.tokens());
    match ask.max_wait().filter(|_| quota.reservable() != Some(0)) {
        None => charge,
        Some(wait) if wait.as_micros() == u128::from(u64::MAX) => charge.reserve(),
        Some(wait) => charge.reserve_within(wait),
    }
}

fn run(policies: &[Policy], begin: Micros, history: &[Raw]) -> Result<usize, TestCaseError> {
    let (mut on, mut off) = (Side::new(begin, 64), Side::new(begin, 0));
    let (mut promised, mut longest, mut told) = (begin, Duration::ZERO, 0);
    // Two keys change their tier; on the third, which has none, somebody else spends too. Whoever spends under another
    // quota may pay a row back faster, which nobody else can see.
    let key = |bits: u64| [0u64, 0, 0, 0, 1, 2, 2, 2][bits as usize & 7];
    let subject = |policy: &Policy, bits: u64| match caller(policy, key(bits)) {
        subject if key(bits) < 2 && bits >> 3 & 3 == 0 => subject.tier("pro"),
        subject => subject,
    };
    for raw in history {
        let bits = raw.what.1;
        let policy = &policies[(bits & 1) as usize % policies.len()];
        let caller = subject(policy, bits >> 1);
        let quota = on.limiter.quota(policy, caller.clone());
        let instant = raw.moved(&quota, on.clock.now(), promised);
        on.clock.set(instant);
        off.clock.set(instant);
        match raw.what.0 {
            // Somebody else spends.
            0 => {
                let caller = self::caller(policy, 2);
                let quota = on.limiter.quota(policy, caller.clone());
                for side in [&on, &off] {
                    side.store.set_trip(Duration::ZERO, Duration::ZERO);
                    let charge = charge(policy, caller.clone(), raw.ask(&quota), &quota);
                    drop(now(async {
                        Ok::<_, ()>(side.other.hold_all([charge]).await.map(|held| held.into_receipt()))
                    }));
                }
            }
            1 => {
                for side in [&on, &off] {
                    now(side.limiter.reset(policy, caller.clone()));
                }
            }
            2 => {
                let place = (bits >> 8) as usize % on.held.len().max(1);
                if place < on.held.len() {
                    for side in [&mut on, &mut off] {
                        now(side.held.remove(place).settle((raw.cost.1 >> 8) % 6));
                    }
                }
            }
            3 => {
                // Another number of tokens, in the same algorithm; one time in two what the program says.
                let other = quota.try_capacity(1 + (bits >> 8) % 9).ok().filter(|_| bits >> 20 & 1 == 0);
                let other = other.filter(|quota| tollgate::algorithm::validate(&quota).is_ok());
                for limiter in [&on.limiter, &on.other, &off.limiter, &off.other] {
                    match bits >> 24 & 3 {
                        0 => now(limiter.set_quota(policy, other)),
                        1 => now(limiter.set_tier_quota(policy, "pro", other)),
                        _ => now(limiter.set_key_quota(policy, caller.clone(), other)),
                    }
                }
            }
            what => {
                // One time in two the way takes time, up to about a token's.
                let scale = (quota.period().as_micros() as u64 / quota.rate()).clamp(2, 1 << 40);
                let trip = |bits: u64| Duration::from_micros(if bits & 1 == 0 { 0 } else { (bits >> 1) % scale });
                let (there, back) = (trip(raw.how.1 >> 8), trip(raw.how.1 >> 24));
                let mut charges = vec![charge(policy, caller.clone(), raw.ask(&quota), &quota)];
                let mut alone = key(bits >> 1) < 2;
                for more in 0..(what == 11) as usize * (1 + (bits >> 30 & 1) as usize) {
                    let (bits, next) = (bits >> (32 + 6 * more), &policies[(bits >> 31) as usize % policies.len()]);
                    alone &= key(bits) < 2;
                    let who = subject(next, bits);
                    let quota = on.limiter.quota(next, who.clone());
                    charges.push(charge(next, who, raw.ask(&quota), &quota));
                }
                on.store.set_trip(there, back);
                on.store.asked();
                let (decided, kept) = decide(&mut on, what, &charges);
                let was_told = on.store.asked() == 0;
                told += usize::from(was_told);
                if was_told {
                    off.store.set_trip(Duration::ZERO, Duration::ZERO);
                } else {
                    off.store.set_trip(there, back);
                    longest = longest.max(there + back);
                }
                let (expected, kept_too) = decide(&mut off, what, &charges);
                prop_assert_eq!(on.clock.now(), off.clock.now());
                prop_assert_eq!(kept, kept_too);
                compare(&decided, &expected, was_told, alone.then_some(longest))?;
                let at = expected.iter().map(|decision| decision.retry_after().unwrap_or(decision.delay())).max();
                promised = on.clock.now() + at.unwrap_or_default().min(Duration::from_secs(1 << 30));
            }
        }
    }
    Ok(told)
}

/// Asked, and in hand one time in four, in some of these let go at once.
fn decide(side: &mut Side, what: u8, charges: &[Charge<'_>]) -> (Decisions, usize) {
    let decisions = match what {
        4 => now(side.limiter.try_check_all(charges.iter().cloned())),
        _ => match now(async { Ok::<_, ()>(side.limiter.hold_all(charges.iter().cloned()).await) }) {
            Ok(held) => {
                let decisions = held.decisions().clone();
                if what == 5 {
                    drop(held); // Given back.
                } else if what <= 7 {
                    side.held.push(held.into_receipt());
                } else {
                    drop(held.into_receipt()); // Charged for good.
                }
                decisions
            }
            Err(tollgate::LimitError::Denied(denied)) => denied.into_decisions(),
            Err(error) => panic!("{error}"),
        },
    };
    (decisions, side.held.len())
}

/// `longest`: the longest journey, if nobody else spends of these rows; else nobody can tell how long it takes.
fn compare(
    decided: &Decisions,
    expected: &Decisions,
    was_told: bool,
    longest: Option<Duration>,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(decided.is_allowed(), expected.is_allowed(), "{:?}\ninstead of\n{:?}", decided, expected);
    let by = if was_told { DecidedBy::BlockCache } else { DecidedBy::Backend };
    prop_assert!(decided.iter().all(|decision| decision.decided_by() == by));
    if !was_told {
        for (one, other) in decided.iter().zip(expected) {
            prop_assert_eq!(told_by(one.step()), told_by(other.step()));
        }
        return Ok(());
    }
    let Some(longest) = longest else { return Ok(()) };
    // Whatever truly stands in the way is told to; and the time is enough, and at most a journey more than that.
    for (one, other) in decided.iter().zip(expected) {
        prop_assert!(one.is_violated() || !other.is_violated(), "{:?}\ninstead of\n{:?}", one, other);
    }
    match (decided.retry_after(), expected.retry_after()) {
        (Some(told), Some(truly)) => {
            prop_assert!(told >= truly, "{told:?} is early: {truly:?}");
            prop_assert!(told <= truly + longest, "{told:?} is late: {truly:?} and {longest:?}");
        }
        (told, truly) => prop_assert_eq!(told, truly),
    }
    Ok(())
}

/// A row of which nothing stands may be dropped whenever a newcomer comes across it, so it is the same as none.
fn told_by(step: &Step) -> Step {
    match step.state {
        State { spent: 0.0, carry: 0.0, .. } => Step { state: State::default(), ..*step },
        _ => *step,
    }
}

#[test]
fn histories_are_admitted_alike_with_the_cache_and_without() {
    let told = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(cases(16_000));
    let histories = (policies(), begin(), history(50));
    let outcome = runner.run(&histories, |(policies, begin, history)| {
        told.set(told.get() + run(&policies, begin, &history)?);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    println!("the cache told {} denials", told.get());
    assert!(told.get() > 10_000, "only {} denials were told by the cache", told.get());
}
