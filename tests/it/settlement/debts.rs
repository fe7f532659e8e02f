//! Debt is the part of an actual cost that exceeds the available tokens. Refills repay it.

use std::time::Duration;

use tollgate::{HOUR, MINUTE, OnResponse, Policy, Quota, RateLimitLayer, SECOND};

use super::app::{TEN, TOKENS, ask, left, status_from_path, team, with_receipt_handler};
use crate::support::client::limiter;

const MICRO: Duration = Duration::from_micros(1);

#[tokio::test]
async fn a_debt_delays_requests_until_it_is_repaid() {
    let (limiter, clock) = limiter();
    let receipt = limiter.acquire(&TOKENS, "team").cost(1000).hold().await.unwrap().into_receipt();
    receipt.settle(12_000).await.unwrap();
    let denied = limiter.try_limit(&TOKENS, "team").await.unwrap();
    // The debt is 2,000 tokens, and the request costs one token. Each token takes 0.36 s to refill.
    let wait = 2001 * HOUR / 10_000;
    assert_eq!((denied.remaining(), denied.retry_after()), (0, Some(wait)));
    clock.advance(wait - MICRO);
    assert!(!limiter.try_limit(&TOKENS, "team").await.unwrap().is_allowed());
    clock.advance(MICRO);
    assert!(limiter.try_limit(&TOKENS, "team").await.unwrap().is_allowed());
    assert!(!limiter.try_limit(&TOKENS, "team").await.unwrap().is_allowed());
    clock.advance(HOUR - MICRO);
    assert_eq!(left(&limiter, &TOKENS).await, 9_999);
    clock.advance(MICRO);
    assert_eq!(left(&limiter, &TOKENS).await, 10_000);
}

#[tokio::test]
async fn a_debt_of_several_windows_takes_several_windows_to_repay() {
    const WINDOW: Policy = Policy::new("window", Quota::fixed_window(10, MINUTE).start(Duration::ZERO));
    let (limiter, clock) = limiter();
    let receipt = limiter.acquire(&WINDOW, "team").hold().await.unwrap().into_receipt();
    receipt.settle(35).await.unwrap();
    // The clock starts on a window boundary. The debt in the first three windows is 25, 15 and 5 tokens.
    for remaining in [0, 0, 0, 5, 10] {
        assert_eq!(left(&limiter, &WINDOW).await, remaining);
        clock.advance(MINUTE);
    }
}

#[tokio::test]
async fn the_layer_refuses_requests_until_a_debt_is_repaid() {
    let (limiter, clock) = limiter();
    let layer = RateLimitLayer::new(TEN, team).with_receipt().limiter(&limiter);
    let service = with_receipt_handler(&layer, |receipt| async move {
        receipt.settle(15).await.unwrap();
        axum::http::StatusCode::OK
    });
    assert_eq!(ask(&service, "/").await, 200);
    for _ in 0..5 {
        assert_eq!(ask(&service, "/").await, 429);
    }
    clock.advance(36 * SECOND - MICRO);
    assert_eq!(ask(&service, "/").await, 429);
    clock.advance(MICRO);
    assert_eq!(ask(&service, "/").await, 200);
}

#[tokio::test]
async fn a_response_can_cause_a_debt_that_a_refund_reduces() {
    let (limiter, _clock) = limiter();
    let layer =
        RateLimitLayer::new(TEN, team).limiter(&limiter).on_response(|response| match response.status.as_u16() {
            202 => OnResponse::Settle(25),
            205 => OnResponse::Reset,
            _ => OnResponse::Keep,
        });
    let (hold, service) = (limiter.acquire(&TEN, "team").hold().await.unwrap(), status_from_path(&layer));
    assert_eq!((ask(&service, "/202").await, ask(&service, "/205").await), (202, 429));
    assert_eq!(limiter.try_limit(&TEN, "team").await.unwrap().retry_after(), Some(17 * 6 * SECOND));
    hold.cancel().await.unwrap();
    assert_eq!(limiter.try_limit(&TEN, "team").await.unwrap().retry_after(), Some(16 * 6 * SECOND));
}
