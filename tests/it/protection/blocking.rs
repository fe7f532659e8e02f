//! Automatic blocking: which denials are counted, what is blocked, and for how long.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate::policy::Enforce;
use tollgate::{
    Charge, DAY, FailureMode, HOUR, Key, MINUTE, Policy, Quota, RateLimiter, Reason, SECOND, Subject,
    clock::ManualClock,
    key,
    observe::{Blocked, Decided, Observer},
    protection::{AutoBlock, DenyList, Signal},
};

use super::app::{API, ONE, Spy, US, behind, ip, layer};
use crate::support::client::{hello, serve};
use crate::support::now;
use crate::support::test_backend::TestBackend;

/// Returns rules that block a caller for an hour after three denials within a minute.
fn block_after_three(policies: &[&Policy]) -> AutoBlock {
    AutoBlock::new(policies.iter().copied()).threshold(3).within(MINUTE).block_for(HOUR)
}

struct Fixture {
    limiter: RateLimiter,
    clock: ManualClock,
    backend: Arc<TestBackend>,
    spy: Arc<Spy>,
}

fn fixture(rules: AutoBlock) -> Fixture {
    let clock = ManualClock::new();
    let (backend, spy) = (TestBackend::local(&clock), Spy::new());
    let limiter = RateLimiter::builder(Arc::clone(&backend)).auto_block(rules).observer(Arc::clone(&spy)).build();
    Fixture { limiter, clock, backend, spy }
}

impl Fixture {
    /// Makes a call for `key` that is denied because it costs more than the capacity.
    fn deny(&self, policy: &Policy, key: impl Into<Subject>) -> Reason {
        now(self.limiter.try_acquire(policy, key).cost(policy.quotas()[0].get_capacity() + 1)).reason()
    }

    fn reason(&self, policy: &Policy, key: impl Into<Subject>) -> Reason {
        now(self.limiter.try_check(policy, key)).reason()
    }

    fn rules_blocked(&self) -> Vec<String> {
        self.spy.take_blocked().into_iter().map(|(rule, ..)| rule).collect()
    }
}

#[tokio::test]
async fn the_third_denial_blocks_the_key_and_the_address() {
    let fixture = fixture(block_after_three(&[&ONE]));
    let client = behind(&fixture.limiter, &ONE).await;
    let eve = ["x-user: eve", "x-forwarded-for: 192.0.2.7"];
    let status = async |lines: &[&str]| client.send("GET", lines).await.status;
    assert_eq!(status(&eve).await, 200);
    for _ in 0..2 {
        assert_eq!((status(&eve).await, fixture.spy.last().0), (429, "quota_exceeded"));
    }
    assert_eq!((fixture.limiter.stats().offenders, fixture.limiter.stats().blocked), (2, 0));
    // The `Retry-After` of the third denial still comes from the quota. Later denials report when the block ends.
    assert_eq!(client.send("GET", &eve).await.retry_after(), Some(60));
    let blocked = [("key".to_owned(), HOUR, 1), ("network 192.0.2.7/32".to_owned(), HOUR, 1)];
    assert_eq!(fixture.spy.take_blocked(), blocked);
    assert_eq!((fixture.limiter.stats().offenders, fixture.limiter.stats().blocked), (2, 2));
    let calls = fixture.backend.take_calls();
    assert_eq!((client.send("GET", &eve).await.retry_after(), calls, fixture.backend.take_calls()), (Some(3600), 4, 0));
    // The key and the address are blocked separately. Other callers are allowed.
    assert_eq!(status(&["x-user: eve"]).await, 429);
    assert_eq!(status(&["x-user: bob", "x-forwarded-for: 192.0.2.7"]).await, 429);
    assert_eq!(status(&["x-user: bob", "x-forwarded-for: 192.0.2.8"]).await, 200);
    fixture.clock.advance(HOUR - US);
    assert_eq!((client.send("GET", &eve).await.retry_after(), fixture.spy.last().0), (Some(1), "blocked"));
    fixture.clock.advance(US);
    assert_eq!(status(&eve).await, 200);
}

#[test]
fn the_counting_window_is_exact_to_the_microsecond() {
    for (gap, is_blocked) in [(MINUTE - US, true), (MINUTE, false)] {
        let fixture = fixture(block_after_three(&[&ONE]));
        fixture.deny(&ONE, "eve");
        fixture.deny(&ONE, "eve");
        fixture.clock.advance(gap);
        fixture.deny(&ONE, "eve");
        assert_eq!(fixture.reason(&ONE, "eve") == Reason::Blocked, is_blocked, "{gap:?}");
    }
}

/// Regression: the first window began at the clock's epoch, so it ended too early.
#[test]
fn the_first_window_begins_with_the_first_denial() {
    let clock = ManualClock::at(tollgate::algorithm::Micros::new(1));
    let limiter = RateLimiter::builder(TestBackend::remote(&clock)).auto_block(block_after_three(&[&ONE])).build();
    let deny = || now(limiter.try_acquire(&ONE, "eve").cost(2)).reason();
    clock.advance(MINUTE - SECOND);
    deny();
    clock.advance(SECOND);
    deny();
    deny();
    assert_eq!(deny(), Reason::Blocked);
}

/// Regression: a success did not end the current window of denials.
#[test]
fn the_next_denial_after_a_success_begins_a_new_window() {
    let fixture = fixture(block_after_three(&[&ONE]).reset_on_success());
    fixture.deny(&ONE, "eve");
    assert!(now(fixture.limiter.try_limit(&ONE, "eve")).is_allowed());
    fixture.clock.advance(MINUTE - US);
    fixture.deny(&ONE, "eve");
    fixture.clock.advance(US);
    fixture.deny(&ONE, "eve");
    fixture.deny(&ONE, "eve");
    assert_eq!(fixture.reason(&ONE, "eve"), Reason::Blocked);
}

#[test]
fn a_success_resets_the_counts_only_if_configured() {
    for (rules, is_blocked) in
        [(block_after_three(&[&ONE]).reset_on_success(), false), (block_after_three(&[&ONE]), true)]
    {
        let fixture = fixture(rules);
        let ask = |cost| now(fixture.limiter.try_acquire(&ONE, "eve").ip(ip("192.0.2.7")).cost(cost)).reason();
        ask(2);
        ask(2);
        // Neither a check nor a success under another policy resets the count.
        assert!(now(fixture.limiter.try_check(&ONE, "eve")).is_allowed());
        assert!(now(fixture.limiter.try_limit(&API, "eve")).is_allowed());
        assert_eq!(ask(1), Reason::WithinQuota);
        ask(2);
        ask(2);
        let reasons = [
            fixture.reason(&ONE, "eve"),
            now(fixture.limiter.try_acquire(&API, "bob").ip(ip("192.0.2.7")).check()).reason(),
        ];
        let expected = if is_blocked { Reason::Blocked } else { Reason::WithinQuota };
        assert_eq!(reasons[1], expected);
        assert_eq!(reasons[0] == Reason::Blocked, is_blocked);
    }
}

/// A charge of 0 does not count as a success, because it is allowed for every key that is not in debt.
#[test]
fn a_charge_of_0_does_not_reset_the_count() {
    let fixture = fixture(block_after_three(&[&ONE]).reset_on_success());
    for _ in 0..3 {
        assert!(now(fixture.limiter.try_acquire(&ONE, "eve").cost(0)).is_allowed());
        fixture.deny(&ONE, "eve");
    }
    assert_eq!(fixture.reason(&ONE, "eve"), Reason::Blocked);
}

/// Regression: keys with only a few denials evicted blocked keys whose callers had stopped sending requests.
#[test]
fn a_flood_of_denied_keys_does_not_evict_blocks() {
    let clock = ManualClock::new();
    let rules = AutoBlock::new([&ONE]).threshold(30).within(MINUTE).block_for(HOUR).max_entries(1024);
    let limiter = RateLimiter::builder(TestBackend::local(&clock)).auto_block(rules).build();
    let deny = |key: u64| now(limiter.try_acquire(&ONE, key).cost(2)).reason();
    for eve in 0..100 {
        (0..30).for_each(|_| assert_ne!(deny(eve), Reason::WithinQuota));
    }
    clock.advance(2 * MINUTE);
    for other in 1000..50_000 {
        (0..3).for_each(|_| assert_ne!(deny(other), Reason::WithinQuota));
    }
    let blocked = (0..100).filter(|eve| now(limiter.try_check(&ONE, *eve)).reason() == Reason::Blocked).count();
    assert_eq!(blocked, 100);
}

#[test]
fn calls_during_a_block_neither_extend_nor_renew_it() {
    let fixture = fixture(block_after_three(&[&ONE]));
    for _ in 0..3 {
        fixture.deny(&ONE, "eve");
    }
    for _ in 0..100 {
        assert_eq!(fixture.deny(&ONE, "eve"), Reason::Blocked);
    }
    fixture.clock.advance(HOUR - US);
    assert_eq!(fixture.deny(&ONE, "eve"), Reason::Blocked);
    fixture.clock.advance(US);
    for _ in 0..3 {
        assert_eq!(fixture.deny(&ONE, "eve"), Reason::CostTooLarge);
    }
    assert_eq!(fixture.deny(&ONE, "eve"), Reason::Blocked);
    assert_eq!(fixture.spy.take_blocked().len(), 2);
}

#[test]
fn blocks_escalate_until_the_caller_stays_away_for_the_maximum_block_duration() {
    for (away, times) in [(6 * HOUR - US, 4), (6 * HOUR, 1)] {
        let fixture = fixture(block_after_three(&[&ONE]).escalate(3, 6 * HOUR));
        let offend = || {
            for _ in 0..3 {
                assert_eq!(fixture.deny(&ONE, "eve"), Reason::CostTooLarge);
            }
            let (_, lasts, times) = fixture.spy.take_blocked().pop().expect("expected a block");
            (lasts, times)
        };
        for (hours, times) in [(1, 1), (3, 2), (6, 3)] {
            assert_eq!(offend(), (hours * HOUR, times));
            fixture.clock.advance(hours * HOUR - US);
            assert_eq!(fixture.reason(&ONE, "eve"), Reason::Blocked);
            fixture.clock.advance(US);
        }
        fixture.clock.advance(away);
        assert_eq!(offend(), (if times == 1 { HOUR } else { 6 * HOUR }, times));
    }
}

#[test]
fn escalation_stops_at_the_maximum_duration() {
    let fixture = fixture(block_after_three(&[&ONE]).threshold(1).escalate(u32::MAX, 400 * DAY));
    for (i, lasts) in [HOUR, 400 * DAY, 400 * DAY, 400 * DAY].into_iter().enumerate() {
        fixture.deny(&ONE, "eve");
        assert_eq!(fixture.spy.take_blocked(), [("key".to_owned(), lasts, i as u32 + 1)]);
        fixture.clock.advance(lasts);
    }
}

#[test]
fn only_the_configured_signals_are_blocked() {
    for (rules, expected) in [
        (block_after_three(&[&ONE]), &["key", "network 2001:db8::/64"][..]),
        (block_after_three(&[&ONE]).without_keys(), &["network 2001:db8::/64"]),
        (block_after_three(&[&ONE]).without_ips(), &["key"]),
        (block_after_three(&[&ONE]).without_ips().without_keys(), &[]),
        (block_after_three(&[&ONE]).without_ips().without_keys().user_agents(), &["user agent \"bot/1\""]),
        (block_after_three(&[&ONE]).without_ips().without_keys().label("asn"), &["asn \"64496\""]),
        (block_after_three(&[&ONE]).without_ips().without_keys().label("country"), &["country \"KP\""]),
    ] {
        let fixture = fixture(rules);
        let ask = |cost| {
            let call = fixture.limiter.try_acquire(&ONE, "eve").ip(ip("2001:db8::1")).user_agent("Bot/1");
            now(call.country("kp").label("asn", "64496").cost(cost)).reason()
        };
        for _ in 0..3 {
            ask(2);
        }
        assert_eq!(fixture.rules_blocked(), expected);
        assert_eq!(fixture.limiter.stats().offenders, expected.len());
        assert_eq!(ask(1) == Reason::Blocked, !expected.is_empty());
    }
}

#[test]
fn a_block_covers_a_whole_ipv6_network_but_not_its_neighbor() {
    let fixture = fixture(block_after_three(&[&ONE]));
    for i in 1..=3 {
        let address = ip(&format!("2001:db8:0:1:{i}::{i}"));
        drop(now(fixture.limiter.try_acquire(&ONE, i).ip(address).cost(2)));
    }
    let reason = |text: &str| now(fixture.limiter.try_acquire(&API, "ada").ip(ip(text)).check()).reason();
    assert_eq!(reason("2001:db8:0:1:ffff::1"), Reason::Blocked);
    assert_eq!(reason("2001:db8:0:2::1"), Reason::WithinQuota);
    assert_eq!(fixture.rules_blocked(), ["network 2001:db8:0:1::/64"]);
}

#[tokio::test]
async fn neither_checks_nor_requests_in_shadow_mode_are_counted() {
    let fixture = fixture(block_after_three(&[&ONE]));
    for _ in 0..10 {
        drop(now(fixture.limiter.try_acquire(&ONE, "eve").ip(ip("192.0.2.7")).cost(2).check()));
    }
    let client = serve(hello().layer(layer(&fixture.limiter, &ONE.clone().enforce(Enforce::Never)))).await;
    for _ in 0..10 {
        assert_eq!(client.send("GET", &["x-user: eve", "x-forwarded-for: 192.0.2.7"]).await.status, 200);
    }
    assert_eq!(fixture.limiter.stats().offenders, 0);
}

#[test]
fn only_denied_charges_under_the_configured_policies_count() {
    let fixture = fixture(block_after_three(&[&API]));
    for _ in 0..10 {
        // The quota of `API` allows the first charge, but the second charge costs more than the capacity of `ONE`.
        let charges = [Charge::new(&API, "eve"), Charge::new(&ONE, "eve").cost(2)];
        let decisions = now(fixture.limiter.try_limit_all(charges));
        assert_eq!(decisions.get(0).unwrap().reason(), Reason::RefusedElsewhere);
    }
    assert_eq!(fixture.limiter.stats().offenders, 0);
    // The block applies to charges under the configured policies...
    for _ in 0..3 {
        fixture.deny(&API, "eve");
    }
    assert_eq!(fixture.reason(&API, "eve"), Reason::Blocked);
    assert_eq!(fixture.reason(&ONE, "eve"), Reason::WithinQuota);
    // ...and to all other charges in the same call.
    let decisions = now(fixture.limiter.try_limit_all([Charge::new(&ONE, "eve"), Charge::new(&API, "eve")]));
    assert!(decisions.iter().all(|decision| decision.reason() == Reason::Blocked));
}

#[test]
fn several_denied_charges_in_one_call_count_once_per_key() {
    let fixture = fixture(block_after_three(&[&ONE, &API]));
    let call = || {
        let charges = [
            Charge::new(&ONE, "eve").cost(2).signals(tollgate::protection::Signals::new().ip(ip("192.0.2.7"))),
            Charge::new(&API, "eve").cost(11),
            Charge::new(&ONE, "bob").cost(2),
        ];
        now(fixture.limiter.try_limit_all(charges)).get(0).unwrap().reason()
    };
    call();
    call();
    assert_eq!((fixture.limiter.stats().offenders, fixture.limiter.stats().blocked), (3, 0));
    call();
    assert_eq!(fixture.rules_blocked(), ["key", "key", "network 192.0.2.7/32"]);
    assert_eq!(call(), Reason::Blocked);
}

/// Regression: denials of `Key::anonymous()` were counted like denials of a caller's own key.
#[test]
fn shared_keys_are_never_blocked() {
    let fixture = fixture(block_after_three(&[&ONE]));
    for subject in [Subject::anonymous(), Subject::new(Key::global()), Subject::new(Key::anonymous())] {
        for _ in 0..10 {
            assert_eq!(fixture.deny(&ONE, subject.clone()), Reason::CostTooLarge);
        }
    }
    assert_eq!(fixture.limiter.stats().offenders, 0);
    for _ in 0..3 {
        drop(now(fixture.limiter.try_acquire(&ONE, Subject::anonymous()).ip(ip("192.0.2.7")).cost(2)));
    }
    assert_eq!(fixture.rules_blocked(), ["network 192.0.2.7/32"]);
}

#[tokio::test]
async fn the_key_of_a_global_limit_is_never_blocked() {
    let fixture = fixture(block_after_three(&[&ONE]));
    let layer = tollgate::RateLimitLayer::new(&ONE, key::global())
        .limiter(&fixture.limiter)
        .client_ip(key::client_ip().trust(["127.0.0.1"]));
    let client = serve(hello().layer(layer)).await;
    for i in 0..20 {
        client.send("GET", &[&format!("x-forwarded-for: 192.0.2.{i}")]).await;
    }
    assert_eq!(fixture.spy.take_blocked(), []);
    fixture.clock.advance(HOUR);
    assert_eq!(client.send("GET", &["x-forwarded-for: 192.0.2.1"]).await.status, 200);
}

#[tokio::test]
async fn denied_reservations_count_and_canceled_reservations_do_not() {
    let queue = Policy::new("queue", Quota::token_bucket(1, SECOND).max_reserved(2));
    let fixture = fixture(block_after_three(&[&queue]));
    for _ in 0..10 {
        now(now(fixture.limiter.acquire(&queue, "ada").reserve()).cancel());
        drop(fixture.limiter.acquire(&queue, "ada").wait_up_to(SECOND));
        let usage = now(fixture.limiter.acquire(&queue, "ada").hold()).into_receipt();
        now(usage.settle(1000));
        now(usage.reset());
    }
    assert_eq!(fixture.limiter.stats().offenders, 0);
    for _ in 0..3 {
        now(fixture.limiter.acquire(&queue, "eve").reserve()).into_receipt();
    }
    let denied = fixture.limiter.acquire(&queue, "eve").reserve().await.unwrap_err();
    let reason = denied.denied().and_then(|denied| denied.decisions().get(0)).map(|decision| decision.reason());
    assert_eq!(reason, Some(Reason::QuotaExceeded));
    assert!(fixture.limiter.acquire(&queue, "eve").wait_up_to(SECOND / 2).await.is_err());
    assert!(fixture.limiter.acquire(&queue, "eve").hold().await.is_err());
    assert_eq!(fixture.reason(&queue, "eve"), Reason::Blocked);
}

#[test]
fn denials_by_the_fallback_count_but_calls_that_fail_open_do_not() {
    let clock = ManualClock::new();
    let (backend, spy) = (TestBackend::remote(&clock), Spy::new());
    let fallback = tollgate::MemoryBackend::builder().clock(clock.clone()).build();
    let limiter = RateLimiter::builder(Arc::clone(&backend))
        .auto_block(block_after_three(&[&ONE, &API]))
        .on_failure(FailureMode::fallback(1.0))
        .on_failure_of(&API, FailureMode::Allow)
        .fallback_backend(fallback)
        .observer(Arc::clone(&spy))
        .build();
    backend.fails.store(true, Ordering::Relaxed);
    for _ in 0..10 {
        assert_eq!(now(limiter.try_limit(&API, "ada")).reason(), Reason::FailOpen);
    }
    assert_eq!(limiter.stats().offenders, 0);
    for expected in
        [Reason::WithinQuota, Reason::QuotaExceeded, Reason::QuotaExceeded, Reason::QuotaExceeded, Reason::Blocked]
    {
        assert_eq!(now(limiter.try_limit(&ONE, "eve")).reason(), expected);
    }
}

#[test]
fn denials_from_the_block_cache_count() {
    let clock = ManualClock::new();
    let backend = TestBackend::remote(&clock);
    let limiter = RateLimiter::builder(Arc::clone(&backend)).auto_block(block_after_three(&[&ONE])).build();
    drop(now(limiter.try_limit(&ONE, "eve")));
    for _ in 0..3 {
        assert_eq!(now(limiter.try_limit(&ONE, "eve")).reason(), Reason::QuotaExceeded);
    }
    assert_eq!((now(limiter.try_limit(&ONE, "eve")).reason(), backend.take_calls()), (Reason::Blocked, 1));
}

#[test]
fn unblocking_a_key_resets_its_count() {
    let fixture = fixture(block_after_three(&[&ONE]).escalate(10, DAY));
    for round in 0..3 {
        for _ in 0..3 {
            assert_eq!(fixture.deny(&ONE, "eve"), Reason::CostTooLarge, "{round}");
        }
        assert_eq!(fixture.spy.take_blocked(), [("key".to_owned(), HOUR, 1)]);
        assert_eq!(fixture.reason(&ONE, "eve"), Reason::Blocked);
        now(fixture.limiter.unblock(Signal::key("eve")));
        assert_eq!(fixture.reason(&ONE, "eve"), Reason::WithinQuota);
    }
}

/// An observer that adds each blocked signal to a deny list.
struct DenyListAppender(DenyList);

impl Observer for DenyListAppender {
    fn decided(&self, _observed: &Decided<'_>) {}

    fn blocked(&self, blocked: &Blocked<'_>) {
        self.0.insert(blocked.rule().clone());
    }
}

/// Regression: a block on the user agent `*` became the pattern `*`, which denied every caller.
#[test]
fn an_asterisk_in_a_blocked_user_agent_is_literal() {
    let list = DenyList::new();
    let limiter = RateLimiter::builder(TestBackend::local(&ManualClock::new()))
        .deny_list(&list)
        .auto_block(block_after_three(&[&ONE]).without_keys().without_ips().user_agents())
        .observer(DenyListAppender(list.clone()))
        .build();
    for agent in ["*", "Mozilla*"] {
        for _ in 0..3 {
            drop(now(limiter.try_acquire(&ONE, "eve").user_agent(agent).cost(2)));
        }
        assert_eq!(now(limiter.try_acquire(&ONE, "eve").user_agent(agent)).reason(), Reason::DenyList);
    }
    for agent in ["Mozilla/5.0", "curl/8.0", ""] {
        assert!(now(limiter.try_acquire(&API, "ada").user_agent(agent)).is_allowed(), "{agent:?}");
    }
    assert_eq!(list.len(), 2);
}

#[test]
fn extreme_settings_do_not_panic() {
    for rules in [
        block_after_three(&[&ONE]).threshold(0).within(Duration::ZERO).block_for(Duration::MAX).max_entries(0),
        block_after_three(&[&ONE]).threshold(u32::MAX).within(Duration::MAX).block_for(Duration::ZERO),
        block_after_three(&[&ONE]).threshold(1).block_for(Duration::MAX).escalate(0, Duration::ZERO),
        block_after_three(&[]).threshold(1).escalate(u32::MAX, Duration::MAX),
    ] {
        let fixture = fixture(rules);
        for _ in 0..100 {
            drop(now(fixture.limiter.try_acquire(&ONE, "eve").ip(ip("::1")).cost(2)));
            fixture.clock.advance(HOUR);
        }
    }
}
