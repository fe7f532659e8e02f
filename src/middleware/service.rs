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
use super::cost::Cost;
use super::future::ResponseFuture;
use super::headers::Report;
use super::key::{Extraction, Found, KeyError};
use super::pass::{Charges, Pass};
use super::refusal::{Cause, random_up_to, shadowed};
use super::rule::Prepared;
use super::settle::SettleFn;
use super::shared::{Enforce, Shared};
use super::status::RateLimitStatus;
use crate::algorithm::Ask;
use crate::backend::Error;
use crate::limiter::{Circumstances, DecisionsFuture, Place, Reservation, Settlement};
use crate::policy::{Decision, Decisions, Signals, Subject};

/// A service behind limits. See [`RateLimitLayer`](super::RateLimitLayer).
///
/// Its error is the inner service's: refusals are responses.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{key, Quota, RateLimit, RateLimitLayer, ResponseFuture, MINUTE};
/// use tower::{Layer, Service};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), std::convert::Infallible> {
/// #[derive(Clone)]
/// struct Hello;
///
/// impl Service<Request<()>> for Hello {
///     type Response = Response<http_body_util::Empty<bytes::Bytes>>;
///     type Error = std::convert::Infallible;
///     type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
///
///     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
///         std::task::Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, _: Request<()>) -> Self::Future {
///         std::future::ready(Ok(Response::default()))
///     }
/// }
///
/// let mut limited: RateLimit<Hello> = RateLimitLayer::new(Quota::token_bucket(1, MINUTE), key::global()).layer(Hello);
/// let Hello = limited.get_ref();
/// std::future::poll_fn(|context| limited.poll_ready(context)).await?;
/// let response: ResponseFuture<Hello, ()> = limited.call(Request::new(()));
/// assert_eq!(response.await?.status(), 200);
/// # Ok(())
/// # }
/// ```
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
        let shared = &self.shared;
        let (mut parts, body) = request.into_parts();
        let verdict = shared.decide(&parts, None);
        match verdict {
            Ok(Outcome::Proceed(pass)) if !pass.waits() => {
                let after = pass.apply(&self.shared, &mut parts);
                ResponseFuture::inner(self.inner.call(Request::from_parts(parts, body)), Some(after))
            }
            Ok(Outcome::Proceed(pass)) => {
                // Nobody waits on what the ready instance holds for a call: a permit, a place in a buffer. It goes.
                self.inner = self.inner.clone();
                ResponseFuture::waiting(pass, Arc::clone(&self.shared), self.inner.clone(), parts, body)
            }
            Ok(Outcome::Refuse(cause)) => {
                // As above.
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

/// A verdict that is on its way.
pub(super) type Verdict = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// The rules that limit a request.
pub(super) type Lines = SmallVec<[Line; 2]>;

/// One of them: its number, the number of the policy that applies, whom it counts, what it costs.
pub(super) struct Line {
    pub(super) rule: usize,
    pub(super) policy: usize,
    pub(super) subject: Subject,
    pub(super) cost: u64,
}

/// A rule of which something is still to be found out.
struct Pending {
    rule: usize,
    policy: usize,
    extraction: Extraction,
    /// `None` = the layer's.
    cost: Option<Cost>,
}

impl Shared {
    /// The verdict, if it can be had at once, else the future that brings it.
    #[allow(clippy::result_large_err)] // Both are moved once.
    fn decide(self: &Arc<Self>, parts: &Parts, mut extracted: Option<Extraction>) -> Result<Outcome, Verdict> {
        if self.skip.iter().any(|skip| skip(parts)) {
            return Ok(self.unlimited(Report::Nothing, false));
        }
        let signals = self.signals(parts);
        let common = self.cost.as_ref().map_or(Cost::Now(1), |cost| cost(parts));
        let mut lines = Lines::new();
        let mut rules = self.rules.iter().enumerate().filter_map(|(i, known)| {
            let policy = known.chosen(parts)?;
            let cost = known.cost.as_ref().map(|cost| cost(parts));
            // What was extracted above is the only rule's.
            let extraction = extracted.take().unwrap_or_else(|| known.key.extract(parts));
            Some(Pending { rule: i, policy, extraction, cost })
        });
        while let Some(pending) = rules.next() {
            match (pending.extraction, pending.cost.as_ref().unwrap_or(&common)) {
                (Extraction::Now(Found::Subject(subject)), Cost::Now(cost)) => {
                    lines.push(Line { rule: pending.rule, policy: pending.policy, subject, cost: *cost });
                }
                (Extraction::Now(Found::Skip), _) => {}
                (Extraction::Now(Found::Refuse(error)), _) => return Ok(self.without_key(error, &lines)),
                (extraction, _) => {
                    let pending: Vec<_> = std::iter::once(Pending { extraction, ..pending }).chain(rules).collect();
                    return Err(Arc::clone(self).decide_later(lines, pending, common, signals));
                }
            }
        }
        if lines.is_empty() {
            return Ok(self.unlimited(Report::Nothing, false));
        }
        let (answer, place) = self.ask(&lines, &signals);
        match answer.try_ready() {
            Ok(answer) => Ok(self.outcome(answer, &lines, place)),
            Err(answer) => {
                let shared = Arc::clone(self);
                Err(Box::pin(async move { shared.outcome(answer.await, &lines, place) }))
            }
        }
    }

    fn decide_later(
        self: Arc<Self>,
        mut lines: Lines,
        pending: Vec<Pending>,
        mut common: Cost,
        signals: Signals,
    ) -> Verdict {
        Box::pin(async move {
            for Pending { rule, policy, extraction, cost } in pending {
                let found = match extraction {
                    Extraction::Now(found) => found,
                    Extraction::Later(found) => found.await,
                };
                let subject = match found {
                    Found::Subject(subject) => subject,
                    Found::Skip => continue,
                    Found::Refuse(error) => return self.without_key(error, &lines),
                };
                let cost = match cost {
                    Some(mut own) => own.known().await,
                    None => common.known().await,
                };
                lines.push(Line { rule, policy, subject, cost });
            }
            if lines.is_empty() {
                return self.unlimited(Report::Nothing, false);
            }
            let (answer, place) = self.ask(&lines, &signals);
            self.outcome(answer.await, &lines, place)
        })
    }

    /// Asks the limiter, with a place to wait if there is one.
    fn ask(&self, lines: &Lines, signals: &Signals) -> (DecisionsFuture, Option<Place>) {
        let enforced = self.is_enforced(lines);
        let place = match self.wait {
            Some(_) if enforced => self.limiter.place(),
            _ => None,
        };
        // What is not enforced is decided as if, and nobody waits.
        let wait = self.wait.filter(|_| place.is_some() || !enforced);
        let ask = |cost| wait.map_or(Ask::cost(cost), |wait| Ask::cost(cost).wait_up_to(wait));
        let charges = lines.iter().map(|line| (&self.prepared(line).policy, &line.subject, ask(line.cost)));
        let charges: SmallVec<[_; 4]> = charges.collect();
        (self.limiter.decide(&charges, Circumstances { take: true, enforced, waits: true, signals }), place)
    }

    /// What is known of the caller besides its key, if somebody wants to know.
    pub(super) fn signals(&self, parts: &Parts) -> Signals {
        let mut signals = Signals::new();
        if !self.limiter.wants_signals() {
            return signals;
        }
        let address = match &self.client_ip {
            Some(client_ip) => client_ip.resolve(parts),
            None => self.rules.iter().find_map(|rule| rule.key.address(parts)),
        };
        if let Some(address) = address {
            signals = signals.ip(address);
        }
        if let Some(agent) = parts.headers.get(http::header::USER_AGENT) {
            signals = signals.user_agent(String::from_utf8_lossy(agent.as_bytes()));
        }
        for (name, value) in &self.labels {
            if let Some(value) = value(parts) {
                signals = signals.label(name.clone(), value);
            }
        }
        signals
    }

    fn outcome(&self, answer: Result<Decisions, Error>, lines: &Lines, place: Option<Place>) -> Outcome {
        let enforced = self.is_enforced(lines);
        let decisions = match answer {
            Ok(decisions) => decisions,
            // A limit that is not enforced must not refuse because it cannot be told either.
            Err(_) if !enforced => return self.unlimited(Report::Nothing, false),
            Err(error) => return Outcome::Refuse(Cause::Unavailable(error)),
        };
        let report = match (enforced, decisions.is_allowed()) {
            (true, false) => return Outcome::Refuse(Cause::Denied(decisions)),
            (true, true) => {
                let items = lines.iter().map(|line| &self.prepared(line).items);
                Report::allowed(self.headers, decisions.as_slice(), items)
            }
            (false, true) => Report::Nothing,
            (false, false) => shadowed(self.shadow_header.as_ref()),
        };
        let shadowed = !decisions.is_allowed();
        let status = self.status.then(|| RateLimitStatus::new(decisions.clone(), shadowed));
        let charges = if shadowed {
            self.nothing_charged()
        } else if enforced && !decisions.delay().is_zero() {
            let reservation = Reservation::new(&self.limiter, decisions, || random_up_to(self.wait_jitter));
            Charges::Held(Box::new(reservation), place)
        } else if self.settlement || lines.iter().any(|line| self.settle_of(line.rule).is_some()) {
            Charges::Kept(Settlement::new(&self.limiter, decisions))
        } else {
            Charges::Forgotten
        };
        let rules = match charges {
            Charges::Forgotten => SmallVec::new(),
            // Nothing to settle.
            _ if shadowed => SmallVec::new(),
            _ => lines.iter().map(|line| line.rule).collect(),
        };
        Outcome::Proceed(Pass { report, status, charges, rules })
    }

    /// The verdict on a request of which a rule could not find the key. Where limits are not enforced, that refuses
    /// nobody either.
    fn without_key(&self, error: KeyError, lines: &Lines) -> Outcome {
        if self.is_enforced(lines) {
            Outcome::Refuse(Cause::NoKey(error))
        } else {
            self.unlimited(shadowed(self.shadow_header.as_ref()), true)
        }
    }

    /// On to the service without a decision. A handler that asks for the status, or for the charges, finds none.
    fn unlimited(&self, report: Report, shadowed: bool) -> Outcome {
        let status = self.status.then(|| RateLimitStatus::new(Decisions::from_iter([]), shadowed));
        Outcome::Proceed(Pass { report, status, charges: self.nothing_charged(), rules: SmallVec::new() })
    }

    /// For handlers that ask for their charges.
    fn nothing_charged(&self) -> Charges {
        if self.settlement {
            Charges::Kept(Settlement::new(&self.limiter, Decisions::from_iter([])))
        } else {
            Charges::Forgotten
        }
    }

    /// How a rule settles by the response, if it does.
    pub(super) fn settle_of(&self, rule: usize) -> Option<&SettleFn> {
        self.rules[rule].settle.as_deref().or(self.settle.as_deref())
    }

    pub(super) fn is_enforced(&self, lines: &Lines) -> bool {
        match self.enforce {
            Enforce::Everybody => true,
            Enforce::Nobody => false,
            Enforce::UpTo(seed) => {
                lines.first().is_some_and(|line| self.limiter.digest(line.subject.key()).seed() <= seed)
            }
        }
    }

    /// What was rendered of a decision's policy.
    pub(super) fn prepared_of(&self, decision: &Decision) -> Option<&Prepared> {
        let mut policies = self.rules.iter().flat_map(|rule| rule.policies.iter());
        policies.find(|prepared| prepared.policy.name() == decision.policy())
    }

    pub(super) fn prepared(&self, line: &Line) -> &Prepared {
        &self.rules[line.rule].policies[line.policy]
    }
}
