//! Tests of jitter, a random delay after the due time.

use std::collections::BTreeSet;
use std::time::Duration;

use http::request::Parts;
use tollgate::{Charge, Policy, Quota, RateLimitLayer, SECOND};
use tower::Layer;

use super::queue::{Queue, ms, number, send};

#[tokio::test]
async fn wait_jitter_adds_at_most_its_maximum_to_the_delay() {
    const BATCH: Policy = Policy::new("batch", Quota::fixed_window(1, SECOND).start(ms(0)).max_reserved(1));
    let queue = Queue::new();
    // Each client sends two requests. All second requests are due at the start of the next window.
    let layer = RateLimitLayer::new(BATCH, |req: &Parts| number(req) / 2).limiter(&queue.limiter);
    let service = layer.wait_up_to(5 * SECOND).wait_jitter(ms(400)).layer(queue.inner());
    let answers: Vec<_> = (0..200).map(|number| send(&service, number)).collect();
    queue.at(Duration::ZERO).await;
    assert_eq!((queue.passed().len(), queue.limiter.waiting()), (100, 100));
    while let Some(wake) = queue.next_wake() {
        queue.at(wake).await;
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap(), Ok(200));
    }
    let delays: Vec<Duration> = queue.passed()[100..].iter().map(|(_, instant)| *instant - SECOND).collect();
    assert!(delays.iter().all(|delay| *delay <= ms(400)), "{delays:?}");
    assert!(delays.iter().any(|delay| *delay < ms(100)) && delays.iter().any(|delay| *delay > ms(300)), "{delays:?}");
    assert!(delays.iter().collect::<BTreeSet<_>>().len() > 50, "{delays:?}");
}

#[tokio::test]
async fn wait_jitter_does_not_delay_later_reservations() {
    const SPACED: Policy = Policy::new("spaced", super::queue::SPACED);
    let queue = Queue::new();
    let layer = RateLimitLayer::new(SPACED, |_: &Parts| 7).limiter(&queue.limiter);
    let service = layer.wait_up_to(5 * SECOND).wait_jitter(3600 * SECOND).layer(queue.inner());
    let _answers: Vec<_> = (0..5).map(|number| send(&service, number)).collect();
    queue.at(Duration::ZERO).await;
    let next = queue.limiter.try_check_all([Charge::new(&SPACED, 7).reserve()]).await.unwrap();
    assert_eq!(next.delay(), ms(500));
}
