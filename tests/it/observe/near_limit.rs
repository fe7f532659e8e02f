//! The `near_limit` event is emitted when a key has spent a given share of its limit.

use tollgate::observe::Tracing;
use tollgate::{HOUR, MINUTE, Policy, Quota, clock::ManualClock};
use tracing::Level;

use super::backends::FlakyBackend;
use super::log::Log;

/// Makes one call for each cost, and returns the positions of the calls that caused an event.
async fn passes(quota: Quota, share: f64, costs: &[u64]) -> Vec<usize> {
    let policy = Policy::new("api", quota);
    let backend = FlakyBackend::new();
    let limiter = backend.limiter().observer(Tracing::new().near_limit(share)).build();
    let log = Log::new(Level::WARN);
    let _subscribed = log.subscribe();
    let mut passed = Vec::new();
    for (position, cost) in costs.iter().enumerate() {
        drop(limiter.try_check(&policy, "ada").await.unwrap());
        drop(limiter.try_acquire(&policy, "ada").cost(*cost).await.unwrap());
        passed.extend(log.named("near_limit").iter().map(|_| position));
    }
    passed
}

#[tokio::test]
async fn an_event_is_emitted_once_when_the_share_is_reached() {
    for quota in [Quota::token_bucket(10, HOUR), Quota::fixed_window(10, HOUR), Quota::sliding_window(10, HOUR)] {
        assert_eq!(passes(quota, 0.8, &[1; 12]).await, [7], "{quota}");
        assert_eq!(passes(quota, 1.0, &[1; 12]).await, [9], "{quota}");
        assert_eq!(passes(quota, 0.5, &[4, 4, 2]).await, [1], "{quota}");
        assert_eq!(passes(quota, 0.5, &[10]).await, [0], "{quota}");
        // A denied charge spends nothing.
        assert_eq!(passes(quota, 0.5, &[4, 7, 0, 1]).await, [3], "{quota}");
    }
}

#[tokio::test]
async fn a_key_that_reaches_the_share_again_is_reported_again() {
    let policy = Policy::new("api", Quota::fixed_window(2, MINUTE));
    let backend = FlakyBackend::new();
    let clock: ManualClock = backend.clock().clone();
    let tracing = Tracing::new().near_limit(0.5).clock(clock.clone()).per_second(1);
    let limiter = backend.limiter().observer(tracing).build();
    let log = Log::new(Level::WARN);
    let _subscribed = log.subscribe();
    for key in ["ada", "bob", "eve"] {
        drop(limiter.try_limit(&policy, key).await.unwrap());
    }
    let events = log.take();
    assert_eq!(events.len(), 1, "expected one event per second: {events:?}");
    assert_eq!(events[0].field("share"), Some("0.5"));
    clock.advance(2 * MINUTE);
    drop(limiter.try_limit(&policy, "ada").await.unwrap());
    let events = log.named("near_limit");
    assert_eq!(events.iter().map(super::log::Line::suppressed).collect::<Vec<_>>(), [2]);
}

#[test]
#[should_panic(expected = "expected a share greater than 0 and at most 1, found 80")]
fn a_share_above_1_is_rejected() {
    let _ = Tracing::new().near_limit(80.0);
}
