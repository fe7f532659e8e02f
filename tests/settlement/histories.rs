//! Random histories of charges, by an estimate, and settlements, through the public interface and a clock that moves
//! when told.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tollgate::algorithm::Micros;
use tollgate::{MINUTE, MemoryBackend, Policy, Quota, RateLimiter, Receipt, SECOND, clock::ManualClock};

use crate::bound::{Used, check};

#[path = "../support/mod.rs"]
mod support;
use support::now;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// For so many tokens.
    Charge(u64),
    /// One of those that are open, by number, truly used so many.
    Settle(usize, u64),
    /// The same, not used at all.
    Refund(usize),
    /// Settles one that was settled before.
    Again(usize, u64),
    Pass(Duration),
}

fn acts(passes: bool) -> impl Strategy<Value = Vec<Act>> {
    let micros = prop_oneof![0u64..4, 0u64..2_000_000, 0u64..70_000_000].prop_map(Duration::from_micros);
    let act = prop_oneof![
        4 => (0u64..30).prop_map(Act::Charge),
        3 => (any::<usize>(), 0u64..45).prop_map(|(which, actual)| Act::Settle(which, actual)),
        2 => any::<usize>().prop_map(Act::Refund),
        1 => (any::<usize>(), 0u64..45).prop_map(|(which, actual)| Act::Again(which, actual)),
        if passes { 4 } else { 0 } => micros.prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 1..40)
}

fn cases(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(20_261_121);
    }
    config
}

/// A charge that is open.
struct Charged {
    usage: Receipt,
    cost: u64,
    /// In the record of what was used.
    place: usize,
}

/// Plays a history; what was admitted and truly used, the sum of true costs, and what remains.
fn play(policy: &Policy, acts: &[Act]) -> (Vec<Used>, u64, u64) {
    let mut time = Micros::new(1_700_000_000_000_000);
    let clock = ManualClock::at(time);
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    let (mut used, mut open, mut closed) = (Vec::new(), Vec::<Charged>::new(), Vec::<Receipt>::new());
    let mut sum = 0;
    for act in acts {
        match *act {
            Act::Charge(cost) => {
                let Ok(held) = ready(limiter.acquire(policy, "team").cost(cost).hold()) else { continue };
                open.push(Charged { usage: held.into_receipt(), cost, place: used.len() });
                used.push(Used { at: time, tokens: cost });
                sum += cost;
            }
            Act::Settle(which, _) | Act::Refund(which) if !open.is_empty() => {
                let actual = if let Act::Settle(_, actual) = *act { actual } else { 0 };
                let Charged { usage, cost, place } = open.remove(which % open.len());
                now(usage.settle(actual));
                sum = sum + actual - cost;
                used[place].tokens = actual.min(cost);
                closed.push(usage);
            }
            Act::Again(which, actual) if !closed.is_empty() => now(closed[which % closed.len()].settle(actual)),
            Act::Pass(duration) => {
                clock.advance(duration);
                time = time + duration;
            }
            _ => {}
        }
    }
    (used, sum, now(limiter.remaining(policy, "team")))
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    now(async { Ok::<_, std::convert::Infallible>(future.await) })
}

fn a_hundred() -> impl Strategy<Value = Policy> {
    prop::sample::select(vec![
        Quota::token_bucket(100, MINUTE),
        Quota::fixed_window(100, MINUTE),
        Quota::sliding_window(100, MINUTE),
    ])
    .prop_map(|quota| Policy::new("any", quota))
}

proptest! {
    #![proptest_config(cases(4000))]

    /// Nothing is lost and nothing invented, in whatever order those that are open at once are settled.
    #[test]
    fn without_a_refill_the_balance_is_the_sum_of_true_costs(
        policy in a_hundred(),
        acts in acts(false),
    ) {
        let (_, sum, left) = play(&policy, &acts);
        prop_assert_eq!(left, 100u64.saturating_sub(sum));
    }

    /// Whatever comes back, and however late.
    #[test]
    fn with_refill_the_bound_holds_over_every_interval(
        quota in prop::sample::select(vec![
            Quota::token_bucket(30, MINUTE),
            Quota::token_bucket(7, SECOND).capacity(40),
            Quota::fixed_window(30, MINUTE).start(Duration::ZERO),
            Quota::fixed_window(10, 20 * SECOND).capacity(35).start(Duration::ZERO),
        ]),
        acts in acts(true),
    ) {
        let (used, ..) = play(&Policy::new("any", quota), &acts);
        if let Err(text) = check(&quota, &used) {
            prop_assert!(false, "{}, of {:?}", text, used);
        }
    }
}

/// Streams end in any order. A give-back was counted against those who came before it too, once: the property found it.
#[test]
fn out_of_order_nothing_is_forfeited() {
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build());
    let policy = Policy::new("any", Quota::token_bucket(10_000, MINUTE));
    let [oldest, middle, newest] =
        [(); 3].map(|()| ready(limiter.acquire(&policy, "team").cost(1000).hold()).unwrap().into_receipt());
    for (usage, spent) in [(&middle, 2300), (&oldest, 1600), (&newest, 900)] {
        now(usage.settle(300));
        assert_eq!(10_000 - now(limiter.remaining(&policy, "team")), spent);
    }
}
