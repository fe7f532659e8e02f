//! Costs that are derived from the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Extension;
use axum::http::request::Parts;
use tollgate::key::Extraction;
use tollgate::{RateLimitLayer, Rule};

use super::app::{ANOTHER, CALLS, TEN, TOKENS, ask, left, status_from_path, team};
use crate::support::client::{hello, limiter, serve};

fn by_header(req: &Parts) -> u64 {
    req.headers.get("x-cost").map_or(1, |cost| cost.to_str().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_cost_can_be_read_from_the_request() {
    let (limiter, _clock) = limiter();
    let client = serve(hello().layer(RateLimitLayer::new(TEN, team).cost(by_header).limiter(&limiter))).await;
    for (cost, status, remaining) in [(4, 200, 6), (7, 429, 6), (6, 200, 0), (1, 429, 0)] {
        assert_eq!(client.send("GET", &[&format!("x-cost: {cost}")]).await.status, status);
        assert_eq!(left(&limiter, &TEN).await, remaining);
    }
}

#[tokio::test]
async fn a_cost_can_be_read_from_an_extension_set_by_an_outer_layer() {
    #[derive(Clone)]
    struct Estimate(u64);
    let (limiter, _clock) = limiter();
    let limits = RateLimitLayer::new(TOKENS, team).limiter(&limiter).cost(|req: &Parts| {
        let estimate: Option<&Estimate> = req.extensions.get();
        estimate.map_or(1, |Estimate(tokens)| *tokens)
    });
    assert_eq!(serve(hello().layer(limits.clone()).layer(Extension(Estimate(700)))).await.get().await.status, 200);
    assert_eq!(left(&limiter, &TOKENS).await, 9300);
    assert_eq!(serve(hello().layer(Extension(Estimate(700))).layer(limits)).await.get().await.status, 200);
    assert_eq!(left(&limiter, &TOKENS).await, 9299);
}

#[tokio::test]
async fn a_cost_above_the_capacity_is_refused_with_a_detail_and_no_retry_after() {
    // Regression test: the body had no message, although the documentation promised one.
    let (limiter, _clock) = limiter();
    let client = serve(hello().layer(RateLimitLayer::new(TEN, team).cost(by_header).limiter(&limiter))).await;
    let refused = client.send("GET", &["x-cost: 11"]).await;
    assert_eq!((refused.status, refused.retry_after()), (429, None));
    assert_eq!(refused.violated_policies(), ["ten"]);
    let detail = refused.problem()["detail"].as_str().unwrap().to_owned();
    assert_eq!(
        detail,
        "rate limit exceeded: \"ten\" cannot grant 11 tokens at once (10 at most); retrying will not help"
    );
    // The refusal spent nothing. If a retry can succeed, the refusal has no `detail` field.
    assert_eq!(client.send("GET", &["x-cost: 10"]).await.status, 200);
    let refused = client.send("GET", &["x-cost: 10"]).await;
    assert_eq!((refused.retry_after(), refused.problem().get("detail")), (Some(60), None));
}

#[tokio::test]
async fn a_request_with_a_cost_of_0_is_allowed_unless_the_key_is_in_debt() {
    let (limiter, clock) = limiter();
    let service = status_from_path(&RateLimitLayer::new(TEN, team).cost(|_| 0).limiter(&limiter));
    let receipt = limiter.acquire(&TEN, "team").cost(10).hold().await.unwrap().into_receipt();
    for _ in 0..20 {
        assert_eq!(ask(&service, "/200").await, 200);
    }
    assert_eq!(left(&limiter, &TEN).await, 0);
    receipt.settle(11).await.unwrap();
    assert_eq!(ask(&service, "/200").await, 429);
    clock.advance(tollgate::MINUTE / 10);
    assert_eq!(ask(&service, "/200").await, 200);
}

#[tokio::test]
async fn a_rule_without_a_cost_uses_the_cost_of_the_layer() {
    let (limiter, _clock) = limiter();
    let layer = RateLimitLayer::from(Rule::new(TOKENS, team).cost(|_| 1000)).and(CALLS, team).limiter(&limiter);
    assert_eq!(ask(&status_from_path(&layer), "/200").await, 200);
    assert_eq!((left(&limiter, &TOKENS).await, left(&limiter, &CALLS).await), (9000, 499));
    // The layer's cost applies to every rule without a cost, even to rules that are added later.
    let layer = layer.cost(|_| 3).rule(Rule::new(TEN, team));
    assert_eq!(ask(&status_from_path(&layer), "/200").await, 200);
    let all = [left(&limiter, &TOKENS).await, left(&limiter, &CALLS).await, left(&limiter, &TEN).await];
    assert_eq!(all, [8000, 496, 7]);
}

#[tokio::test]
async fn each_cost_closure_is_called_once_per_request() {
    let (limiter, _clock) = limiter();
    let calls: [Arc<AtomicUsize>; 3] = Default::default();
    let count = |index: usize| {
        let calls = Arc::clone(&calls[index]);
        move |_: &Parts| {
            calls.fetch_add(1, Ordering::Relaxed);
            1
        }
    };
    let later = |_: &Parts| {
        Extraction::later(async {
            tokio::task::yield_now().await;
            "team"
        })
    };
    // The layer's cost applies to two rules. Because one of these rules resolves its key asynchronously, the layer
    // visits all later rules twice.
    let layer = RateLimitLayer::from(Rule::new(TOKENS, team).cost(count(0)))
        .and(CALLS, later)
        .rule(Rule::new(TEN, later).cost(count(1)))
        .and(ANOTHER, team)
        .skip(|req: &Parts| req.uri.path() == "/204")
        .cost(count(2))
        .limiter(&limiter);
    let service = status_from_path(&layer);
    for requests in 1..=10 {
        assert_eq!(ask(&service, "/200").await, 200);
        assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == requests), "{calls:?}");
    }
    assert_eq!((ask(&service, "/204").await, ask(&service, "/200").await), (204, 429));
    assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == 11), "{calls:?}");
}
