//! The names and labels of [`Metrics`](super::Metrics). They are stable.
//!
//! The values of labels are policy names (or `(others)` for policies after the first 512), tier names (or `(others)`
//! for tiers after the first 64), fixed words, and the name of a [named](super::Metrics::named) limiter.
//!
//! ```
//! use tollgate::observe::names;
//! // For an exporter with buckets, such as Prometheus: `set_buckets_for_metric(.., &names::DURATION_BUCKETS)`.
//! assert_eq!((names::DECISION_DURATION, names::DURATION_BUCKETS.len()), ("tollgate_decision_duration_seconds", 16));
//! assert_eq!((names::DECISIONS, names::ALL.len()), ("tollgate_decisions_total", 17));
//! ```

/// Counter: decided charges. Labels: `policy`, `outcome`, `reason`, `decided_by`, and `enforced`. In shadow mode,
/// denials are ignored and `enforced` is `false`, so `{outcome="denied",enforced="false"}` counts the ignored denials.
/// For callers with one of the policy's tiers, there is also the label `tier`; for other callers, this label is absent.
///
/// A request under several policies is counted once under each policy. If one of the policies denies the request, a
/// denial is counted under each of them. The `reason` is `refused_elsewhere` under the policies that did not deny the
/// request. To count refused requests, exclude `refused_elsewhere`. Undecided charges ([`BACKEND_ERRORS`]), checks
/// ([`CHECKS`]), and requests without a rule or a key are not counted.
pub const DECISIONS: &str = "tollgate_decisions_total";

/// Counter: checks, which decide without charging. Labels: `policy`, `outcome` and, for callers with one of the
/// policy's tiers, `tier`.
pub const CHECKS: &str = "tollgate_checks_total";

/// Counter: charges and checks that the backend could not decide, including charges that the fallback decided instead.
/// Labels: `policy`, `kind`.
pub const BACKEND_ERRORS: &str = "tollgate_backend_errors_total";

/// Counter: automatic and manual blocks made by this process.
pub const BLOCKS: &str = "tollgate_blocks_total";

/// Counter: charges settled in this process. Labels: `policy` and `change`. The change is `more`, `same` or `less`,
/// depending on how the actual cost compares with the charge, or `refund` if the actual cost is 0, as for canceled
/// reservations.
pub const SETTLEMENTS: &str = "tollgate_settlements_total";

/// Counter: rows and whole policies reset in this process. Label: `policy`.
pub const RESETS: &str = "tollgate_resets_total";

/// Counter: credits granted by this process, regardless of the number of tokens. Label: `policy`.
pub const CREDITS: &str = "tollgate_credits_total";

/// Counter: programming mistakes detected while requests were handled, as in
/// [`Stats::mistakes`](crate::limiter::Stats). Label: `kind`, which is the value of
/// [`MistakeKind::as_str`](crate::observe::MistakeKind::as_str).
pub const MISTAKES: &str = "tollgate_mistakes_total";

/// Histogram: seconds from the call to the decision, for the [`DECISIONS`] of a remote backend. There are no series for
/// a backend in this process. Label: `policy`.
pub const DECISION_DURATION: &str = "tollgate_decision_duration_seconds";

/// Gauge: rows that the backend holds in this process. Not reported for a remote backend.
pub const ROWS: &str = "tollgate_rows";

/// Gauge: rows that the backend holds in this process for each policy. Label: `policy`, which is `(others)` for
/// policies after the first 1,024.
pub const POLICY_ROWS: &str = "tollgate_policy_rows";

/// Counter: rows evicted before they expired.
pub const EVICTIONS: &str = "tollgate_evictions_total";

/// Counter: charges made to a row that several keys share because the table was full. If this counter rises, look in
/// [`POLICY_ROWS`] for the policy that is being flooded with keys.
pub const OVERFLOWED: &str = "tollgate_overflowed_total";

/// Gauge: requests waiting for a reservation.
pub const WAITING: &str = "tollgate_waiting";

/// Gauge: blocked keys and signals.
pub const BLOCKED: &str = "tollgate_blocked";

/// Gauge: quotas changed at run time.
pub const CHANGED_QUOTAS: &str = "tollgate_changed_quotas";

/// Gauge: 1 while the circuit breaker is open and calls fail immediately, otherwise 0. Not reported if there is no
/// circuit breaker. The gauge stays 0 while a server replies with errors (a missing permission, for example), so alert
/// on [`BACKEND_ERRORS`] as well.
pub const CIRCUIT_OPEN: &str = "tollgate_circuit_open";

/// All names.
pub const ALL: [&str; 17] = [
    DECISIONS,
    CHECKS,
    BACKEND_ERRORS,
    BLOCKS,
    SETTLEMENTS,
    RESETS,
    CREDITS,
    MISTAKES,
    DECISION_DURATION,
    ROWS,
    POLICY_ROWS,
    EVICTIONS,
    OVERFLOWED,
    WAITING,
    BLOCKED,
    CHANGED_QUOTAS,
    CIRCUIT_OPEN,
];

/// Upper bounds of the buckets for [`DECISION_DURATION`], in seconds, from one microsecond to one second.
pub const DURATION_BUCKETS: [f64; 16] =
    [1e-6, 2.5e-6, 1e-5, 2.5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0];
