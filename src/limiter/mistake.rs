//! Mistakes that a limiter notices in the program. They are reported to observers and counted in `Stats`.

use std::fmt;

/// A mistake that a limiter noticed in the program and reported to an [`Observer`](crate::observe::Observer).
///
/// Every occurrence is counted in [`Stats::mistakes`](crate::limiter::Stats). Each mistake is also reported to the
/// observers once, up to a total of 256 mistakes. The `Display` output describes the mistake and how to fix it. It
/// never contains a key.
///
/// ```
/// use tollgate::{observe::{Decided, Mistake, Observer}, MemoryBackend, Policy, Quota, RateLimiter, Subject};
///
/// struct Print;
///
/// impl Observer for Print {
///     fn decided(&self, _: &Decided<'_>) {}
///     fn mistake(&self, mistake: &Mistake) {
///         // unknown_tier: policy "api" has no tier "premuim", [...]; did you mean "premium"?
///         eprintln!("{}: {mistake}", mistake.kind().as_str());
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
/// let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Print).build();
/// let api = Policy::new("api", Quota::per_minute(30)).tier("premium", Quota::per_minute(300));
/// limiter.limit(&api, Subject::new("ada").tier("premuim")).await?;
/// assert_eq!(limiter.stats().mistakes.unknown_tiers, 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Mistake {
    pub(super) kind: MistakeKind,
    pub(super) message: String,
}

impl Mistake {
    /// Returns the kind of mistake.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MistakeKind {
    /// Two policies with the same name have different quotas or tiers, but share their rows.
    PolicyConflict,
    /// The policy does not have the caller's tier, so the policy's own quota applies.
    UnknownTier,
    /// A request lacks the extension that [`key::extension`](crate::key::extension) needs, so its key is anonymous.
    MissingExtension,
    /// A charge costs more than the quota's capacity, so it is always denied.
    ImpossibleCost,
    /// A layer without [`grpc`](crate::RateLimitLayer::grpc) refused a gRPC request with a plain HTTP status.
    PlainGrpcRefusal,
    /// A [deny list](crate::protection::DenyList) contains a rule that one of the layers can never apply.
    UnmatchedDenyRule,
    /// A request was refused because it lacked the peer address that [`key::client_ip`](crate::key::client_ip) needs.
    MissingPeer,
    /// The closure passed to [`RouteLimits::choose`](crate::RouteLimits::choose) returned an unknown name.
    UnknownPolicy,
}

impl MistakeKind {
    /// Returns a stable name for logs and metrics: the variant in snake case, such as `policy_conflict`.
    pub const fn as_str(self) -> &'static str {
        match self {
            MistakeKind::PolicyConflict => "policy_conflict",
            MistakeKind::UnknownTier => "unknown_tier",
            MistakeKind::MissingExtension => "missing_extension",
            MistakeKind::ImpossibleCost => "impossible_cost",
            MistakeKind::PlainGrpcRefusal => "plain_grpc_refusal",
            MistakeKind::UnmatchedDenyRule => "unmatched_deny_rule",
            MistakeKind::MissingPeer => "missing_peer",
            MistakeKind::UnknownPolicy => "unknown_policy",
        }
    }
}

/// The number of [mistakes](Mistake) of each kind, from [`Stats::mistakes`](crate::limiter::Stats::mistakes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mistakes {
    /// Policies that have the same name as another policy of the limiter, but different quotas or tiers. A limiter
    /// remembers at most 10,000 names, and compares the policies of calls at most 65,536 times in total. Quotas that
    /// are [set](crate::RateLimiter::set_quota) at run time or reloaded do not conflict.
    pub policy_conflicts: u64,
    /// Charges for callers with a tier that the policy does not have. Charges under policies without tiers are not
    /// counted.
    pub unknown_tiers: u64,
    /// Charges for requests without the extension that contains the key.
    pub missing_extensions: u64,
    /// Charges that were denied because they cost more than the quota's capacity.
    pub impossible_costs: u64,
    /// gRPC requests that were refused with a plain HTTP status.
    pub plain_grpc_refusals: u64,
    /// Rules that one of the layers can never apply. After each change to the deny list, a layer counts at most one
    /// rule of each kind.
    pub unmatched_deny_rules: u64,
    /// Requests that were refused because they lacked the peer address.
    pub missing_peers: u64,
    /// Requests for which the closure of [`RouteLimits::choose`](crate::RouteLimits::choose) returned an unknown name.
    pub unknown_policies: u64,
}

impl Mistakes {
    #[cfg(feature = "metrics")]
    pub(crate) fn by_kind(&self) -> [(MistakeKind, u64); 8] {
        [
            (MistakeKind::PolicyConflict, self.policy_conflicts),
            (MistakeKind::UnknownTier, self.unknown_tiers),
            (MistakeKind::MissingExtension, self.missing_extensions),
            (MistakeKind::ImpossibleCost, self.impossible_costs),
            (MistakeKind::PlainGrpcRefusal, self.plain_grpc_refusals),
            (MistakeKind::UnmatchedDenyRule, self.unmatched_deny_rules),
            (MistakeKind::MissingPeer, self.missing_peers),
            (MistakeKind::UnknownPolicy, self.unknown_policies),
        ]
    }
}
