//! Settlements after the row has changed. Tokens must never be refunded twice, and other charges must still count.

use axum::http::StatusCode;
use axum::http::request::Parts;
use tollgate::{MINUTE, OnResponse, Policy, Quota, RateLimitLayer, RateLimiter, Receipt, SECOND, Subject};

use super::app::{TEN, TOKENS, ask, left, status_from_path, team, with_receipt_handler};
use crate::support::client::limiter;

async fn take(limiter: &RateLimiter, policy: &Policy, cost: u64) -> Receipt {
    limiter.acquire(policy, "team").cost(cost).hold().await.unwrap().into_receipt()
}

#[tokio::test]
async fn refilled_tokens_are_not_refunded_again() {
    let (limiter, clock) = limiter();
    let receipt = take(&limiter, &TEN, 10).await;
    clock.advance(MINUTE / 2);
    let other = take(&limiter, &TEN, 5).await;
    receipt.refund().await.unwrap();
    // Five of the ten tokens had already been refilled, so only five are refunded. The other charge still counts.
    assert_eq!(left(&limiter, &TEN).await, 5);
    other.refund().await.unwrap();
    assert_eq!(left(&limiter, &TEN).await, 10);

    // After a full refill, there is nothing to refund, no matter how much has been spent since then.
    let receipt = take(&limiter, &TEN, 10).await;
    clock.advance(MINUTE);
    take(&limiter, &TEN, 10).await;
    receipt.refund().await.unwrap();
    assert_eq!(left(&limiter, &TEN).await, 0);
}

#[tokio::test]
async fn a_response_after_a_full_refill_refunds_nothing() {
    let (limiter, clock) = limiter();
    let handler_clock = clock.clone();
    let layer = RateLimitLayer::new(TEN, team).cost(|_| 10).with_receipt().limiter(&limiter);
    let service = with_receipt_handler(&layer.on_response(|_| OnResponse::Refund), move |_| {
        handler_clock.advance(MINUTE);
        let limiter = limiter.clone();
        async move {
            take(&limiter, &TEN, 10).await;
            StatusCode::OK
        }
    });
    // The handler spent the refilled burst, so the refund must not allow a third burst.
    assert_eq!((ask(&service, "/").await, ask(&service, "/").await), (200, 429));
    clock.advance(MINUTE - SECOND);
    assert_eq!(ask(&service, "/").await, 429);
}

#[tokio::test]
async fn a_higher_actual_cost_is_charged_even_after_a_full_refill() {
    let (limiter, clock) = limiter();
    let receipt = take(&limiter, &TEN, 4).await;
    clock.advance(MINUTE);
    receipt.settle(7).await.unwrap();
    assert_eq!(left(&limiter, &TEN).await, 7);
}

#[tokio::test]
async fn after_a_reset_a_settlement_can_charge_but_not_refund_the_difference() {
    for (actual, spent) in [(0, 500), (300, 500), (1000, 500), (1700, 1200)] {
        let (limiter, _clock) = limiter();
        let receipt = take(&limiter, &TOKENS, 1000).await;
        limiter.reset(&TOKENS, "team").await.unwrap();
        assert_eq!(left(&limiter, &TOKENS).await, 10_000);
        take(&limiter, &TOKENS, 500).await;
        receipt.settle(actual).await.unwrap();
        assert_eq!(10_000 - left(&limiter, &TOKENS).await, spent, "actual cost: {actual}");
    }
}

/// If at least as much is spent after a reset as before it, a settlement cannot detect the reset. Even then, the
/// settlement refunds at most the charge.
#[tokio::test]
async fn a_refund_after_an_undetected_reset_is_at_most_the_charge() {
    for (actual, max_refund) in [(0, 1000), (300, 700), (1000, 0)] {
        let (limiter, _clock) = limiter();
        let receipt = take(&limiter, &TOKENS, 1000).await;
        limiter.reset(&TOKENS, "team").await.unwrap();
        take(&limiter, &TOKENS, 3000).await;
        receipt.settle(actual).await.unwrap();
        let refunded = left(&limiter, &TOKENS).await - 7000;
        assert!(refunded <= max_refund, "refunded {refunded} at an actual cost of {actual}");
    }
}

const PLANS: Policy = Policy::new("plans", Quota::token_bucket(10, MINUTE));

fn plans() -> Policy {
    PLANS.tier("premium", Quota::token_bucket(1000, MINUTE))
}

fn premium() -> Subject {
    Subject::new("team").tier("premium")
}

#[tokio::test]
async fn after_an_upgrade_a_settlement_neither_refunds_nor_drops_charges() {
    // Regression test: settling capped the spent tokens at the old plan's capacity, so charges under the new plan were
    // lost.
    for (actual, spent) in [(0, 507), (3, 507), (5, 507), (9, 511)] {
        let (limiter, _clock) = limiter();
        let plans = plans();
        let (receipt, other) = (take(&limiter, &plans, 5).await, take(&limiter, &plans, 2).await);
        limiter.acquire(&plans, premium()).cost(500).await.unwrap();
        receipt.settle(actual).await.unwrap();
        assert_eq!(limiter.remaining(&plans, premium()).await.unwrap(), 1000 - spent, "actual cost: {actual}");
        other.refund().await.unwrap();
        assert_eq!(limiter.remaining(&plans, premium()).await.unwrap(), 1000 - spent, "actual cost: {actual}");
    }
}

#[tokio::test]
async fn after_a_downgrade_a_settlement_refunds_nothing() {
    for (actual, remaining) in [(0, 2), (3, 2), (5, 2), (6, 1), (900, 0)] {
        let (limiter, _clock) = limiter();
        let plans = plans();
        let receipt = limiter.acquire(&plans, premium()).cost(5).hold().await.unwrap().into_receipt();
        take(&limiter, &plans, 3).await;
        receipt.settle(actual).await.unwrap();
        assert_eq!(limiter.remaining(&plans, "team").await.unwrap(), remaining, "actual cost: {actual}");
    }
}

#[tokio::test]
async fn after_an_upgrade_a_response_refunds_nothing() {
    let (limiter, _clock) = limiter();
    let plan = |req: &Parts| if req.uri.path() == "/201" { premium() } else { Subject::new("team") };
    let layer = RateLimitLayer::new(plans(), plan).limiter(&limiter).with_receipt();
    let other = status_from_path(&layer);
    let service = with_receipt_handler(&layer.on_response(|_| OnResponse::Refund), move |_| {
        let other = other.clone();
        async move {
            assert_eq!(ask(&other, "/201").await, 201);
            StatusCode::OK
        }
    });
    assert_eq!(ask(&service, "/").await, 200);
    assert_eq!(limiter.remaining(&plans(), premium()).await.unwrap(), 998);
}
