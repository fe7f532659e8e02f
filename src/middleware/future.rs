//! The response future of a rate-limited service.

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
use super::decide::{Admission, Verdict};
use super::headers::LimitHeaders;
use super::maybe_ready::BoxFuture;
use super::on_response::PendingSettlement;
use super::options::LayerOptions;
use super::refusal::{Cause, refuse};
use super::status::RateLimitStatus;
use crate::backend::BackendFuture;
use crate::limiter::{Receipt, Reservation, WaitSlot};

pin_project! {
    /// The future returned by [`RateLimit`](super::RateLimit). Resolves to the inner response or to a refusal.
    ///
    /// # Panics
    /// Panics if polled after completion.
    pub struct ResponseFuture<S: Service<Request<B>>, B> {
        #[pin]
        pub(super) state: State<S, B>,
    }
}

pin_project! {
    // The values of `Option` fields are taken out when the state changes.
    #[project = StateProj]
    pub(super) enum State<S: Service<Request<B>>, B> {
        // The service is ready and must not be polled again before it is called.
        Deciding { verdict: BoxFuture<Verdict>, held: Option<Box<HeldRequest<S, B>>> },
        Waiting { reservation: Option<(Box<Reservation>, Option<WaitSlot>)>, held: Option<Box<HeldRequest<S, B>>> },
        Inner { #[pin] future: S::Future, limit_headers: LimitHeaders, settlement: Option<PendingSettlement> },
        // Waits until a remote backend confirms the settlement, so that the settlement affects the next request.
        Settling { pending: Vec<BackendFuture<()>>, response: Option<S::Response> },
        Refused { response: Option<Response<Bytes>> },
    }
}

pub(super) struct HeldRequest<S, B> {
    pub(super) options: Arc<LayerOptions>,
    pub(super) service: S,
    pub(super) parts: Parts,
    pub(super) body: B,
}

impl<S: Service<Request<B>> + Clone, B> State<S, B> {
    /// Acts on a verdict. If the verdict is [`Verdict::Admit`], `service` must be ready.
    pub(super) fn decided(
        verdict: Verdict,
        options: &Arc<LayerOptions>,
        service: &mut S,
        parts: Parts,
        body: B,
    ) -> State<S, B> {
        match verdict {
            Verdict::Admit(admission) => State::inner(admission, service, parts, body),
            Verdict::Wait(reservation, slot) => {
                // The clone is polled only when the reservation is due, so a waiting request holds no capacity.
                let held = HeldRequest { options: Arc::clone(options), service: service.clone(), parts, body };
                State::Waiting { reservation: Some((reservation, slot)), held: Some(Box::new(held)) }
            }
            Verdict::Refuse(cause) => State::Refused { response: Some(refuse(&cause, &parts, Some(options))) },
        }
    }

    fn inner(admission: Admission, service: &mut S, mut parts: Parts, body: B) -> State<S, B> {
        let Admission { limit_headers, status, settlement } = admission;
        // If this layer charged nothing, keep the extensions that an outer layer inserted.
        if let Some(status) = status {
            if !status.decisions().is_empty() || parts.extensions.get::<RateLimitStatus>().is_none() {
                parts.extensions.insert(status);
            }
        }
        if let Some(PendingSettlement { receipt, .. }) =
            settlement.as_ref().filter(|settlement| settlement.options.with_receipt)
        {
            if !receipt.decisions().is_empty() || parts.extensions.get::<Receipt>().is_none() {
                parts.extensions.insert(receipt.clone());
            }
        }
        State::Inner { future: service.call(Request::from_parts(parts, body)), limit_headers, settlement }
    }
}

#[allow(clippy::expect_used)] // Futures may panic if polled after completion.
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
                    let HeldRequest { options, mut service, parts, body } = *held.take().expect(POLLED_AGAIN);
                    State::decided(verdict, &options, &mut service, parts, body)
                }
                StateProj::Waiting { reservation: reserved, held } => {
                    let (reservation, slot) = reserved.as_mut().expect(POLLED_AGAIN);
                    let service = &mut held.as_mut().expect(POLLED_AGAIN).service;
                    let due = match reservation.poll_turn(context) {
                        Poll::Ready(due) => due,
                        Poll::Pending => {
                            if slot.is_none() {
                                // The key was paused while the service was being polled. Release the capacity that the
                                // poll reserved.
                                *service = service.clone();
                            }
                            return Poll::Pending;
                        }
                    };
                    *slot = None; // This frees the slot for another request.
                    let ready = if due.is_ok() { ready!(service.poll_ready(context)) } else { Ok(()) };
                    let (reservation, _) = reserved.take().expect(POLLED_AGAIN);
                    let HeldRequest { options, mut service, parts, body } = *held.take().expect(POLLED_AGAIN);
                    ready?; // On an error, the reservation is dropped and thereby canceled.
                    match due {
                        Ok(()) => {
                            let admission = options.admission(reservation.decisions(), true);
                            let settlement = Some(PendingSettlement { options, receipt: reservation.into_receipt() });
                            State::inner(Admission { settlement, ..admission }, &mut service, parts, body)
                        }
                        Err(error) => {
                            State::Refused { response: Some(refuse(&Cause::from(error), &parts, Some(&options))) }
                        }
                    }
                }
                StateProj::Inner { future, limit_headers, settlement } => {
                    let (parts, body) = ready!(future.poll(context))?.into_parts();
                    let pending = settlement.as_ref().map(|settlement| settlement.settle(&parts)).unwrap_or_default();
                    let mut response = Response::from_parts(parts, body);
                    std::mem::take(limit_headers).append_to(response.headers_mut());
                    State::Settling { pending, response: Some(response) }
                }
                StateProj::Settling { pending, response } => {
                    // Errors are ignored, because the response must be sent even if settling fails.
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

const POLLED_AGAIN: &str = "tollgate: `ResponseFuture` polled after completion";
