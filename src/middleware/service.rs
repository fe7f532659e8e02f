//! The service: decides, then calls the inner one or refuses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response};
use smallvec::SmallVec;
use tower_service::Service;

use super::body::RefusalBody;
use super::future::ResponseFuture;
use super::headers::Report;
use super::key::{Extraction, Found, KeyError};
use super::layer::{Enforce, Shared};
use super::refusal::{Cause, shadowed};
use super::rule::Prepared;
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
            Ok(Outcome::Refuse(cause)) => {
                // With the instance that was ready goes what it holds for a call: a permit, a place in a buffer.
                self.inner = self.inner.clone();
                ResponseFuture::refused(self.shared.refuse(&cause, &parts))
            }
            Err(verdict) => {
                // The service that was polled ready is the one to call; its clone may not be ready yet.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                ResponseFuture::deciding(verdict, Arc::clone(&self.shared), ready, parts, body)
            }
        }
    }
}

/// The verdict on a request.
#[allow(clippy::large_enum_variant)] // Moved once or twice; a box would be an allocation for each request.
pub(super) enum Outcome {
    Proceed(Pass),
    Refuse(Cause),
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

/// The rules that limit a request: their number, the number of the policy that applies, and whom it counts.
type Lines = SmallVec<[(usize, usize, Subject); 2]>;

impl Shared {
    /// The verdict, if it can be had at once, else the future that brings it.
    #[allow(clippy::result_large_err)] // Both are moved once.
    fn decide(self: &Arc<Self>, parts: &Parts) -> Result<Outcome, Verdict> {
        if self.skip.iter().any(|skip| skip(parts)) {
            return Ok(self.unlimited(Report::default(), false));
        }
        let cost = self.cost.as_ref().map_or(1, |cost| cost(parts));
        let mut lines = Lines::new();
        let mut rules = self
            .rules
            .iter()
            .enumerate()
            .filter_map(|(i, rule)| Some((i, rule.chosen(parts)?, rule.key.extract(parts))));
        while let Some((rule, policy, extraction)) = rules.next() {
            match extraction {
                Extraction::Now(Found::Subject(subject)) => lines.push((rule, policy, subject)),
                Extraction::Now(Found::Skip) => {}
                Extraction::Now(Found::Refuse(error)) => return Ok(self.without_key(error, &lines)),
                later @ Extraction::Later(_) => {
                    let pending: Vec<_> = std::iter::once((rule, policy, later)).chain(rules).collect();
                    return Err(Arc::clone(self).decide_later(lines, pending, cost));
                }
            }
        }
        if lines.is_empty() {
            return Ok(self.unlimited(Report::default(), false));
        }
        match self.limiter.decide(self.charges(&lines, cost), true).try_ready() {
            Ok(answer) => Ok(self.outcome(answer, &lines)),
            Err(answer) => {
                let shared = Arc::clone(self);
                Err(Box::pin(async move { shared.outcome(answer.await, &lines) }))
            }
        }
    }

    fn decide_later(self: Arc<Self>, mut lines: Lines, pending: Vec<(usize, usize, Extraction)>, cost: u64) -> Verdict {
        Box::pin(async move {
            for (rule, policy, extraction) in pending {
                let found = match extraction {
                    Extraction::Now(found) => found,
                    Extraction::Later(found) => found.await,
                };
                match found {
                    Found::Subject(subject) => lines.push((rule, policy, subject)),
                    Found::Skip => {}
                    Found::Refuse(error) => return self.without_key(error, &lines),
                }
            }
            if lines.is_empty() {
                return self.unlimited(Report::default(), false);
            }
            let answer = self.limiter.decide(self.charges(&lines, cost), true).await;
            self.outcome(answer, &lines)
        })
    }

    fn outcome(&self, answer: Result<Decisions, Error>, lines: &Lines) -> Outcome {
        let decisions = match answer {
            Ok(decisions) => decisions,
            // A limit that is not enforced must not refuse because it cannot be told either.
            Err(_) if !self.is_enforced(lines) => return self.unlimited(Report::default(), false),
            Err(error) => return Outcome::Refuse(Cause::Unavailable(error)),
        };
        let report = match (self.is_enforced(lines), decisions.is_allowed()) {
            (true, false) => return Outcome::Refuse(Cause::Denied(decisions)),
            (true, true) => {
                let headers = lines.iter().map(|line| &self.prepared(line).header);
                Report::allowed(self.headers, &decisions, headers)
            }
            (false, true) => Report::default(),
            (false, false) => shadowed(self.shadow_header.as_ref()),
        };
        let shadowed = !decisions.is_allowed();
        Outcome::Proceed(Pass { report, status: self.status.then(|| RateLimitStatus::new(decisions, shadowed)) })
    }

    /// The verdict on a request of which a rule could not find the key. Where limits are not enforced, that refuses nobody
    /// either.
    fn without_key(&self, error: KeyError, lines: &Lines) -> Outcome {
        if self.is_enforced(lines) {
            Outcome::Refuse(Cause::NoKey(error))
        } else {
            self.unlimited(shadowed(self.shadow_header.as_ref()), true)
        }
    }

    /// On to the service without a decision. A handler that asks for the status finds an empty one.
    fn unlimited(&self, report: Report, shadowed: bool) -> Outcome {
        let status = self.status.then(|| RateLimitStatus::new(Decisions::from_iter([]), shadowed));
        Outcome::Proceed(Pass { report, status })
    }

    fn is_enforced(&self, lines: &Lines) -> bool {
        match self.enforce {
            Enforce::Everybody => true,
            Enforce::Nobody => false,
            Enforce::UpTo(seed) => {
                lines.first().is_some_and(|(_, _, subject)| self.limiter.digest(subject.key()).seed() <= seed)
            }
        }
    }

    fn charges<'a>(&'a self, lines: &'a Lines, cost: u64) -> impl Iterator<Item = (&'a Policy, &'a Subject, Ask)> {
        lines.iter().map(move |line| (&self.prepared(line).policy, &line.2, Ask::cost(cost)))
    }

    fn prepared(&self, (rule, policy, _): &(usize, usize, Subject)) -> &Prepared {
        &self.rules[*rule].policies[*policy]
    }
}
