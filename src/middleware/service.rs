//! The service: decides, then calls the inner one or refuses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use smallvec::SmallVec;
use tower_service::Service;

use super::future::ResponseFuture;
use super::headers::Report;
use super::key::{Extraction, KeyError};
use super::layer::Shared;
use super::problem;
use super::refusal::RefusalBody;
use super::status::RateLimitStatus;
use crate::algorithm::Ask;
use crate::backend::Error;
use crate::policy::{Decisions, Policy, Subject};

/// A service behind limits. See [`RateLimitLayer`](super::RateLimitLayer).
///
/// Its error is the inner service's: refusals are responses.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, shared: Arc<Shared>) -> RateLimit<S> {
        RateLimit { inner, shared }
    }

    /// The service behind the limits.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<RefusalBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        let (mut parts, body) = request.into_parts();
        match self.shared.decide(&parts) {
            Ok(Outcome::Proceed(pass)) => {
                let report = pass.apply(&mut parts);
                ResponseFuture::inner(self.inner.call(Request::from_parts(parts, body)), report)
            }
            Ok(Outcome::Refuse(response)) => ResponseFuture::refused(response),
            Err(verdict) => {
                // The service that was polled ready is the one to call; its clone may not be ready yet.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                ResponseFuture::deciding(verdict, ready, parts, body)
            }
        }
    }
}

/// The verdict on a request.
pub(super) enum Outcome {
    Proceed(Pass),
    Refuse(Response<Bytes>),
}

/// What a request that may go on takes with it.
pub(super) struct Pass {
    report: Report,
    status: Option<RateLimitStatus>,
}

impl Pass {
    /// Equips the request; returns what its response will be told.
    pub(super) fn apply(self, parts: &mut Parts) -> Report {
        if let Some(status) = self.status {
            parts.extensions.insert(status);
        }
        self.report
    }
}

/// A verdict that is on its way.
pub(super) type Verdict = Pin<Box<dyn Future<Output = Outcome> + Send>>;

type Subjects = SmallVec<[Subject; 2]>;

impl Shared {
    /// The verdict, if it can be had at once, else the future that brings it.
    fn decide(self: &Arc<Self>, parts: &Parts) -> Result<Outcome, Verdict> {
        let cost = self.cost.as_ref().map_or(1, |cost| cost(parts));
        let mut subjects = Subjects::new();
        for (i, rule) in self.rules.iter().enumerate() {
            match rule.key.extract(parts) {
                Extraction::Now(Ok(subject)) => subjects.push(subject),
                Extraction::Now(Err(error)) => return Ok(Outcome::Refuse(problem::no_key(&error))),
                first @ Extraction::Later(_) => {
                    let rest = self.rules[i + 1..].iter().map(|rule| rule.key.extract(parts));
                    let pending: Vec<_> = std::iter::once(first).chain(rest).collect();
                    return Err(Arc::clone(self).decide_later(subjects, pending, cost));
                }
            }
        }
        match self.limiter.decide(self.lines(&subjects, cost), true).try_ready() {
            Ok(answer) => Ok(self.outcome(answer)),
            Err(answer) => {
                let shared = Arc::clone(self);
                Err(Box::pin(async move { shared.outcome(answer.await) }))
            }
        }
    }

    fn decide_later(self: Arc<Self>, mut subjects: Subjects, pending: Vec<Extraction>, cost: u64) -> Verdict {
        Box::pin(async move {
            for extraction in pending {
                match subject(extraction).await {
                    Ok(subject) => subjects.push(subject),
                    Err(error) => return Outcome::Refuse(problem::no_key(&error)),
                }
            }
            let answer = self.limiter.decide(self.lines(&subjects, cost), true);
            self.outcome(answer.await)
        })
    }

    fn lines<'a>(&'a self, subjects: &'a Subjects, cost: u64) -> impl Iterator<Item = (&'a Policy, &'a Subject, Ask)> {
        self.rules.iter().zip(subjects).map(move |(rule, subject)| (&rule.policy, subject, Ask::cost(cost)))
    }

    fn outcome(&self, answer: Result<Decisions, Error>) -> Outcome {
        match answer {
            Ok(decisions) if decisions.is_allowed() => Outcome::Proceed(Pass {
                report: if self.headers {
                    Report::allowed(&decisions, self.rules.iter().map(|rule| &rule.header))
                } else {
                    Report::default()
                },
                status: self.status.then(|| RateLimitStatus::new(decisions)),
            }),
            Ok(decisions) => Outcome::Refuse(problem::denied(&decisions, self.headers)),
            Err(error) => {
                let policies = self.rules.iter().map(|rule| rule.policy.name());
                Outcome::Refuse(problem::unavailable(policies, &error))
            }
        }
    }
}

async fn subject(extraction: Extraction) -> Result<Subject, KeyError> {
    match extraction {
        Extraction::Now(answer) => answer,
        Extraction::Later(answer) => answer.await,
    }
}
