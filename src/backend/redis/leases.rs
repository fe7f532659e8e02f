//! Leases on Redis, which are handled by the same script as all other operations.

use std::future::Future;
use std::pin::Pin;
use std::sync::Weak;
use std::time::{Duration, Instant};

use super::batch::Action;
use super::{RedisBackend, runtime_ended};
use crate::algorithm::Lease;
use crate::backend::{BackendFuture, LeaseBackend, LeaseHolder, LeaseRequest};
use crate::sync::tasks::sleep;

const TICK: Duration = Duration::from_millis(100);

impl LeaseBackend for RedisBackend {
    fn lease(&self, request: &LeaseRequest<'_>) -> BackendFuture<Lease> {
        let LeaseRequest { row, window, quota, reports, tokens } = *request;
        let action = Action::Lease { row: self.row(&row), window, quota, reports, tokens };
        let sent = self.send(self.slot(row.key), action, Instant::now(), |outcome| outcome.lease);
        BackendFuture::boxed(async move { sent.await?.ok_or_else(runtime_ended) })
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.batcher.runtime.spawn(task);
    }

    fn watch(&self, holder: Weak<dyn LeaseHolder>) {
        self.batcher.runtime.spawn(async move {
            while let Some(holder) = holder.upgrade() {
                holder.tick();
                drop(holder);
                sleep(TICK).await;
            }
        });
    }
}
