//! Rules with costs and keys that are found asynchronously.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use axum::http::request::Parts;
use axum::http::{Request, Response};
use tokio::sync::oneshot;
use tollgate::key::Extraction;
use tollgate::{RateLimitLayer, Rule};
use tower::{Layer, ServiceExt, service_fn};

use super::app::{ANOTHER, CALLS, TEN, TOKENS, ask, left, status_from_path, team};
use crate::support::client::limiter;

#[tokio::test]
async fn the_service_is_not_called_before_the_key_is_known() {
    let (limiter, _clock) = limiter();
    let (send_key, key) = oneshot::channel();
    let key = Mutex::new(Some(key));
    let by_team = move |_: &Parts| {
        let key = key.lock().unwrap().take().expect("the key was requested twice");
        Extraction::later(async move { key.await.unwrap() })
    };
    let layer = RateLimitLayer::new(TEN, by_team).limiter(&limiter).cost(|_| 7);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let inner = service_fn(move |_: Request<()>| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Infallible>(Response::new(())) }
    });
    let mut response = pin!(layer.layer(inner).oneshot(Request::new(())));
    for _ in 0..3 {
        assert!(response.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!((calls.load(Ordering::Relaxed), left(&limiter, &TEN).await), (0, 10));
    send_key.send("team").unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    assert_eq!((calls.load(Ordering::Relaxed), left(&limiter, &TEN).await), (1, 3));
}

#[tokio::test]
async fn every_kind_of_cost_works_with_every_kind_of_key() {
    let slow_key = |_: &Parts| {
        Extraction::later(async {
            tokio::task::yield_now().await;
            "team"
        })
    };
    let rules = |slow: bool| {
        let rule = |policy| if slow { Rule::new(policy, slow_key) } else { Rule::new(policy, team) };
        [rule(TOKENS).cost(|_| 100), rule(CALLS).fixed_cost(30), rule(TEN), rule(ANOTHER)]
    };
    for (mixed, common) in [(0b0000, 1), (0b1111, 2), (0b0101, 3), (0b1010, 4), (0b1000, 5), (0b0001, 6)] {
        for order in 0..4 {
            let (limiter, _clock) = limiter();
            let (quick, slow) = (rules(false), rules(true));
            let mut rules: Vec<_> =
                (0..4).map(|i| if mixed >> i & 1 == 1 { slow[i].clone() } else { quick[i].clone() }).collect();
            rules.rotate_left(order);
            let mut layer = RateLimitLayer::from(rules.remove(0)).limiter(&limiter).cost(move |_| common);
            for rule in rules {
                layer = layer.rule(rule);
            }
            assert_eq!(ask(&status_from_path(&layer), "/200").await, 200);
            let mut spent = Vec::new();
            for policy in [&TOKENS, &CALLS, &TEN, &ANOTHER] {
                spent.push(policy.quotas()[0].get_capacity() - left(&limiter, policy).await);
            }
            assert_eq!(spent, [100, 30, common, common], "rules with slow keys: {mixed:b}, rotated by {order}");
        }
    }
}
