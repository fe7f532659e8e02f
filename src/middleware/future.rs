//! The response on its way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::RefusalBody;
use super::headers::Report;
use super::layer::Shared;
use super::service::{Outcome, Verdict};

pin_project! {
    /// The future of [`RateLimit`](super::RateLimit): the inner service's response, or a refusal.
    pub struct ResponseFuture<S: Service<Request<B>>, B> {
        #[pin]
        state: State<S, S::Future, B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, B> {
        // The verdict is on its way. The service was ready when it was called and is not touched before.
        Deciding { verdict: Verdict, held: Option<(Arc<Shared>, S, Parts, B)> },
        Inner { #[pin] future: F, report: Option<Report> },
        // `None` once it was returned.
        Refused { response: Option<Response<Bytes>> },
    }
}

impl<S: Service<Request<B>>, B> ResponseFuture<S, B> {
    pub(super) fn deciding(
        verdict: Verdict,
        shared: Arc<Shared>,
        service: S,
        parts: Parts,
        body: B,
    ) -> ResponseFuture<S, B> {
        ResponseFuture { state: State::Deciding { verdict, held: Some((shared, service, parts, body)) } }
    }

    pub(super) fn inner(future: S::Future, report: Report) -> ResponseFuture<S, B> {
        ResponseFuture { state: State::Inner { future, report: Some(report) } }
    }

    pub(super) fn refused(response: Response<Bytes>) -> ResponseFuture<S, B> {
        ResponseFuture { state: State::Refused { response: Some(response) } }
    }
}

#[allow(clippy::expect_used)] // Polling a future that has answered is its caller's mistake, and panics as usual.
impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<RefusalBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Deciding { verdict, held } => {
                    let outcome = ready!(verdict.as_mut().poll(context));
                    let (shared, mut service, mut parts, body) = held.take().expect(POLLED_AGAIN);
                    match outcome {
                        Outcome::Refuse(cause) => State::Refused { response: Some(shared.refuse(&cause, &parts)) },
                        Outcome::Proceed(pass) => {
                            let report = pass.apply(&mut parts);
                            let future = service.call(Request::from_parts(parts, body));
                            State::Inner { future, report: Some(report) }
                        }
                    }
                }
                StateProj::Inner { future, report } => {
                    let mut response = ready!(future.poll(context))?;
                    if let Some(report) = report.take() {
                        report.append_to(response.headers_mut());
                    }
                    return Poll::Ready(Ok(response.map(RefusalBody::inner)));
                }
                StateProj::Refused { response } => {
                    let response = response.take().expect(POLLED_AGAIN);
                    return Poll::Ready(Ok(response.map(RefusalBody::refusal)));
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for ResponseFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Deciding { .. } => "ResponseFuture(deciding)",
            State::Inner { .. } => "ResponseFuture(inner)",
            State::Refused { .. } => "ResponseFuture(refused)",
        })
    }
}

const POLLED_AGAIN: &str = "tollgate: ResponseFuture was polled after it had answered";
