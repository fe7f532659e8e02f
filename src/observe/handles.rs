//! Series of an exporter, each looked up once.

use std::fmt;
use std::sync::OnceLock;

use metrics::{Counter, Histogram, Key, Label, Level, Metadata, Recorder, SharedString, with_recorder};

use super::names;
use crate::backend::ErrorKind;
use crate::limiter::{Observed, Outcome};
use crate::policy::{DecidedBy, Reason};

/// The series of a policy, each made when it is first written to.
pub(super) struct Handles {
    limiter: Option<SharedString>,
    policy: SharedString,
    decisions: Box<[[Place; WAYS]; REASONS]>,
    checks: [Place; OUTCOMES],
    errors: [Place; KINDS],
    duration: Handle<Histogram>,
}

/// Most of them stay empty.
type Place = OnceLock<Box<Handle<Counter>>>;

impl Handles {
    pub(super) fn new(limiter: Option<&SharedString>, policy: &str) -> Handles {
        let policy = SharedString::from(policy.to_owned());
        Handles {
            duration: Handle::new(names::DECISION_DURATION, limiter, [Label::new("policy", policy.clone())]),
            limiter: limiter.cloned(),
            policy,
            decisions: Box::new([const { [const { OnceLock::new() }; WAYS] }; REASONS]),
            checks: [const { OnceLock::new() }; OUTCOMES],
            errors: [const { OnceLock::new() }; KINDS],
        }
    }

    pub(super) fn decisions(&self, observed: &Observed<'_>) -> &Handle<Counter> {
        let decision = observed.decision();
        let (outcome, enforced) = (observed.outcome(), observed.is_enforced());
        let way = (decided_by(decision.decided_by()) * OUTCOMES + self::outcome(outcome)) * 2 + usize::from(enforced);
        self.decisions[reason(decision.reason())][way].get_or_init(|| {
            let labels = [
                ("outcome", outcome.as_str()),
                ("reason", decision.reason().as_str()),
                ("decided_by", decision.decided_by().as_str()),
                ("enforced", if enforced { "true" } else { "false" }),
            ];
            self.counter(names::DECISIONS, &labels)
        })
    }

    pub(super) fn checks(&self, outcome: Outcome) -> &Handle<Counter> {
        self.checks[self::outcome(outcome)]
            .get_or_init(|| self.counter(names::CHECKS, &[("outcome", outcome.as_str())]))
    }

    pub(super) fn errors(&self, kind: ErrorKind) -> &Handle<Counter> {
        self.errors[self::kind(kind)].get_or_init(|| self.counter(names::BACKEND_ERRORS, &[("kind", kind.as_str())]))
    }

    pub(super) const fn duration(&self) -> &Handle<Histogram> {
        &self.duration
    }

    fn counter(&self, name: &'static str, labels: &[(&'static str, &'static str)]) -> Box<Handle<Counter>> {
        let policy = Label::new("policy", self.policy.clone());
        let labels = labels.iter().map(|(key, value)| Label::from_static_parts(key, value));
        Box::new(Handle::new(name, self.limiter.as_ref(), std::iter::once(policy).chain(labels)))
    }
}

/// One series.
pub(super) struct Handle<H> {
    key: Key,
    /// `None` as long as there is no recorder that keeps it.
    known: OnceLock<H>,
}

impl<H> Handle<H> {
    pub(super) fn new(
        name: &'static str,
        limiter: Option<&SharedString>,
        labels: impl IntoIterator<Item = Label>,
    ) -> Handle<H> {
        let limiter = limiter.map(|limiter| Label::new("limiter", limiter.clone()));
        let labels: Vec<Label> = limiter.into_iter().chain(labels).collect();
        Handle { key: Key::from_parts(name, labels), known: OnceLock::new() }
    }

    pub(super) const fn key(&self) -> &Key {
        &self.key
    }

    /// Writes to the series.
    pub(super) fn with(&self, keep: bool, register: impl FnOnce(&dyn Recorder, &Key) -> H, write: impl FnOnce(&H)) {
        if let Some(known) = self.known.get() {
            return write(known);
        }
        with_recorder(|recorder| {
            let handle = register(recorder, &self.key);
            write(&handle);
            if keep && is_installed(recorder) {
                let _ = self.known.set(handle);
            }
        });
    }
}

/// Whether this is not the recorder that stands in for none, so that what it hands out is worth keeping: that one has
/// no size. (One of an exporter's without a size would be asked each time.)
pub(super) fn is_installed(recorder: &dyn Recorder) -> bool {
    size_of_val(recorder) > 0
}

/// Of all of them.
pub(super) const METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, Some(module_path!()));

const OUTCOMES: usize = 3;

const fn outcome(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Allowed => 0,
        Outcome::Reserved => 1,
        Outcome::Denied => OUTCOMES - 1,
    }
}

const REASONS: usize = 9;

const fn reason(reason: Reason) -> usize {
    match reason {
        Reason::WithinQuota => 0,
        Reason::Reserved => 1,
        Reason::Unseen => 2,
        Reason::QuotaExceeded => 3,
        Reason::CostTooLarge => 4,
        Reason::WaitTooLong => 5,
        Reason::RefusedElsewhere => 6,
        Reason::DenyList => 7,
        Reason::Blocked => REASONS - 1,
    }
}

/// By whom, with what outcome, and whether it is acted on.
const WAYS: usize = 5 * OUTCOMES * 2;

const fn decided_by(decided_by: DecidedBy) -> usize {
    match decided_by {
        DecidedBy::Backend => 0,
        DecidedBy::Fallback => 1,
        DecidedBy::Nobody => 2,
        DecidedBy::Limiter => 3,
        DecidedBy::BlockCache => 4,
    }
}

const KINDS: usize = 4;

const fn kind(kind: ErrorKind) -> usize {
    match kind {
        ErrorKind::Protocol => 0,
        ErrorKind::Timeout => 1,
        ErrorKind::Unavailable => 2,
        ErrorKind::Unsupported => KINDS - 1,
    }
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handles").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<H> fmt::Debug for Handle<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.key).finish()
    }
}
