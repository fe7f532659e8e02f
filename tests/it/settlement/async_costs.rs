//! Costs that are computed asynchronously.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use axum::http::request::Parts;
use axum::http::{Request, Response};
use tokio::sync::{Semaphore, oneshot};
use tollgate::key::Extraction;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, Rule};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::app::{ANOTHER, CALLS, TEN, TOKENS, ask, left, status_from_path, team};
use crate::support::client::limiter;

#[tokio::test]
async fn the_service_is_not_called_before_the_cost_is_known() {
    let (limiter, _clock) = limiter();
    let (send_cost, cost) = oneshot::channel();
    let cost = Mutex::new(Some(cost));
    let layer = RateLimitLayer::new(TEN, team).limiter(&limiter).cost_async(move |_| {
        let cost = cost.lock().unwrap().take().expect("the cost was requested twice");
        async move { cost.await.unwrap() }
    });
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
    send_cost.send(7).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    assert_eq!((calls.load(Ordering::Relaxed), left(&limiter, &TEN).await), (1, 3));
}

#[tokio::test]
async fn a_request_dropped_before_its_cost_is_known_leaks_nothing() {
    const RESERVABLE: Policy = Policy::new("reservable", Quota::token_bucket(10, MINUTE).max_reserved(10));
    let (limiter, _clock) = limiter();
    let permits = Arc::new(Semaphore::new(1));
    let inner = ConcurrencyLimit::with_semaphore(
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) }),
        Arc::clone(&permits),
    );
    let layer = RateLimitLayer::new(RESERVABLE, team).limiter(&limiter).cost_async(|_| pending());
    let mut service = layer.layer(inner);
    let mut response = Box::pin(service.ready().await.unwrap().call(Request::new(())));
    assert!(response.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(response);
    assert_eq!((permits.available_permits(), left(&limiter, &RESERVABLE).await), (1, 10));

    #[cfg(feature = "wait")]
    {
        let mut service = status_from_path(&layer.wait_up_to(MINUTE));
        let mut response = Box::pin(service.ready().await.unwrap().call(Request::new(())));
        assert!(response.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(limiter.waiting(), 0, "a request whose cost is not known must not count as waiting");
        drop(response);
        assert_eq!(left(&limiter, &RESERVABLE).await, 10);
    }
}

/// Combines synchronous and asynchronous costs of rules and layers with synchronous and asynchronous keys.
#[tokio::test]
async fn every_kind_of_cost_works_with_every_kind_of_key() {
    let slow_key = |_: &Parts| {
        Extraction::later(async {
            tokio::task::yield_now().await;
            "team"
        })
    };
    async fn slow_cost(tokens: u64) -> u64 {
        tokio::task::yield_now().await;
        tokens
    }
    let rules = |slow: bool| {
        let rule = |policy| if slow { Rule::new(policy, slow_key) } else { Rule::new(policy, team) };
        [rule(TOKENS).cost(|_| 100), rule(CALLS).cost_async(|_| slow_cost(30)), rule(TEN), rule(ANOTHER)]
    };
    for (mixed, common) in [(0b0000, 1), (0b1111, 2), (0b0101, 3), (0b1010, 4), (0b1000, 5), (0b0001, 6)] {
        for order in 0..4 {
            let (limiter, _clock) = limiter();
            let (quick, slow) = (rules(false), rules(true));
            let mut rules: Vec<_> =
                (0..4).map(|i| if mixed >> i & 1 == 1 { slow[i].clone() } else { quick[i].clone() }).collect();
            rules.rotate_left(order);
            let mut layer = RateLimitLayer::from(rules.remove(0)).limiter(&limiter);
            for rule in rules {
                layer = layer.rule(rule);
            }
            for layer in [layer.clone().cost(move |_| common), layer.cost_async(move |_| slow_cost(common))] {
                assert_eq!(ask(&status_from_path(&layer), "/200").await, 200);
                let mut spent = Vec::new();
                for policy in [&TOKENS, &CALLS, &TEN, &ANOTHER] {
                    spent.push(policy.quotas()[0].get_capacity() - left(&limiter, policy).await);
                    limiter.reset(policy, "team").await.unwrap();
                }
                assert_eq!(spent, [100, 30, common, common], "rules with slow keys: {mixed:b}, rotated by {order}");
            }
        }
    }
}

#[tokio::test]
async fn a_layers_async_cost_is_computed_once_per_request() {
    let (limiter, _clock) = limiter();
    let polled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&polled);
    let layer = RateLimitLayer::new(TEN, team).and(CALLS, team).and(TOKENS, team).limiter(&limiter);
    let layer = layer.cost_async(move |_| {
        let polled = Arc::clone(&count);
        async move {
            tokio::task::yield_now().await;
            polled.fetch_add(1, Ordering::Relaxed);
            2
        }
    });
    assert_eq!(ask(&status_from_path(&layer), "/200").await, 200);
    assert_eq!(polled.load(Ordering::Relaxed), 1);
    let all = [left(&limiter, &TEN).await, left(&limiter, &CALLS).await, left(&limiter, &TOKENS).await];
    assert_eq!(all, [8, 498, 9998]);
}

#[tokio::test]
async fn the_cost_of_a_skipped_rule_is_not_awaited() {
    let (limiter, _clock) = limiter();
    for later in [false, true] {
        let skip = move |_: &Parts| {
            if later { Extraction::later(async { tollgate::key::Found::Skip }) } else { Extraction::skip() }
        };
        let never = Rule::new(TOKENS, skip).cost_async(|_| pending());
        let layer = RateLimitLayer::from(never).and(TEN, team).limiter(&limiter);
        assert_eq!(ask(&status_from_path(&layer), "/200").await, 200);
    }
    assert_eq!(left(&limiter, &TEN).await, 8);
}
