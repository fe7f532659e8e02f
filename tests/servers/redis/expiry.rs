//! The server drops expired rows. These tests run in real time.

use std::time::{Duration, Instant};

use redis::{Connection, cmd};
use tollgate::{Charge, HOUR, Policy, Quota, RateLimiter};

use crate::support::server::{PATIENCE, Server};

fn rows(admin: &mut Connection) -> usize {
    // Unlike `DBSIZE`, `KEYS` does not count expired keys that have not been deleted yet.
    cmd("KEYS").arg("*").query::<Vec<String>>(admin).unwrap().len()
}

#[tokio::test]
async fn all_rows_on_an_idle_server_expire() {
    let server = Server::start();
    let limiter = RateLimiter::new(server.backend().await);
    let period = Duration::from_millis(500);
    let policies = [
        Policy::new("bucket", Quota::token_bucket(4, period)),
        Policy::new("reserving", Quota::token_bucket(4, period).max_reserved(4)),
        Policy::new("fixed", Quota::fixed_window(4, period)),
        Policy::new("sliding", Quota::sliding_window(4, period)),
    ];
    let begin = Instant::now();
    for policy in &policies {
        for key in 0..50 {
            limiter.acquire(policy, key).hold().await.unwrap().into_receipt().settle(3 + key % 4).await.unwrap();
            for _ in 0..6 {
                let call = limiter.acquire(policy, key);
                let can_reserve = policy.quotas()[0].get_max_reserved() != Some(0);
                let held = if can_reserve { call.reserve().await } else { call.hold().await };
                drop(held.map(|held| held.into_receipt()));
            }
        }
    }
    let mut admin = server.admin();
    assert!(rows(&mut admin) > 0);
    let filled = begin.elapsed();
    // A row expires after at most three periods. The test allows twice this time and more, because the backend
    // sets expiries later than necessary and rounds them.
    let latest = filled + 2 * 3 * period + PATIENCE;
    while rows(&mut admin) > 0 {
        assert!(begin.elapsed() < latest, "{} rows are left after {:?}", rows(&mut admin), begin.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn every_row_has_an_expiry() {
    let server = Server::start();
    let limiter = RateLimiter::new(server.backend().await);
    let mut admin = server.admin();
    let day = 24 * HOUR;
    for (policy, most) in [
        (Policy::new("bucket", Quota::token_bucket(100, HOUR)), HOUR),
        (Policy::new("fixed", Quota::fixed_window(100, day)), day),
        (Policy::new("sliding", Quota::sliding_window(100, HOUR)), 2 * HOUR),
        (Policy::new("slow", Quota::token_bucket(1, 365 * day)), 365 * day),
    ] {
        for _ in 0..3 {
            drop(limiter.try_limit(&policy, 1).await.unwrap());
        }
        let row: Vec<String> = cmd("KEYS").arg(format!("*:{}", policy.name())).query(&mut admin).unwrap();
        let left: i64 = cmd("PTTL").arg(&row[0]).query(&mut admin).unwrap();
        let most = 2 * most.as_millis() as i64 + 2000;
        assert!((1..=most).contains(&left), "{}: expires in {left} ms, expected at most {most} ms", policy.name());
    }
}

#[tokio::test]
async fn a_row_is_kept_until_it_expires() {
    let server = Server::start();
    let limiter = RateLimiter::new(server.backend().await);
    let one = Policy::new("one", Quota::token_bucket(6, Duration::from_secs(3)));
    let two = Policy::new("two", Quota::token_bucket(6, Duration::from_secs(3)));
    let begin = Instant::now();
    // Tokens are spent by single charges, by calls with two charges, and by a settlement.
    for _ in 0..6 {
        assert!(limiter.try_limit(&one, 1).await.unwrap().is_allowed());
        assert!(limiter.try_limit_all([Charge::new(&one, 2), Charge::new(&two, 2)]).await.unwrap().is_allowed());
    }
    limiter.acquire(&one, 3).hold().await.unwrap().into_receipt().settle(6).await.unwrap();
    let mut full = 0;
    while full < 3 {
        full = 0;
        for key in 1..=3 {
            let left = limiter.remaining(&one, key).await.unwrap();
            let after = begin.elapsed();
            // One token is refilled every half second. If the row were lost, all six tokens would be left.
            assert!(left <= after.as_millis() as u64 / 500, "key {key} has {left} tokens left after {after:?}");
            full += u32::from(left == 6);
        }
        assert!(begin.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn calls_that_spend_nothing_do_not_store_rows() {
    let server = Server::start();
    let limiter = RateLimiter::new(server.backend().await);
    let policy = Policy::new("bucket", Quota::token_bucket(4, HOUR));
    let mut admin = server.admin();
    // The calls are a check, a charge of 0, a charge above the capacity, a charge that is reset, and a denied call.
    drop(limiter.try_check(&policy, 1).await.unwrap());
    drop(limiter.try_acquire(&policy, 2).cost(0).await.unwrap());
    drop(limiter.try_acquire(&policy, 3).cost(5).await.unwrap());
    drop(limiter.try_limit(&policy, 4).await.unwrap());
    limiter.reset(&policy, 4).await.unwrap();
    drop(limiter.try_limit_all([Charge::new(&policy, 5), Charge::new(&policy, 6).cost(5)]).await.unwrap());
    assert_eq!(rows(&mut admin), 0);
}

/// Regression: each refund extended the expiry, so the row never expired.
#[tokio::test]
async fn refunds_do_not_extend_the_expiry_of_a_busy_row() {
    let server = Server::start();
    let limiter = RateLimiter::new(server.backend().await);
    let policy = Policy::new("tokens", Quota::token_bucket(10, Duration::from_secs(60)));
    for _ in 0..300 {
        let (first, second) = (limiter.acquire(&policy, 7).cost(5).hold(), limiter.acquire(&policy, 7).cost(5).hold());
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        first.cancel().await.unwrap();
        second.cancel().await.unwrap();
    }
    let mut admin = server.admin();
    for key in cmd("KEYS").arg("*").query::<Vec<String>>(&mut admin).unwrap() {
        let left: i64 = cmd("TTL").arg(&key).query(&mut admin).unwrap();
        assert!((0..=122).contains(&left), "{key} is kept for {left} s");
    }
}
