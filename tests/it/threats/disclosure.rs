//! Threats 22 and 28: responses that reveal accounts, keys or backend errors, and refusals that a cache stores.

use axum::Router;
use axum::body::Bytes;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use tollgate::{
    HOUR, HeaderFamily, Policy, Quota, RateLimitLayer, RateLimiter, Refusal,
    backend::{Error, ErrorKind},
    key::{self, KeyExtractor},
    middleware::ResetUnit,
};

use super::client::{Answer, ONE, hello, limiter, request, send};
use crate::support::backends::FailingBackend;

const LOGIN: Policy = Policy::new("login", Quota::token_bucket(3, HOUR));

fn account(req: &Parts) -> Option<String> {
    Some(req.headers.get("x-account")?.to_str().ok()?.to_owned())
}

#[tokio::test]
async fn t22_existing_and_unknown_accounts_get_the_same_responses() {
    // Only Ada has an account.
    let log_in = |headers: HeaderMap| async move {
        match headers["x-account"] == "ada@example.com" && headers["x-password"] == "right" {
            true => StatusCode::OK,
            false => StatusCode::UNAUTHORIZED,
        }
    };
    let ask = async |app: &Router, peer: &str, name: &str, password: &str| {
        let mut request = request(peer, &[("x-account", name), ("x-password", password)]);
        *request.method_mut() = axum::http::Method::POST;
        send(app, request).await
    };
    for family in [HeaderFamily::Draft11, HeaderFamily::Draft6, HeaderFamily::XRateLimit(ResetUnit::Epoch)] {
        let mut histories = Vec::new();
        for name in ["ada@example.com", "nobody@example.com", "x"] {
            let (limiter, _backend, _clock) = limiter();
            let layer = RateLimitLayer::new(LOGIN, account.and(key::client_ip())).headers(family);
            let app = Router::new().route("/", post(log_in)).layer(layer.limiter(&limiter));
            // Ada does not use the attacker's address.
            assert_eq!(ask(&app, "203.0.113.9", "ada@example.com", "right").await.status, 200);
            let mut history = Vec::new();
            for _ in 0..5 {
                let answer = ask(&app, "198.51.100.1", name, "guess").await;
                history.push((answer.status, answer.headers, answer.body));
            }
            assert_eq!(history.iter().map(|(status, ..)| *status).collect::<Vec<_>>(), [401, 401, 401, 429, 429]);
            histories.push(history);
        }
        assert!(histories.windows(2).all(|pair| pair[0] == pair[1]), "{histories:?}");
    }
}

#[tokio::test]
async fn t22_a_refusal_names_the_policy_but_not_the_caller() {
    let (limiter, _backend, _clock) = limiter();
    let layer = RateLimitLayer::new(ONE, account.and(key::client_ip())).limiter(&limiter);
    let app = hello().layer(layer);
    let ask = async || send(&app, request("198.51.100.77", &[("x-account", "ada@example.com")])).await;
    assert_eq!(ask().await.status, 200);
    let denied = ask().await;
    assert_eq!(denied.status, 429);
    for part in ["ada", "example.com", "198.51", "198, 51"] {
        assert!(!denied.shows(part.as_bytes()), "{part}");
    }
    let by = (String::from("ada@example.com"), std::net::IpAddr::from([198, 51, 100, 77]));
    let digest = format!("{:?}", limiter.digest(Some(&tollgate::Key::from(by))));
    assert!(!denied.shows(digest.as_bytes()) && !denied.shows(&digest.as_bytes()[..16]));
    let problem: serde_json::Value = serde_json::from_slice(&denied.body).unwrap();
    let mut members: Vec<_> = problem.as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    assert_eq!(members, ["status", "title", "type", "violated-policies"]);
}

const DETAILS: &str = "redis://:hunter2@10.1.2.3:6379 refused";
const DOWN: FailingBackend = FailingBackend { message: DETAILS, ..FailingBackend::IMMEDIATE };

#[tokio::test]
async fn t22_a_refusal_does_not_reveal_the_backend_error() {
    let app = hello().layer(RateLimitLayer::new(ONE, key::global()).grpc().limiter(&RateLimiter::new(DOWN)));
    let handler = Error::new(ErrorKind::Unavailable, DETAILS).into_response();
    for answer in [
        send(&app, request::<&str, &str>("::1", &[])).await,
        send(&app, request("::1", &[("content-type", "application/grpc")])).await,
        Answer::read(handler).await,
    ] {
        for part in ["redis", "hunter2", "10.1.2.3", "refused"] {
            assert!(!answer.shows(part.as_bytes()), "{part} {:?}", answer.headers);
        }
    }
}

#[tokio::test]
async fn t28_every_refusal_has_cache_control_no_store() {
    let families =
        [HeaderFamily::Draft11, HeaderFamily::Draft6, HeaderFamily::XRateLimit(ResetUnit::Seconds), HeaderFamily::None];
    let own = |_: &Refusal<'_>| {
        Response::builder().status(StatusCode::TOO_MANY_REQUESTS).body(Bytes::from_static(b"slow down")).unwrap()
    };
    for family in families {
        for content_type in ["text/plain", "application/grpc", "application/grpc-web"] {
            let down = RateLimiter::new(DOWN);
            let (limiter, ..) = limiter();
            let keyless = RateLimitLayer::new(ONE, key::header("x-missing").or_reject());
            let layers = [
                (RateLimitLayer::new(ONE, key::global()).limiter(&limiter), 429),
                (RateLimitLayer::new(ONE, key::global()).limiter(&limiter).on_refusal(own), 429),
                (RateLimitLayer::new(ONE, key::global()).limiter(&down), 503),
                (keyless, 400),
            ];
            for (layer, status) in layers {
                let app = hello().layer(layer.headers(family).grpc());
                let ask = async || send(&app, request("::1", &[("content-type", content_type)])).await;
                ask().await;
                let answer = ask().await;
                assert!(answer.status == status || answer.headers.contains_key("grpc-status"), "{}", answer.status);
                assert_eq!(answer.headers["cache-control"], "no-store", "{status} {family:?} {content_type}");
            }
            let allowed = hello().layer(RateLimitLayer::new(ONE, key::global()).headers(family));
            let answer = send(&allowed, request::<&str, &str>("::1", &[])).await;
            assert!(answer.status == 200 && !answer.headers.contains_key("cache-control"));
        }
    }
}

#[tokio::test]
async fn t28_every_refusal_by_a_handler_has_cache_control_no_store() {
    let (limiter, _backend, _clock) = limiter();
    limiter.limit(&ONE, "ada").await.unwrap();
    let denied = limiter.try_limit(&ONE, "ada").await.unwrap().into_result().unwrap_err();
    let down = RateLimiter::new(DOWN).try_limit(&ONE, "ada").await.unwrap_err();
    for (response, status) in [(denied.into_response(), 429), (down.into_response(), 503)] {
        assert_eq!(
            (response.status().as_u16(), &response.headers()["cache-control"]),
            (status, &"no-store".parse().unwrap())
        );
    }
}
