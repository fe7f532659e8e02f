//! Limiters that lease tokens from a real server.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate::policy::DecidedBy;
use tollgate::{Charge, DAY, HOUR, Policy, Quota, RateLimiter, SECOND};

use super::coalescing::scripts;
use crate::support::server::Server;

static BUSY: Policy = Policy::new("busy", Quota::token_bucket(1000, DAY).capacity(100_000)).leases();

async fn limiter(server: &Server) -> RateLimiter {
    RateLimiter::new(server.backend().await)
}

/// Calls the limiter until a call is decided from a lease. Returns the number of calls.
async fn warm_up(limiter: &RateLimiter, policy: &Policy, key: &str) -> u64 {
    let begin = Instant::now();
    for calls in 1.. {
        let decision = limiter.try_limit(policy, key).await.unwrap();
        if decision.decided_by() == DecidedBy::Lease {
            return calls;
        }
        assert!(begin.elapsed() < 60 * SECOND, "no lease after {calls} calls");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    unreachable!()
}

#[tokio::test]
async fn calls_for_a_busy_key_are_decided_from_a_lease() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let calls = warm_up(&limiter, &BUSY, "ada").await;
    let before = scripts(&server);
    let decision = limiter.limit_now(&BUSY, "ada").unwrap();
    assert_eq!((decision.decided_by(), decision.is_allowed()), (DecidedBy::Lease, true));
    assert_eq!(decision.remaining(), 100_000 - calls - 1);
    assert!(limiter.stats().leases == 1 && limiter.stats().leased_tokens > 0);
    assert_eq!(scripts(&server), before);
    // For this limiter, the unspent tokens of its lease count as remaining.
    assert_eq!(limiter.remaining(&BUSY, "ada").await.unwrap(), 100_000 - calls - 1);
}

#[tokio::test]
async fn leases_are_given_back_on_shutdown() {
    let server = Server::start();
    let (one, other) = (limiter(&server).await, limiter(&server).await);
    let calls = warm_up(&one, &BUSY, "ada").await;
    assert!(other.remaining(&BUSY, "ada").await.unwrap() < 100_000 - calls, "leased tokens must count as spent");
    one.shutdown().await.unwrap();
    assert_eq!(other.remaining(&BUSY, "ada").await.unwrap(), 100_000 - calls);
    assert_eq!((one.stats().leases, one.stats().leased_tokens), (0, 0));
}

/// Regression: if a lease was requested before the shutdown but arrived afterwards, the limiter kept it until expiry.
#[tokio::test]
async fn a_lease_that_arrives_after_the_shutdown_is_given_back() {
    let server = Server::start();
    let (one, other) = (limiter(&server).await, limiter(&server).await);
    let mut calls = warm_up(&one, &BUSY, "ada").await;
    server.signal("STOP");
    // The next lease is requested when a quarter of the current lease is left.
    while one.stats().leased_tokens > 1 {
        assert_eq!(one.limit_now(&BUSY, "ada").unwrap().decided_by(), DecidedBy::Lease);
        calls += 1;
    }
    let shutdown = one.shutdown();
    server.signal("CONT");
    shutdown.await.unwrap();
    let begin = Instant::now();
    while other.remaining(&BUSY, "ada").await.unwrap() < 100_000 - calls {
        // Without the release, the lease would end after four seconds.
        assert!(begin.elapsed() < 3 * SECOND, "the lease was not given back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(one.stats().leases, 0);
}

#[tokio::test]
async fn an_idle_process_gives_its_leases_back() {
    let server = Server::start();
    let (one, other) = (limiter(&server).await, limiter(&server).await);
    let calls = warm_up(&one, &BUSY, "ada").await;
    let begin = Instant::now();
    while other.remaining(&BUSY, "ada").await.unwrap() < 100_000 - calls {
        assert!(begin.elapsed() < 60 * SECOND, "the lease was not given back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_low_limit_gets_no_lease() {
    static LOW: Policy = Policy::new("low", Quota::token_bucket(3, HOUR)).leases();
    let server = Server::start();
    let limiter = limiter(&server).await;
    let begin = Instant::now();
    let mut admitted = 0;
    while begin.elapsed() < SECOND {
        let decision = limiter.try_limit(&LOW, "ada").await.unwrap();
        assert_ne!(decision.decided_by(), DecidedBy::Lease);
        admitted += usize::from(decision.is_allowed());
    }
    assert_eq!((admitted, limiter.stats().leases), (3, 0));
}

#[tokio::test]
async fn a_large_cost_can_use_leased_tokens() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let calls = warm_up(&limiter, &BUSY, "ada").await;
    let all = limiter.try_acquire(&BUSY, "ada").cost(100_000 - calls).await.unwrap();
    assert_eq!((all.is_allowed(), all.decided_by(), all.remaining()), (true, DecidedBy::Backend, 0));
}

#[tokio::test]
async fn a_reset_discards_the_lease() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    warm_up(&limiter, &BUSY, "ada").await;
    limiter.reset(&BUSY, "ada").await.unwrap();
    assert_eq!(limiter.stats().leases, 0);
    assert_eq!(limiter.remaining(&BUSY, "ada").await.unwrap(), 100_000);
    warm_up(&limiter, &BUSY, "ada").await;
}

/// Regression: a credit ignored tokens that had been spent from a lease but not yet reported to the server.
#[tokio::test]
async fn a_credit_returns_the_tokens_that_were_spent_from_the_lease() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    warm_up(&limiter, &BUSY, "ada").await;
    assert!(limiter.credit(&BUSY, "ada", 100_000).await.unwrap());
    assert_eq!(limiter.remaining(&BUSY, "ada").await.unwrap(), 100_000);
}

#[tokio::test]
async fn a_charge_from_a_lease_can_be_settled() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let calls = warm_up(&limiter, &BUSY, "ada").await;
    let left = 100_000 - calls;
    let usage = limiter.acquire(&BUSY, "ada").cost(2).hold().await.unwrap().into_receipt();
    assert_eq!(usage.decisions().get(0).unwrap().decided_by(), DecidedBy::Lease);
    assert!(usage.refund().await.unwrap());
    assert_eq!(limiter.remaining(&BUSY, "ada").await.unwrap(), left);

    let usage = limiter.acquire(&BUSY, "ada").hold().await.unwrap().into_receipt();
    assert!(usage.settle(3).await.unwrap());
    assert_eq!(limiter.remaining(&BUSY, "ada").await.unwrap(), left - 3);

    // If the lease does not cover the actual cost, the server charges the rest.
    let usage = limiter.acquire(&BUSY, "ada").hold().await.unwrap().into_receipt();
    assert!(usage.settle(60_000).await.unwrap());
    assert_eq!(limiter.remaining(&BUSY, "ada").await.unwrap(), left - 60_003);

    // A charge from a lease cannot be refunded after it has been reported to the server.
    let usage = limiter.acquire(&BUSY, "ada").hold().await.unwrap().into_receipt();
    limiter.shutdown().await.unwrap();
    assert!(!usage.refund().await.unwrap());
    assert_eq!(limiter.remaining(&BUSY, "ada").await.unwrap(), left - 60_004);
}

#[tokio::test]
async fn a_call_is_decided_from_leases_only_if_all_its_charges_have_leases() {
    static OTHER: Policy = Policy::new("other", Quota::token_bucket(1000, DAY).capacity(100_000)).leases();
    static PLAIN: Policy = Policy::new("plain", Quota::token_bucket(1000, DAY));
    let server = Server::start();
    let limiter = limiter(&server).await;
    let calls = [warm_up(&limiter, &BUSY, "ada").await, warm_up(&limiter, &OTHER, "ada").await];
    let both = limiter.try_limit_all([Charge::new(&BUSY, "ada"), Charge::new(&OTHER, "ada")]).await.unwrap();
    assert!(both.iter().all(|decision| decision.decided_by() == DecidedBy::Lease && decision.is_allowed()));
    let mixed = limiter.try_limit_all([Charge::new(&BUSY, "ada"), Charge::new(&PLAIN, "ada")]).await.unwrap();
    assert!(mixed.iter().all(|decision| decision.decided_by() == DecidedBy::Backend && decision.is_allowed()));
    let left = [100_000 - calls[0] - 2, 100_000 - calls[1] - 1];
    let found = [limiter.remaining(&BUSY, "ada").await.unwrap(), limiter.remaining(&OTHER, "ada").await.unwrap()];
    assert_eq!(found, left);
}

/// Eight limiters, each called by four tasks, represent eight processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_limiters_stay_within_the_bound_with_few_script_calls() {
    const RATE: u64 = 4000;
    static HOT: Policy = Policy::new("hot", Quota::token_bucket(RATE, SECOND)).leases();
    let server = Server::start();
    let admitted = Arc::new(Mutex::new(Vec::<Instant>::new()));
    let (begin, time) = (Instant::now(), 5 * SECOND);
    let before = scripts(&server);
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let limiter = limiter(&server).await;
        for _ in 0..4 {
            let (limiter, admitted) = (limiter.clone(), Arc::clone(&admitted));
            tasks.push(tokio::spawn(async move {
                let mut decisions = 0u64;
                while begin.elapsed() < time {
                    let decision = limiter.try_limit(&HOT, "ada").await.unwrap();
                    decisions += 1;
                    if decision.is_allowed() {
                        admitted.lock().unwrap().push(Instant::now());
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                decisions
            }));
        }
    }
    let mut decisions = 0;
    for task in tasks {
        decisions += task.await.unwrap();
    }
    let calls = scripts(&server) - before;
    let admitted = Arc::into_inner(admitted).unwrap().into_inner().unwrap();
    let utilization = admitted.len() as f64 / (RATE as f64 * (1.0 + time.as_secs_f64()));
    println!("{decisions} decisions, {} admitted, utilization {utilization:.3}, {calls} script calls", admitted.len());
    assert!(
        utilization > 0.1 && calls < decisions / 4,
        "the utilization is too low, or there were too many script calls"
    );
    // Each of the 32 tasks might record one call late.
    check_bound(&admitted, RATE as f64 + 32.0, RATE as f64);
}

/// Checks that the number of calls that ended in any interval exceeds the refill by at most `capacity`.
fn check_bound(ends: &[Instant], capacity: f64, rate: f64) {
    let mut ends = ends.to_vec();
    ends.sort();
    // `excess` is the largest excess in any interval that ends at `last`.
    let (mut excess, mut most, mut last) = (0f64, 0f64, ends[0]);
    for end in ends {
        excess = (excess - rate * (end - last).as_secs_f64()).max(0.0) + 1.0;
        (last, most) = (end, most.max(excess));
    }
    println!("the fullest interval has {most} calls beyond the refill, expected at most {capacity}");
    assert!(most <= capacity, "{most} calls beyond the refill, expected at most {capacity}");
}
