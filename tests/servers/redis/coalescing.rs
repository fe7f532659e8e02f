//! Requests that are waiting at the same time share a script call. The script decides each of these requests
//! separately, and in order.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tollgate::algorithm::{Ask, ChargeRecord, Verdict};
use tollgate::backend::{Adjustment, Backend, RedisBackend, RowId, Take};
use tollgate::{DAY, Quota, backend::ErrorKind, key::Digest, policy::PolicyName};

use super::rows::with_ask;
use crate::support::cluster_server::{ask, info};
use crate::support::server::{PATIENCE, Server};

static POLICY: PolicyName = PolicyName::new("together");

fn take(key: u128, capacity: u64, cost: u64) -> Take<'static> {
    let quota = Quota::token_bucket(1, DAY).capacity(capacity).max_reserved(10);
    Take::new(RowId { policy: &POLICY, key: Digest::from_bits(key) }, &quota, Ask::cost(cost))
}

pub(crate) fn scripts(server: &Server) -> u64 {
    let stats = info(&mut server.admin(), "commandstats");
    let calls = |line: &str| -> Option<u64> {
        line.strip_prefix("cmdstat_eval")?.split("calls=").nth(1)?.split(',').next()?.parse().ok()
    };
    stats.lines().filter_map(calls).sum()
}

#[tokio::test]
async fn sequential_requests_do_not_share_script_calls() {
    let server = Server::start();
    let backend = server.backend().await;
    backend.acquire(&[take(1, 1000, 1)]).await.unwrap(); // This call sends the script.
    let before = scripts(&server);
    for _ in 0..100 {
        assert!(backend.acquire(&[take(1, 1000, 1)]).await.unwrap().all_granted());
    }
    assert_eq!(scripts(&server) - before, 100);
}

#[tokio::test]
async fn concurrent_requests_share_script_calls() {
    let server = Server::start();
    let backend = server.backend().await;
    let keys = |i: u128| if i % 3 == 0 { i } else { 0 };
    let answers = join_all((0..3000).map(|i| backend.acquire(&[take(keys(i), 100, 1)]))).await;
    let granted = |of: fn(u128) -> bool| {
        let of =
            |(i, answer): (u128, &Result<tollgate::backend::Steps, _>)| of(i) && answer.as_ref().unwrap().all_granted();
        (0..).zip(&answers).filter(|(i, answer)| of((*i, answer))).count()
    };
    assert_eq!(granted(|i| i % 3 == 0 && i > 0), 999, "calls granted for separate keys");
    assert_eq!(granted(|i| i % 3 != 0 || i == 0), 100, "calls granted for the shared key");
    let scripts = scripts(&server);
    assert!(scripts <= 3000 / 20, "{scripts} script calls for 3000 decisions");
}

#[tokio::test]
async fn calls_are_decided_in_order_of_arrival() {
    let server = Server::start();
    let backend = server.backend().await;
    for round in 0..20 {
        let answers = join_all((0..300).map(|_| backend.acquire(&[take(round, 70, 1)]))).await;
        let granted: Vec<bool> = answers.iter().map(|answer| answer.as_ref().unwrap().all_granted()).collect();
        assert_eq!(granted.iter().position(|granted| !granted), Some(70), "round {round}: {granted:?}");
        assert!(!granted[70..].contains(&true), "round {round}: a call was granted after an earlier call was denied");
    }
}

/// A charge sees the settlements and resets that were sent before it, but not those that were sent after it.
#[tokio::test]
async fn settlements_and_resets_take_effect_in_order() {
    let server = Server::start();
    let backend = server.backend().await;
    for round in 0..50 {
        let one = take(round, 3, 3);
        let step = backend.acquire(&[one]).await.unwrap()[0];
        let receipt = ChargeRecord::new(3, &step).unwrap();
        let denied = backend.acquire(&[one]);
        let settled = backend.settle(&[Adjustment { row: one.row, window: 0, quota: one.quota, receipt, actual: 0 }]);
        let granted = backend.acquire(&[one]);
        let denied_again = backend.acquire(&[one]);
        let reset = backend.reset(&[one.row]);
        let granted_again = backend.acquire(&[one]);
        settled.await.unwrap();
        reset.await.unwrap();
        let answers = [denied.await, granted.await, denied_again.await, granted_again.await];
        assert_eq!(answers.map(|answer| answer.unwrap().all_granted()), [false, true, false, true]);
    }
}

/// Within one script call, each reservation is due later than the one before it.
#[tokio::test]
async fn reservations_are_made_in_order() {
    let server = Server::start();
    let backend = server.backend().await;
    let one = take(1, 1, 1);
    let one = with_ask(one, one.ask.reserve());
    let answers = join_all((0..12).map(|_| backend.acquire(&[one]))).await;
    let waits: Vec<u64> = answers
        .iter()
        .map(|answer| match answer.as_ref().unwrap()[0].verdict {
            Verdict::Allow => 0,
            Verdict::Reserve { wait } => (wait.as_secs_f64() / DAY.as_secs_f64()).round() as u64,
            Verdict::Deny { .. } => u64::MAX,
        })
        .collect();
    assert_eq!(waits, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, u64::MAX]);
}

#[tokio::test]
async fn settlements_and_resets_run_without_being_awaited() {
    let server = Server::start();
    let backend = server.backend().await;
    let (one, other) = (take(1, 10, 4), take(2, 10, 4));
    let step = backend.acquire(&[one]).await.unwrap()[0];
    assert!(backend.acquire(&[other]).await.unwrap().all_granted());
    let receipt = ChargeRecord::new(4, &step).unwrap();
    drop(backend.settle(&[Adjustment { row: one.row, window: 0, quota: one.quota, receipt, actual: 1 }]));
    drop(backend.reset(&[other.row]));
    let peeks = [one, other].map(|take| with_ask(take, take.ask.for_cost(0)));
    let steps = backend.peek(&peeks).await.unwrap();
    assert_eq!([steps[0].state.spent, steps[1].state.spent], [1.0, 0.0]);
}

/// Even if the server cannot keep up with the callers, every call completes within the deadline. Of the
/// calls that fail, only those that timed out may have been charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_a_long_queue_complete_within_the_deadline() {
    const DEADLINE: Duration = Duration::from_millis(300);
    let server = Server::start();
    let backend = RedisBackend::builder().deadline(DEADLINE).connect(&server.url()).await.unwrap();
    backend.acquire(&[take(1, 100_000, 1)]).await.unwrap();
    // Delay all write commands on the server, including scripts.
    ask::<()>(&mut server.admin(), &["CLIENT", "PAUSE", "2000", "WRITE"]);
    let begin = Instant::now();
    let answers = join_all((0..5000).map(|_| backend.acquire(&[take(1, 100_000, 1)]))).await;
    let took = begin.elapsed();
    // If the calls waited for the server one after another, the queue would take minutes to drain.
    assert!(took < PATIENCE, "{took:?}");
    let sure = answers.iter().filter(|answer| answer.is_ok()).count();
    let errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    assert!(errors.iter().all(|error| matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable)));
    let unknown = errors.iter().filter(|error| error.kind() == ErrorKind::Timeout).count();
    assert!(unknown <= 2 * 128, "{unknown} calls timed out, so more than two script calls were in flight");
    ask::<()>(&mut server.admin(), &["CLIENT", "UNPAUSE"]);
    let peek = with_ask(take(1, 100_000, 1), Ask::cost(0));
    let spent = loop {
        match backend.peek(&[peek]).await {
            Ok(steps) => break steps[0].state.spent as usize,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert!(
        (1 + sure..=1 + sure + unknown).contains(&spent),
        "{spent} tokens were spent, but {sure} calls succeeded and {unknown} calls timed out"
    );
}
