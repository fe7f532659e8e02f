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
use super::pass::{After, Pass};
use super::service::{Outcome, Verdict};
use super::settle::Settling;
use super::shared::Shared;

pin_project! {
    /// The future of [`RateLimit`](super::RateLimit): the inner service's response, or a refusal.
    ///
    /// See [`RateLimit`](super::RateLimit) for an example. Polled again after it has answered, it panics, as futures
    /// may.
    pub struct ResponseFuture<S: Service<Request<B>>, B> {
        #[pin]
        state: State<S, S::Future, S::Response, B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, R, B> {
        // The verdict is on its way. The service was ready when it was called and is not touched before.
        // A box, as all that is rare is in one: the usual state is small.
        Deciding { verdict: Verdict, held: Option<Box<(Arc<Shared>, S, Parts, B)>> },
        // The turn comes later. A box, since few have to wait.
        Waiting { waiting: Option<Box<Waiting<S, B>>> },
        Inner { #[pin] future: F, after: Option<After> },
        // The response is there, and a remote backend has not confirmed yet that its charges are settled.
        Settling { settled: Option<Box<(Settling, R, Report)>> },
        // `None` once it was returned.
        Refused { response: Option<Box<Response<Bytes>>> },
    }
}

/// A request that waits for its turn.
struct Waiting<S, B> {
    pass: Pass,
    shared: Arc<Shared>,
    /// Not asked whether it is ready before the turn has come: while it waits, it holds no place there.
    service: S,
    parts: Parts,
    body: B,
}

impl<S, B> Waiting<S, B> {
    /// Until the turn has come and the service is ready.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>>
    where
        S: Service<Request<B>>,
    {
        ready!(self.pass.poll_turn(context));
        self.service.poll_ready(context)
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
        ResponseFuture { state: State::Deciding { verdict, held: Some(Box::new((shared, service, parts, body))) } }
    }

    /// `service` is a clone of which nobody has asked yet whether it is ready.
    pub(super) fn waiting(pass: Pass, shared: Arc<Shared>, service: S, parts: Parts, body: B) -> ResponseFuture<S, B> {
        let waiting = Waiting { pass, shared, service, parts, body };
        ResponseFuture { state: State::Waiting { waiting: Some(Box::new(waiting)) } }
    }

    pub(super) fn inner(future: S::Future, after: Option<After>) -> ResponseFuture<S, B> {
        ResponseFuture { state: State::Inner { future, after } }
    }

    /// The same, with a report and nothing else to be done.
    pub(super) fn telling(future: S::Future, report: Report) -> ResponseFuture<S, B> {
        ResponseFuture::inner(future, Some(After { report, unsettled: None }))
    }

    pub(super) fn refused(response: Response<Bytes>) -> ResponseFuture<S, B> {
        ResponseFuture { state: State::Refused { response: Some(Box::new(response)) } }
    }
}

#[allow(clippy::expect_used)] // Polling a future that has answered is its caller's mistake, and panics as usual.
impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Output = Result<Response<RefusalBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        // Most requests: compiled by itself, the response is moved less often.
        if let StateProj::Inner { future, after: None } = state.as_mut().project() {
            return future.poll(context).map_ok(|response| response.map(RefusalBody::inner));
        }
        if let StateProj::Inner { future, after: Some(After { report, unsettled: None }) } = state.as_mut().project() {
            return future.poll(context).map_ok(|mut response| {
                std::mem::take(report).append_to(response.headers_mut());
                response.map(RefusalBody::inner)
            });
        }
        loop {
            let next = match state.as_mut().project() {
                StateProj::Deciding { verdict, held } => {
                    let outcome = ready!(verdict.as_mut().poll(context));
                    let (shared, mut service, mut parts, body) = *held.take().expect(POLLED_AGAIN);
                    match outcome {
                        Outcome::Refuse(cause) => {
                            State::Refused { response: Some(Box::new(shared.refuse(&cause, &parts))) }
                        }
                        Outcome::Proceed(pass) if pass.waits() => {
                            let service = service.clone();
                            let waiting = Waiting { pass, shared, service, parts, body };
                            State::Waiting { waiting: Some(Box::new(waiting)) }
                        }
                        Outcome::Proceed(pass) => {
                            let after = pass.apply(&shared, &mut parts);
                            let future = service.call(Request::from_parts(parts, body));
                            State::Inner { future, after: Some(after) }
                        }
                    }
                }
                StateProj::Waiting { waiting } => {
                    let ready = ready!(waiting.as_mut().expect(POLLED_AGAIN).poll_turn(context));
                    let Waiting { pass, shared, mut service, mut parts, body, .. } =
                        *waiting.take().expect(POLLED_AGAIN);
                    // Without an inner service the turn goes back.
                    ready?;
                    let after = pass.apply(&shared, &mut parts);
                    State::Inner { future: service.call(Request::from_parts(parts, body)), after: Some(after) }
                }
                StateProj::Inner { future, after } => {
                    let mut response = ready!(future.poll(context))?;
                    let Some(After { report, unsettled }) = after.take() else {
                        return Poll::Ready(Ok(response.map(RefusalBody::inner)));
                    };
                    let Some(unsettled) = unsettled else {
                        report.append_to(response.headers_mut());
                        return Poll::Ready(Ok(response.map(RefusalBody::inner)));
                    };
                    let (parts, body) = response.into_parts();
                    let settling = unsettled.settle(&parts);
                    State::Settling { settled: Some(Box::new((settling, Response::from_parts(parts, body), report))) }
                }
                StateProj::Settling { settled } => {
                    ready!(Pin::new(&mut settled.as_mut().expect(POLLED_AGAIN).0).poll(context));
                    let (_, mut response, report) = *settled.take().expect(POLLED_AGAIN);
                    report.append_to(response.headers_mut());
                    return Poll::Ready(Ok(response.map(RefusalBody::inner)));
                }
                StateProj::Refused { response } => {
                    let response = *response.take().expect(POLLED_AGAIN);
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
            State::Waiting { .. } => "ResponseFuture(waiting)",
            State::Settling { .. } => "ResponseFuture(settling)",
            State::Inner { .. } => "ResponseFuture(inner)",
            State::Refused { .. } => "ResponseFuture(refused)",
        })
    }
}

const POLLED_AGAIN: &str = "tollgate: ResponseFuture was polled after it had answered";
