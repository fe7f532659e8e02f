//! Refusals disclose when to retry, but never which rule or signal matched.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use tollgate::{
    HOUR, HeaderFamily, RateLimiter, SECOND,
    clock::ManualClock,
    middleware::ResetUnit,
    protection::{DenyList, DenyRule, Signal},
};

use super::app::{API, US, behind, ip, layer};
use crate::support::answer::Answer;
use crate::support::client::{hello, serve};
use crate::support::test_backend::TestBackend;

/// The headers that identify the caller. A default refusal must not contain their values.
const CALLER: [&str; 4] =
    ["x-user: mallory", "x-forwarded-for: 192.0.2.77", "user-agent: zanybot/6", "cf-ipcountry: KP"];

const TELLTALES: [&str; 12] =
    ["mallory", "192.0.2", "zanybot", "kp", "deny", "block", "ban", "list", "country", "address", "agent", "network"];

fn rules() -> [(DenyRule, Signal); 4] {
    [
        (DenyRule::key("mallory"), Signal::key("mallory")),
        (DenyRule::network("192.0.2.0/24").unwrap(), Signal::ip(ip("192.0.2.77"))),
        (DenyRule::user_agent("*zanybot*").unwrap(), Signal::user_agent("zanybot/6")),
        (DenyRule::country("KP").unwrap(), Signal::label("country", "KP")),
    ]
}

fn all_text(answer: &Answer) -> String {
    let headers: Vec<_> = answer.headers.iter().filter(|(name, _)| *name != "date").collect();
    format!("{headers:?} {}", String::from_utf8_lossy(&answer.body)).to_lowercase()
}

fn assert_discloses_nothing(answer: &Answer) {
    let text = all_text(answer);
    for telltale in TELLTALES {
        assert!(!text.contains(telltale), "{telltale:?} in {text}");
    }
}

#[tokio::test]
async fn a_deny_list_refusal_discloses_only_that_retrying_does_not_help() {
    let mut answers = Vec::new();
    for (rule, _) in rules() {
        let list = DenyList::from_iter([rule]);
        let limiter = RateLimiter::builder(TestBackend::local(&ManualClock::new())).deny_list(&list).build();
        let client = behind(&limiter, &API).await;
        let mut answer = client.send("GET", &CALLER).await;
        assert_eq!((answer.status, answer.retry_after()), (429, None));
        assert_eq!(answer.policies(), [("api".to_owned(), 10, 60)]);
        assert_eq!(answer.limits(), [("api".to_owned(), 0, None)], "a `t` parameter would suggest a retry");
        assert_eq!(answer.headers["cache-control"], "no-store");
        assert_eq!(answer.violated_policies(), ["api"]);
        assert_eq!(answer.problem()["detail"], "rate limit exceeded: \"api\"; retrying will not help");
        assert_discloses_nothing(&answer);
        answer.headers.remove("date");
        answers.push((answer.headers, answer.body));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "the response depends on the rule");
}

#[tokio::test]
async fn a_blocked_caller_learns_only_the_rounded_up_retry_time() {
    let mut answers = Vec::new();
    for (_, signal) in rules() {
        let clock = ManualClock::new();
        let limiter = RateLimiter::new(TestBackend::local(&clock));
        let client = behind(&limiter, &API).await;
        limiter.block(signal, HOUR + US).await.unwrap();
        let mut seen = Vec::new();
        for (step, seconds) in [(Duration::ZERO, 3601), (US, 3600), (HOUR - SECOND - US, 2), (US, 1), (SECOND - US, 1)]
        {
            clock.advance(step);
            let mut answer = client.send("GET", &CALLER).await;
            assert_eq!((answer.status, answer.retry_after()), (429, Some(seconds)));
            assert_eq!(answer.limits(), [("api".to_owned(), 0, Some(seconds))]);
            assert_eq!(answer.violated_policies(), ["api"]);
            assert_discloses_nothing(&answer);
            answer.headers.remove("date");
            seen.push((answer.headers, answer.body));
        }
        clock.advance(US);
        assert_eq!(client.send("GET", &CALLER).await.status, 200);
        answers.push(seen);
    }
    assert!(answers.iter().all(|seen| *seen == answers[0]));
}

#[tokio::test]
async fn neither_http_headers_nor_grpc_disclose_the_rule() {
    let clock = ManualClock::new();
    let list = DenyList::from_iter([DenyRule::key("mallory")]);
    let limiter = RateLimiter::builder(TestBackend::local(&clock)).deny_list(&list).build();
    limiter.block(Signal::key("eve"), HOUR).await.unwrap();
    for family in [
        HeaderFamily::Draft11,
        HeaderFamily::Draft6,
        HeaderFamily::XRateLimit(ResetUnit::Seconds),
        HeaderFamily::XRateLimit(ResetUnit::Epoch),
        HeaderFamily::None,
    ] {
        let client = serve(hello().layer(layer(&limiter, &API).headers(family).grpc())).await;
        let denied = client.send("GET", &CALLER).await;
        assert_eq!((denied.status, denied.retry_after()), (429, None));
        let blocked = client.get_as("eve").await;
        assert_eq!((blocked.status, blocked.retry_after()), (429, Some(3600)));
        let grpc = "content-type: application/grpc";
        let denied_rpc = client.send("POST", &[&CALLER[..], &[grpc]].concat()).await;
        let header =
            |headers: &HeaderMap, name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!((denied_rpc.status, header(&denied_rpc.headers, "grpc-status").as_deref()), (200, Some("8")));
        assert_eq!(header(&denied_rpc.headers, "grpc-retry-pushback-ms").as_deref(), Some("-1"));
        assert_eq!(header(&denied_rpc.headers, "grpc-status-details-bin"), None);
        let message = header(&denied_rpc.headers, "grpc-message").unwrap();
        assert_eq!(message, "rate limit exceeded: \"api\"; retrying will not help");
        let blocked_rpc = client.send("POST", &["x-user: eve", grpc]).await;
        assert_eq!(header(&blocked_rpc.headers, "grpc-retry-pushback-ms").as_deref(), Some("3600000"));
        for answer in [denied, blocked, denied_rpc, blocked_rpc] {
            assert_discloses_nothing(&answer);
        }
    }
}

#[tokio::test]
async fn custom_refusals_and_observers_see_the_rule() {
    let spy = super::app::Spy::new();
    let list = DenyList::from_iter([DenyRule::country("KP").unwrap()]);
    let limiter = RateLimiter::builder(TestBackend::local(&ManualClock::new()))
        .deny_list(&list)
        .observer(Arc::clone(&spy))
        .build();
    let layer = layer(&limiter, &API).on_refusal(|refusal| {
        let decision = refusal.decisions().and_then(|decisions| decisions.get(0)).expect("expected a decision");
        let text = format!("{} {}", decision.reason().as_str(), decision.denied_rule().expect("expected a rule"));
        let mut response = axum::http::Response::new(text.into());
        *response.status_mut() = refusal.status();
        response
    });
    let client = serve(hello().layer(layer)).await;
    let answer = client.send("GET", &["cf-ipcountry: KP"]).await;
    assert_eq!((answer.status, &answer.body[..]), (429, &b"deny_list country \"KP\""[..]));
    limiter.block(Signal::ip(ip("2001:db8::1")), HOUR).await.unwrap();
    let answer = client.send("GET", &["x-forwarded-for: 2001:db8::2"]).await;
    assert_eq!((answer.status, &answer.body[..]), (429, &b"blocked network 2001:db8::/64"[..]));
    assert_eq!(spy.last(), ("blocked", Some("network 2001:db8::/64".to_owned())));
}
