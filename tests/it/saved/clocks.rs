//! If the clock is set back during a restart, no key gains tokens, and no key is locked out.

use proptest::prelude::*;
use tollgate::algorithm::{Ask, Micros};
use tollgate::backend::{Backend, RowId, Take};
use tollgate::clock::ManualClock;
use tollgate::key::Digest;
use tollgate::policy::PolicyName;
use tollgate::protection::Signal;
use tollgate::{DAY, HOUR, MINUTE, Policy, Quota, Reason, SECOND};

use super::{backend, limiter, saved};
use crate::support::generators::{cases, history, quota, sized};
use crate::support::now;

const BEGIN: Micros = Micros::new(1_700_000_000_000_000);

proptest! {
    #![proptest_config(cases(5_000))]

    #[test]
    fn no_key_has_more_tokens_after_the_clock_is_set_back(
        quota in quota(),
        history in history(30),
        back in sized(50),
    ) {
        let clock = ManualClock::at(BEGIN);
        let before = backend(&clock);
        let name = PolicyName::new("policy");
        let row = RowId { policy: &name, key: Digest::from_bits(7) };
        let (mut at, mut promised) = (BEGIN, BEGIN);
        for raw in history {
            at = raw.moved(&quota, at, promised);
            clock.set(at);
            let step = now(before.acquire(&[Take::new(row, &quota, raw.ask(&quota))]));
            if let tollgate::algorithm::Verdict::Deny { retry: Some(wait) } = step[0].verdict {
                promised = at + wait;
            }
        }
        let (left, _) = left_and_wait(&before, row, &quota);
        let rows = before.save_rows().expect("expected a memory backend");
        let earlier = Micros::new(at.get() - back.min(at.get()));
        clock.set(earlier);
        let after = backend(&clock);
        after.load_rows(&rows.bytes).expect("expected valid rows");
        let (left_after, wait) = left_and_wait(&after, row, &quota);
        prop_assert!(left_after <= left, "{left_after} tokens left after the restart, {left} before");

        // The whole quota is available again within twice the time needed to refill the spent tokens. The bound below
        // is larger, because expiries are rounded up to whole seconds and windows end only at boundaries.
        let spent = now(after.peek(&[Take::new(row, &quota, Ask::cost(0))]))[0].state.spent;
        let refills = (spent / quota.get_capacity().max(1) as f64).ceil() + 2.0;
        let full = (quota.window() + quota.period()).mul_f64(2.0 * refills) + 2 * SECOND;
        prop_assert!(wait <= full, "{spent} tokens are refilled only after {wait:?}");
    }
}

/// Returns the number of tokens left and the time until the whole quota is available.
fn left_and_wait(backend: &tollgate::MemoryBackend, row: RowId<'_>, quota: &Quota) -> (u64, std::time::Duration) {
    let capacity = quota.get_capacity();
    let allowed = |cost| {
        matches!(
            now(backend.peek(&[Take::new(row, quota, Ask::cost(cost))]))[0].verdict,
            tollgate::algorithm::Verdict::Allow
        )
    };
    let (mut low, mut high) = (0, capacity + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if allowed(middle) { low = middle } else { high = middle }
    }
    let step = now(backend.peek(&[Take::new(row, quota, Ask::cost(capacity))]));
    let wait = match step[0].verdict {
        tollgate::algorithm::Verdict::Deny { retry } => retry.unwrap_or_default(),
        _ => std::time::Duration::ZERO,
    };
    (low, wait)
}

#[test]
fn rows_blocks_and_pauses_are_kept_if_the_clock_is_set_back() {
    for back in [SECOND, HOUR, 400 * DAY] {
        let clock = ManualClock::new();
        let begin = tollgate::clock::Clock::now(&clock);
        let policies = [
            Policy::new("bucket", Quota::token_bucket(6, MINUTE)),
            Policy::new("fixed", Quota::fixed_window(6, MINUTE)),
            Policy::new("sliding", Quota::sliding_window(6, MINUTE)),
        ];
        let before = limiter(&clock);
        for policy in &policies {
            now(before.acquire(policy, "ada").cost(6));
        }
        now(Box::pin(before.block(Signal::key("mallory"), HOUR)));
        now(before.pause(&policies[0], "slow", HOUR));
        let state = saved(&before);

        clock.set(Micros::new(begin.get() - back.as_micros() as u64));
        let after = limiter(&clock);
        let loaded = after.load(&state[..]).unwrap();
        assert_eq!((loaded.rows, loaded.blocks, loaded.pauses, loaded.age), (3, 1, 1, std::time::Duration::ZERO));
        for policy in &policies {
            assert_eq!(now(after.remaining(policy, "ada")), 0, "{policy:?} after {back:?}");
        }
        for key in ["mallory", "slow"] {
            let decision = now(after.try_check(&policies[0], key));
            assert_eq!((decision.reason(), decision.retry_after()), (Reason::Blocked, Some(HOUR)));
        }
        clock.advance(3 * MINUTE);
        for policy in &policies {
            assert_eq!(now(after.remaining(policy, "ada")), 6, "{policy:?} after {back:?}");
        }
    }
}
