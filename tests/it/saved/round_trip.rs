//! A restart preserves the saved state, except for entries that have expired in the meantime.

use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::key::Secret;
use tollgate::limiter::StateErrorKind;
use tollgate::policy::Enforce;
use tollgate::protection::{AutoBlock, Signal};
use tollgate::{
    Charge, DAY, HOUR, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, Reason, SECOND, Subject, backend::Backend,
};

use super::{SECRET, backend, limiter, restarted, saved};
use crate::support::now;

fn policies() -> [Policy; 5] {
    [
        Policy::new("bucket", Quota::token_bucket(10, MINUTE).max_reserved(20)),
        Policy::new("a \"fixed\" window\\;~", Quota::fixed_window(10, HOUR)),
        Policy::new(" ", Quota::sliding_window(10, MINUTE)),
        Policy::new("several", Quota::per_second(10)).and(Quota::per_hour(50)).and(Quota::fixed_window(100, DAY)),
        Policy::new("tiers", Quota::per_minute(5)).tier("caf\u{e9} \u{0}\n", Quota::per_minute(50)),
    ]
}

/// Returns the snapshots of all keys, now and at some later instants.
fn snapshots(limiter: &RateLimiter, clock: &ManualClock) -> Vec<String> {
    let begin = tollgate::clock::Clock::now(clock);
    let mut seen = Vec::new();
    for later in [Duration::ZERO, SECOND, 7 * SECOND, MINUTE, HOUR, DAY] {
        clock.set(begin + later);
        for policy in &policies() {
            for key in 0..20u64 {
                for snapshot in now(limiter.snapshot(policy, key)) {
                    seen.push(format!("{later:?} {key} {}", snapshot.to_json()));
                }
            }
        }
    }
    clock.set(begin);
    seen
}

#[test]
fn rows_of_all_algorithms_survive_restarts() {
    let clock = ManualClock::new();
    let before = limiter(&clock);
    for step in 0..40u64 {
        clock.advance(Duration::from_millis(1700));
        for policy in &policies() {
            for key in 0..20u64 {
                drop(now(before.try_acquire(policy, key).cost((step * 7 + key) % 4)));
            }
        }
        let patient = policies()[0].clone();
        if let Ok(reservation) = block_on(before.acquire(&patient, step % 20).cost(12).reserve()) {
            reservation.into_receipt();
        }
    }
    // Reading snapshots at later instants can drop rows, so all limiters are created first.
    let once = restarted(&before, &clock);
    let twice = restarted(&once, &clock);
    let empty = limiter(&clock);
    assert_eq!(twice.rows_by_policy(), once.rows_by_policy());
    assert_eq!(once.rows_by_policy().len(), 5);
    let expected = snapshots(&before, &clock);
    assert!(snapshots(&once, &clock) == expected && snapshots(&twice, &clock) == expected);
    assert!(snapshots(&empty, &clock) != expected);
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn tokens_are_refilled_while_the_process_is_not_running() {
    let policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
    let clock = ManualClock::new();
    let before = limiter(&clock);
    now(before.acquire(&policy, "ada").cost(10));
    let state = saved(&before);
    clock.advance(30 * SECOND);
    let after = limiter(&clock);
    let loaded = after.load(&state[..]).unwrap();
    assert_eq!((loaded.rows, loaded.age), (1, 30 * SECOND));
    assert_eq!(now(after.remaining(&policy, "ada")), 5);
    clock.advance(HOUR);
    let loaded = limiter(&clock).load(&state[..]).unwrap();
    assert_eq!((loaded.rows, loaded.expired), (0, 1));
}

#[test]
fn quotas_set_at_run_time_survive_a_restart_in_every_scope() {
    let clock = ManualClock::new();
    let before = limiter(&clock);
    let [.., several, tiers] = policies();
    now(Box::pin(before.set_quota(&tiers, Quota::per_minute(3))));
    now(Box::pin(before.set_tier_quota(&tiers, "caf\u{e9} \u{0}\n", Quota::per_minute(4))));
    now(Box::pin(before.set_key_quota(&tiers, "ada", Quota::per_minute(500).and(Quota::per_hour(900)))));
    now(Box::pin(before.set_key_quota(&several, Subject::anonymous(), Quota::per_hour(7))));
    let after = restarted(&before, &clock);
    assert_eq!(after.set_quotas(), before.set_quotas());
    assert_eq!(after.set_quotas().len(), 4);
    assert_eq!(now(after.remaining(&tiers, "eve")), 3);
    assert_eq!(after.stats().changed_quotas, 4);
}

#[test]
fn enforcement_and_policy_resets_survive_a_restart() {
    let clock = ManualClock::new();
    let before = limiter(&clock);
    let [first, second, ..] = policies();
    for policy in [&first, &second] {
        now(before.acquire(policy, "ada").cost(1));
    }
    now(Box::pin(before.reset_policy(&first)));
    now(before.acquire(&first, "eve").cost(1));
    now(Box::pin(before.set_enforcement(&second, Enforce::Share(0.25))));
    let left = |limiter: &RateLimiter| {
        [(&first, "ada"), (&first, "eve"), (&second, "ada")].map(|(policy, key)| now(limiter.remaining(policy, key)))
    };
    let after = restarted(&before, &clock);
    assert_eq!((left(&after), after.enforcement(&second)), (left(&before), Enforce::Share(0.25)));
    clock.advance(MINUTE);
    assert!(after.set_enforcements()[0].age >= MINUTE);
}

#[test]
fn blocks_and_pauses_end_when_they_would_have_ended_without_a_restart() {
    let clock = ManualClock::new();
    let policy = Policy::new("api", Quota::token_bucket(1, HOUR));
    let auto = || AutoBlock::new([&policy]).threshold(2).block_for(HOUR).escalate(10, DAY);
    let limiter = || RateLimiter::builder(backend(&clock)).auto_block(auto()).build();
    let before = limiter();
    now(Box::pin(before.block(Signal::key("mallory"), 2 * HOUR)));
    now(Box::pin(before.block(Signal::ip([192, 0, 2, 7].into()), MINUTE)));
    now(before.pause(&policy, "slow", 30 * MINUTE));
    for _ in 0..3 {
        drop(now(before.try_limit(&policy, "eve")));
    }
    let blocked = |limiter: &RateLimiter, key: &'static str| now(limiter.try_check(&policy, key));
    assert_eq!(blocked(&before, "eve").reason(), Reason::Blocked);

    let state = saved(&before);
    clock.advance(10 * MINUTE);
    let after = limiter();
    let loaded = after.load(&state[..]).unwrap();
    assert_eq!((loaded.blocks, loaded.pauses, loaded.expired, loaded.dropped), (2, 1, 1, 0));
    let listed = |limiter: &RateLimiter| {
        let mut blocks: Vec<_> =
            limiter.blocks().into_iter().map(|block| (block.digest, block.left, block.times, block.by_hand)).collect();
        blocks.sort();
        blocks
    };
    assert_eq!(listed(&after), listed(&before));
    for (key, left) in [("mallory", 110 * MINUTE), ("eve", 50 * MINUTE), ("slow", 20 * MINUTE)] {
        for limiter in [&before, &after] {
            let decision = blocked(limiter, key);
            assert_eq!((decision.reason(), decision.retry_after()), (Reason::Blocked, Some(left)), "{key}");
        }
    }

    // The loaded automatic block counts as the first, so the next one counts as the second.
    clock.advance(55 * MINUTE);
    for _ in 0..4 {
        drop(now(after.try_limit(&policy, "eve")));
    }
    assert_eq!(after.blocks().iter().map(|block| block.times).max(), Some(2));
}

#[test]
fn a_key_that_was_charged_before_loading_keeps_its_row() {
    let clock = ManualClock::new();
    let policy = Policy::new("api", Quota::token_bucket(10, HOUR));
    let before = limiter(&clock);
    now(before.acquire(&policy, "ada").cost(9));
    now(before.acquire(&policy, "eve").cost(9));
    let after = limiter(&clock);
    now(after.acquire(&policy, "ada").cost(2));
    let loaded = after.load(&saved(&before)[..]).unwrap();
    assert_eq!((loaded.rows, loaded.existing), (1, 1));
    assert_eq!((now(after.remaining(&policy, "ada")), now(after.remaining(&policy, "eve"))), (8, 1));
}

#[test]
fn a_smaller_table_keeps_the_rows_of_denied_keys() {
    let clock = ManualClock::new();
    let policy = Policy::new("api", Quota::token_bucket(2, DAY));
    let before = limiter(&clock);
    for key in 0..10_000u64 {
        now(before.acquire(&policy, key).cost(if key % 100 == 0 { 2 } else { 1 }));
        if key % 100 == 0 {
            assert!(!now(before.try_limit(&policy, key)).is_allowed());
        }
    }
    let small = MemoryBackend::builder().max_rows(2_000).clock(clock.clone()).secret(Secret::new(SECRET)).build();
    let after = RateLimiter::new(small);
    let loaded = after.load(&saved(&before)[..]).unwrap();
    assert_eq!(loaded.rows + loaded.dropped, 10_000);
    assert_eq!(after.stats().rows, Some(loaded.rows));
    assert!((1_900..=2_000).contains(&loaded.rows), "{loaded:?}");
    let denied = (0..100u64).filter(|key| now(after.remaining(&policy, key * 100)) == 0).count();
    assert_eq!(denied, 100);
}

#[test]
fn saving_and_loading_fail_if_a_secret_is_missing_or_different() {
    let clock = ManualClock::new();
    let state = saved(&limiter(&clock));
    let no_secret = RateLimiter::default();
    let only_limiter = RateLimiter::builder(MemoryBackend::new()).secret(Secret::new(SECRET)).build();
    let two_secrets = RateLimiter::builder(backend(&clock)).secret(Secret::new([7; 16])).build();
    for limiter in [no_secret, only_limiter, two_secrets] {
        for error in [limiter.save(Vec::new()).unwrap_err(), limiter.load(&state[..]).unwrap_err()] {
            assert_eq!(error.kind(), StateErrorKind::Secret);
            assert!(error.to_string().contains("`MemoryBackendBuilder::secret`"), "{error}");
        }
    }
    let other = MemoryBackend::builder().secret(Secret::new([7; 16])).build();
    let error = RateLimiter::new(other).load(&state[..]).unwrap_err();
    assert_eq!(error.kind(), StateErrorKind::Secret);
    assert!(error.to_string().contains("a different secret"), "{error}");
}

#[test]
fn the_state_contains_neither_keys_nor_addresses_nor_the_secret() {
    let clock = ManualClock::new();
    let policy = Policy::new("api", Quota::token_bucket(10, HOUR));
    let before = limiter(&clock);
    now(before.limit(&policy, "ada@example.com"));
    now(Box::pin(before.set_key_quota(&policy, "ada@example.com", Quota::per_hour(20))));
    now(Box::pin(before.block(Signal::ip([192, 0, 2, 7].into()), HOUR)));
    now(Box::pin(before.block(Signal::user_agent("curl/8.5.0"), HOUR)));
    let state = saved(&before);
    for text in [&b"ada@"[..], b"192.0.2.7", &[192, 0, 2, 7], b"curl", &SECRET] {
        assert!(!state.windows(text.len()).any(|window| window == text), "{text:?}");
    }
}

#[test]
fn charges_during_a_save_are_saved_completely_or_not_at_all() {
    let policy = Policy::new("api", Quota::fixed_window(1_000_000, DAY));
    let other = Policy::new("other", Quota::fixed_window(1_000_000, DAY));
    let clock = ManualClock::new();
    let before = limiter(&clock);
    let mut states = Vec::new();
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            for call in 0..40_000u64 {
                // Both rows of a key are in the same shard.
                now(before.limit_all([Charge::new(&policy, call % 1_000), Charge::new(&other, call % 1_000)]));
            }
        });
        while !calls.is_finished() {
            states.push(saved(&before));
        }
    });
    states.push(saved(&before));
    let mut last = 0;
    for state in states {
        let after = limiter(&clock);
        after.load(&state[..]).unwrap();
        let mut spent = 0;
        for key in 0..1_000u64 {
            let left = [&policy, &other].map(|policy| now(after.remaining(policy, key)));
            assert_eq!(left[0], left[1]);
            spent += 1_000_000 - left[0];
        }
        assert!(spent >= last, "a charge was lost");
        last = spent;
    }
    assert_eq!(last, 40_000);
}

#[test]
fn a_backend_rejects_invalid_rows_and_changes_nothing() {
    let clock = ManualClock::new();
    let policy = Policy::new("api", Quota::token_bucket(10, HOUR));
    let before = std::sync::Arc::new(backend(&clock));
    let limiter = RateLimiter::new(std::sync::Arc::clone(&before));
    (0..10u64).for_each(|key| drop(now(limiter.limit(&policy, key))));
    let rows = before.save_rows().unwrap();
    assert_eq!(rows.rows, 10);
    let head = rows.bytes.len() - 10 * 40;
    for length in 0..rows.bytes.len() {
        let after = backend(&clock);
        let loaded = after.load_rows(&rows.bytes[..length]);
        if length >= head && (length - head) % 40 == 0 {
            assert_eq!(loaded.unwrap().loaded, (length - head) / 40);
        } else {
            let error = loaded.unwrap_err();
            assert!(error.to_string().contains("the saved rows are invalid"), "{error}");
            assert!(after.is_empty(), "{length}");
        }
    }
    let last = rows.bytes.len() - 40;
    for (offset, byte) in [(7, 0xff), (12 + 7, 0xff), (12 + 20, 0)] {
        let mut changed = rows.bytes.clone();
        changed[last + offset] = byte;
        let after = backend(&clock);
        assert!(after.load_rows(&changed).is_err(), "byte {offset}");
        assert!(after.is_empty());
    }
}
