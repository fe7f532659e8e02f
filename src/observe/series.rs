//! The metric series of a policy.

use std::cmp::Ordering;
use std::sync::OnceLock;

use metrics::{Counter, Histogram, SharedString};

use super::names;
use crate::backend::ErrorKind;
use crate::limiter::observer::{Decided, Outcome, Settled};
use crate::policy::{DecidedBy, Reason};

#[derive(Debug)]
pub(super) struct Series {
    pub(super) policy: SharedString,
    /// The counters for each tier, and those for callers without a tier.
    pub(super) counters: AppendOnlyMap<Option<SharedString>, AppendOnlyMap<Count, OnceLock<Counter>>>,
    pub(super) duration: OnceLock<Histogram>,
}

impl Series {
    pub(super) fn new(policy: &str) -> Series {
        let policy = SharedString::from(policy.to_owned());
        Series { policy, counters: AppendOnlyMap::default(), duration: OnceLock::new() }
    }

    pub(super) fn counters_of(&self, tier: Option<&str>) -> &AppendOnlyMap<Count, OnceLock<Counter>> {
        let is_tier = |known: &Option<SharedString>| known.as_deref() == tier;
        self.counters.find_or_insert(is_tier, || tier.map(|tier| tier.to_owned().into()), AppendOnlyMap::default)
    }
}

#[derive(Debug)]
pub(super) struct AppendOnlyMap<K, V>(OnceLock<Box<Link<K, V>>>);

#[derive(Debug)]
struct Link<K, V> {
    key: K,
    value: V,
    rest: AppendOnlyMap<K, V>,
}

impl<K: Clone + PartialEq, V> AppendOnlyMap<K, V> {
    pub(super) fn get_or_insert(&self, key: &K, make: impl Fn() -> V) -> &V {
        self.find_or_insert(|known| known == key, || key.clone(), make)
    }
}

impl<K, V> AppendOnlyMap<K, V> {
    /// Returns the value of the first matching key. If there is none, inserts `make()` under `key()`, which must match.
    pub(super) fn find_or_insert(&self, matches: impl Fn(&K) -> bool, key: impl Fn() -> K, make: impl Fn() -> V) -> &V {
        let mut map = self;
        loop {
            let new = || Box::new(Link { key: key(), value: make(), rest: AppendOnlyMap::default() });
            let entry = map.0.get_or_init(new);
            if matches(&entry.key) {
                return &entry.value;
            }
            map = &entry.rest;
        }
    }
}

impl<K, V> Default for AppendOnlyMap<K, V> {
    fn default() -> AppendOnlyMap<K, V> {
        AppendOnlyMap(OnceLock::new())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Count {
    Decision { outcome: Outcome, reason: Reason, decided_by: DecidedBy, enforced: bool },
    Check(Outcome),
    Error(ErrorKind),
    Settlement(Change),
    Reset,
    Credit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    More,
    Same,
    Less,
    Refund,
}

impl Change {
    pub(super) fn of(settled: &Settled<'_>) -> Change {
        match settled.actual().cmp(&settled.decision().cost()) {
            Ordering::Greater => Change::More,
            Ordering::Equal => Change::Same,
            Ordering::Less if settled.actual() == 0 => Change::Refund,
            Ordering::Less => Change::Less,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Change::More => "more",
            Change::Same => "same",
            Change::Less => "less",
            Change::Refund => "refund",
        }
    }
}

impl Count {
    pub(super) fn of(observed: &Decided<'_>) -> Count {
        let (decision, outcome) = (observed.decision(), observed.outcome());
        if observed.is_check() {
            return Count::Check(outcome);
        }
        let (reason, decided_by) = (decision.reason(), decision.decided_by());
        Count::Decision { outcome, reason, decided_by, enforced: observed.is_enforced() }
    }

    pub(super) fn name_and_labels(self) -> (&'static str, Vec<(&'static str, SharedString)>) {
        match self {
            Count::Decision { outcome, reason, decided_by, enforced } => {
                let labels = vec![
                    ("outcome", outcome.as_str().into()),
                    ("reason", reason.as_str().into()),
                    ("decided_by", decided_by.as_str().into()),
                    ("enforced", if enforced { "true" } else { "false" }.into()),
                ];
                (names::DECISIONS, labels)
            }
            Count::Check(outcome) => (names::CHECKS, vec![("outcome", outcome.as_str().into())]),
            Count::Error(kind) => (names::BACKEND_ERRORS, vec![("kind", kind.as_str().into())]),
            Count::Settlement(change) => (names::SETTLEMENTS, vec![("change", change.as_str().into())]),
            Count::Reset => (names::RESETS, Vec::new()),
            Count::Credit => (names::CREDITS, Vec::new()),
        }
    }
}
