//! Mistakes of the program that requests show, as observers receive them and as `Stats` counts them.

use std::fmt;

/// A mistake of the program that a limiter noticed while it ran, as an [`Observer`](crate::observe::Observer) receives it.
///
/// Each mistake is reported once for each limiter, and 256 of them at most; [`Stats::mistakes`](crate::limiter::Stats) counts all
/// of them. Its `Display` says what was found and how to fix it. It never shows a key.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tollgate::{observe::{Decided, Mistake, MistakeKind, Observer}, MemoryBackend, Policy, Quota, RateLimiter, Subject, MINUTE};
///
/// #[derive(Default)]
/// struct Log(Mutex<Vec<(MistakeKind, String)>>);
///
/// impl Observer for Log {
///     fn decided(&self, _: &Decided<'_>) {}
///
///     fn mistake(&self, mistake: &Mistake) {
///         self.0.lock().unwrap().push((mistake.kind(), mistake.to_string()));
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
/// let log = Arc::new(Log::default());
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Arc::clone(&log)).build();
/// let api = Policy::new("api", Quota::per_minute(30)).tier("premium", Quota::per_minute(300));
/// for _ in 0..3 {
///     limiter.limit(&api, Subject::new("ada").tier("premuim")).await?;
/// }
/// let expected = r#"policy "api" has no tier "premuim", so its callers have the policy's own quota, 30/min; did you mean "premium"?"#;
/// assert_eq!(*log.0.lock().unwrap(), [(MistakeKind::UnknownTier, expected.to_owned())]);
/// assert_eq!(limiter.stats().mistakes.unknown_tiers, 3);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Mistake {
    pub(super) kind: MistakeKind,
    pub(super) message: String,
}

impl Mistake {
    /// What kind of mistake it is.
    pub const fn kind(&self) -> MistakeKind {
        self.kind
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The kinds of [`Mistake`].
///
/// ```
/// assert_eq!(tollgate::observe::MistakeKind::UnknownTier.as_str(), "unknown_tier");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MistakeKind {
    /// Two policies of one name have different quotas, and share their rows.
    PolicyConflict,
    /// A caller's tier is none of its policy's tiers, so the policy's own quota applies.
    UnknownTier,
    /// A request lacks the extension that [`key::extension`](crate::key::extension) counts by, so it is counted in the
    /// bucket of all anonymous callers.
    MissingExtension,
    /// A cost is more than its quota ever has, so the request is always denied.
    ImpossibleCost,
    /// A gRPC request was refused with a plain HTTP status, by a layer without
    /// [`grpc`](crate::RateLimitLayer::grpc).
    PlainGrpcRefusal,
    /// A [deny list](crate::protection::DenyList) has a rule that a layer in use can never apply.
    UnmatchedDenyRule,
    /// A request has no peer address, by which [`key::client_ip`](crate::key::client_ip) counts it, so it was refused: the
    /// server does not pass the address on.
    MissingPeer,
}

impl MistakeKind {
    /// A name that stays the same, for logs and metrics: `policy_conflict`, `unknown_tier`, `missing_extension`,
    /// `impossible_cost`, `plain_grpc_refusal`, `unmatched_deny_rule`, `missing_peer`.
    pub const fn as_str(self) -> &'static str {
        match self {
            MistakeKind::PolicyConflict => "policy_conflict",
            MistakeKind::UnknownTier => "unknown_tier",
            MistakeKind::MissingExtension => "missing_extension",
            MistakeKind::ImpossibleCost => "impossible_cost",
            MistakeKind::PlainGrpcRefusal => "plain_grpc_refusal",
            MistakeKind::UnmatchedDenyRule => "unmatched_deny_rule",
            MistakeKind::MissingPeer => "missing_peer",
        }
    }
}

/// How often a limiter noticed each kind of [`Mistake`]: [`Stats::mistakes`](crate::limiter::Stats::mistakes).
///
/// ```
/// use tollgate::RateLimiter;
///
/// let mistakes = RateLimiter::default().stats().mistakes;
/// assert_eq!((mistakes.policy_conflicts, mistakes.unknown_tiers, mistakes.missing_extensions), (0, 0, 0));
/// assert_eq!((mistakes.impossible_costs, mistakes.plain_grpc_refusals, mistakes.unmatched_deny_rules), (0, 0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mistakes {
    /// Policies that have the name of another one, and other quotas or tiers. A layer's policies are compared when a
    /// service gets the layer, others at their first call. Not compared are policies of two limiters that share a backend,
    /// names beyond the first 10,000, and policies that a program makes anew for its calls after 65,536 of them. Quotas that
    /// are [set](crate::RateLimiter::set_quota) at run time or reloaded do not conflict.
    pub policy_conflicts: u64,
    /// Charges of callers whose tier their policy does not have. A policy without tiers has one quota for all callers, so
    /// its charges are not counted.
    pub unknown_tiers: u64,
    /// Charges of requests that lack the extension by which they are counted.
    pub missing_extensions: u64,
    /// Charges that were denied because their cost is more than the quota ever has.
    pub impossible_costs: u64,
    /// gRPC requests that were refused with a plain HTTP status.
    pub plain_grpc_refusals: u64,
    /// Rules that a layer in use can never apply, of each kind the first, after each change of the deny list.
    pub unmatched_deny_rules: u64,
    /// Requests that lack the peer's address by which they are counted.
    pub missing_peers: u64,
}

impl Mistakes {
    #[cfg(feature = "metrics")]
    pub(crate) fn by_kind(&self) -> [(MistakeKind, u64); 7] {
        [
            (MistakeKind::PolicyConflict, self.policy_conflicts),
            (MistakeKind::UnknownTier, self.unknown_tiers),
            (MistakeKind::MissingExtension, self.missing_extensions),
            (MistakeKind::ImpossibleCost, self.impossible_costs),
            (MistakeKind::PlainGrpcRefusal, self.plain_grpc_refusals),
            (MistakeKind::UnmatchedDenyRule, self.unmatched_deny_rules),
            (MistakeKind::MissingPeer, self.missing_peers),
        ]
    }
}
