//! Random histories: a restarted limiter makes the same decisions as one that keeps running.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::algorithm::{ChargeRecord, Verdict};
use tollgate::backend::{Adjustment, Backend, RowId, Take};
use tollgate::clock::ManualClock;
use tollgate::key::{Digest, Secret};
use tollgate::policy::PolicyName;
use tollgate::protection::Signal;
use tollgate::{HOUR, MINUTE, Policy, Quota, RateLimiter, SECOND, Subject};

use super::{SECRET, backend, limiter, restarted};
use crate::support::generators::{begin, cases, history, quota};
use crate::support::now;

proptest! {
    #![proptest_config(cases(3_000))]

    /// Receipts are used only until the next restart.
    #[test]
    fn a_restarted_backend_makes_the_same_decisions_as_one_that_kept_running(
        quotas in (quota(), quota()),
        begin in begin(),
        history in history(60),
    ) {
        let clock = ManualClock::at(begin);
        let (running, mut restarting) = (backend(&clock), backend(&clock));
        let name = PolicyName::new("policy");
        let quotas = [quotas.0, quotas.1];
        let (mut promised, mut at, mut receipts) = (begin, begin, Vec::new());
        for raw in history {
            let (kind, number) = raw.what;
            // Most steps use the first quota, so that rows rarely change from one quota to the other.
            let quota = quotas[usize::from(number % 16 == 0)];
            at = raw.moved(&quota, at, promised);
            clock.set(at);
            let key = Digest::from_bits(1 + u128::from(number >> 8 & 3));
            let take = Take::new(RowId { policy: &name, key }, &quota, raw.ask(&quota));
            let take = take.at_window((number >> 16) as u8 & 1);
            match kind {
                0 | 1 => {
                    let next = backend(&clock);
                    let saved = restarting.save_rows().expect("expected a memory backend");
                    let loaded = next.load_rows(&saved.bytes).expect("expected valid rows");
                    prop_assert_eq!((loaded.dropped, loaded.existing), (0, 0));
                    restarting = next;
                    receipts.clear();
                }
                2 if !receipts.is_empty() => {
                    let (key, window, quota, one, other) = receipts.swap_remove((number >> 20) as usize % receipts.len());
                    let row = RowId { policy: &name, key };
                    let actual = raw.tokens(&quota);
                    let settle = |backend: &dyn Backend, receipt: ChargeRecord| {
                        now(backend.settle(&[Adjustment { row, window, quota, receipt, actual }]))
                    };
                    prop_assert_eq!(settle(&running, one), settle(&restarting, other));
                }
                _ => {
                    let (one, other) = (now(running.acquire(&[take])), now(restarting.acquire(&[take])));
                    prop_assert_eq!(&one[0], &other[0]);
                    if let Verdict::Deny { retry: Some(wait) } | Verdict::Reserve { wait } = one[0].verdict {
                        promised = at + wait;
                    }
                    let cost = take.ask.tokens();
                    if let (Some(one), Some(other)) = (ChargeRecord::new(cost, &one[0]), ChargeRecord::new(cost, &other[0])) {
                        receipts.push((key, take.window, take.quota, one, other));
                    }
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Advance(u64),
    Charge { policy: usize, key: u8, cost: u64 },
    SetQuota { scope: u8, key: u8, rate: Option<u64> },
    Block { key: u8, seconds: u64 },
    Unblock(u8),
    Pause { policy: usize, key: u8, seconds: u64 },
    Resume { policy: usize, key: u8 },
    Reset { policy: usize, key: u8 },
    Restart,
}

fn operation() -> impl Strategy<Value = Operation> {
    let (policy, key) = (0usize..4, 0u8..4);
    prop_oneof![
        4 => (0u64..200_000_000).prop_map(Operation::Advance),
        12 => (policy.clone(), key.clone(), 0u64..6).prop_map(|(policy, key, cost)| Operation::Charge { policy, key, cost }),
        2 => (0u8..3, key.clone(), proptest::option::of(1u64..30))
            .prop_map(|(scope, key, rate)| Operation::SetQuota { scope, key, rate }),
        1 => (key.clone(), 0u64..300).prop_map(|(key, seconds)| Operation::Block { key, seconds }),
        1 => key.clone().prop_map(Operation::Unblock),
        1 => (policy.clone(), key.clone(), 0u64..300)
            .prop_map(|(policy, key, seconds)| Operation::Pause { policy, key, seconds }),
        1 => (policy.clone(), key.clone()).prop_map(|(policy, key)| Operation::Resume { policy, key }),
        1 => (policy, key).prop_map(|(policy, key)| Operation::Reset { policy, key }),
        3 => Just(Operation::Restart),
    ]
}

fn policies() -> [Policy; 4] {
    [
        Policy::new("bucket", Quota::token_bucket(5, MINUTE)).tier("gold", Quota::token_bucket(20, MINUTE)),
        Policy::new("fixed", Quota::fixed_window(8, MINUTE)),
        Policy::new("sliding", Quota::sliding_window(8, MINUTE)),
        Policy::new("several", Quota::token_bucket(3, SECOND)).and(Quota::fixed_window(20, HOUR)),
    ]
}

fn apply(limiter: &RateLimiter, operation: &Operation) -> String {
    let policies = policies();
    let subject = |key: u8| Subject::new(u64::from(key)).tier(if key % 2 == 0 { "gold" } else { "none" });
    match *operation {
        Operation::Advance(_) | Operation::Restart => String::new(),
        Operation::Charge { policy, key, cost } => {
            let decision = now(limiter.try_acquire(&policies[policy], subject(key)).cost(cost));
            format!("{:?} {} {:?}", decision.reason(), decision.remaining(), decision.retry_after())
        }
        Operation::SetQuota { scope, key, rate } => {
            let quota = rate.map(|rate| Quota::token_bucket(rate, MINUTE).into());
            match scope {
                0 => now(Box::pin(limiter.set_quota(&policies[0], quota))),
                1 => now(Box::pin(limiter.set_tier_quota(&policies[0], "gold", quota))),
                _ => now(Box::pin(limiter.set_key_quota(&policies[0], subject(key), quota))),
            }
            format!("{:?}", limiter.set_quotas())
        }
        Operation::Block { key, seconds } => {
            now(Box::pin(limiter.block(Signal::key(u64::from(key)), Duration::from_secs(seconds))));
            String::new()
        }
        Operation::Unblock(key) => {
            now(Box::pin(limiter.unblock(Signal::key(u64::from(key)))));
            String::new()
        }
        Operation::Pause { policy, key, seconds } => {
            now(limiter.pause(&policies[policy], subject(key), Duration::from_secs(seconds)));
            String::new()
        }
        Operation::Resume { policy, key } => {
            now(limiter.resume(&policies[policy], subject(key)));
            String::new()
        }
        Operation::Reset { policy, key } => {
            now(limiter.reset(&policies[policy], subject(key)));
            String::new()
        }
    }
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn a_restarted_limiter_makes_the_same_decisions_as_one_that_kept_running(
        operations in prop::collection::vec(operation(), 1..80),
    ) {
        let clock = ManualClock::new();
        let running = limiter(&clock);
        let mut restarting = limiter(&clock);
        for operation in &operations {
            match operation {
                Operation::Advance(micros) => clock.advance(Duration::from_micros(*micros)),
                Operation::Restart => restarting = restarted(&restarting, &clock),
                _ => prop_assert_eq!(apply(&running, operation), apply(&restarting, operation)),
            }
        }
    }
}

#[test]
fn states_of_format_version_1_can_be_loaded() {
    let state = include_bytes!("version_1.state");
    let clock = ManualClock::new();
    clock.advance(20 * SECOND);
    let after = limiter(&clock);
    let loaded = after.load(&state[..]).expect("expected a state of version 1");
    assert_eq!((loaded.rows, loaded.changes, loaded.blocks, loaded.pauses), (4, 1, 1, 1));
    let left = policies().map(|policy| now(after.remaining(&policy, 7u64)));
    assert_eq!(left, [3, 5, 4, 3]);
    assert_eq!(after.digest(Some(&7u64.into())), Secret::new(SECRET).digest(&7u64.into()));
    // Saving the state again can change the order of the rows, so compare only the length and the first bytes.
    let saved = super::saved(&after);
    assert_eq!((saved.len(), &saved[..20]), (state.len(), &state[..20]));
}

/// Writes the file that `states_of_format_version_1_can_be_loaded` reads.
#[test]
#[ignore = "writes a file in the source tree"]
fn write_the_state_of_this_version() {
    let clock = ManualClock::new();
    let before = limiter(&clock);
    for policy in &policies() {
        now(before.acquire(policy, 7u64).cost(3));
    }
    now(Box::pin(before.set_key_quota(&policies()[1], 8u64, Quota::fixed_window(3, HOUR))));
    now(Box::pin(before.block(Signal::key("mallory"), HOUR)));
    now(before.pause(&policies()[0], "slow", HOUR));
    clock.advance(20 * SECOND);
    now(before.acquire(&policies()[2], 7u64).cost(1));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/saved/version_1.state");
    let saved = before.save_to_file(path).expect("failed to save the state");
    println!("{saved:?}");
}
