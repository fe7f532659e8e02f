//! A charge that may have been made is never sent again. Settlements and resets take effect without being awaited.

use std::time::{Duration, Instant};

use tollgate::backend::ErrorKind;

use super::outage::{Application, DEADLINE, LIMIT, SLOW, fresh};
use crate::support::server::{PATIENCE, Server};

/// When a stopped server resumes, it reads the pending commands. A charge that timed out may then be made, but only
/// once. No charge is sent after the breaker has opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timed_out_charge_is_not_sent_again() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    let key = fresh();
    server.signal("STOP");
    let charges: Vec<_> = (0..3)
        .map(|_| {
            let limiter = application.deny.clone();
            tokio::spawn(async move { limiter.try_limit(&SLOW, key).await.unwrap_err().kind() })
        })
        .collect();
    let mut timed_out = 0;
    for charge in charges {
        timed_out += u64::from(charge.await.unwrap() == ErrorKind::Timeout);
    }
    assert!(timed_out > 0);
    for _ in 0..50 {
        let refused = application.deny.try_limit(&SLOW, key).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "the call must fail before it is sent: {refused}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.signal("CONT");
    application.assert_recovers().await;
    let left = application.deny.remaining(&SLOW, key).await.unwrap();
    assert!(
        (LIMIT - timed_out..=LIMIT).contains(&left),
        "{timed_out} charges timed out, but {left} of {LIMIT} tokens are left"
    );
}

/// Regression: a probe held a lock while it connected, so a call that had timed out returned a second late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timed_out_call_does_not_wait_for_the_probe() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    server.signal("STOP");
    let calls: Vec<_> = (0..2u32)
        .map(|i| {
            let limiter = application.deny.clone();
            tokio::spawn(async move {
                tokio::time::sleep(i * DEADLINE * 8 / 10).await;
                let asked = Instant::now();
                limiter.try_limit(&SLOW, 1).await.unwrap_err();
                asked.elapsed()
            })
        })
        .collect();
    // The breaker opens after one deadline. The probe runs before the second call times out, which happens after almost
    // two deadlines.
    let probing = application.deny.clone();
    tokio::spawn(async move {
        tokio::time::sleep(DEADLINE * 12 / 10).await;
        loop {
            let _ = probing.try_check(&SLOW, 2).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    for call in calls {
        let took = call.await.unwrap();
        assert!(took < 2 * DEADLINE, "the call took {took:?}");
    }
    server.signal("CONT");
}

#[tokio::test]
async fn dropped_settlements_and_resets_take_effect() {
    let server = Server::start();
    let application = Application::on(&server.url()).await;
    let (limiter, key) = (&application.deny, fresh());
    let held = limiter.acquire(&SLOW, key).cost(4).hold().await.unwrap();
    drop(limiter.try_acquire(&SLOW, key + 1).cost(4).await.unwrap());
    drop(held);
    drop(limiter.reset(&SLOW, key + 1));
    let begin = Instant::now();
    while limiter.remaining(&SLOW, key).await.unwrap() + limiter.remaining(&SLOW, key + 1).await.unwrap() < 2 * LIMIT {
        assert!(begin.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn calls_fail_after_the_runtime_has_shut_down() {
    let server = Server::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let backend = runtime.block_on(server.backend());
    let limiter = tollgate::RateLimiter::new(backend);
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = other.block_on(async { limiter.try_limit(&SLOW, 1).await }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("runtime"), "{error}");
}
