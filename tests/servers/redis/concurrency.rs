//! Concurrent callers during failures. The callers never exceed the quota, and no call exceeds the deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::cmd;
use tollgate::backend::{ErrorKind, RedisBackend};
use tollgate::{HOUR, Policy, Quota, RateLimiter};

use super::outage::{Application, SLOW, fresh};
use crate::support::server::{PATIENCE, Server};

const TOKENS: u64 = 1000;
static TOLL: Policy = Policy::new("toll", Quota::token_bucket(1, HOUR).capacity(TOKENS));

/// Runs eight callers until the quota is spent. Returns the numbers of admitted and failed calls.
async fn spend(limiter: &RateLimiter) -> (u64, u64) {
    let key = fresh();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let (mut admitted, mut failed) = (0, 0);
                loop {
                    match limiter.try_limit(&TOLL, key).await {
                        Ok(decision) if decision.is_allowed() => admitted += 1,
                        Ok(_) => return (admitted, failed),
                        Err(error) => {
                            failed += 1;
                            assert!(failed < 2000, "{error}");
                            tokio::time::sleep(Duration::from_millis(2)).await;
                        }
                    }
                }
            })
        })
        .collect();
    let (mut admitted, mut failed) = (0, 0);
    for caller in callers {
        let caller = caller.await.unwrap();
        (admitted, failed) = (admitted + caller.0, failed + caller.1);
    }
    (admitted, failed)
}

fn run_repeatedly(server: &Server, pause: Duration, what: &'static [&'static str], done: &Arc<AtomicBool>) {
    let (mut admin, done) = (server.admin(), Arc::clone(done));
    std::thread::spawn(move || {
        while !done.load(Ordering::Relaxed) {
            cmd(what[0]).arg(&what[1..]).exec(&mut admin).unwrap();
            std::thread::sleep(pause);
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_succeed_despite_script_flushes() {
    let server = Server::start();
    let limiter = RateLimiter::new(server.backend().await);
    let done = Arc::new(AtomicBool::new(false));
    run_repeatedly(&server, Duration::from_micros(200), &["SCRIPT", "FLUSH"], &done);
    assert_eq!(spend(&limiter).await, (TOKENS, 0));
    done.store(true, Ordering::Relaxed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_stay_within_the_quota_if_connections_are_killed() {
    let server = Server::start();
    let backend = RedisBackend::builder().deadline(PATIENCE).connect(&server.url()).await.unwrap();
    let limiter = RateLimiter::new(backend);
    let done = Arc::new(AtomicBool::new(false));
    run_repeatedly(&server, Duration::from_millis(10), &["CLIENT", "KILL", "TYPE", "normal"], &done);
    let (admitted, failed) = spend(&limiter).await;
    done.store(true, Ordering::Relaxed);
    // Failed calls may have been charged.
    assert!(
        failed > 0 && (TOKENS.saturating_sub(failed)..=TOKENS).contains(&admitted),
        "{admitted} calls were admitted, {failed} failed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_to_a_stopped_server_fail_within_the_deadline() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    server.signal("STOP");
    let begin = Instant::now();
    let callers: Vec<_> = (0..5000)
        .map(|key| {
            let limiter = application.deny.clone();
            tokio::spawn(async move {
                let error = limiter.try_limit(&SLOW, key).await.unwrap_err();
                (error.kind(), begin.elapsed())
            })
        })
        .collect();
    let (mut slowest, mut sent) = (Duration::ZERO, 0);
    for caller in callers {
        let (kind, took) = caller.await.unwrap();
        slowest = slowest.max(took);
        sent += usize::from(kind == ErrorKind::Timeout);
    }
    assert!(slowest < PATIENCE, "the slowest call took {slowest:?}");
    assert!(sent > 0);
    server.signal("CONT");
    application.assert_recovers().await;
    // Only the operations in the two script calls that were in flight can have been charged.
    let rows: usize = cmd("DBSIZE").query(&mut server.admin()).unwrap();
    assert!(rows < 200, "{rows} rows were charged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_succeed_despite_pauses_shorter_than_the_deadline() {
    let server = Server::start();
    let limiter = RateLimiter::new(RedisBackend::builder().deadline(PATIENCE).connect(&server.url()).await.unwrap());
    let spending = tokio::spawn(async move { spend(&limiter).await });
    for _ in 0..3 {
        server.signal("STOP");
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.signal("CONT");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(spending.await.unwrap(), (TOKENS, 0));
}

/// The backend does not reconnect after it loses a connection that the user provided.
#[tokio::test]
async fn a_limiter_with_a_user_provided_connection_admits_exactly_the_quota() {
    let server = Server::start();
    let client = redis::Client::open(server.url()).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let limiter = RateLimiter::new(RedisBackend::builder().deadline(PATIENCE).connection(connection));
    assert_eq!(spend(&limiter).await, (TOKENS, 0));
    cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut server.admin()).unwrap();
    for _ in 0..10 {
        assert_eq!(limiter.try_limit(&SLOW, 1).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
}
