//! A charge is settled only once, by the first settlement.

use std::sync::Barrier;
use std::thread;

use axum::http::StatusCode;
use tollgate::{Charge, OnResponse, RateLimitLayer};

use crate::app::{CALLS, TOKENS, ask, behind, left, team};
use crate::client::limiter;

#[tokio::test]
async fn a_charge_is_settled_once() {
    let (limiter, _clock) = limiter();
    let usage = limiter.acquire(&TOKENS, "team").cost(1000).hold().await.unwrap().into_receipt();
    let clone = usage.clone();
    clone.settle(300).await.unwrap();
    assert!(usage.is_settled() && clone.is_settled());
    for actual in [0, 300, 1000, 1700] {
        usage.settle(actual).await.unwrap();
        clone.settle(actual).await.unwrap();
    }
    clone.refund().await.unwrap();
    assert_eq!(left(&limiter, &TOKENS).await, 9700);

    let usage = limiter.acquire(&TOKENS, "team").cost(1000).hold().await.unwrap().into_receipt();
    usage.settle(1000).await.unwrap();
    usage.refund().await.unwrap();
    assert_eq!((usage.is_settled(), left(&limiter, &TOKENS).await), (true, 8700));

    let usage = limiter.acquire(&TOKENS, "team").cost(1000).hold().await.unwrap().into_receipt();
    usage.reset().await.unwrap();
    usage.settle(1700).await.unwrap();
    assert_eq!((usage.is_settled(), left(&limiter, &TOKENS).await), (true, 10_000));
}

#[tokio::test]
async fn what_is_settled_is_settled_by_the_call() {
    let (limiter, _clock) = limiter();
    let usage = limiter.acquire(&TOKENS, "team").cost(1000).hold().await.unwrap().into_receipt();
    drop(usage.settle(1700));
    assert_eq!(left(&limiter, &TOKENS).await, 8300);
    drop(usage.reset());
    assert_eq!(left(&limiter, &TOKENS).await, 10_000);
}

#[tokio::test]
async fn of_two_threads_exactly_one_wins() {
    let (limiter, _clock) = limiter();
    for round in 0..500 {
        let usage = limiter.acquire(&TOKENS, "team").cost(1000).hold().await.unwrap().into_receipt();
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            for actual in [300, 1700] {
                let (usage, barrier) = (usage.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    drop(usage.settle(actual));
                });
            }
        });
        // If both settlements applied, 1,000 would be spent.
        let spent = 10_000 - left(&limiter, &TOKENS).await;
        assert!([300, 1700].contains(&spent), "{spent} in round {round}");
        limiter.reset(&TOKENS, "team").await.unwrap();
    }
}

#[tokio::test]
async fn each_charge_of_a_call_is_settled_for_itself() {
    let (limiter, _clock) = limiter();
    let charges = limiter.hold_all([Charge::new(&TOKENS, "team").cost(1000), Charge::new(&CALLS, "team").cost(10)]);
    let usage = charges.await.unwrap().into_receipt();
    let (tokens, calls) = (usage.of("tokens").unwrap(), usage.of("calls").unwrap());
    assert!(usage.of("else").is_none() && tokens.of("calls").is_none() && tokens.of("tokens").is_some());
    tokens.settle(300).await.unwrap();
    assert_eq!((tokens.is_settled(), calls.is_settled(), usage.is_settled()), (true, false, false));
    usage.settle(20).await.unwrap();
    assert_eq!((left(&limiter, &TOKENS).await, left(&limiter, &CALLS).await), (9700, 480));
    assert!(usage.is_settled() && calls.is_settled());
}

#[tokio::test]
async fn what_the_handler_settled_the_response_only_resets() {
    let verdicts =
        [(OnResponse::Keep, 1700), (OnResponse::Refund, 1700), (OnResponse::Charge(5), 1700), (OnResponse::Reset, 0)];
    for (verdict, spent) in verdicts {
        let (limiter, _clock) = limiter();
        let layer = RateLimitLayer::new(TOKENS, team).cost(|_| 1000).with_receipt().limiter(&limiter);
        let service = behind(&layer.on_response(move |_| verdict), |usage| async move {
            usage.settle(1700).await.unwrap();
            StatusCode::OK
        });
        assert_eq!(ask(&service, "/").await, 200);
        assert_eq!(10_000 - left(&limiter, &TOKENS).await, spent, "{verdict:?}");
    }
}

#[tokio::test]
async fn what_the_response_settled_the_handle_only_resets() {
    for (verdict, spent) in [
        (OnResponse::Keep, 1700),
        (OnResponse::Refund, 0),
        (OnResponse::Charge(5), 5),
        (OnResponse::Charge(1000), 1000),
    ] {
        let (limiter, _clock) = limiter();
        let layer = RateLimitLayer::new(TOKENS, team).cost(|_| 1000).with_receipt().limiter(&limiter);
        let (send, mut handles) = tokio::sync::mpsc::unbounded_channel();
        let service = behind(&layer.on_response(move |_| verdict), move |usage| {
            send.send(usage).unwrap();
            async { StatusCode::OK }
        });
        assert_eq!(ask(&service, "/").await, 200);
        let usage = handles.recv().await.unwrap();
        usage.settle(1700).await.unwrap();
        assert_eq!(10_000 - left(&limiter, &TOKENS).await, spent, "{verdict:?}");
        usage.reset().await.unwrap();
        assert_eq!(left(&limiter, &TOKENS).await, 10_000);
    }
}
