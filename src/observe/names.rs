//! The names of [`Metrics`](super::Metrics), and what they are labelled with. They stay as they are.
//!
//! Labels have few values each: a policy's name (`(others)` beyond 512 policies), words that the crate writes, and
//! `limiter` where one is [named](super::Metrics::named).
//!
//! ```
//! use tollgate::observe::names;
//!
//! // For an exporter that wants buckets: `set_buckets_for_metric(.., &names::DURATION_BUCKETS)` of Prometheus', say.
//! assert_eq!((names::DECISION_DURATION, names::DURATION_BUCKETS.len()), ("tollgate_decision_duration_seconds", 16));
//! // For a rule that alerts: too many of these a minute.
//! assert_eq!((names::BACKEND_ERRORS, names::BLOCKS), ("tollgate_backend_errors_total", "tollgate_blocks_total"));
//! assert_eq!((names::DECISIONS, names::CHECKS), ("tollgate_decisions_total", "tollgate_checks_total"));
//! assert_eq!((names::SETTLEMENTS, names::RESETS), ("tollgate_settlements_total", "tollgate_resets_total"));
//! // Set by `Metrics::sample`.
//! for gauge in [names::ROWS, names::WAITING, names::BLOCKED, names::CHANGED_QUOTAS, names::BACKEND_BROKEN] {
//!     assert!(names::ALL.contains(&gauge));
//! }
//! assert_eq!((names::POLICY_ROWS, names::EVICTIONS), ("tollgate_policy_rows", "tollgate_evictions_total"));
//! assert_eq!(names::OVERFLOWED, "tollgate_overflowed_total");
//! ```

/// Counter: charges that were decided. Labels `policy`, `outcome`, `reason`, `decided_by`, and `enforced`: `false` of
/// those in shadow mode, where a denial is not acted on.
///
/// Of requests under one policy it adds up to the requests; under several, each counts once under each. A request that
/// one of them refuses is denied under all: there the `reason` is why, under the others it is `refused_elsewhere`, so
/// leave those out to count refused requests. Not in it:
/// charges that nobody decided (they are in [`BACKEND_ERRORS`]) and those that were only asked for ([`CHECKS`]);
/// requests that no rule limits, or whose key is missing, since nothing was charged.
pub const DECISIONS: &str = "tollgate_decisions_total";

/// Counter: charges that were only asked for. Labels `policy`, `outcome`.
pub const CHECKS: &str = "tollgate_checks_total";

/// Counter: charges, checks included, that the backend could not decide, whether or not somebody else did. Labels
/// `policy`, `kind`.
pub const BACKEND_ERRORS: &str = "tollgate_backend_errors_total";

/// Counter: callers who were blocked in this process.
pub const BLOCKS: &str = "tollgate_blocks_total";

/// Counter: charges that were settled in this process. Labels `policy` and `change`: whether the true cost was `more` than
/// the charge, the `same`, or `less`, or whether all of it was given back (`refund`; cancelled reservations are among
/// these).
pub const SETTLEMENTS: &str = "tollgate_settlements_total";

/// Counter: rows that were reset in this process. Label `policy`.
pub const RESETS: &str = "tollgate_resets_total";

/// Counter: mistakes of the program that requests showed, as [`Stats::mistakes`](crate::limiter::Stats) counts them. Label `kind`:
/// one of [`MistakeKind::as_str`](crate::observe::MistakeKind::as_str). Each is logged once, with what to do, as the event `mistake`
/// of `Tracing`.
pub const MISTAKES: &str = "tollgate_mistakes_total";

/// Histogram, in seconds: the time from the call to the decision, of those in [`DECISIONS`] whose backend is waited for.
/// A backend in this process has no series. Label `policy`.
pub const DECISION_DURATION: &str = "tollgate_decision_duration_seconds";

/// Gauge: rows that the backend holds in this process. Not there if it holds none.
pub const ROWS: &str = "tollgate_rows";

/// Gauge: rows that the backend holds in this process for each policy. Label `policy` (`(others)` for those beyond
/// 1,024).
pub const POLICY_ROWS: &str = "tollgate_policy_rows";

/// Counter: rows that the backend dropped to make room, before they were repaid.
pub const EVICTIONS: &str = "tollgate_evictions_total";

/// Counter: charges of callers without a row of their own, decided on a row that several of them share. When it
/// rises, look at [`POLICY_ROWS`] for the policy that is flooded with keys.
pub const OVERFLOWED: &str = "tollgate_overflowed_total";

/// Gauge: requests that wait for their turns.
pub const WAITING: &str = "tollgate_waiting";

/// Gauge: callers who are blocked.
pub const BLOCKED: &str = "tollgate_blocked";

/// Gauge: quotas that are changed at run time.
pub const CHANGED_QUOTAS: &str = "tollgate_changed_quotas";

/// Gauge: 1 while the backend is out of reach and calls fail at once, else 0. Not there if it cannot be. It stays 0
/// while a server answers, though with errors only, such as a missing permission: alert on [`BACKEND_ERRORS`].
pub const BACKEND_BROKEN: &str = "tollgate_backend_broken";

/// All of these names.
pub const ALL: [&str; 16] = [
    DECISIONS,
    CHECKS,
    BACKEND_ERRORS,
    BLOCKS,
    SETTLEMENTS,
    RESETS,
    MISTAKES,
    DECISION_DURATION,
    ROWS,
    POLICY_ROWS,
    EVICTIONS,
    OVERFLOWED,
    WAITING,
    BLOCKED,
    CHANGED_QUOTAS,
    BACKEND_BROKEN,
];

/// Upper bounds of buckets for [`DECISION_DURATION`], in seconds, for exporters that want some: from the microsecond of
/// a denial that is remembered, by the milliseconds of a network, to the second after which a call is given up.
pub const DURATION_BUCKETS: [f64; 16] =
    [1e-6, 2.5e-6, 1e-5, 2.5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0];
