//! The names and labels of [`Metrics`](super::Metrics). They are stable.
//!
//! Label values are policy names (or `(others)` after the first 512), tier names (or `(others)` after the first 64),
//! fixed words, and the name of a [named](super::Metrics::named) limiter.

/// Counter: decided charges. Labels: `policy`, `outcome`, `reason`, `decided_by`, `enforced` and, for callers with one
/// of the policy's tiers, `tier`. In shadow mode, `enforced` is `false`, so `{outcome="denied",enforced="false"}`
/// counts the ignored denials.
///
/// A request under several policies is counted once under each policy. If one of them denies the request, a denial is
/// counted under each of them. Under the policies that did not deny it, the `reason` is `refused_elsewhere`. To count
/// only a policy's own denials, exclude this reason. Undecided charges ([`BACKEND_ERRORS`]), checks ([`CHECKS`]), and
/// requests without a rule or a key are not counted.
pub const DECISIONS: &str = "tollgate_decisions_total";

/// Counter: checks, which decide without charging. Labels: `policy`, `outcome` and, as in [`DECISIONS`], `tier`.
pub const CHECKS: &str = "tollgate_checks_total";

/// Counter: charges and checks that the backend failed to decide, even if a fallback decided them. Labels:
/// `policy`, `kind`.
pub const BACKEND_ERRORS: &str = "tollgate_backend_errors_total";

/// Counter: automatic and manual blocks made by this process.
pub const BLOCKS: &str = "tollgate_blocks_total";

/// Counter: charges settled in this process. Labels: `policy` and `change`, which compares the actual cost with the
/// charge: `more`, `same`, `less`, or `refund` if the actual cost is 0, for example for a canceled reservation.
pub const SETTLEMENTS: &str = "tollgate_settlements_total";

/// Counter: rows and whole policies reset in this process. Label: `policy`.
pub const RESETS: &str = "tollgate_resets_total";

/// Counter: credits granted by this process, each counted once, however many tokens it grants. Label: `policy`.
pub const CREDITS: &str = "tollgate_credits_total";

/// Counter: mistakes found while requests were handled, as in [`Stats::mistakes`](crate::limiter::Stats). Label:
/// `kind`, from [`MistakeKind::as_str`](crate::observe::MistakeKind::as_str).
pub const MISTAKES: &str = "tollgate_mistakes_total";

/// Histogram: seconds from call to decision. Recorded only for the [`DECISIONS`] of a remote backend. Label: `policy`.
pub const DECISION_DURATION: &str = "tollgate_decision_duration_seconds";

/// Gauge: rows that the backend holds in this process. Not reported for a remote backend.
pub const ROWS: &str = "tollgate_rows";

/// Gauge: rows in this process for each policy. Label: `policy`, which is `(others)` after the first 1,024 policies.
pub const POLICY_ROWS: &str = "tollgate_policy_rows";

/// Counter: rows evicted before they expired.
pub const EVICTIONS: &str = "tollgate_evictions_total";

/// Counter: charges decided on a row that several keys share because the table was full. If this counter rises, look in
/// [`POLICY_ROWS`] for the policy that is being flooded with keys.
pub const OVERFLOWED: &str = "tollgate_overflowed_total";

/// Gauge: requests waiting for a reservation.
pub const WAITING: &str = "tollgate_waiting";

/// Gauge: blocked keys and signals.
pub const BLOCKED: &str = "tollgate_blocked";

/// Gauge: quotas changed at run time.
pub const CHANGED_QUOTAS: &str = "tollgate_changed_quotas";

/// Gauge: 1 while the circuit breaker is open and calls fail immediately, otherwise 0. Not reported without a circuit
/// breaker. Stays 0 while a server replies with errors, so alert on [`BACKEND_ERRORS`] as well.
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

/// Upper bounds of the buckets for [`DECISION_DURATION`], in seconds; see [observing](crate::docs::observing).
pub const DURATION_BUCKETS: [f64; 16] =
    [1e-6, 2.5e-6, 1e-5, 2.5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0];
