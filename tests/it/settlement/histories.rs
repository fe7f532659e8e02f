//! Random histories of charges and settlements, played through the public API with a manual clock.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tollgate::algorithm::Micros;
use tollgate::{MINUTE, MemoryBackend, Policy, Quota, RateLimiter, Receipt, SECOND, clock::ManualClock};

use super::bound::{Used, check};

use crate::support::now;

#[derive(Clone, Copy, Debug)]
enum Action {
    /// Charges this many tokens.
    Charge(u64),
    /// Settles the open charge with this index at this cost.
    Settle(usize, u64),
    Refund(usize),
    /// Settles a charge that is already settled.
    SettleAgain(usize, u64),
    Advance(Duration),
}

fn actions(time_advances: bool) -> impl Strategy<Value = Vec<Action>> {
    let micros = prop_oneof![0u64..4, 0u64..2_000_000, 0u64..70_000_000].prop_map(Duration::from_micros);
    let action = prop_oneof![
        4 => (0u64..30).prop_map(Action::Charge),
        3 => (any::<usize>(), 0u64..45).prop_map(|(pick, actual)| Action::Settle(pick, actual)),
        2 => any::<usize>().prop_map(Action::Refund),
        1 => (any::<usize>(), 0u64..45).prop_map(|(pick, actual)| Action::SettleAgain(pick, actual)),
        if time_advances { 4 } else { 0 } => micros.prop_map(Action::Advance),
    ];
    prop::collection::vec(action, 1..40)
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

struct Charged {
    receipt: Receipt,
    cost: u64,
    index: usize,
}

/// Runs a history. Returns the admitted tokens, the sum of the actual costs, and the remaining tokens.
fn play(policy: &Policy, actions: &[Action]) -> (Vec<Used>, u64, u64) {
    let mut time = Micros::new(1_700_000_000_000_000);
    let clock = ManualClock::at(time);
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    let (mut used, mut open, mut closed) = (Vec::new(), Vec::<Charged>::new(), Vec::<Receipt>::new());
    let mut sum = 0;
    for action in actions {
        match *action {
            Action::Charge(cost) => {
                let Ok(held) = ready(limiter.acquire(policy, "team").cost(cost).hold()) else { continue };
                open.push(Charged { receipt: held.into_receipt(), cost, index: used.len() });
                used.push(Used { at: time, tokens: cost });
                sum += cost;
            }
            Action::Settle(pick, _) | Action::Refund(pick) if !open.is_empty() => {
                let actual = if let Action::Settle(_, actual) = *action { actual } else { 0 };
                let Charged { receipt, cost, index } = open.remove(pick % open.len());
                now(receipt.settle(actual));
                sum = sum + actual - cost;
                used[index].tokens = actual.min(cost);
                closed.push(receipt);
            }
            Action::SettleAgain(pick, actual) if !closed.is_empty() => {
                now(closed[pick % closed.len()].settle(actual));
            }
            Action::Advance(duration) => {
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

fn quotas_of_100() -> impl Strategy<Value = Policy> {
    prop::sample::select(vec![
        Quota::token_bucket(100, MINUTE),
        Quota::fixed_window(100, MINUTE),
        Quota::sliding_window(100, MINUTE),
    ])
    .prop_map(|quota| Policy::new("any", quota))
}

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn without_refills_the_spent_tokens_equal_the_sum_of_the_actual_costs(
        policy in quotas_of_100(),
        actions in actions(false),
    ) {
        let (_, sum, left) = play(&policy, &actions);
        prop_assert_eq!(left, 100u64.saturating_sub(sum));
    }

    #[test]
    fn with_refills_the_bound_holds_over_every_interval(
        quota in prop::sample::select(vec![
            Quota::token_bucket(30, MINUTE),
            Quota::token_bucket(7, SECOND).capacity(40),
            Quota::fixed_window(30, MINUTE).start(Duration::ZERO),
            Quota::fixed_window(10, 20 * SECOND).capacity(35).start(Duration::ZERO),
        ]),
        actions in actions(true),
    ) {
        let (used, ..) = play(&Policy::new("any", quota), &actions);
        if let Err(text) = check(&quota, &used) {
            prop_assert!(false, "{}, in {:?}", text, used);
        }
    }
}

/// Regression test: refunding one charge also reduced the refundable tokens of earlier charges.
#[test]
fn settling_out_of_order_forfeits_no_refunds() {
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build());
    let policy = Policy::new("any", Quota::token_bucket(10_000, MINUTE));
    let [oldest, middle, newest] =
        [(); 3].map(|()| ready(limiter.acquire(&policy, "team").cost(1000).hold()).unwrap().into_receipt());
    for (receipt, spent) in [(&middle, 2300), (&oldest, 1600), (&newest, 900)] {
        now(receipt.settle(300));
        assert_eq!(10_000 - now(limiter.remaining(&policy, "team")), spent);
    }
}
