//! Checks the claims of `docs::migrating::governor` about both crates.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use governor::clock::FakeRelativeClock;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use tollgate::{DAY, LimitError, MemoryBackend, Policy, Quota, RateLimiter, Reason, SECOND, clock::ManualClock};
use tollgate_migrating::{ours, theirs};

/// Both limiters, with manual clocks.
struct Pair {
    theirs:
        governor::RateLimiter<u64, DashMapStateStore<u64>, FakeRelativeClock, NoOpMiddleware<governor::nanos::Nanos>>,
    their_clock: FakeRelativeClock,
    ours: RateLimiter,
    our_clock: ManualClock,
    policy: Policy,
}

impl Pair {
    fn new(period: Duration, burst: u32) -> Pair {
        let their_clock = FakeRelativeClock::default();
        let quota = governor::Quota::with_period(period).unwrap().allow_burst(NonZeroU32::new(burst).unwrap());
        let our_clock = ManualClock::new();
        Pair {
            theirs: governor::RateLimiter::new(quota, DashMapStateStore::default(), their_clock.clone()),
            their_clock,
            ours: manual(&our_clock),
            our_clock,
            policy: Policy::new("pair", Quota::token_bucket(1, period).capacity(burst.into())),
        }
    }

    fn advance(&self, by: Duration) {
        self.their_clock.advance(by);
        self.our_clock.advance(by);
    }

    /// The waits of both limiters; `None` if allowed.
    fn ask(&self, key: u64) -> [Option<Duration>; 2] {
        use governor::clock::Clock;
        let theirs = self.theirs.check_key(&key).err().map(|it| it.wait_time_from(self.their_clock.now()));
        let ours = self.ours.limit_now(&self.policy, key).err();
        [theirs, ours.map(|it| it.denied().unwrap().retry_after().unwrap())]
    }
}

fn manual(clock: &ManualClock) -> RateLimiter {
    RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build())
}

/// Polls once with a no-op waker.
fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn both_allow_the_same_requests_and_report_the_same_waits() {
    let mut seed = 7_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for (period, burst) in [(100_000, 10), (7_000, 3), (2_000_000, 5), (1, 1), (86_400_000, 1000)] {
        let pair = Pair::new(Duration::from_micros(period), burst);
        let mut denied = 0;
        for i in 0..20_000 {
            pair.advance(Duration::from_micros(random(period + 1)));
            let [theirs, ours] = pair.ask(random(2));
            assert_eq!(theirs, ours, "request {i}, one token in {period} us, burst {burst}");
            denied += u32::from(ours.is_some());
        }
        assert!(burst == 1000 || denied > 500, "only {denied} denied: too few to compare");
    }
}

#[test]
fn a_cost_above_the_burst_is_never_granted() {
    let pair = Pair::new(Duration::from_millis(100), 10);
    let eleven = NonZeroU32::new(11).unwrap();
    assert_eq!(pair.theirs.check_key_n(&1, eleven).unwrap_err().0, 10);

    let mut decision = pin!(pair.ours.try_acquire(&pair.policy, 1_u64).cost(11).into_future());
    let Poll::Ready(Ok(decision)) = poll(decision.as_mut()) else { panic!("in memory") };
    assert_eq!(decision.reason(), Reason::CostTooLarge);
    assert_eq!(decision.into_result().unwrap_err().retry_after(), None, "waiting does not help");
}

#[tokio::test]
async fn a_request_refused_by_the_second_limiter_is_charged_by_the_first() {
    let theirs = theirs::governor::Limits::new();
    let clock = ManualClock::new();
    let limiter = manual(&clock);
    let ours = ours::governor::Limits::new(limiter.clone());
    let (mut passed, mut waits) = ([0, 0], Duration::ZERO);
    for _ in 0..1000 {
        match theirs.search(1) {
            Ok(()) => passed[0] += 1,
            Err(wait) => waits = waits.max(wait),
        }
        passed[1] += u32::from(ours.search(1).await.is_ok());
    }
    assert!(passed[0] < 500, "expected the burst limit to refuse most: {} passed", passed[0]);
    assert_eq!(passed[1], 10);
    // The refused requests have still spent the daily limit of governor.
    thread::sleep(SECOND);
    assert!(theirs.search(1).unwrap_err() > SECOND);
    clock.advance(SECOND);
    ours.search(1).await.unwrap();
    assert_eq!(limiter.remaining(&Policy::new("daily", Quota::token_bucket(1000, DAY)), 1_u64).await.unwrap(), 989);
}

#[tokio::test]
async fn newcomers_overtake_waiting_callers_in_governor() {
    let quota = governor::Quota::with_period(SECOND).unwrap();
    let theirs = governor::RateLimiter::direct(quota);
    theirs.check().unwrap();
    let mut waiting = pin!(theirs.until_ready());
    assert!(poll(waiting.as_mut()).is_pending());
    thread::sleep(SECOND); // until the waiting call's time
    theirs.check().expect("the newcomer takes the token");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(poll(waiting.as_mut()).is_pending(), "the waiting call waits again");

    let clock = ManualClock::new();
    let limiter = manual(&clock);
    let policy = Policy::new("upstream", Quota::token_bucket(1, SECOND).max_reserved(10));
    limiter.limit(&policy, 1_u64).await.unwrap();
    let turn = limiter.acquire(&policy, 1_u64).reserve().await.unwrap();
    assert_eq!(turn.delay(), SECOND);
    clock.advance(SECOND);
    assert!(!limiter.try_limit(&policy, 1_u64).await.unwrap().is_allowed(), "that token is reserved");
}

#[tokio::test]
async fn waiting_is_unbounded_in_governor_and_bounded_in_tollgate() {
    let theirs = Arc::new(theirs::governor::Limits::new());
    let waiting: Vec<_> = (0..1000)
        .map(|_| {
            let theirs = Arc::clone(&theirs);
            Box::pin(async move { theirs.upstream().await })
        })
        .collect();
    let pending = waiting.into_iter().map(|mut it| poll(it.as_mut()).is_pending()).filter(|it| *it).count();
    assert!(pending > 900, "{pending}");

    // One is allowed immediately, and a hundred wait; the last is due in about eleven seconds.
    let clock = ManualClock::new();
    let ours = ours::governor::Limits::new(manual(&clock));
    let mut outcomes = [0, 0, 0];
    let mut held = Vec::new();
    for _ in 0..1000 {
        let mut turn = Box::pin(ours.upstream());
        match poll(turn.as_mut()) {
            Poll::Ready(Ok(())) => outcomes[0] += 1,
            Poll::Pending => {
                outcomes[1] += 1;
                held.push(turn);
            }
            Poll::Ready(Err(LimitError::Denied(_))) => outcomes[2] += 1,
            Poll::Ready(Err(error)) => panic!("{error}"),
        }
    }
    assert_eq!(outcomes, [1, 100, 899]);
}

#[tokio::test]
async fn calls_wait_only_if_the_quota_has_reservations() {
    let limiter = manual(&ManualClock::new());
    let plain = Policy::new("plain", Quota::token_bucket(10, SECOND));
    let endless = Policy::new("endless", Quota::token_bucket(10, SECOND).unlimited_reservations());
    let mut held = Vec::new();
    for i in 0..11_100_u64 {
        let key = i % 100;
        let mut turn = Box::pin(limiter.acquire(&plain, key).wait_up_to(DAY));
        assert!(matches!(poll(turn.as_mut()), Poll::Ready(Err(LimitError::NoReservations(_)))), "{i}");

        let mut turn = Box::pin(limiter.acquire(&endless, key).wait_up_to(Duration::MAX));
        match poll(turn.as_mut()) {
            Poll::Ready(Ok(_)) => assert!(i < 1000, "only ten of each key fit immediately"),
            Poll::Pending => held.push(turn),
            Poll::Ready(Err(LimitError::Denied(_))) => {
                assert!(i >= 11_000, "denied at {i}, before max_waiting was reached")
            }
            Poll::Ready(Err(error)) => panic!("{error}"),
        }
    }
    assert_eq!(held.len(), 10_000, "the default max_waiting, for all keys together");
}

/// A bucket of ten per second admits a burst and the tokens that are refilled after it, which can be more than ten
/// calls in a second.
#[tokio::test]
async fn a_burst_exceeds_ten_per_second_unless_the_capacity_is_1() {
    let pair = Pair::new(Duration::from_millis(100), 10);
    let mut passed = [0, 0];
    for _ in 0..1000 {
        for (count, denied) in passed.iter_mut().zip(pair.ask(1)) {
            *count += u32::from(denied.is_none());
        }
        pair.advance(Duration::from_millis(1));
    }
    assert_eq!(passed, [19, 19]);

    let clock = ManualClock::new();
    let ours = ours::governor::Limits::new(manual(&clock));
    let mut turns: Vec<_> = (0..40).map(|_| Box::pin(ours.upstream())).collect();
    let mut passed: Vec<u64> = Vec::new();
    for ms in 0..5000 {
        turns.retain_mut(|turn| match poll(turn.as_mut()) {
            Poll::Ready(outcome) => {
                outcome.unwrap();
                passed.push(ms);
                false
            }
            Poll::Pending => true,
        });
        clock.advance(Duration::from_millis(1));
    }
    assert_eq!(passed.len(), 40);
    // If calls arrive up to 100 ms late, a window of one second contains the calls of 1.1 s.
    for window in [1000, 1100] {
        let most = passed.iter().map(|&from| passed.iter().filter(|&&it| (from..from + window).contains(&it)).count());
        assert!(most.max().unwrap() <= 10, "{passed:?}");
    }
}

#[test]
fn governor_keeps_keys_until_they_are_swept() {
    let pair = Pair::new(Duration::from_millis(1), 1);
    for key in 0..10_000 {
        pair.ask(key);
    }
    pair.advance(SECOND);
    assert_eq!(pair.theirs.len(), 10_000);
    pair.theirs.retain_recent();
    assert_eq!(pair.theirs.len(), 0);

    // tollgate drops expired rows as it adds new keys.
    for round in 1..=20_u64 {
        for key in 0..10_000 {
            drop(pair.ours.limit_now(&pair.policy, round * 10_000 + key));
        }
        pair.advance(SECOND);
    }
    let rows = pair.ours.stats().rows.unwrap();
    assert!(rows < 40_000, "{rows} rows after 210,000 keys, all of them refilled");
}
