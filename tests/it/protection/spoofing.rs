//! Clients cannot spoof the address that is checked against deny lists and blocks.

use tollgate::key::KeyExtractor;
use tollgate::{
    HOUR, MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, Reason,
    clock::ManualClock,
    key,
    protection::{AutoBlock, DenyList, DenyRule, Signal},
};

use super::app::{API, ip};
use crate::support::client::{Client, hello, serve};
use crate::support::now;
use crate::support::test_backend::TestBackend;

fn denying(text: &str) -> RateLimiter {
    let list = DenyList::from_iter([DenyRule::network(text).unwrap()]);
    RateLimiter::builder(TestBackend::local(&ManualClock::new())).deny_list(&list).build()
}

async fn statuses(client: &Client, forwarded: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for list in forwarded {
        statuses.push(client.send("GET", &[&format!("x-forwarded-for: {list}")]).await.status);
    }
    statuses
}

#[tokio::test]
async fn forwarding_headers_are_ignored_without_a_trusted_proxy() {
    for layer in [
        RateLimitLayer::new(&API, key::client_ip()),
        RateLimitLayer::new(&API, |_: &_| "all").client_ip(key::client_ip()),
    ] {
        let client = serve(hello().layer(layer.clone().limiter(&denying("127.0.0.1")))).await;
        assert_eq!(statuses(&client, &["192.0.2.7", "", "127.0.0.2, 192.0.2.7"]).await, [429; 3]);
        let client = serve(hello().layer(layer.limiter(&denying("192.0.2.7")))).await;
        assert_eq!(statuses(&client, &["192.0.2.7", "192.0.2.7, 192.0.2.7"]).await, [200; 2]);
    }
}

#[tokio::test]
async fn only_the_address_seen_by_the_proxy_counts() {
    let trusting = || key::client_ip().trust(["127.0.0.1", "10.0.0.0/8"]);
    let limiter = denying("192.0.2.7");
    let layers = [
        RateLimitLayer::new(&API, trusting()),
        RateLimitLayer::new(&API, key::header("x-api-key").or(trusting())),
        RateLimitLayer::new(&API, key::header("x-user").and(trusting()).or_skip())
            .and(Policy::new("all", API.quotas()[0]), key::global()),
        RateLimitLayer::new(Policy::new("all", API.quotas()[0]), key::global()).and(&API, trusting().or_reject()),
    ];
    for layer in layers {
        let client = serve(hello().layer(layer.limiter(&limiter))).await;
        let evasions =
            ["192.0.2.7", "8.8.8.8, 192.0.2.7", "192.0.2.7, 10.1.2.3", "unknown, 192.0.2.7, 10.1.2.3, 10.1.2.4"];
        assert_eq!(statuses(&client, &evasions).await, [429; 4]);
        let framings = ["192.0.2.7, 8.8.8.8", "192.0.2.7, unknown", "192.0.2.7, 8.8.8.8, 10.1.2.3"];
        assert_eq!(statuses(&client, &framings).await, [200; 3]);
    }
}

#[tokio::test]
async fn the_client_ip_of_a_layer_overrides_the_address_found_by_its_rules() {
    let layer = RateLimitLayer::new(&API, key::client_ip().trust(["127.0.0.1"]))
        .client_ip(key::client_ip().trust(["127.0.0.1"]).from_header("cf-connecting-ip"));
    let client = serve(hello().layer(layer.limiter(&denying("192.0.2.7")))).await;
    let status = async |lines: &[&str]| client.send("GET", lines).await.status;
    assert_eq!(status(&["x-forwarded-for: 192.0.2.7", "cf-connecting-ip: 8.8.8.8"]).await, 200);
    assert_eq!(status(&["x-forwarded-for: 8.8.8.8", "cf-connecting-ip: 192.0.2.7"]).await, 429);
}

#[tokio::test]
async fn denials_block_only_the_denied_address() {
    let one = Policy::new("one", Quota::token_bucket(1, HOUR));
    let limiter = RateLimiter::builder(TestBackend::local(&ManualClock::new()))
        .auto_block(AutoBlock::new([&one]).threshold(3).within(MINUTE).block_for(HOUR))
        .build();
    let layer = RateLimitLayer::new(one.clone(), key::client_ip().trust(["127.0.0.1"])).limiter(&limiter);
    let client = serve(hello().layer(layer)).await;
    // The client sends a different first address each time, and the proxy appends the second address.
    for i in 0..10 {
        client.send("GET", &[&format!("x-forwarded-for: 198.51.100.{i}, 192.0.2.7")]).await;
    }
    let reason = |address: &str| now(limiter.try_acquire(&API, "ada").ip(ip(address)).check()).reason();
    assert_eq!(reason("192.0.2.7"), Reason::Blocked);
    for i in 0..10 {
        assert_eq!(reason(&format!("198.51.100.{i}")), Reason::WithinQuota);
    }
    assert_eq!(reason("127.0.0.1"), Reason::WithinQuota, "the proxy must not be blocked");
    assert_eq!(limiter.stats().offenders, 2, "expected only the key and the address to be offenders");
}

#[tokio::test]
async fn a_key_chosen_by_a_caller_never_matches_a_blocked_address_or_label() {
    // Blocked keys are stored in the same tables as blocked addresses and labels.
    let limiter =
        RateLimiter::builder(TestBackend::local(&ManualClock::new())).auto_block(AutoBlock::new([&API])).build();
    limiter.block(Signal::ip(ip("192.0.2.7")), HOUR).await.unwrap();
    limiter.block(Signal::label("country", "KP"), HOUR).await.unwrap();
    for key in [tollgate::Key::from(ip("192.0.2.7")), ("ip", ip("192.0.2.7")).into(), "192.0.2.7".into(), "KP".into()] {
        assert!(now(limiter.try_limit(&API, key)).is_allowed());
    }
    limiter.block(Signal::key(ip("192.0.2.8")), HOUR).await.unwrap();
    assert!(now(limiter.try_acquire(&API, "ada").ip(ip("192.0.2.8"))).is_allowed());
    assert!(!now(limiter.try_limit(&API, ip("192.0.2.8"))).is_allowed());
}
