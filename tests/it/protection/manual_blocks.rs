//! Manual blocks: what they deny, how long they last, and how they end.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{
    HOUR, Key, MINUTE, Policy, Quota, RateLimiter, Reason, Subject,
    clock::ManualClock,
    protection::{AutoBlock, Signal, Signals},
};

use super::app::{API, Spy, US, ip};
use crate::support::now;
use crate::support::test_backend::TestBackend;

static OTHER: Policy = Policy::new("other", Quota::sliding_window(10, MINUTE));

fn reason(limiter: &RateLimiter, policy: &Policy, key: impl Into<Subject>, signals: &Signals) -> Reason {
    let charge = tollgate::Charge::new(policy, key).signals(signals.clone());
    now(limiter.try_check_all([charge])).get(0).unwrap().reason()
}

#[test]
fn a_manual_block_on_any_signal_denies_calls_without_asking_the_backend() {
    let caller = Signals::new().ip(ip("2001:db8::1")).user_agent("Bot/1").country("kp").label("asn", "64496");
    for signal in [
        Signal::key("eve"),
        Signal::ip(ip("2001:db8::ffff")),
        Signal::user_agent("Bot/1"),
        Signal::label("country", "KP"),
        Signal::label("asn", "64496"),
    ] {
        let clock = ManualClock::new();
        let (backend, spy) = (TestBackend::local(&clock), Spy::new());
        let limiter = RateLimiter::builder(Arc::clone(&backend)).observer(Arc::clone(&spy)).build();
        now(limiter.block(signal.clone(), HOUR));
        let rule = spy.take_blocked().pop().expect("expected a blocked event").0;
        assert_eq!((limiter.stats().offenders, limiter.stats().blocked), (0, 1));
        for policy in [&API, &OTHER] {
            assert_eq!(reason(&limiter, policy, "eve", &caller), Reason::Blocked, "{signal:?}");
        }
        assert_eq!(spy.last(), ("blocked", Some(rule)));
        assert_eq!(backend.take_calls(), 0);
        let harmless = Signals::new().ip(ip("2001:db8:0:1::1")).user_agent("bot/1").country("kr").label("ASN", "64496");
        assert_eq!(reason(&limiter, &API, "ada", &harmless), Reason::WithinQuota);
        clock.advance(HOUR - US);
        assert_eq!(reason(&limiter, &API, "eve", &caller), Reason::Blocked);
        clock.advance(US);
        assert_eq!(reason(&limiter, &API, "eve", &caller), Reason::WithinQuota);
        assert_eq!(limiter.stats().blocked, 0);
        now(limiter.block(signal.clone(), HOUR));
        assert_eq!(reason(&limiter, &API, "eve", &caller), Reason::Blocked);
        now(limiter.unblock(signal));
        assert_eq!(reason(&limiter, &API, "eve", &caller), Reason::WithinQuota);
        assert_eq!((limiter.stats().offenders, limiter.stats().blocked), (0, 0));
    }
}

#[test]
fn the_longest_block_applies_and_a_new_block_on_a_signal_replaces_the_old_one() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::new(TestBackend::local(&clock));
    now(limiter.block(Signal::key("eve"), HOUR));
    now(limiter.block(Signal::key("eve"), MINUTE));
    now(limiter.block(Signal::ip(ip("192.0.2.7")), 2 * HOUR));
    let denied = now(limiter.try_acquire(&API, "eve").ip(ip("192.0.2.7")));
    assert_eq!(denied.retry_after(), Some(2 * HOUR));
    assert_eq!(denied.denied_rule().map(ToString::to_string).as_deref(), Some("network 192.0.2.7/32"));
    assert_eq!(
        now(limiter.try_limit(&API, "eve")).retry_after(),
        Some(MINUTE),
        "the last manual block on a signal must apply"
    );
    now(limiter.block(Signal::key("eve"), Duration::MAX));
    clock.advance(100 * 365 * tollgate::DAY);
    assert_eq!(now(limiter.try_limit(&API, "eve")).reason(), Reason::Blocked);
}

#[test]
fn a_block_on_the_anonymous_key_has_no_effect() {
    let limiter = RateLimiter::new(TestBackend::local(&ManualClock::new()));
    now(limiter.block(Signal::key(Key::anonymous()), HOUR));
    assert!(now(limiter.try_limit(&API, Subject::anonymous())).is_allowed());
}

/// Regression: user agents were truncated to 1,024 bytes in requests but not in blocks, so blocks on longer user agents
/// never matched.
#[test]
fn long_user_agents_in_blocks_and_requests_are_truncated_to_the_same_length() {
    let limiter = RateLimiter::new(TestBackend::local(&ManualClock::new()));
    let long = "x".repeat(5000);
    now(limiter.block(Signal::user_agent(long.clone()), HOUR));
    assert!(!now(limiter.try_acquire(&API, "eve").user_agent(long.clone())).is_allowed());
    now(limiter.unblock(Signal::user_agent(long.clone())));
    assert!(now(limiter.try_acquire(&API, "eve").user_agent(long)).is_allowed());
}

#[test]
fn unblocking_an_unknown_key_has_no_effect() {
    let backend = TestBackend::local(&ManualClock::new());
    let limiter = RateLimiter::new(Arc::clone(&backend));
    now(limiter.unblock(Signal::key("eve")));
    assert_eq!((limiter.stats().offenders, now(limiter.try_limit(&API, "eve")).is_allowed()), (0, true));
}

/// Regression: manual blocks and offenders were in the same table, so a flood of denied keys evicted most of the
/// blocks.
#[test]
fn a_flood_of_denials_does_not_end_manual_blocks() {
    let clock = ManualClock::new();
    let limiter =
        RateLimiter::builder(TestBackend::local(&clock)).auto_block(AutoBlock::new([&API]).max_entries(1024)).build();
    for i in 0..100_000u64 {
        now(limiter.block(Signal::key(("blocked", i)), HOUR));
    }
    let error = now(async { Ok::<_, ()>(limiter.block(Signal::key("one more"), HOUR).await) })
        .expect_err("expected an error, because the table of manual blocks is full");
    assert!(error.to_string().contains("100000 callers are already blocked manually, which is the maximum"), "{error}");
    for i in 0..20_000u64 {
        for _ in 0..3 {
            assert!(!now(limiter.try_acquire(&API, i).cost(11)).is_allowed());
        }
    }
    assert!((0..100_000u64).all(|i| now(limiter.try_check(&API, ("blocked", i))).reason() == Reason::Blocked));
}
