//! Tests of the suite with backends that conform and backends that do not.

use std::sync::Arc;

use super::*;
use crate::backend::{Adjustment, BackendFuture, MemoryBackend, OwnedTake};
use crate::clock::{ManualClock, SystemClock};

fn rows() -> (Arc<MemoryBackend>, impl AsyncFn(Duration)) {
    let clock = ManualClock::new();
    let rows = Arc::new(MemoryBackend::builder().clock(clock.clone()).build());
    let pass = move |time| {
        clock.advance(time);
        std::future::ready(())
    };
    (rows, pass)
}

#[tokio::test]
async fn the_memory_backend_conforms_with_a_manual_clock() {
    let (rows, pass) = rows();
    all(&rows, pass).await;
}

#[tokio::test]
async fn the_memory_backend_conforms_in_real_time() {
    let backend = MemoryBackend::builder().clock(SystemClock::new()).build();
    all(&backend, tokio::time::sleep).await;
}

#[tokio::test]
async fn a_backend_that_spawns_tasks_conforms() {
    let rows = Arc::new(MemoryBackend::new());
    all(
        &Deferred { rows, acquires: Execution::Spawned, settles: Execution::Spawned, resets: Execution::Spawned },
        tokio::time::sleep,
    )
    .await;
}

#[tokio::test]
#[should_panic(expected = "expected 1700 spent tokens, found 1000")]
async fn a_backend_that_settles_only_when_awaited_does_not_conform() {
    let rows = Arc::new(MemoryBackend::new());
    all(
        &Deferred { rows, acquires: Execution::Spawned, settles: Execution::WhenAwaited, resets: Execution::Spawned },
        tokio::time::sleep,
    )
    .await;
}

#[tokio::test]
#[should_panic(expected = "expected 0 spent tokens, found 2000")]
async fn a_backend_that_resets_only_when_awaited_does_not_conform() {
    let rows = Arc::new(MemoryBackend::new());
    all(
        &Deferred { rows, acquires: Execution::Spawned, settles: Execution::Spawned, resets: Execution::WhenAwaited },
        tokio::time::sleep,
    )
    .await;
}

#[tokio::test]
#[should_panic(expected = "expected 3000 spent tokens, found 0")]
async fn a_backend_that_charges_at_the_first_poll_does_not_conform() {
    let (rows, pass) = rows();
    all(
        &Deferred { rows, acquires: Execution::WhenAwaited, settles: Execution::Spawned, resets: Execution::Spawned },
        pass,
    )
    .await;
}

/// A backend that runs each operation either in the returned future or in a spawned task.
#[derive(Debug)]
struct Deferred {
    rows: Arc<MemoryBackend>,
    acquires: Execution,
    settles: Execution,
    resets: Execution,
}

#[derive(Clone, Copy, Debug)]
enum Execution {
    WhenAwaited,
    Spawned,
}

impl Execution {
    fn run<T: Send + 'static>(
        self,
        change: impl Future<Output = Result<T, crate::backend::Error>> + Send + 'static,
    ) -> BackendFuture<T> {
        match self {
            Execution::WhenAwaited => BackendFuture::boxed(change),
            Execution::Spawned => {
                let task = tokio::spawn(change);
                BackendFuture::boxed(async { task.await.expect("the task panicked") })
            }
        }
    }
}

impl Backend for Deferred {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        let rows = Arc::clone(&self.rows);
        let owned: Vec<_> = takes.iter().map(OwnedTake::of).collect();
        self.acquires.run(async move { rows.acquire(&owned.iter().map(OwnedTake::take).collect::<Vec<_>>()).await })
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.rows.peek(takes)
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        let rows = Arc::clone(&self.rows);
        let owned =
            |it: &Adjustment<'_>| (it.row.policy.clone(), it.row.key, it.window, it.quota, it.receipt, it.actual);
        let owned: Vec<_> = settlements.iter().map(owned).collect();
        self.settles.run(async move {
            let mut all = true;
            for (policy, key, window, quota, receipt, actual) in owned {
                let row = RowId { policy: &policy, key };
                all &= rows.settle(&[Adjustment { row, window, quota, receipt, actual }]).await?;
            }
            Ok(all)
        })
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        let table = Arc::clone(&self.rows);
        let owned: Vec<_> = rows.iter().map(|row| (row.policy.clone(), row.key)).collect();
        self.resets.run(async move {
            let mut found = 0;
            for (policy, key) in &owned {
                found += table.reset(&[RowId { policy, key: *key }]).await?;
            }
            Ok(found)
        })
    }
}
