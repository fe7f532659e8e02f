//! Deny lists over HTTP: each kind of rule, changes to a list that is in use, and denials without a backend call.

use std::sync::Arc;

use tollgate::policy::Enforce;
use tollgate::{
    MINUTE, Policy, Quota, RateLimiter, Reason,
    clock::ManualClock,
    protection::{DenyList, DenyRule},
};

use super::app::{API, Spy, behind, ip};
use crate::support::now;
use crate::support::test_backend::TestBackend;

/// Returns rules of each kind. Each rule comes with the headers of a request that it denies and of a similar request
/// that it does not deny.
fn rule_cases() -> Vec<(DenyRule, Vec<&'static str>, Vec<&'static str>)> {
    let network = |text: &str| DenyRule::network(text).unwrap();
    let agent = |text: &str| DenyRule::user_agent(text).unwrap();
    vec![
        (DenyRule::key("mallory"), vec!["x-user: mallory"], vec!["x-user: Mallory"]),
        (DenyRule::ip(ip("192.0.2.7")), vec!["x-forwarded-for: 192.0.2.7"], vec!["x-forwarded-for: 192.0.2.8"]),
        (
            DenyRule::ip(ip("192.0.2.7")),
            vec!["x-forwarded-for: ::ffff:192.0.2.7"],
            vec!["x-forwarded-for: ::192.0.2.7"],
        ),
        (DenyRule::ip(ip("::ffff:192.0.2.7")), vec!["x-forwarded-for: 192.0.2.7"], vec!["x-forwarded-for: 192.0.2.6"]),
        (network("192.0.2.128/25"), vec!["x-forwarded-for: 192.0.2.128"], vec!["x-forwarded-for: 192.0.2.127"]),
        (network("::ffff:192.0.2.0/120"), vec!["x-forwarded-for: 192.0.2.255"], vec!["x-forwarded-for: 192.0.3.0"]),
        (DenyRule::ip(ip("2001:db8::1")), vec!["x-forwarded-for: 2001:DB8::1"], vec!["x-forwarded-for: 2001:db8::2"]),
        (
            network("2001:db8::/33"),
            vec!["x-forwarded-for: 2001:db8:7fff::1"],
            vec!["x-forwarded-for: 2001:db8:8000::1"],
        ),
        (agent("BadBot/1.0"), vec!["user-agent: badbot/1.0"], vec!["user-agent: BadBot/1.01"]),
        (
            agent("*gptbot/*x"),
            vec!["user-agent: Mozilla/5.0 GPTBot/1.1 X"],
            vec!["user-agent: Mozilla/5.0 GPTBot/1.1 y"],
        ),
        (DenyRule::country("kp").unwrap(), vec!["cf-ipcountry: KP"], vec!["cf-ipcountry: KR"]),
        // The last value counts, because the proxy appends its value to those sent by the client.
        (
            DenyRule::country("KP").unwrap(),
            vec!["cf-ipcountry: DE", "cf-ipcountry: kp"],
            vec!["cf-ipcountry: KP", "cf-ipcountry: DE"],
        ),
    ]
}

#[tokio::test]
async fn each_kind_of_rule_denies_only_matching_requests_until_it_is_removed() {
    for (rule, denied, similar) in rule_cases() {
        let clock = ManualClock::new();
        let (list, backend, spy) = (DenyList::new(), TestBackend::local(&clock), Spy::new());
        let limiter = RateLimiter::builder(Arc::clone(&backend)).deny_list(&list).observer(Arc::clone(&spy)).build();
        let client = behind(&limiter, &API).await;
        let status = async |lines: &[&str]| client.send("GET", lines).await.status;
        assert_eq!((status(&denied).await, status(&similar).await, backend.take_calls()), (200, 200, 2));

        assert!(list.insert(rule.clone()));
        assert_eq!((status(&denied).await, backend.take_calls()), (429, 0), "{rule}");
        assert_eq!(spy.last(), ("deny_list", Some(rule.to_string())));
        assert_eq!(
            (status(&similar).await, backend.take_calls(), spy.last()),
            (200, 1, ("within_quota", None)),
            "{rule}"
        );
        clock.advance(365 * tollgate::DAY);
        assert_eq!((status(&denied).await, backend.take_calls()), (429, 0));

        assert!(list.remove(&rule));
        assert_eq!((status(&denied).await, backend.take_calls()), (200, 1));
    }
}

#[tokio::test]
async fn a_rule_for_a_custom_label_denies_calls_and_requests() {
    let list = DenyList::from_iter([DenyRule::label("asn", "64496").unwrap()]);
    let limiter = RateLimiter::builder(TestBackend::local(&ManualClock::new())).deny_list(&list).build();
    let denied = now(limiter.try_acquire(&API, "ada").label("asn", "64496"));
    assert_eq!((denied.reason(), denied.retry_after()), (Reason::DenyList, None));
    assert!(now(limiter.try_acquire(&API, "ada").label("as", "64496")).is_allowed());
    let layer = super::app::layer(&limiter, &API).label("asn", |req| req.uri.query().map(str::to_owned));
    let app = crate::support::client::hello().layer(layer);
    for (query, status) in [("64496", 429), ("64497", 200)] {
        let peer = tollgate::key::PeerAddr(([192, 0, 2, 1], 1000).into());
        let request = axum::extract::Request::get(format!("/?{query}")).extension(peer);
        let request = request.body(axum::body::Body::empty()).unwrap();
        assert_eq!(crate::support::client::oneshot(&app, request).await.status, status);
    }
}

#[tokio::test]
async fn a_deny_rule_denies_every_charge_in_a_call_or_check() {
    let other = Policy::new("other", Quota::token_bucket(10, MINUTE));
    let list = DenyList::from_iter([DenyRule::key("mallory")]);
    let backend = TestBackend::local(&ManualClock::new());
    let limiter = RateLimiter::builder(Arc::clone(&backend)).deny_list(&list).build();
    let charges = || [tollgate::Charge::new(&API, "ada"), tollgate::Charge::new(&other, "mallory")];
    for decisions in [now(limiter.try_limit_all(charges())), now(limiter.try_check_all(charges()))] {
        assert!(decisions.iter().all(|decision| decision.reason() == Reason::DenyList && decision.remaining() == 0));
        assert_eq!(decisions.retry_after(), None);
    }
    assert_eq!(backend.take_calls(), 0);
    assert_eq!(now(limiter.remaining(&API, "ada")), 10);
}

#[tokio::test]
async fn in_shadow_mode_a_denied_request_reaches_the_handler_which_sees_the_rule() {
    let list = DenyList::from_iter([DenyRule::key("mallory")]);
    let spy = Spy::new();
    let limiter = RateLimiter::builder(TestBackend::local(&ManualClock::new()))
        .deny_list(&list)
        .observer(Arc::clone(&spy))
        .build();
    let handler = async |status: tollgate::RateLimitStatus| {
        let decision = status.decisions().get(0).expect("expected a decision").clone();
        format!("{} {}", decision.reason().as_str(), decision.denied_rule().expect("expected a rule"))
    };
    let app = axum::Router::new().route("/", axum::routing::get(handler));
    let layer = super::app::layer(&limiter, &API.clone().enforce(Enforce::Never)).with_status();
    let client = crate::support::client::serve(app.layer(layer)).await;
    let answer = client.get_as("mallory").await;
    assert_eq!((answer.status, &answer.body[..]), (200, &b"deny_list key"[..]));
    assert_eq!(spy.last(), ("deny_list", Some("key".to_owned())));
}
