//! Several quotas on a Redis server. One row contains all windows of a key under a policy.

use std::time::Duration;

use tollgate::policy::Quotas;
use tollgate::{Charge, DAY, Policy, Quota, RateLimiter, Subject};

use crate::support::random::Random;
use crate::support::server::Server;
use crate::support::windows::{Reference, ask, charge, policies};

#[tokio::test]
async fn the_redis_backend_applies_each_quota_independently() {
    let server = Server::start();
    let limiter = RateLimiter::new(server.backend().await);
    let policies = policies();
    let (mut random, mut reference) = (Random(0x9e37_79b9_7f4a_7c15), Reference::default());
    for _ in 0..3000 {
        let policy = &policies[random.below(policies.len() as u64) as usize];
        let (key, ask) = (random.below(3), ask(policy, &mut random));
        match random.below(20) {
            0 => {
                limiter.reset(policy, key).await.unwrap();
                reference.reset(policy, key);
            }
            1..=4 => {
                let decisions = limiter.try_check_all([charge(policy, key, ask)]).await.unwrap();
                reference.check(policy, key, ask, &decisions, false);
            }
            _ => {
                let decisions = match limiter.hold_all([charge(policy, key, ask)]).await {
                    Ok(reservation) => reservation.into_receipt().decisions().clone(),
                    Err(error) => error.denied().expect("expected a denial").decisions().clone(),
                };
                reference.check(policy, key, ask, &decisions, true);
            }
        }
        if random.below(30) == 0 {
            tokio::time::sleep(Duration::from_micros(random.below(9000))).await;
        }
    }
}

#[tokio::test]
async fn one_row_contains_all_windows_and_is_read_and_written_once_per_call() {
    const API: Policy =
        Policy::new("api", Quota::per_second(10)).and(Quota::per_hour(500)).and(Quota::fixed_window(5000, DAY));
    let server = Server::start();
    let backend = server.backend().await;
    let limiter = RateLimiter::new(backend.clone());
    limiter.limit(&API, "ada").await.unwrap();
    let mut admin = server.admin();
    let keys: Vec<String> = redis::cmd("KEYS").arg("tollgate:2:*").query(&mut admin).unwrap();
    assert_eq!(keys, [backend.row_key(API.name(), limiter.digest(Subject::new("ada").key()))]);
    let length: usize = redis::cmd("STRLEN").arg(&keys[0]).query(&mut admin).unwrap();
    assert_eq!(length, 8 + 3 * 32);
    redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut admin).unwrap();
    limiter.limit(&API, "ada").await.unwrap();
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut admin).unwrap();
    let calls = |command: &str| {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
        line.map_or("0", |line| line.split("calls=").nth(1).unwrap().split(',').next().unwrap()).to_owned()
    };
    assert_eq!([calls("evalsha"), calls("get"), calls("mget")], ["1", "1", "0"]);
    assert_eq!(calls("set").parse::<u32>().unwrap() + calls("setrange").parse::<u32>().unwrap(), 1);
}

#[tokio::test]
async fn processes_share_all_windows() {
    const API: Policy = Policy::new("api", Quota::per_hour(5)).and(Quota::per_day(8));
    let server = Server::start();
    let one = RateLimiter::new(server.backend().await);
    let other = RateLimiter::new(server.backend().await);
    one.acquire(&API, "ada").cost(3).await.unwrap();
    assert_eq!(other.remaining(&API, "ada").await.unwrap(), 2);
    // The caller's own quotas use the same windows.
    let own = || Subject::new("ada").quota("100/h; 10/d".parse::<Quotas>().unwrap());
    other.limit_all([Charge::new(&API, own()).cost(6)]).await.unwrap();
    let spent: Vec<f64> = one.snapshot(&API, "ada").await.unwrap().iter().map(|it| it.state().spent.ceil()).collect();
    assert_eq!(spent, [9.0, 9.0]);
    // A quota that is set in one process applies in the other process too.
    one.set_quota(&API, Quota::per_hour(50).and(Quota::per_day(80))).await.unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while other.quotas(&API, "ada").to_string() != "50/h; 80/d" {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(one.reset(&API, "ada").await.unwrap());
    assert_eq!(other.remaining(&API, "ada").await.unwrap(), 50);
}

/// Regression test: changing the quota with the shorter period shortened the row's expiry, so the row expired before
/// the longer window ended.
#[tokio::test]
async fn the_longest_window_determines_when_a_row_expires() {
    let server = Server::start();
    let backend = server.backend().await;
    let limiter = RateLimiter::new(backend.clone());
    let mut admin = server.admin();
    let (second, day) = (Quota::per_second(500), Quota::per_day(1000));
    for (name, list) in [("day first", day.and(second)), ("day last", second.and(day))] {
        let policy = Policy::try_new(name, list).unwrap();
        let row = backend.row_key(policy.name(), limiter.digest(Subject::new("ada").key()));
        let mut hours_left = || redis::cmd("TTL").arg(&row).query::<u64>(&mut admin).unwrap() / 3600;
        limiter.acquire(&policy, "ada").cost(500).await.unwrap();
        assert!(hours_left() >= 11, "{name}");
        // Change only the per-second quota, and make another charge.
        let other =
            list.iter().map(|quota| if quota.period() == tollgate::SECOND { Quota::per_second(600) } else { *quota });
        let other = other.map(Quotas::from).reduce(|list, next| list.and(next[0])).unwrap();
        limiter.limit(&policy, Subject::new("ada").quota(other)).await.unwrap();
        assert!(hours_left() >= 11, "{name}: changing the per-second quota shortened the expiry");
        assert_eq!(limiter.snapshot(&policy, "ada").await.unwrap().len(), 2);
    }
}
