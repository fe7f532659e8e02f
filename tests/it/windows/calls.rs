//! Calls under a policy with several quotas. Each call is charged under all quotas or under none of them.

use std::sync::{Arc, Mutex};

use tollgate::observe::{Decided, Observer, Reset, Settled};
use tollgate::{Charge, DAY, HOUR, LimitError, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, Reason, SECOND};

use crate::support::client::limiter;
use crate::support::now;

const API: Policy = Policy::new("api", Quota::per_second(2)).and(Quota::token_bucket(5, HOUR));

#[test]
fn every_quota_must_allow_a_call() {
    let (limiter, clock) = limiter();
    let mut allowed = Vec::new();
    for _ in 0..4 {
        allowed.push((0..3).filter(|_| now(limiter.try_limit(&API, "ada")).is_allowed()).count());
        clock.advance(SECOND);
    }
    // Two calls are allowed in each second, and five in the first hour.
    assert_eq!(allowed, [2, 2, 1, 0]);
}

#[test]
fn a_denied_call_charges_no_quota() {
    let (limiter, clock) = limiter();
    for _ in 0..2 {
        now(limiter.limit(&API, "ada"));
    }
    for _ in 0..10 {
        assert!(!now(limiter.try_limit(&API, "ada")).is_allowed());
    }
    clock.advance(SECOND);
    assert_eq!(now(limiter.snapshot(&API, "ada")).iter().map(|it| it.state().spent).collect::<Vec<_>>(), [0.0, 2.0]);
}

#[test]
fn the_decision_reports_the_quota_that_limits_the_call_most() {
    let (limiter, clock) = limiter();
    // The per-second quota has fewer tokens left than the per-hour quota.
    assert_eq!(now(limiter.try_limit(&API, "ada")).remaining(), 1);
    assert_eq!(now(limiter.remaining(&API, "ada")), 1);
    clock.advance(SECOND);
    now(limiter.limit_all([Charge::new(&API, "ada").cost(2)]));
    clock.advance(SECOND);
    let decision = now(limiter.try_check(&API, "ada"));
    assert_eq!((decision.name().as_ref(), decision.remaining()), ("api;1s", 2), "both quotas have 2 tokens left");
    now(limiter.limit_all([Charge::new(&API, "ada").cost(2)]));
    // Both quotas deny the call. The per-hour quota requires the longer wait.
    let denied = now(limiter.try_limit(&API, "ada"));
    assert_eq!((denied.policy().as_str(), denied.name().as_ref()), ("api", "api;1h"));
    assert_eq!(denied.retry_after(), Some(12 * MINUTE - 2 * SECOND));
    let error = now(async { Ok::<_, ()>(limiter.limit(&API, "ada").await.unwrap_err()) });
    assert_eq!(error.to_string(), "rate limit exceeded: \"api;1s\", \"api;1h\"; retry after 718s");
    // If the cost exceeds one quota's capacity, there is no retry time, even if the other quota would allow the call.
    let denied = now(limiter.try_acquire(&API, "eve").cost(4));
    assert_eq!((denied.reason(), denied.retry_after()), (Reason::CostTooLarge, None));
}

#[test]
fn a_call_with_several_charges_returns_one_decision_per_quota() {
    static USER: Policy = Policy::new("user", Quota::per_minute(10));
    let (limiter, _clock) = limiter();
    let decisions = now(limiter.try_limit_all([Charge::new(&API, 1), Charge::new(&USER, 2).cost(3)]));
    let shown: Vec<_> = decisions.iter().map(|it| (it.name().into_owned(), it.remaining())).collect();
    assert_eq!(shown, [("api;1s".to_owned(), 1), ("api;1h".to_owned(), 4), ("user".to_owned(), 7)]);
    // If a call charges the same key twice, the second charge is decided as if the first had already been made.
    let decisions = now(limiter.try_limit_all([Charge::new(&API, 7), Charge::new(&API, 7)]));
    assert_eq!(decisions.iter().map(|it| it.remaining()).collect::<Vec<_>>(), [1, 4, 0, 3]);
}

#[test]
fn a_receipt_settles_every_quota_of_its_charge() {
    static TOKENS: Policy = Policy::new("tokens", Quota::per_minute(1000)).and(Quota::per_day(10_000));
    static CALLS: Policy = Policy::new("calls", Quota::per_minute(10));
    let (limiter, _clock) = limiter();
    let left = || {
        let snapshots = [now(limiter.snapshot(&TOKENS, 7)), now(limiter.snapshot(&CALLS, 7))].concat();
        snapshots.iter().map(|it| it.available(it.now())).collect::<Vec<_>>()
    };
    let both = || [Charge::new(&CALLS, 7), Charge::new(&TOKENS, 7).cost(500)];
    let receipt = now(limiter.hold_all(both())).into_receipt();
    assert_eq!(left(), [500, 9500, 9]);
    assert!(now(receipt.of("tokens").unwrap().settle(100)));
    assert_eq!(left(), [900, 9900, 9]);
    assert!(!receipt.is_settled() && receipt.of("tokens").unwrap().is_settled());

    let receipt = now(limiter.hold_all(both())).into_receipt();
    assert!(now(receipt.refund()));
    assert_eq!(left(), [900, 9900, 9]);
    now(receipt.of("tokens").unwrap().reset());
    assert_eq!(left(), [1000, 10_000, 9]);
    drop(now(limiter.hold_all(both())));
    assert_eq!(left(), [1000, 10_000, 9], "dropping the reservation must refund its tokens");
}

#[test]
fn a_reset_clears_the_spent_tokens_of_every_quota() {
    let (limiter, _clock) = limiter();
    now(limiter.acquire(&API, "ada").cost(2));
    assert!(now(limiter.reset(&API, "ada")));
    assert!(now(limiter.snapshot(&API, "ada")).iter().all(|it| it.state().spent == 0.0));
    assert!(!now(limiter.reset(&API, "ada")));
}

#[tokio::test]
async fn a_reservation_is_due_when_all_quotas_allow_it() {
    let jobs = Policy::new("jobs", Quota::per_second(1).max_reserved(9)).and(Quota::per_minute(2).max_reserved(9));
    let (limiter, clock) = limiter();
    now(limiter.acquire(&jobs, "ada"));
    let second = limiter.acquire(&jobs, "ada").reserve().await.unwrap();
    assert_eq!(second.delay(), SECOND, "the per-minute quota must still have a token");
    clock.advance(5 * SECOND);
    let third = limiter.acquire(&jobs, "ada").reserve().await.unwrap();
    assert_eq!(third.delay(), 25 * SECOND);
    // If only one quota allows reservations, a call can wait only for tokens of that quota.
    let mixed = Policy::new("mixed", Quota::per_second(1).max_reserved(9)).and(Quota::per_day(2));
    for delay in [0, 1] {
        assert_eq!(limiter.acquire(&mixed, "ada").reserve().await.unwrap().delay(), delay * SECOND);
    }
    assert!(matches!(limiter.acquire(&mixed, "ada").reserve().await, Err(LimitError::Denied(_))));
    let none = limiter.acquire(&API, "ada").reserve().await;
    assert!(matches!(none, Err(LimitError::NoReservations(_))));
}

#[test]
fn observers_see_one_event_per_charge() {
    #[derive(Debug, Default)]
    struct Names(Mutex<Vec<(String, bool)>>);
    impl Observer for Names {
        fn decided(&self, decided: &Decided<'_>) {
            self.0.lock().unwrap().push((decided.decision().name().into_owned(), decided.decision().is_allowed()));
        }

        fn settled(&self, settled: &Settled<'_>) {
            self.0.lock().unwrap().push((format!("settled {}", settled.decision().policy()), true));
        }

        fn reset(&self, reset: &Reset<'_>) {
            self.0.lock().unwrap().push((format!("reset {}", reset.policy()), true));
        }
    }
    let names = Arc::new(Names::default());
    let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&names)).build();
    let policy = Policy::new("api", Quota::token_bucket(3, HOUR)).and(Quota::token_bucket(2, DAY));
    (0..3).for_each(|_| drop(now(limiter.try_limit(&policy, "ada"))));
    let expected = [("api;1d".to_owned(), true), ("api;1d".to_owned(), true), ("api;1d".to_owned(), false)];
    assert_eq!(std::mem::take(&mut *names.0.lock().unwrap()), expected);

    // The settlement and the reset of a charge are also reported only once each.
    let receipt = now(limiter.acquire(&policy, "eve").hold()).into_receipt();
    now(receipt.refund());
    now(receipt.reset());
    let seen: Vec<String> = names.0.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(seen, ["api;1d", "settled api", "reset api"]);
}

#[test]
fn each_quota_uses_one_row_in_the_memory_backend() {
    let (limiter, _clock) = limiter();
    now(limiter.limit(&API, "ada"));
    assert_eq!(limiter.stats().rows, Some(2));
    assert_eq!(limiter.rows_by_policy(), [(API.name().clone(), 2)]);
}
