//! Threat 7: credentials that leak into logs or responses.

use std::sync::{Arc, Mutex};

use axum::extract::Request;
use tollgate::key::{Extraction, Found};
use tollgate::{
    Key, RateLimitLayer, RateLimitStatus, Refusal, RouteLimits, Subject,
    key::{self, KeyExtractor, Secret},
};

use super::client::{ONE, hello, limiter, request, send};

const RAW: &str = "hunter2-s3cret";

/// Builds a request that contains the secret in every header and parameter that the extractors read.
fn with_secrets() -> Request {
    let mut request = request(
        "198.51.100.1",
        &[("authorization", format!("Bearer {RAW}")), ("x-api-key", RAW.into()), ("cookie", format!("session={RAW}"))],
    );
    *request.uri_mut() = format!("/?token={RAW}").parse().unwrap();
    request
}

fn extractors() -> Vec<Box<dyn KeyExtractor>> {
    vec![
        Box::new(key::bearer()),
        Box::new(key::header("x-api-key")),
        Box::new(key::cookie("session")),
        Box::new(key::bearer().and(key::header("x-api-key")).or(key::global())),
        Box::new(key::bearer().map(|subject| subject.tier("pro"))),
        Box::new(|req: &axum::http::request::Parts| req.uri.query().map(String::from)),
    ]
}

#[test]
fn t07_an_extracted_key_does_not_show_the_credential() {
    let parts = with_secrets().into_parts().0;
    for extractor in extractors() {
        let extraction = extractor.extract(&parts);
        let mut shown = format!("{extraction:?} {extraction:#?}");
        let Extraction::Now(Found::Subject(subject)) = extraction else { panic!("expected a subject, found {shown}") };
        assert!(subject.key().is_some(), "the extractor found no key");
        shown += &format!("{subject:?} {:?}", Found::Subject(subject.clone()));
        shown += &format!("{:?} {:?}", subject.key(), Secret::random().digest(subject.key().unwrap()));
        assert_hidden(&shown);
    }
    assert_hidden(&format!("{:?} {:?}", Key::from(RAW), Subject::new((RAW, 7))));
    assert_hidden(&format!("{:?}", Extraction::later(async { Some(RAW) })));
    let secret: [u8; 16] = *b"0123456789abcdef";
    assert!(!format!("{:?}", Secret::new(secret)).contains("0123"));
}

#[tokio::test]
async fn t07_no_response_or_debug_output_shows_the_credential() {
    for extractor in extractors() {
        let seen = Arc::new(Mutex::new(String::new()));
        let (limiter, backend, _clock) = limiter();
        let by = move |req: &axum::http::request::Parts| extractor.extract(req);
        let layer = RateLimitLayer::new(ONE, by).limiter(&limiter).with_status().on_refusal({
            let seen = Arc::clone(&seen);
            move |refusal: &Refusal<'_>| {
                let text = format!("{refusal:?} {refusal:#?} {} {:?}", refusal.message(), refusal.decisions());
                seen.lock().unwrap().push_str(&text);
                refusal.default_response()
            }
        });
        let handler = {
            let seen = Arc::clone(&seen);
            move |status: RateLimitStatus| async move {
                seen.lock().unwrap().push_str(&format!("{status:?} {:?}", status.tightest()));
            }
        };
        let app = axum::Router::new().route("/", axum::routing::get(handler)).layer(layer.clone());
        for expected in [200, 429] {
            let answer = send(&app, with_secrets()).await;
            assert_eq!(answer.status, expected);
            assert!(!answer.shows(RAW.as_bytes()));
        }
        let shown = seen.lock().unwrap().clone();
        assert!(shown.contains("one"), "expected the name of the policy in the debug output");
        assert_hidden(&shown);
        assert_hidden(&format!("{layer:?} {limiter:?} {backend:?} {:?}", tower::Layer::layer(&layer, ())));
    }
}

#[tokio::test]
async fn t07_a_denial_by_a_handler_does_not_show_the_key() {
    let (limiter, _backend, _clock) = limiter();
    let first = limiter.try_limit(&ONE, RAW).await.unwrap();
    let denied = limiter.try_limit(&ONE, RAW).await.unwrap();
    let mut shown = format!("{first:?} {denied:?} {:?}", limiter.snapshot(&ONE, RAW).await.unwrap());
    let denied = denied.into_result().unwrap_err();
    shown += &format!("{denied:?} {denied}");
    let limits = RouteLimits::new(key::header("x-api-key")).policy(ONE);
    shown += &format!("{limits:?} {:?}", limits.route("one"));
    assert_hidden(&shown);
    let answer = super::client::Answer::read(axum::response::IntoResponse::into_response(denied)).await;
    assert!(answer.status == 429 && !answer.shows(RAW.as_bytes()));
}

#[tokio::test]
async fn t07_the_refusal_for_a_missing_key_does_not_show_the_request() {
    let app = hello().layer(RateLimitLayer::new(ONE, key::header("x-tenant").or_reject()));
    let answer = send(&app, with_secrets()).await;
    assert!(answer.status == 400 && !answer.shows(RAW.as_bytes()));
}

#[track_caller]
fn assert_hidden(shown: &str) {
    let as_bytes = format!("{:?}", RAW.as_bytes());
    let bytes = as_bytes.trim_matches(['[', ']']);
    assert!(!shown.contains(RAW) && !shown.contains(bytes), "{shown}");
}
