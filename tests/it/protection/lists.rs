//! The lists of active blocks and of quotas that were set at run time.

use std::time::Duration;

use tollgate::{
    HOUR, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, SECOND, Subject,
    clock::ManualClock,
    protection::{AutoBlock, Block, Signal},
};

use super::app::{API, ip};
use crate::support::now;

static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, HOUR));

fn limiter(auto: AutoBlock) -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    let backend = MemoryBackend::builder().clock(clock.clone()).build();
    (RateLimiter::builder(backend).auto_block(auto).build(), clock)
}

/// Returns the sorted blocks. Each has its rule, its age and remaining time in seconds, how many times in a row the
/// caller has been blocked automatically, and whether the block is manual.
fn listed_blocks(limiter: &RateLimiter) -> Vec<(String, u64, u64, u32, bool)> {
    let show = |block: Block| {
        let rule = block.rule.map_or_else(|| "-".to_owned(), |rule| rule.to_string());
        let age = block.age.as_secs();
        (rule, age, block.left.as_secs(), block.times, block.by_hand)
    };
    let mut listed: Vec<_> = limiter.blocks().into_iter().map(show).collect();
    assert_eq!(listed.len(), limiter.stats().blocked);
    listed.sort();
    listed
}

#[test]
fn quotas_set_at_run_time_are_listed_by_policy_tier_and_key_until_reverted() {
    let tiers = Policy::new("tiers", Quota::token_bucket(5, MINUTE)).tier("pro", Quota::token_bucket(50, MINUTE));
    let clock = ManualClock::new();
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    assert!(limiter.set_quotas().is_empty());
    let quota = |rate| Quota::token_bucket(rate, MINUTE);
    now(limiter.set_key_quota(&tiers, "ada", quota(3)));
    clock.advance(MINUTE);
    now(limiter.set_tier_quota(&tiers, "pro", quota(2)));
    clock.advance(SECOND);
    now(limiter.set_quota(&tiers, quota(1)));
    now(limiter.set_quota(&API, quota(4)));
    let set = limiter.set_quotas();
    let listed: Vec<_> = set
        .iter()
        .map(|set| (set.policy.as_str(), set.tier.as_deref(), set.key, set.quotas[0].get_capacity(), set.age))
        .collect();
    let ada = limiter.digest(Subject::new("ada").key());
    let expected = [
        (API.name().as_str(), None, None, 4, Duration::ZERO),
        ("tiers", None, None, 1, Duration::ZERO),
        ("tiers", Some("pro"), None, 2, SECOND),
        ("tiers", None, Some(ada), 3, MINUTE + SECOND),
    ];
    assert_eq!(listed, expected);
    assert_eq!(set.len(), limiter.stats().changed_quotas);

    now(limiter.set_tier_quota(&tiers, "pro", None));
    now(limiter.set_key_quota(&tiers, "ada", None));
    assert_eq!(limiter.set_quotas().len(), 2);
}

#[test]
fn manual_and_automatic_blocks_are_listed_until_they_end() {
    let (limiter, clock) = limiter(AutoBlock::new([&LOGIN]).threshold(2).within(MINUTE).block_for(MINUTE));
    now(limiter.block(Signal::ip(ip("192.0.2.7")), HOUR));
    now(limiter.block(Signal::label("asn", "64496"), HOUR));
    now(limiter.block(Signal::user_agent("curl/8.5.0"), SECOND));
    clock.advance(SECOND);
    for _ in 0..3 {
        drop(now(limiter.try_acquire(&LOGIN, "mallory").ip(ip("198.51.100.9"))));
    }
    clock.advance(10 * SECOND);
    let network = |text: &str| format!("network {text}");
    let by_hand = [("asn \"64496\"".to_owned(), 11, 3589, 0, true), (network("192.0.2.7/32"), 11, 3589, 0, true)];
    let automatic = [
        ("-".to_owned(), 10, 50, 1, false), // a blocked key is listed without a rule
        (network("198.51.100.9/32"), 10, 50, 1, false),
    ];
    let [key, address] = automatic.clone();
    let [label, other] = by_hand.clone();
    assert_eq!(listed_blocks(&limiter), [key, label, other, address]);
    let mallory = limiter.digest(Subject::new("mallory").key());
    assert!(limiter.blocks().iter().any(|block| block.digest == mallory));

    now(limiter.unblock(Signal::ip(ip("198.51.100.9"))));
    clock.advance(50 * SECOND);
    assert_eq!(listed_blocks(&limiter).len(), 2);
    clock.advance(HOUR);
    assert_eq!(limiter.blocks(), []);
}

#[test]
fn listed_blocks_show_neither_keys_nor_overlong_user_agents() {
    let (limiter, _clock) = limiter(AutoBlock::new([&LOGIN]).threshold(1).user_agents());
    now(limiter.block(Signal::key("hunter2"), HOUR));
    now(limiter.block(Signal::user_agent("x".repeat(257)), HOUR));
    for _ in 0..2 {
        drop(now(limiter.try_acquire(&LOGIN, "hunter2-earned").user_agent("y".repeat(1000))));
    }
    let blocks = limiter.blocks();
    assert_eq!(blocks.len(), 4);
    let text = format!("{blocks:?}");
    assert!(blocks.iter().all(|block| block.rule.is_none()), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    now(limiter.block(Signal::user_agent("x".repeat(256)), HOUR));
    assert_eq!(limiter.blocks().iter().filter(|block| block.rule.is_some()).count(), 1);
}
