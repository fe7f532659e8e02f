//! Checks the claims of `docs::migrating::convex` about tollgate. `typescript/tests` checks those about the peer.

use std::time::Duration;

use tollgate::algorithm::Micros;
use tollgate::{MINUTE, MemoryBackend, Policy, Quota, RateLimiter, clock::ManualClock};
use tollgate_migrating::ours;

fn manual(clock: &ManualClock) -> RateLimiter {
    RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build())
}

const BUCKET: Quota = Quota::token_bucket(10, MINUTE).capacity(3);

#[tokio::test]
async fn three_pass_together_and_then_one_every_six_seconds() {
    let clock = ManualClock::new();
    let limiter = manual(&clock);
    for _ in 0..3 {
        ours::convex::send(&limiter, "ada", "hello").await.unwrap();
    }
    let denied = ours::convex::send(&limiter, "ada", "hello").await.unwrap_err();
    assert_eq!(denied.denied().unwrap().retry_after(), Some(Duration::from_secs(6)));
    clock.advance(Duration::from_secs(6));
    ours::convex::send(&limiter, "ada", "hello").await.unwrap();
    for _ in 0..100 {
        ours::convex::sign_up(&limiter, "ada").await.unwrap();
    }
    assert!(ours::convex::sign_up(&limiter, "ada").await.is_err());
}

#[tokio::test]
async fn a_larger_capacity_takes_effect_immediately() {
    let limiter = manual(&ManualClock::new());
    let policy = Policy::new("sendMessage", BUCKET);
    assert_eq!(limiter.remaining(&policy, "ada").await.unwrap(), 3);
    limiter.set_quota(&policy, BUCKET.capacity(20)).await.unwrap();
    assert_eq!(limiter.remaining(&policy, "ada").await.unwrap(), 20);
    limiter.limit(&policy, "ada").await.unwrap();
    limiter.set_quota(&policy, None).await.unwrap();
    assert_eq!(limiter.remaining(&policy, "ada").await.unwrap(), 2, "spent tokens stay spent");
}

#[tokio::test]
async fn reservations_are_bounded_by_default() {
    let limiter = manual(&ManualClock::new());
    let reserved = |policy: Policy| {
        let limiter = limiter.clone();
        async move {
            let mut turns = 0;
            while turns < 1000 {
                match limiter.acquire(&policy, "ada").reserve().await {
                    Ok(turn) => drop(turn.into_receipt()),
                    Err(_) => break,
                }
                turns += 1;
            }
            turns
        }
    };
    assert_eq!(reserved(Policy::new("none", BUCKET)).await, 0);
    assert_eq!(reserved(Policy::new("some", BUCKET.max_reserved(7))).await, 10);
    assert_eq!(reserved(Policy::new("all", BUCKET.unlimited_reservations())).await, 1000);
}

#[test]
fn each_key_has_its_own_window_start() {
    let clock = ManualClock::at(Micros::EPOCH + 1_000_000 * MINUTE);
    let limiter = manual(&clock);
    let policy = Policy::new("window", Quota::fixed_window(1, MINUTE));
    let mut waits = Vec::new();
    for key in 0..50_u64 {
        limiter.limit_now(&policy, key).unwrap();
        waits.push(
            limiter.limit_now(&policy, key).unwrap_err().denied().and_then(|denied| denied.retry_after()).unwrap(),
        );
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 10);
}

#[tokio::test]
async fn unused_tokens_of_a_window_roll_over_up_to_the_capacity() {
    let clock = ManualClock::new();
    let limiter = manual(&clock);
    let policy = Policy::new("window", Quota::fixed_window(10, MINUTE).capacity(25));
    let all = limiter.try_acquire(&policy, "ada").cost(25).await.unwrap();
    assert!(all.is_allowed());
    clock.advance(2 * MINUTE);
    assert_eq!(limiter.remaining(&policy, "ada").await.unwrap(), 20);
    clock.advance(7 * MINUTE);
    assert_eq!(limiter.remaining(&policy, "ada").await.unwrap(), 25);
}

#[tokio::test]
async fn a_dropped_charge_is_given_back() {
    let limiter = manual(&ManualClock::new());
    let policy = Policy::new("sendMessage", BUCKET);
    for _ in 0..20 {
        let charge = limiter.acquire(&policy, "ada").hold().await.unwrap();
        assert_eq!(limiter.remaining(&policy, "ada").await.unwrap(), 2);
        drop(charge); // the transaction failed
    }
    assert_eq!(limiter.remaining(&policy, "ada").await.unwrap(), 3);
}

#[tokio::test]
async fn a_cost_above_the_capacity_is_denied_without_a_retry_time() {
    let limiter = manual(&ManualClock::new());
    let policy = Policy::new("sendMessage", BUCKET);
    let denied = limiter.try_acquire(&policy, "ada").cost(4).await.unwrap().into_result().unwrap_err();
    assert_eq!(denied.retry_after(), None);
}
