//! Replaces tokio in models. A task is a thread, a timeout never elapses, and a sleep only yields.

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::oneshot;

use super::model::thread;

pub(crate) struct Handle;

impl Handle {
    pub(crate) fn current() -> Handle {
        Handle
    }

    pub(crate) fn spawn<F: Future<Output: Send + 'static> + Send + 'static>(
        &self,
        task: F,
    ) -> oneshot::Receiver<F::Output> {
        let (answer, answered) = oneshot::channel();
        thread(move || {
            let _ = answer.send(loom::future::block_on(task));
        });
        answered
    }
}

pub(crate) async fn timeout<F: Future>(_: Duration, future: F) -> Result<F::Output, Infallible> {
    Ok(future.await)
}

pub(crate) async fn sleep(_: Duration) {
    loom::thread::yield_now();
}

pub(crate) async fn yield_now() {
    loom::thread::yield_now();
}
