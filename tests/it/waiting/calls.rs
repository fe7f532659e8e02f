//! The results of calls, checks and reservations.

use std::time::Duration;

use tollgate::{
    Charge, HOUR, LimitError, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, SECOND, backend::ErrorKind,
    clock::ManualClock,
};

static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));

static EVENLY_SPACED: Policy = Policy::new("even", Quota::token_bucket(1, SECOND).capacity(0).max_reserved(10));

fn limiter() -> RateLimiter {
    RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build())
}

#[tokio::test]
async fn calls_without_a_try_prefix_return_an_error_if_denied() {
    async fn attempt(limiter: &RateLimiter) -> Result<(), LimitError> {
        limiter.limit(&LOGIN, "ada").await?;
        Ok(())
    }
    let limiter = limiter();
    let mut admitted = 0;
    for _ in 0..2000 {
        admitted += u32::from(attempt(&limiter).await.is_ok());
    }
    assert_eq!(admitted, 5);
    assert!(limiter.check(&LOGIN, "ada").await.is_err());
    assert!(limiter.acquire(&LOGIN, "ada").await.is_err());
    assert!(limiter.acquire(&LOGIN, "ada").check().await.is_err());
    assert!(limiter.limit_all([Charge::new(&LOGIN, "ada")]).await.is_err());
    assert!(limiter.check_all([Charge::new(&LOGIN, "ada")]).await.is_err());
    assert!(limiter.limit_now(&LOGIN, "ada").is_err());
}

#[tokio::test]
async fn calls_with_a_try_prefix_return_the_denied_decision() {
    let limiter = limiter();
    assert_eq!(limiter.try_acquire(&LOGIN, "ada").cost(5).await.unwrap().remaining(), 0);
    assert!(!limiter.try_limit(&LOGIN, "ada").await.unwrap().is_allowed());
    assert!(!limiter.try_check(&LOGIN, "ada").await.unwrap().is_allowed());
    assert!(!limiter.try_acquire(&LOGIN, "ada").await.unwrap().is_allowed());
    assert!(!limiter.try_acquire(&LOGIN, "ada").check().await.unwrap().is_allowed());
    assert!(!limiter.try_limit_all([Charge::new(&LOGIN, "ada")]).await.unwrap().is_allowed());
    assert!(!limiter.try_check_all([Charge::new(&LOGIN, "ada")]).await.unwrap().is_allowed());
    assert!(limiter.limit_now(&LOGIN, "ada").is_err());
}

#[tokio::test]
async fn only_calls_that_return_a_hold_can_reserve() {
    let limiter = limiter();
    let reservation = limiter.acquire(&EVENLY_SPACED, "ada").reserve().await.unwrap();
    assert_eq!(reservation.delay(), SECOND);
    assert!(reservation.cancel().await.unwrap()); // The next caller gets the same due time.
    assert_eq!(limiter.acquire(&EVENLY_SPACED, "ada").reserve_within(SECOND).await.unwrap().delay(), SECOND);

    // A reservation without a hold is an error, even if the call does not have to wait.
    static MAIL: Policy = Policy::new("mail", Quota::token_bucket(1, SECOND).max_reserved(10));
    let charges = || [Charge::new(&MAIL, "ada").reserve()];
    let Err(LimitError::Backend(error)) = limiter.limit_all(charges()).await else {
        panic!("expected a backend error, because `limit_all` cannot reserve")
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("hold_all"), "{error}");
    assert!(limiter.try_limit_all(charges()).await.is_err());
    assert_eq!(limiter.remaining(&MAIL, "ada").await.unwrap(), 1);
    assert_eq!(limiter.hold_all(charges()).await.unwrap().delay(), Duration::ZERO);
}

/// Regression test: a job that slept for the delay and then dropped the reservation was not limited.
#[tokio::test]
async fn a_dropped_reservation_stays_charged() {
    let limiter = limiter();
    for seconds in 1..=3 {
        let reservation = limiter.acquire(&EVENLY_SPACED, "ada").reserve().await.unwrap();
        assert_eq!(reservation.delay(), SECOND * seconds);
    }
    assert!(limiter.acquire(&EVENLY_SPACED, "ada").reserve().await.unwrap().cancel().await.unwrap());
    drop(
        tokio::time::timeout(Duration::ZERO, limiter.acquire(&EVENLY_SPACED, "ada").reserve().await.unwrap().wait())
            .await,
    );
    drop(limiter.acquire(&EVENLY_SPACED, "ada").reserve());
    let reservation = limiter.acquire(&EVENLY_SPACED, "ada").reserve_within(4 * SECOND).await.unwrap();
    assert_eq!(reservation.delay(), 4 * SECOND);
}

#[tokio::test]
async fn a_check_of_a_full_bucket_reports_a_full_bucket() {
    let limiter = limiter();
    let full = limiter.try_check(&LOGIN, "ada").await.unwrap();
    assert_eq!((full.remaining(), full.reset()), (5, Duration::ZERO));
    // Refilling five tokens takes an hour.
    assert_eq!(full.window(), HOUR);
}

#[tokio::test]
async fn a_check_reports_the_same_state_for_every_cost() {
    static DAILY: Policy = Policy::new("daily", Quota::fixed_window(5, HOUR).start(Duration::ZERO));
    static SLIDING: Policy = Policy::new("sliding", Quota::sliding_window(5, HOUR));
    let limiter = limiter();
    for policy in [&LOGIN, &DAILY, &SLIDING] {
        limiter.acquire(policy, "ada").cost(2).await.unwrap();
        let baseline = limiter.try_acquire(policy, "ada").cost(0).check().await.unwrap();
        for (cost, allowed) in [(1, true), (3, true), (4, false), (6, false)] {
            let check = limiter.try_acquire(policy, "ada").cost(cost).check().await.unwrap();
            assert_eq!((check.remaining(), check.is_allowed()), (3, allowed), "cost {cost} under {:?}", policy.name());
            assert_eq!(check.reset(), baseline.reset());
            if allowed {
                assert_eq!(check.window(), baseline.window());
            }
        }
        let twice =
            limiter.try_check_all([Charge::new(policy, "ada"), Charge::new(policy, "ada").cost(2)]).await.unwrap();
        assert_eq!(twice.iter().map(|check| check.remaining()).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(limiter.remaining(policy, "ada").await.unwrap(), 3);
    }
    let reservation = limiter.try_check_all([Charge::new(&EVENLY_SPACED, "ada").reserve()]).await.unwrap();
    assert_eq!((reservation.delay(), reservation.get(0).unwrap().reset()), (SECOND, Duration::ZERO));
}

#[tokio::test]
async fn a_key_error_converts_to_a_limit_error() {
    fn key(name: Option<&str>) -> Result<&str, tollgate::key::KeyError> {
        name.ok_or_else(|| tollgate::key::KeyError::new("no name; send x-name"))
    }
    async fn handler(limiter: &RateLimiter, name: Option<&str>) -> Result<(), LimitError> {
        limiter.limit(&LOGIN, key(name)?).await?;
        Ok(())
    }
    let limiter = limiter();
    assert!(handler(&limiter, Some("ada")).await.is_ok());
    let error = handler(&limiter, None).await.unwrap_err();
    assert!(matches!(error, LimitError::Key(_)));
    assert_eq!(error.to_string(), "no name; send x-name");
}

#[tokio::test]
async fn waiting_under_a_policy_without_reservations_is_an_error() {
    let limiter = limiter();
    let error = limiter.acquire(&LOGIN, "ada").wait_up_to(MINUTE).await.err().map(|error| error.to_string());
    assert!(error.is_some_and(|text| text.contains("max_reserved")));

    let is_no_reservations =
        |error: &LimitError| matches!(error, LimitError::NoReservations(policy) if *policy == *LOGIN.name());
    assert!(is_no_reservations(&limiter.acquire(&LOGIN, "ada").reserve().await.unwrap_err()));
    assert!(is_no_reservations(&limiter.acquire(&LOGIN, "ada").reserve_within(MINUTE).await.unwrap_err()));
    let both = [Charge::new(&EVENLY_SPACED, "ada").reserve(), Charge::new(&LOGIN, "ada").reserve()];
    assert!(is_no_reservations(&limiter.hold_all(both).await.unwrap_err()));
    assert_eq!(limiter.remaining(&LOGIN, "ada").await.unwrap(), 5, "a failed call must not charge a token");
    let crowded = RateLimiter::builder(MemoryBackend::new()).max_waiting(0).build();
    assert!(is_no_reservations(&crowded.acquire(&LOGIN, "ada").wait_up_to(MINUTE).await.unwrap_err()));
}

#[tokio::test]
async fn a_quota_set_at_run_time_does_not_make_waiting_an_error() {
    let limiter = limiter();
    let plain = Quota::token_bucket(1, HOUR);
    limiter.set_quota(&EVENLY_SPACED, plain).await.unwrap();
    assert!(limiter.acquire(&EVENLY_SPACED, "ada").wait_up_to(MINUTE).await.is_ok());
    let denied = limiter.acquire(&EVENLY_SPACED, "ada").wait_up_to(MINUTE).await.unwrap_err();
    assert!(denied.denied().is_some(), "{denied}");
    limiter.set_quota(&LOGIN, plain.max_reserved(2)).await.unwrap();
    limiter.limit(&LOGIN, "ada").await.unwrap();
    assert_eq!(limiter.acquire(&LOGIN, "ada").reserve().await.unwrap().delay(), HOUR);
}

#[tokio::test]
async fn a_denial_at_zero_capacity_suggests_reserve_and_wait_up_to() {
    let denied = limiter().try_limit(&EVENLY_SPACED, "ada").await.unwrap().into_result().unwrap_err().to_string();
    assert!(denied.contains("reserve()") && denied.contains("wait_up_to"), "{denied}");
}

#[tokio::test]
async fn retry_after_in_seconds_and_milliseconds_is_rounded_up() {
    static FAST: Policy = Policy::new("fast", Quota::token_bucket(3, SECOND).capacity(1));
    let clock = ManualClock::new();
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    limiter.limit(&FAST, "ada").await.unwrap();
    let wait = async || {
        let error = limiter.limit(&FAST, "ada").await.unwrap_err();
        let denied = error.denied().unwrap();
        (denied.retry_after().unwrap().as_micros(), denied.retry_after_millis(), denied.retry_after_secs())
    };
    assert_eq!(wait().await, (333_334, Some(334), Some(1)));
    clock.advance(Duration::from_micros(333_333));
    assert_eq!(wait().await, (1, Some(1), Some(1)));
    clock.advance(Duration::from_millis(1));
    limiter.limit(&FAST, "ada").await.unwrap();

    let never = limiter.acquire(&FAST, "ada").cost(2).await.unwrap_err();
    let never = never.denied().unwrap();
    assert_eq!((never.retry_after_secs(), never.retry_after_millis()), (None, None));
}

#[tokio::test]
async fn cancel_reports_whether_the_tokens_were_refunded() {
    let limiter = limiter();
    let first = limiter.acquire(&EVENLY_SPACED, "ada").reserve().await.unwrap();
    let second = limiter.acquire(&EVENLY_SPACED, "ada").reserve().await.unwrap();
    assert!(!first.cancel().await.unwrap(), "no refund is possible once a later reservation has been granted");
    assert!(second.cancel().await.unwrap());
    // The first reservation is forfeited, and the tokens of the second are available again.
    assert_eq!(limiter.acquire(&EVENLY_SPACED, "ada").reserve().await.unwrap().delay(), 2 * SECOND);

    assert!(limiter.acquire(&LOGIN, "ada").cost(3).hold().await.unwrap().cancel().await.unwrap());
    let lost =
        limiter.hold_all([Charge::new(&LOGIN, "ada"), Charge::new(&EVENLY_SPACED, "eve").reserve()]).await.unwrap();
    limiter.acquire(&EVENLY_SPACED, "eve").reserve().await.unwrap().into_receipt();
    assert!(!lost.cancel().await.unwrap());
    assert_eq!(limiter.remaining(&LOGIN, "ada").await.unwrap(), 5);
}
