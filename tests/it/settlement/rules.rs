//! Several rules that apply to one request. Each rule settles its own charge.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::http::response;
use tollgate::key::Extraction;
use tollgate::{MINUTE, OnResponse, Policy, Quota, RateLimitLayer, RateLimiter, Rule};

use super::app::{ANOTHER, CALLS, TEN, TOKENS, ask, left, status_from_path, team, with_receipt_handler};
use crate::support::client::limiter;

async fn spent(limiter: &RateLimiter, policies: [&Policy; 3]) -> [u64; 3] {
    let mut spent = [0; 3];
    for (spent, policy) in spent.iter_mut().zip(policies) {
        *spent = policy.quotas()[0].get_capacity() - left(limiter, policy).await;
    }
    spent
}

fn refund_errors(response: &response::Parts) -> OnResponse {
    if response.status.is_server_error() { OnResponse::Refund } else { OnResponse::Keep }
}

#[tokio::test]
async fn a_rule_without_on_response_settles_with_the_layers_closure() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::from(Rule::new(TOKENS, team).cost(|_| 100).on_response(|_| OnResponse::Settle(170)))
        .rule(Rule::new(CALLS, team).on_response(refund_errors))
        .and(TEN, team)
        .on_response(|response| if response.status == 500 { OnResponse::Reset } else { OnResponse::Settle(3) })
        .limiter(&limiter);
    let service = status_from_path(&layer);
    for (path, expected) in [("/200", [170, 1, 3]), ("/404", [340, 2, 6]), ("/500", [510, 2, 0]), ("/200", [680, 3, 3])]
    {
        ask(&service, path).await;
        assert_eq!(spent(&limiter, [&TOKENS, &CALLS, &TEN]).await, expected, "{path}");
    }
}

/// Regression test: an inner layer that skipped the request replaced the outer receipt with an empty receipt.
#[tokio::test]
async fn an_inner_layer_that_charges_nothing_preserves_the_outer_receipt() {
    let (limiter, _clock) = limiter();
    let inner = RateLimitLayer::new(CALLS, |_: &Parts| Extraction::skip()).with_receipt().limiter(&limiter);
    let handler = axum::routing::get(async |receipt: tollgate::Receipt| {
        receipt.settle(900).await.map_err(|_| ()).is_ok().to_string()
    });
    let outer = RateLimitLayer::new(TOKENS, team).cost(|_| 100).with_receipt().limiter(&limiter);
    let app = axum::Router::new().route("/", handler.layer(inner)).layer(outer);
    let request = axum::http::Request::get("/").body(axum::body::Body::empty()).unwrap();
    assert_eq!(tower::ServiceExt::oneshot(app, request).await.unwrap().status(), 200);
    assert_eq!(spent(&limiter, [&TOKENS, &CALLS, &TEN]).await, [900, 0, 0]);
}

#[tokio::test]
async fn a_settlement_by_one_rule_does_not_affect_other_rules() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TOKENS, team).rule(Rule::new(CALLS, team).on_response(|_| OnResponse::Refund));
    let service = status_from_path(&layer.and(TEN, team).limiter(&limiter));
    assert_eq!(ask(&service, "/200").await, 200);
    assert_eq!(spent(&limiter, [&TOKENS, &CALLS, &TEN]).await, [1, 0, 1]);
}

#[tokio::test]
async fn a_skipped_rule_settles_nothing_but_other_rules_settle_their_charges() {
    // The index of a charge differs from the index of its rule if an earlier rule is skipped.
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let unless_200 = |req: &Parts| {
        if req.uri.path() == "/200" { Extraction::skip() } else { Extraction::from("team") }
    };
    let (limiter, _clock) = limiter();
    let skipped = Rule::new(TEN, unless_200).on_response(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        OnResponse::Reset
    });
    let layer = RateLimitLayer::from(skipped)
        .rule(Rule::new(TOKENS, team).on_response(|_| OnResponse::Settle(20)))
        .rule(Rule::new(CALLS, team).on_response(|_| OnResponse::Settle(30)))
        .rule(Rule::new(ANOTHER, team).on_response(|_| OnResponse::Refund))
        .limiter(&limiter);
    limiter.acquire(&TEN, "team").cost(5).await.unwrap();
    let service = status_from_path(&layer);
    assert_eq!(ask(&service, "/200").await, 200);
    assert_eq!(spent(&limiter, [&TEN, &TOKENS, &CALLS]).await, [5, 20, 30]);
    assert_eq!(left(&limiter, &ANOTHER).await, 100);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    assert_eq!(ask(&service, "/201").await, 201);
    assert_eq!(spent(&limiter, [&TEN, &TOKENS, &CALLS]).await, [0, 40, 60]);
}

#[tokio::test]
async fn a_receipt_finds_the_charge_of_a_policy_by_name() {
    let (limiter, _clock) = limiter();
    let skip = |_: &Parts| Extraction::skip();
    let layer = RateLimitLayer::new(ANOTHER, skip).and(TOKENS, team).and(CALLS, team).limiter(&limiter);
    let service = with_receipt_handler(&layer.cost(|_| 10).with_receipt(), |receipt| async move {
        assert!(receipt.of("another").is_none() && receipt.of("else").is_none());
        receipt.of("calls").unwrap().refund().await.unwrap();
        receipt.of("tokens").unwrap().settle(17).await.unwrap();
        receipt.settle(99).await.unwrap();
        StatusCode::OK
    });
    assert_eq!(ask(&service, "/").await, 200);
    assert_eq!(spent(&limiter, [&ANOTHER, &TOKENS, &CALLS]).await, [0, 17, 0]);
}

#[tokio::test]
async fn a_receipt_can_reset_a_single_policy() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::new(TEN, team).and(CALLS, team).with_receipt().limiter(&limiter);
    limiter.acquire(&TEN, "team").cost(8).await.unwrap();
    let service = with_receipt_handler(&layer, |receipt| async move {
        receipt.of("ten").unwrap().reset().await.unwrap();
        StatusCode::OK
    });
    assert_eq!(ask(&service, "/").await, 200);
    assert_eq!(spent(&limiter, [&TEN, &CALLS, &ANOTHER]).await, [0, 1, 0]);
}

#[cfg(feature = "wait")]
#[tokio::test]
async fn a_request_that_waited_is_settled() {
    const RESERVABLE: Policy = Policy::new("reservable", Quota::token_bucket(1, MINUTE).max_reserved(5));
    let (limiter, clock) = limiter();
    let layer = RateLimitLayer::new(RESERVABLE, team).wait_up_to(MINUTE).limiter(&limiter);
    let settles =
        |response: &response::Parts| if response.status == 202 { OnResponse::Refund } else { OnResponse::Settle(3) };
    for (path, debt) in [("/202", 0), ("/200", 2)] {
        assert!(limiter.try_limit(&RESERVABLE, "team").await.unwrap().is_allowed());
        let service = status_from_path(&layer.clone().on_response(settles));
        let waiting = tokio::spawn(async move { ask(&service, path).await });
        while clock.next_wake().is_none() {
            tokio::task::yield_now().await;
        }
        clock.advance(MINUTE);
        assert!(waiting.await.unwrap() < 300);
        // A refund returns the token. A cost of three tokens leaves a debt of two.
        clock.advance(debt * MINUTE);
        assert_eq!(left(&limiter, &RESERVABLE).await, u64::from(debt == 0), "{path}");
        limiter.reset(&RESERVABLE, "team").await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_request_settles_nothing() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let (limiter, _clock) = limiter();
    const ONE: Policy = Policy::new("one", Quota::token_bucket(1, MINUTE));
    // If the layer settled its own 429, the limit would be reset and the next request would be admitted.
    let layer = RateLimitLayer::new(ONE, team).and(TEN, team).limiter(&limiter).on_response(move |response| {
        count.fetch_add(1, Ordering::Relaxed);
        if response.status == 429 { OnResponse::Reset } else { OnResponse::Keep }
    });
    let service = status_from_path(&layer);
    for (path, status) in [("/200", 200), ("/200", 429), ("/200", 429)] {
        assert_eq!(ask(&service, path).await, status);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert_eq!(spent(&limiter, [&ONE, &TEN, &CALLS]).await, [1, 1, 0]);
    limiter.reset(&ONE, "team").await.unwrap();
    assert_eq!(ask(&service, "/429").await, 429);
    assert_eq!(spent(&limiter, [&ONE, &TEN, &CALLS]).await, [0, 0, 0]);
}
