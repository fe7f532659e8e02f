//! Pauses, which apply to all processes that share a server.

use std::time::{Duration, Instant};

use tollgate::{HOUR, Policy, Quota, RateLimiter, Reason, SECOND};

use crate::support::server::{PATIENCE, Server};

static UPSTREAM: Policy = Policy::new("upstream", Quota::token_bucket(20, SECOND).capacity(1).max_reserved(200));

#[tokio::test]
async fn a_pause_delays_requests_that_wait_in_another_process() {
    let server = Server::start();
    let (one, other) = (RateLimiter::new(server.backend().await), RateLimiter::new(server.backend().await));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..60 {
        let call = other.acquire(&UPSTREAM, "host").wait_up_to(30 * SECOND);
        calls.spawn(async move {
            call.await.unwrap();
            Instant::now()
        });
    }
    one.pause(&UPSTREAM, "host", 3 * SECOND).await.unwrap();
    let paused = Instant::now();
    let denied = one.try_check(&UPSTREAM, "host").await.unwrap();
    assert_eq!(denied.reason(), Reason::Blocked);
    assert!(denied.retry_after().is_some_and(|wait| wait > 2 * SECOND && wait <= 3 * SECOND));
    let mut sent = calls.join_all().await;
    sent.sort();
    let after: Vec<Duration> = sent.iter().map(|at| at.duration_since(paused)).collect();
    // The other process learns about the pause within a second, and then sends no requests until the pause ends.
    let early = after.iter().filter(|after| **after < 3 * SECOND - Duration::from_millis(50)).count();
    assert!(early <= 1 + 20 * 3 / 2, "{early} requests were sent during the pause: {after:?}");
    assert_eq!(after.len(), 60);
    // A process that starts later also learns about the pause, and then about its end.
    one.pause(&UPSTREAM, "host", HOUR).await.unwrap();
    let third = RateLimiter::new(server.backend().await);
    let is_paused = async |limiter: &RateLimiter| !limiter.try_check(&UPSTREAM, "host").await.unwrap().is_allowed();
    for (limiter, paused) in [(&third, true), (&other, true), (&third, false)] {
        if !paused {
            other.resume(&UPSTREAM, "host").await.unwrap();
        }
        let begin = Instant::now();
        while is_paused(limiter).await != paused {
            assert!(begin.elapsed() < PATIENCE, "the limiter did not receive the change in time");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Regression: the notice of a shorter pause replaced the notice of a longer pause, so some processes never received
/// the longer pause.
#[tokio::test]
async fn the_longer_of_two_pauses_from_different_processes_applies_everywhere() {
    let server = Server::start();
    let limiters = [RateLimiter::new(server.backend().await), RateLimiter::new(server.backend().await)];
    limiters[0].pause(&UPSTREAM, "host", HOUR).await.unwrap();
    limiters[1].pause(&UPSTREAM, "host", 5 * SECOND).await.unwrap();
    let later = RateLimiter::new(server.backend().await);
    for limiter in [&limiters[0], &limiters[1], &later] {
        let begin = Instant::now();
        while limiter.try_check(&UPSTREAM, "host").await.unwrap().retry_after() < Some(50 * SECOND) {
            assert!(begin.elapsed() < PATIENCE, "the limiter did not receive the longer pause in time");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    // After `resume` has ended the longer pause, a shorter pause applies.
    limiters[0].resume(&UPSTREAM, "host").await.unwrap();
    limiters[0].pause(&UPSTREAM, "host", 60 * SECOND).await.unwrap();
    let last = RateLimiter::new(server.backend().await);
    tokio::time::sleep(SECOND).await;
    let left = last.try_check(&UPSTREAM, "host").await.unwrap().retry_after();
    assert!(left > Some(SECOND) && left <= Some(60 * SECOND), "{left:?}");
}
