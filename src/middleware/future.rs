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
use super::decide::{Pass, Verdict};
use super::headers::Report;
use super::on_response::Unsettled;
use super::refusal::{Cause, refuse};
use super::shared::Shared;
use super::soon::Later;
use super::status::RateLimitStatus;
use crate::backend::BackendFuture;
use crate::limiter::{Receipt, Reservation, WaitSlot};

pin_project! {
    /// The future of [`RateLimit`](super::RateLimit): the inner service's response, or a refusal.
    ///
    /// See [`RateLimit`](super::RateLimit) for an example. Polled again after it has answered, it panics, as futures
    /// may.
    pub struct ResponseFuture<S: Service<Request<B>>, B> {
        #[pin]
        pub(super) state: State<S, B>,
    }
}

pin_project! {
    // What is taken when a state is left is `None` from then on.
    #[project = StateProj]
    pub(super) enum State<S: Service<Request<B>>, B> {
        // The verdict is on its way. The service was ready when it was called and is not touched before.
        Deciding { verdict: Later<Verdict>, held: Option<Box<Held<S, B>>> },
        // The turn comes later.
        Waiting { turn: Option<(Box<Reservation>, Option<WaitSlot>)>, held: Option<Box<Held<S, B>>> },
        Inner { #[pin] future: S::Future, report: Report, unsettled: Option<Unsettled> },
        // The response waits until a remote backend has confirmed that its charges are settled: what its receiver does
        // next is to find them done.
        Settling { pending: Vec<BackendFuture<()>>, response: Option<S::Response> },
        Refused { response: Option<Response<Bytes>> },
    }
}

/// A request that is held back, and the service that it is for.
pub(super) struct Held<S, B> {
    pub(super) shared: Arc<Shared>,
    pub(super) service: S,
    pub(super) parts: Parts,
    pub(super) body: B,
}

impl<S: Service<Request<B>> + Clone, B> State<S, B> {
    /// `service` is ready if the request goes on at once.
    pub(super) fn decided(
        verdict: Verdict,
        shared: &Arc<Shared>,
        service: &mut S,
        parts: Parts,
        body: B,
    ) -> State<S, B> {
        match verdict {
            Verdict::Go(pass) => State::inner(pass, service, parts, body),
            Verdict::Wait(reservation, place) => {
                // Not asked whether it is ready before the turn has come: while it waits, it holds no place there.
                let held = Held { shared: Arc::clone(shared), service: service.clone(), parts, body };
                State::Waiting { turn: Some((reservation, place)), held: Some(Box::new(held)) }
            }
            Verdict::Refuse(cause) => State::Refused { response: Some(refuse(&cause, &parts, Some(shared))) },
        }
    }

    fn inner(pass: Pass, service: &mut S, mut parts: Parts, body: B) -> State<S, B> {
        let Pass { report, status, unsettled } = pass;
        // A layer that charged nothing leaves what an outer one put there.
        if let Some(status) = status {
            if !status.decisions().is_empty() || parts.extensions.get::<RateLimitStatus>().is_none() {
                parts.extensions.insert(status);
            }
        }
        if let Some(Unsettled { charges, .. }) = unsettled.as_ref().filter(|unsettled| unsettled.shared.settlement) {
            if !charges.decisions().is_empty() || parts.extensions.get::<Receipt>().is_none() {
                parts.extensions.insert(charges.clone());
            }
        }
        State::Inner { future: service.call(Request::from_parts(parts, body)), report, unsettled }
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
        loop {
            let next = match state.as_mut().project() {
                StateProj::Deciding { verdict, held } => {
                    let verdict = ready!(verdict.as_mut().poll(context));
                    let Held { shared, mut service, parts, body } = *held.take().expect(POLLED_AGAIN);
                    State::decided(verdict, &shared, &mut service, parts, body)
                }
                StateProj::Waiting { turn, held } => {
                    let (reservation, place) = turn.as_mut().expect(POLLED_AGAIN);
                    let service = &mut held.as_mut().expect(POLLED_AGAIN).service;
                    let came = match reservation.poll_turn(context) {
                        Poll::Ready(came) => came,
                        Poll::Pending => {
                            if place.is_none() {
                                // A pause began while the service was asked whether it is ready.
                                *service = service.clone();
                            }
                            return Poll::Pending;
                        }
                    };
                    // Others may wait in its place now.
                    *place = None;
                    let ready = if came.is_ok() { ready!(service.poll_ready(context)) } else { Ok(()) };
                    let (reservation, _) = turn.take().expect(POLLED_AGAIN);
                    let Held { shared, mut service, parts, body } = *held.take().expect(POLLED_AGAIN);
                    // Without an inner service the turn goes back.
                    ready?;
                    match came {
                        Ok(()) => {
                            let pass = shared.pass(reservation.decisions(), true);
                            let unsettled = Some(Unsettled { shared, charges: reservation.into_receipt() });
                            State::inner(Pass { unsettled, ..pass }, &mut service, parts, body)
                        }
                        Err(error) => {
                            State::Refused { response: Some(refuse(&Cause::from(error), &parts, Some(&shared))) }
                        }
                    }
                }
                StateProj::Inner { future, report, unsettled } => {
                    let (parts, body) = ready!(future.poll(context))?.into_parts();
                    let pending = unsettled.as_ref().map(|unsettled| unsettled.settle(&parts)).unwrap_or_default();
                    let mut response = Response::from_parts(parts, body);
                    std::mem::take(report).append_to(response.headers_mut());
                    State::Settling { pending, response: Some(response) }
                }
                StateProj::Settling { pending, response } => {
                    // A backend that cannot settle is no reason to withhold a response.
                    pending.retain_mut(|settled| Pin::new(settled).poll(context).is_pending());
                    if !pending.is_empty() {
                        return Poll::Pending;
                    }
                    let response = response.take().expect(POLLED_AGAIN);
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
            State::Waiting { .. } => "ResponseFuture(waiting)",
            State::Settling { .. } => "ResponseFuture(settling)",
            State::Inner { .. } => "ResponseFuture(inner)",
            State::Refused { .. } => "ResponseFuture(refused)",
        })
    }
}

const POLLED_AGAIN: &str = "tollgate: ResponseFuture was polled after it had answered";
