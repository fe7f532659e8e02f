//! A service that enforces Tower's contract.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::Service;

/// A service that panics if it is called before `poll_ready` has returned `Ready`. Clones are not ready, and the first
/// poll of a clone is always pending.
#[derive(Debug, Default)]
pub(crate) struct ContractService {
    readiness: Readiness,
    calls: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Readiness {
    #[default]
    NotReady,
    Pending,
    Ready,
}

impl ContractService {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Clone for ContractService {
    fn clone(&self) -> ContractService {
        ContractService { readiness: Readiness::NotReady, calls: Arc::clone(&self.calls) }
    }
}

impl Service<Request<()>> for ContractService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.readiness == Readiness::NotReady {
            self.readiness = Readiness::Pending;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.readiness = Readiness::Ready;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<()>) -> Self::Future {
        assert_eq!(self.readiness, Readiness::Ready, "the service was called before it was ready");
        self.readiness = Readiness::NotReady;
        self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(Response::new(Full::from("hello")))
        })
    }
}
