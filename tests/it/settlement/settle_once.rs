//! Only the first settlement of a charge applies.

use std::sync::Barrier;
use std::thread;

use axum::http::StatusCode;
use tollgate::{Charge, OnResponse, RateLimitLayer};

use super::app::{CALLS, TOKENS, ask, left, team, with_receipt_handler};
use crate::support::client::limiter;

#[tokio::test]
async fn a_charge_is_settled_once() {
    let (limiter, _clock) = limiter();
    let receipt = limiter.acquire(&TOKENS, "team").cost(1000).hold().await.unwrap().into_receipt();
    let clone = receipt.clone();
    clone.settle(300).await.unwrap();
    assert!(receipt.is_settled() && clone.is_settled());
    for actual in [0, 300, 1000, 1700] {
        receipt.settle(actual).await.unwrap();
        clone.settle(actual).await.unwrap();
    }
    clone.refund().await.unwrap();
    assert_eq!(left(&limiter, &TOKENS).await, 9700);

    let receipt = limiter.acquire(&TOKENS, "team").cost(1000).hold().await.unwrap().into_receipt();
    receipt.settle(1000).await.unwrap();
    receipt.refund().await.unwrap();
    assert_eq!((receipt.is_settled(), left(&limiter, &TOKENS).await), (true, 8700));

    let receipt = limiter.acquire(&TOKENS, "team").cost(1000).hold().await.unwrap().into_receipt();
    receipt.reset().await.unwrap();
    receipt.settle(1700).await.unwrap();
    assert_eq!((receipt.is_settled(), left(&limiter, &TOKENS).await), (true, 10_000));
}

#[tokio::test]
async fn a_settlement_applies_even_if_its_future_is_dropped() {
    let (limiter, _clock) = limiter();
    let receipt = limiter.acquire(&TOKENS, "team").cost(1000).hold().await.unwrap().into_receipt();
    drop(receipt.settle(1700));
    assert_eq!(left(&limiter, &TOKENS).await, 8300);
    drop(receipt.reset());
    assert_eq!(left(&limiter, &TOKENS).await, 10_000);
}

#[tokio::test]
async fn only_one_of_two_concurrent_settlements_applies() {
    let (limiter, _clock) = limiter();
    for round in 0..500 {
        let receipt = limiter.acquire(&TOKENS, "team").cost(1000).hold().await.unwrap().into_receipt();
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            for actual in [300, 1700] {
                let (receipt, barrier) = (receipt.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    drop(receipt.settle(actual));
                });
            }
        });
        // If both settlements applied, 1,000 tokens would be spent.
        let spent = 10_000 - left(&limiter, &TOKENS).await;
        assert!([300, 1700].contains(&spent), "{spent} tokens were spent in round {round}");
        limiter.reset(&TOKENS, "team").await.unwrap();
    }
}

#[tokio::test]
async fn each_charge_of_a_call_can_be_settled_separately() {
    let (limiter, _clock) = limiter();
    let charges = limiter.hold_all([Charge::new(&TOKENS, "team").cost(1000), Charge::new(&CALLS, "team").cost(10)]);
    let receipt = charges.await.unwrap().into_receipt();
    let (tokens, calls) = (receipt.of("tokens").unwrap(), receipt.of("calls").unwrap());
    assert!(receipt.of("else").is_none() && tokens.of("calls").is_none() && tokens.of("tokens").is_some());
    tokens.settle(300).await.unwrap();
    assert_eq!((tokens.is_settled(), calls.is_settled(), receipt.is_settled()), (true, false, false));
    receipt.settle(20).await.unwrap();
    assert_eq!((left(&limiter, &TOKENS).await, left(&limiter, &CALLS).await), (9700, 480));
    assert!(receipt.is_settled() && calls.is_settled());
}

#[tokio::test]
async fn after_the_handler_has_settled_the_response_can_only_reset() {
    let actions =
        [(OnResponse::Keep, 1700), (OnResponse::Refund, 1700), (OnResponse::Settle(5), 1700), (OnResponse::Reset, 0)];
    for (action, spent) in actions {
        let (limiter, _clock) = limiter();
        let layer = RateLimitLayer::new(TOKENS, team).cost(|_| 1000).with_receipt().limiter(&limiter);
        let service = with_receipt_handler(&layer.on_response(move |_| action), |receipt| async move {
            receipt.settle(1700).await.unwrap();
            StatusCode::OK
        });
        assert_eq!(ask(&service, "/").await, 200);
        assert_eq!(10_000 - left(&limiter, &TOKENS).await, spent, "{action:?}");
    }
}

#[tokio::test]
async fn after_the_response_has_settled_the_receipt_can_only_reset() {
    for (action, spent) in [
        (OnResponse::Keep, 1700),
        (OnResponse::Refund, 0),
        (OnResponse::Settle(5), 5),
        (OnResponse::Settle(1000), 1000),
    ] {
        let (limiter, _clock) = limiter();
        let layer = RateLimitLayer::new(TOKENS, team).cost(|_| 1000).with_receipt().limiter(&limiter);
        let (send, mut receipts) = tokio::sync::mpsc::unbounded_channel();
        let service = with_receipt_handler(&layer.on_response(move |_| action), move |receipt| {
            send.send(receipt).unwrap();
            async { StatusCode::OK }
        });
        assert_eq!(ask(&service, "/").await, 200);
        let receipt = receipts.recv().await.unwrap();
        receipt.settle(1700).await.unwrap();
        assert_eq!(10_000 - left(&limiter, &TOKENS).await, spent, "{action:?}");
        receipt.reset().await.unwrap();
        assert_eq!(left(&limiter, &TOKENS).await, 10_000);
    }
}
