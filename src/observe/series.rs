//! The series of a policy at an exporter.

use std::sync::OnceLock;

use metrics::{Counter, Histogram, SharedString};

use super::names;
use super::per_policy::GrowingList;
use crate::backend::ErrorKind;
use crate::limiter::{Observed, Outcome};
use crate::policy::{DecidedBy, Reason};

/// The series of a policy. Each is empty as long as there is no exporter that keeps it.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) policy: SharedString,
    pub(super) counters: GrowingList<Count, OnceLock<Counter>>,
    pub(super) duration: OnceLock<Histogram>,
}

impl Series {
    pub(super) fn new(policy: &str) -> Series {
        let policy = SharedString::from(policy.to_owned());
        Series { policy, counters: GrowingList::default(), duration: OnceLock::new() }
    }
}

/// What is counted of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Count {
    Decision { outcome: Outcome, reason: Reason, decided_by: DecidedBy, enforced: bool },
    Check(Outcome),
    Error(ErrorKind),
}

impl Count {
    pub(super) fn of(observed: &Observed<'_>) -> Count {
        let (decision, outcome) = (observed.decision(), observed.outcome());
        if observed.is_check() {
            return Count::Check(outcome);
        }
        let (reason, decided_by) = (decision.reason(), decision.decided_by());
        Count::Decision { outcome, reason, decided_by, enforced: observed.is_enforced() }
    }

    /// The name of its series, and its labels besides that of the policy.
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
        }
    }
}
