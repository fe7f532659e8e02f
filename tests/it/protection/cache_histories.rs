//! In random histories, the same calls are allowed with and without the block cache.
//!
//! Two limiters, only one of which has a cache, use separate backends whose clocks show the same time. A call that
//! reaches both backends takes the same time on both. If the cache answers a call, the backend of the other limiter
//! decides the same call at the same instant.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tollgate::algorithm::{Ask, Micros, State, Step};
use tollgate::{
    Charge, Policy, Quota, RateLimiter, Receipt, Subject,
    clock::{Clock, ManualClock},
    key::Secret,
    policy::DecidedBy,
    policy::Decisions,
};

use crate::support::generators::{Raw, begin, bucket, cases, history, sliding, tiny, window};
use crate::support::now;
use crate::support::test_backend::TestBackend;

/// A limiter, its receipts, and another limiter that uses the same rows.
struct Side {
    limiter: RateLimiter,
    other: RateLimiter,
    backend: Arc<TestBackend>,
    clock: ManualClock,
    held: Vec<Receipt>,
}

impl Side {
    fn new(begin: Micros, rows: usize) -> Side {
        let clock = ManualClock::at(begin);
        let backend = TestBackend::remote(&clock);
        let secret = Secret::new([4; 16]);
        let limiter = RateLimiter::builder(Arc::clone(&backend)).secret(secret).block_cache(rows).build();
        let other = RateLimiter::builder(Arc::clone(&backend)).secret(secret).block_cache(0).build();
        Side { limiter, other, backend, clock, held: Vec::new() }
    }
}

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

/// Returns a different key for each policy, so that the rows can be in different shards of the backend.
fn caller(policy: &Policy, key: u64) -> Subject {
    Subject::new((policy.name().as_str(), key))
}

/// Creates the charge for `ask`. The charge accepts a reservation only if the quota allows reservations.
fn charge<'a>(policy: &'a Policy, subject: Subject, ask: Ask, quota: &Quota) -> Charge<'a> {
    let charge = Charge::new(policy, subject).cost(ask.tokens());
    match ask.max_wait().filter(|_| quota.get_max_reserved() != Some(0)) {
        None => charge,
        Some(wait) if wait.as_micros() == u128::from(u64::MAX) => charge.reserve(),
        Some(wait) => charge.reserve_within(wait),
    }
}

fn run(policies: &[Policy], begin: Micros, history: &[Raw]) -> Result<usize, TestCaseError> {
    let (mut on, mut off) = (Side::new(begin, 64), Side::new(begin, 0));
    let (mut promised, mut longest, mut cached) = (begin, Duration::ZERO, 0);
    // Keys 0 and 1 change tiers. Key 2 has no tier and is also charged by another limiter on the same backend. Both
    // limiters must use the same quota for this key: under a different quota, the other limiter's calls could refill
    // the row faster than the cache expects.
    let key = |bits: u64| [0u64, 0, 0, 0, 1, 2, 2, 2][bits as usize & 7];
    let subject = |policy: &Policy, bits: u64| match caller(policy, key(bits)) {
        subject if key(bits) < 2 && bits >> 3 & 3 == 0 => subject.tier("pro"),
        subject => subject,
    };
    for raw in history {
        let bits = raw.what.1;
        let policy = &policies[(bits & 1) as usize % policies.len()];
        let caller = subject(policy, bits >> 1);
        let quota = on.limiter.quotas(policy, caller.clone())[0];
        let instant = raw.moved(&quota, on.clock.now(), promised);
        on.clock.set(instant);
        off.clock.set(instant);
        match raw.what.0 {
            0 => {
                let caller = self::caller(policy, 2);
                let quota = on.limiter.quotas(policy, caller.clone())[0];
                for side in [&on, &off] {
                    side.backend.set_travel_times(Duration::ZERO, Duration::ZERO);
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
                // Set another capacity, or revert to the policy's own quota.
                let other = quota.try_capacity(1 + (bits >> 8) % 9).ok().filter(|_| bits >> 20 & 1 == 0);
                let other = other
                    .filter(|quota| tollgate::algorithm::validate(quota).is_ok())
                    .map(tollgate::policy::Quotas::from);
                for limiter in [&on.limiter, &on.other, &off.limiter, &off.other] {
                    match bits >> 24 & 3 {
                        0 => now(limiter.set_quota(policy, other)),
                        1 => now(limiter.set_tier_quota(policy, "pro", other)),
                        _ => now(limiter.set_key_quota(policy, caller.clone(), other)),
                    }
                }
            }
            what => {
                // Half of the trips to or from the backend take no time. The others take up to about the refill time of
                // one token.
                let scale = (quota.period().as_micros() as u64 / quota.rate()).clamp(2, 1 << 40);
                let trip = |bits: u64| Duration::from_micros(if bits & 1 == 0 { 0 } else { (bits >> 1) % scale });
                let (outbound, inbound) = (trip(raw.how.1 >> 8), trip(raw.how.1 >> 24));
                let mut charges = vec![charge(policy, caller.clone(), raw.ask(&quota), &quota)];
                let mut is_exclusive = key(bits >> 1) < 2;
                for more in 0..(what == 11) as usize * (1 + (bits >> 30 & 1) as usize) {
                    let (bits, next) = (bits >> (32 + 6 * more), &policies[(bits >> 31) as usize % policies.len()]);
                    is_exclusive &= key(bits) < 2;
                    let other_caller = subject(next, bits);
                    let quota = on.limiter.quotas(next, other_caller.clone())[0];
                    charges.push(charge(next, other_caller, raw.ask(&quota), &quota));
                }
                on.backend.set_travel_times(outbound, inbound);
                on.backend.take_calls();
                let (decided, kept) = decide(&mut on, what, &charges);
                let is_cached = on.backend.take_calls() == 0;
                cached += usize::from(is_cached);
                if is_cached {
                    off.backend.set_travel_times(Duration::ZERO, Duration::ZERO);
                } else {
                    off.backend.set_travel_times(outbound, inbound);
                    longest = longest.max(outbound + inbound);
                }
                let (expected, other_kept) = decide(&mut off, what, &charges);
                prop_assert_eq!(on.clock.now(), off.clock.now());
                prop_assert_eq!(kept, other_kept);
                compare(&decided, &expected, is_cached, is_exclusive.then_some(longest))?;
                let at = expected.iter().map(|decision| decision.retry_after().unwrap_or(decision.delay())).max();
                promised = on.clock.now() + at.unwrap_or_default().min(Duration::from_secs(1 << 30));
            }
        }
    }
    Ok(cached)
}

/// Checks or holds `charges`. Depending on `what`, held charges are then canceled, kept for later settlement, or spent.
fn decide(side: &mut Side, what: u8, charges: &[Charge<'_>]) -> (Decisions, usize) {
    let decisions = match what {
        4 => now(side.limiter.try_check_all(charges.iter().cloned())),
        _ => match now(async { Ok::<_, ()>(side.limiter.hold_all(charges.iter().cloned()).await) }) {
            Ok(held) => {
                let decisions = held.decisions().clone();
                if what == 5 {
                    drop(held);
                } else if what <= 7 {
                    side.held.push(held.into_receipt());
                } else {
                    drop(held.into_receipt());
                }
                decisions
            }
            Err(tollgate::LimitError::Denied(denied)) => denied.into_decisions(),
            Err(error) => panic!("{error}"),
        },
    };
    (decisions, side.held.len())
}

/// Compares the decisions with and without the cache. `longest` is the longest round trip so far, or `None` if another
/// limiter on the same backend also charges any of the rows.
fn compare(
    decided: &Decisions,
    expected: &Decisions,
    is_cached: bool,
    longest: Option<Duration>,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(decided.is_allowed(), expected.is_allowed(), "found {:?}\nexpected {:?}", decided, expected);
    let by = if is_cached { DecidedBy::BlockCache } else { DecidedBy::Backend };
    prop_assert!(decided.iter().all(|decision| decision.decided_by() == by));
    if !is_cached {
        for (one, other) in decided.iter().zip(expected) {
            prop_assert_eq!(normalized(one.step()), normalized(other.step()));
        }
        return Ok(());
    }
    let Some(longest) = longest else { return Ok(()) };
    // The cache reports every policy that denies the call. The cached retry time is never too short, and is too long by
    // at most one round trip.
    for (one, other) in decided.iter().zip(expected) {
        prop_assert!(one.is_violated() || !other.is_violated(), "found {:?}\nexpected {:?}", one, other);
    }
    match (decided.retry_after(), expected.retry_after()) {
        (Some(cached), Some(actual)) => {
            prop_assert!(cached >= actual, "the cached retry time {cached:?} is shorter than {actual:?}");
            prop_assert!(
                cached <= actual + longest,
                "the cached retry time {cached:?} is longer than {actual:?} plus {longest:?}"
            );
        }
        (cached, actual) => prop_assert_eq!(cached, actual),
    }
    Ok(())
}

/// Treats a row without spent tokens as missing, because a backend may drop such a row at any time.
fn normalized(step: &Step) -> Step {
    match step.state {
        State { spent: 0.0, carry: 0.0, .. } => Step { state: State::default(), ..*step },
        _ => *step,
    }
}

#[test]
fn random_histories_lead_to_the_same_decisions_with_and_without_the_cache() {
    let cached = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(cases(16_000));
    let histories = (policies(), begin(), history(50));
    let outcome = runner.run(&histories, |(policies, begin, history)| {
        cached.set(cached.get() + run(&policies, begin, &history)?);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    println!("denials from the cache: {}", cached.get());
    assert!(cached.get() > 10_000, "only {} denials came from the cache", cached.get());
}
