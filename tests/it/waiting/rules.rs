//! Waiting with several rules, bounded waits, and requests that never wait.

use std::panic::catch_unwind;
use std::time::Duration;

use http::request::Parts;
use tollgate::policy::Enforce;
use tollgate::{Charge, MINUTE, Policy, Quota, RateLimitLayer, RateLimitStatus, SECOND, key};
use tower::Layer;

use super::queue::{MICRO, Queue, SPACED, immediate_response, immediate_status, ms, number, send};

const SEARCH: Policy = Policy::new("search", SPACED);
const SLOWER: Policy = Policy::new("slower", Quota::token_bucket(4, SECOND).capacity(1).unlimited_reservations());
const BUDGET: Policy = Policy::new("budget", Quota::fixed_window(3, MINUTE).start(Duration::ZERO));

#[tokio::test]
async fn a_request_waits_for_the_latest_due_time_of_its_rules() {
    for [one, other] in [[SEARCH, SLOWER], [SLOWER, SEARCH]] {
        let queue = Queue::new();
        let layer = RateLimitLayer::new(one, key::global()).and(other, key::global());
        let service = layer.limiter(&queue.limiter).wait_up_to(5 * SECOND).layer(queue.inner());
        let _answers = [send(&service, 0), send(&service, 1), send(&service, 2)];
        queue.at(Duration::ZERO).await;
        for slot in 1..3 {
            queue.at(ms(250 * slot) - MICRO).await;
            assert_eq!(queue.passed().len() as u64, slot);
            queue.at(ms(250 * slot)).await;
            assert_eq!(queue.passed()[slot as usize..], [(slot, ms(250 * slot))]);
        }
    }
}

#[tokio::test]
async fn if_one_rule_denies_a_request_nothing_is_charged_or_reserved() {
    let queue = Queue::new();
    let layer = RateLimitLayer::new(SEARCH, |_: &Parts| 7).and(BUDGET, |_: &Parts| 7).limiter(&queue.limiter);
    let service = layer.wait_up_to(5 * SECOND).layer(queue.inner());
    let _answers: Vec<_> = (0..3).map(|number| send(&service, number)).collect();
    queue.at(Duration::ZERO).await;
    assert_eq!(queue.limiter.waiting(), 2);
    assert_eq!(immediate_status(&service, 3).await, Ok(429));
    assert_eq!(queue.limiter.waiting(), 2);
    let slot = queue.limiter.try_check_all([Charge::new(&SEARCH, 7).reserve()]).await.unwrap();
    assert_eq!(slot.delay(), ms(300));
}

#[tokio::test]
async fn a_canceled_request_is_refunded_under_every_rule() {
    let queue = Queue::new();
    let layer = RateLimitLayer::new(SEARCH, |_: &Parts| 7).and(BUDGET, |_: &Parts| 7).limiter(&queue.limiter);
    let service = layer.wait_up_to(5 * SECOND).layer(queue.inner());
    let answers = [send(&service, 0), send(&service, 1)];
    queue.at(Duration::ZERO).await;
    assert_eq!(queue.limiter.remaining(&BUDGET, 7).await.unwrap(), 1);
    answers.iter().for_each(|answer| answer.abort());
    queue.at(ms(10)).await;
    assert_eq!(queue.limiter.remaining(&BUDGET, 7).await.unwrap(), 2);
    let slot = queue.limiter.try_check_all([Charge::new(&SEARCH, 7).reserve(), Charge::new(&BUDGET, 7)]).await.unwrap();
    assert_eq!(slot.delay(), ms(90));
}

#[tokio::test]
async fn a_request_due_after_its_maximum_wait_is_refused_immediately() {
    let queue = Queue::new();
    let layer = RateLimitLayer::new(SEARCH, key::global()).limiter(&queue.limiter).wait_up_to(2 * SECOND);
    let service = layer.layer(queue.inner());
    // One request is allowed immediately. The other 20 are due within two seconds, the last after exactly two seconds.
    let _waiting: Vec<_> = (0..21).map(|number| send(&service, number)).collect();
    queue.at(Duration::ZERO).await;
    assert_eq!(queue.limiter.waiting(), 20);
    let refused = immediate_response(&service, 21).await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.body().is_refusal()), (429, true));
    // A request made 0.1 s later would be allowed to wait. The header rounds the 0.1 s up to one second.
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(queue.limiter.waiting(), 20);
    queue.at(ms(100)).await;
    let _waits = send(&service, 22);
    queue.at(ms(100)).await;
    assert_eq!(queue.limiter.waiting(), 20);
}

#[tokio::test]
async fn max_reserved_limits_the_number_of_waiting_requests_per_key() {
    const FIVE: Policy = Policy::new("five", Quota::token_bucket(10, SECOND).capacity(1).max_reserved(5));
    let queue = Queue::new();
    let layer = RateLimitLayer::new(FIVE, |req: &Parts| number(req) / 100).limiter(&queue.limiter);
    let service = layer.wait_up_to(MINUTE).layer(queue.inner());
    let _waiting: Vec<_> = (0..6).map(|number| send(&service, number)).collect();
    queue.at(Duration::ZERO).await;
    assert_eq!(immediate_status(&service, 6).await, Ok(429));
    let _waiting: Vec<_> = (100..106).map(|number| send(&service, number)).collect();
    queue.at(Duration::ZERO).await;
    assert_eq!(queue.limiter.waiting(), 10);
}

#[tokio::test]
async fn shadow_mode_never_waits() {
    let queue = Queue::new();
    let trial = SEARCH.enforce(Enforce::Never);
    let layer = RateLimitLayer::new(trial, |_: &Parts| 7).limiter(&queue.limiter).wait_up_to(SECOND).with_status();
    let shadow = layer.layer(queue.inner());
    // If the limit were enforced, one request would be allowed immediately, ten would wait, and one would be refused.
    for number in 0..12 {
        assert_eq!(immediate_status(&shadow, number).await, Ok(200));
    }
    assert_eq!((queue.passed().len(), queue.limiter.waiting()), (12, 0));
    assert!(queue.passed().iter().all(|(_, instant)| instant.is_zero()));
    // Shadow mode charges the same tokens as an enforced limit. The status reports what that limit would have done.
    assert_eq!(queue.limiter.try_check_all([Charge::new(&SEARCH, 7).reserve()]).await.unwrap().delay(), ms(1100));
    let status = tower::service_fn(|req: http::Request<u64>| async move {
        let status = req.extensions().get::<RateLimitStatus>().unwrap();
        Ok::<_, std::convert::Infallible>(http::Response::new(status.decisions().is_shadowed()))
    });
    queue.at(ms(100)).await;
    let shadow = layer.layer(status);
    for would_be_refused in [false, true] {
        let response = immediate_response(&shadow, 0).await.unwrap();
        let is_shadowed = format!("{:?}", response.body());
        assert!(is_shadowed.contains(&would_be_refused.to_string()), "{is_shadowed}");
    }
}

#[test]
fn wait_up_to_panics_if_no_rule_allows_reservations() {
    let message = catch_unwind(|| RateLimitLayer::new(BUDGET, key::global()).wait_up_to(SECOND)).unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    for part in ["budget", ".max_reserved(tokens)", ".unlimited_reservations()"] {
        assert!(message.contains(part), "expected {part:?} in {message:?}");
    }
    // A layer can wait if at least one rule or one tier allows reservations.
    let _ = RateLimitLayer::new(BUDGET, key::global()).and(SEARCH, key::global()).wait_up_to(SECOND);
    let tier = BUDGET.tier("patient", Quota::fixed_window(3, MINUTE).max_reserved(3));
    let _ = RateLimitLayer::new(tier, key::global()).wait_up_to(SECOND);
}
