//! Deny rules that a layer can apply, deny rules that it can never apply, and networks with host bits.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::request::Parts;
use tollgate::key::KeyExtractor;
use tollgate::{
    Key, RateLimitLayer, RateLimiter, Reason,
    clock::ManualClock,
    key,
    observe::{Decided, Mistake, Observer},
    protection::{DenyList, DenyRule},
};

use super::app::API;
use crate::support::client::{hello, serve};
use crate::support::now;
use crate::support::test_backend::TestBackend;

/// Returns a limiter, and the mistakes that it reports.
fn limiter(list: &DenyList) -> (RateLimiter, Arc<Warnings>) {
    let warnings = Arc::new(Warnings::default());
    let builder = RateLimiter::builder(TestBackend::local(&ManualClock::new())).deny_list(list);
    (builder.observer(Arc::clone(&warnings)).build(), warnings)
}

#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for Warnings {
    fn decided(&self, _: &Decided<'_>) {}

    fn mistake(&self, mistake: &Mistake) {
        self.0.lock().unwrap().push(format!("{} / {mistake}", mistake.kind().as_str()));
    }
}

fn rule(text: &str) -> DenyRule {
    DenyRule::key(text.parse::<Key>().unwrap())
}

fn network(text: &str) -> DenyRule {
    DenyRule::network(text).unwrap()
}

/// Adds a layer with this list to a router. Returns the router, and what is reported.
fn built(list: &DenyList, layer: RateLimitLayer) -> (Router, Vec<String>) {
    let (limiter, warnings) = limiter(list);
    let app = hello().layer(layer.limiter(&limiter));
    assert_eq!(limiter.stats().mistakes.unmatched_deny_rules > 0, !warnings.0.lock().unwrap().is_empty());
    (app, warnings.take())
}

fn built_with(list: &DenyList, by: impl KeyExtractor) -> (Router, Vec<String>) {
    built(list, RateLimitLayer::new(&API, by))
}

/// Returns tuples of an extractor, a key that it finds, a request header with that key, and a request header with a
/// different key.
fn extractor_cases() -> Vec<(Box<dyn KeyExtractor>, &'static str, &'static str, &'static str)> {
    vec![
        (
            Box::new(key::bearer()),
            "bearer:sk_leaked",
            "authorization: bearer  sk_leaked",
            "authorization: Bearer sk_other",
        ),
        (Box::new(key::header("x-api-key")), "header(x-api-key):k7", "x-api-key: k7", "x-api-key: k8"),
        (Box::new(key::header("x-api-key")), "header(X-Api-Key):\"k 7\"", "x-api-key: k 7", "x-api-key: k7"),
        (Box::new(key::cookie("session")), "cookie(session):s7", "cookie: a=b; session=s7", "cookie: session=s8"),
        (Box::new(key::header("x-a").or(key::bearer())), "bearer:t", "authorization: Bearer t", "x-a: t"),
        (
            Box::new(key::bearer().and(key::client_ip())),
            "bearer:t",
            "authorization: Bearer t",
            "authorization: Bearer u",
        ),
        (
            Box::new(key::bearer().and(key::client_ip())),
            "(bearer:t, 127.0.0.1)",
            "authorization: Bearer t",
            "authorization: Bearer u",
        ),
        (Box::new(key::bearer().and(key::header("x-a")).or(key::client_ip())), "127.0.0.1", "x-a: 7", "no: header"),
        (Box::new(key::bearer()), "anonymous", "x-user: 7", "authorization: Bearer t"),
        (Box::new(key::global()), "global", "x-user: 7", ""),
        (Box::new(super::app::user), "\"7\"", "x-user: 7", "x-user: 8"),
    ]
}

#[tokio::test]
async fn a_rule_for_a_credential_denies_requests_with_that_credential() {
    for (by, text, denied, other) in extractor_cases() {
        let list = DenyList::from_iter([rule(text)]);
        let client = serve(built_with(&list, by).0).await;
        assert_eq!(client.send("GET", &[denied]).await.status, 429, "{text}");
        // All requests share one address and the global key.
        let expected = if matches!(text, "127.0.0.1" | "global") { 429 } else { 200 };
        if !other.is_empty() {
            assert_eq!(client.send("GET", &[other]).await.status, expected, "{text}");
        }
    }
}

#[tokio::test]
async fn a_rule_for_a_path_parameter_value_denies_requests_with_that_value() {
    let list = DenyList::from_iter([rule("path(team):\"a b\""), DenyRule::key(key::path("team").key("7"))]);
    let layer = RateLimitLayer::new(&API, key::path("team")).limiter(&limiter(&list).0);
    let app = Router::new().route("/{team}", axum::routing::get(|| async {})).layer(layer);
    for (uri, status) in [("/a%20b", 429), ("/7", 429), ("/8", 200)] {
        let request = axum::extract::Request::get(uri).body(axum::body::Body::empty()).unwrap();
        assert_eq!(crate::support::client::oneshot(&app, request).await.status, status, "{uri}");
    }
}

#[test]
fn a_number_and_a_string_with_the_same_digits_are_different_keys() {
    let (limiter, _) = limiter(&DenyList::from_iter([rule("7"), rule("\"8\"")]));
    let reason = |key: Key| now(limiter.try_limit(&API, key)).reason();
    assert_eq!((reason(Key::from(7)), reason(Key::from("7"))), (Reason::DenyList, Reason::WithinQuota));
    assert_eq!((reason(Key::from(8)), reason(Key::from("8"))), (Reason::WithinQuota, Reason::DenyList));
    assert_eq!(reason(Key::from(("ada", 7))), Reason::WithinQuota);
}

#[test]
fn a_deny_rule_that_a_layer_can_never_apply_is_reported_when_the_layer_is_added() {
    let country = || DenyRule::country("KP").unwrap();
    type MakeExtractor = fn() -> Box<dyn KeyExtractor>;
    let cases: [(DenyRule, MakeExtractor, &[&str]); 12] = [
        (network("192.0.2.0/24"), || Box::new(key::bearer()), &["network 192.0.2.0/24", ".client_ip("]),
        (network("192.0.2.0/24"), || Box::new(super::app::user), &["network 192.0.2.0/24", ".client_ip("]),
        (country(), || Box::new(key::client_ip()), &["country \"KP\"", ".label_from_header(\"country\""]),
        (DenyRule::key("sk_leaked"), || Box::new(key::bearer()), &["a key that is a string", "bearer:…"]),
        (DenyRule::key(4_711), || Box::new(key::header("x-user")), &["a key that is a number"]),
        (rule("bearer:sk_leaked"), || Box::new(key::header("x-api-key")), &["a key that is bearer:…"]),
        (
            rule("header(x-api-key):sk_leaked"),
            || Box::new(key::header("x-key")),
            &["a key that is header(x-api-key):…"],
        ),
        (rule("cookie(sid):sk_leaked"), || Box::new(key::cookie("session").or(key::bearer())), &["cookie(sid):…"]),
        (rule("2001:db8::7"), || Box::new(key::client_ip()), &["a key that is IPv6/128"]),
        (rule("192.0.2.0/24"), || Box::new(key::client_ip()), &["a key that is IPv4/24"]),
        (rule("anonymous"), || Box::new(key::bearer().or(key::client_ip())), &["a key that is anonymous"]),
        (rule("(bearer:t, 7)"), || Box::new(key::bearer().and(key::client_ip())), &["(bearer:…, a number)"]),
    ];
    for (rule, by, parts) in cases {
        let (_app, reported) = built_with(&DenyList::from_iter([rule]), by());
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(reported[0].starts_with("unmatched_deny_rule / "), "{reported:?}");
        assert!(parts.iter().all(|part| reported[0].contains(part)), "{reported:?}");
        assert!(!reported[0].contains("leaked") && !reported[0].contains("4711"), "{reported:?}");
    }
}

#[test]
fn a_layer_that_provides_all_signals_used_by_deny_rules_reports_nothing() {
    let list = DenyList::from_iter([
        network("192.0.2.0/24"),
        DenyRule::country("KP").unwrap(),
        DenyRule::label("asn", "64496").unwrap(),
        DenyRule::user_agent("*bot*").unwrap(),
        rule("bearer:sk_leaked"),
    ]);
    let layer = |by: Box<dyn KeyExtractor>| {
        RateLimitLayer::new(&API, by).label_from_header("country", "cf-ipcountry").label("asn", |_: &Parts| None)
    };
    let reports = |layer| !built(&list, layer).1.is_empty();
    assert!(!reports(layer(Box::new(key::bearer())).client_ip(key::client_ip())));
    assert!(!reports(layer(Box::new(key::bearer().or(key::client_ip())))));
    assert!(
        !reports(layer(Box::new(super::app::user)).client_ip(key::client_ip())),
        "a closure may return any key, so nothing must be reported"
    );
    assert!(
        !reports(layer(Box::new(key::client_ip().map(|ip| ip)))),
        "a mapped extractor may return any key, so nothing must be reported"
    );
    assert!(reports(layer(Box::new(key::client_ip()))));
    let two = layer(Box::new(key::client_ip()))
        .and(tollgate::Policy::new("b", tollgate::Quota::per_minute(1)), key::bearer());
    assert!(!reports(two));
    assert!(built_with(&DenyList::new(), key::bearer()).1.is_empty());
    // A key from an extension is never a credential. Regression: a layer with such a key accepted a rule for a
    // credential.
    let by_user = || key::extension(|user: &String| user.clone());
    assert_eq!(built_with(&DenyList::from_iter([rule("header(x-api-key):k7")]), by_user()).1.len(), 1);
    assert!(built_with(&DenyList::from_iter([rule("\"ada\"")]), by_user()).1.is_empty());
}

#[tokio::test]
async fn unmatched_rules_added_at_run_time_are_reported_once_per_kind() {
    let list = DenyList::from_iter([rule("bearer:sk_leaked")]);
    let (limiter, warnings) = limiter(&list);
    let layer = RateLimitLayer::new(&API, key::bearer()).limiter(&limiter);
    let client = serve(hello().layer(layer)).await;
    let take_warnings = async || {
        assert_eq!(client.send("GET", &[]).await.status, 200);
        warnings.take()
    };
    assert!(take_warnings().await.is_empty());
    list.extend([DenyRule::key("sk_leaked"), DenyRule::key("sk_other"), network("192.0.2.0/24")]);
    let warned = take_warnings().await;
    assert_eq!(warned.len(), 2, "{warned:?}");
    assert!(
        warned[0].starts_with("unmatched_deny_rule / a key that is a string") && !warned[0].contains("sk_"),
        "{warned:?}"
    );
    assert!(
        warned[1].starts_with("unmatched_deny_rule / network 192.0.2.0/24: ") && warned[1].contains(".client_ip("),
        "{warned:?}"
    );
    assert!(take_warnings().await.is_empty());
    list.extend([DenyRule::key("sk_third"), rule("bearer:sk_fourth")]);
    assert!(take_warnings().await.is_empty(), "these kinds of rules must not be reported again");
    list.extend([rule("cookie(session):s7")]);
    assert_eq!(take_warnings().await.len(), 1);
}

#[test]
fn the_error_for_a_network_with_host_bits_suggests_both_corrections() {
    for (text, network, address) in [
        ("192.0.2.7/24", "192.0.2.0/24", "192.0.2.7"),
        ("2001:db8::7/32", "2001:db8::/32", "2001:db8::7"),
        ("::ffff:192.0.2.7/120", "192.0.2.0/24", "192.0.2.7"),
    ] {
        let error = DenyRule::network(text).unwrap_err().to_string();
        let expected = format!(
            "{text:?} is an address within a network; write {network:?} for the network or {address:?} for the address"
        );
        assert_eq!(error, expected);
        assert_eq!(key::client_ip().try_trust([text]).unwrap_err().to_string(), expected);
        assert!(DenyRule::network(network).is_ok() && DenyRule::network(address).is_ok());
    }
}

#[test]
fn a_request_without_an_address_fails_if_the_layer_needs_an_address() {
    let list = DenyList::from_iter([network("192.0.2.0/24")]);
    let (limiter, _) = limiter(&list);
    let layer = |client_ip| RateLimitLayer::new(&API, key::global()).client_ip(client_ip).limiter(&limiter);
    let request = || http::Request::get("/").header("x-real-ip", "192.0.2.7").body(axum::body::Body::empty()).unwrap();
    // The first extractor lacks a peer address, and the second lacks a trusted proxy. Without the client's address, no
    // network rule could match, so both requests fail.
    for client_ip in [key::client_ip(), key::client_ip().from_header("x-real-ip")] {
        let answer = now(tower::ServiceExt::oneshot(hello().layer(layer(client_ip)), request()));
        assert_eq!(answer.status(), 500);
    }
    assert_eq!(limiter.stats().mistakes.missing_peers, 1);
    let plain = RateLimitLayer::new(&API, key::global()).client_ip(key::client_ip());
    assert_eq!(now(tower::ServiceExt::oneshot(hello().layer(plain), request())).status(), 200);
}
