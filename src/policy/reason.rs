//! The reasons for decisions, and the components that decide.

/// The component that made a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecidedBy {
    /// The limiter's backend.
    Backend,
    /// A fallback limiter in this process, which applies a share of the quota because the backend failed.
    Fallback,
    /// The failure mode, which allowed the charge without a check because the backend failed.
    FailOpen,
    /// The limiter itself, because of a deny list or a block.
    Limiter,
    /// The limiter's [block cache](crate::limiter::RateLimiterBuilder::block_cache).
    BlockCache,
    /// A [lease](crate::Policy::leases). After the backend has granted few of the tokens requested for a key, the
    /// process pauses before it requests tokens for that key again. A denial because of this pause also has this value.
    Lease,
}

impl DecidedBy {
    /// A stable name for logs and metrics: the name of the variant in snake case, such as `fail_open`.
    pub const fn as_str(self) -> &'static str {
        match self {
            DecidedBy::Backend => "backend",
            DecidedBy::Fallback => "fallback",
            DecidedBy::FailOpen => "fail_open",
            DecidedBy::Limiter => "limiter",
            DecidedBy::BlockCache => "block_cache",
            DecidedBy::Lease => "lease",
        }
    }
}

/// The reason for a decision.
///
/// ```
/// # use tollgate::{policy::DecidedBy, Policy, Quota, RateLimiter, Reason, MINUTE};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// # let limiter = RateLimiter::default();
/// static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
/// let decision = limiter.try_acquire(&API, "ada").cost(11).await?;
/// assert_eq!((decision.reason(), decision.decided_by()), (Reason::CostTooLarge, DecidedBy::Backend));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The charge is within the quota.
    WithinQuota,
    /// The charge fits after a wait, and its tokens are reserved.
    Reserved,
    /// The backend failed, and the [failure mode](crate::FailureMode::Allow) allowed the charge.
    FailOpen,
    /// The charge does not fit now. It fits after [`Decision::retry_after`](crate::Decision::retry_after), which is
    /// `None` if the charge fits only after [`Micros::MAX`](crate::algorithm::Micros::MAX).
    QuotaExceeded,
    /// The cost exceeds the capacity plus the number of tokens that can be reserved.
    CostTooLarge,
    /// The cost exceeds the capacity of every [shard](crate::Quota::shards), but not that of the whole quota.
    CostAboveShard,
    /// The cost exceeds the capacity, and the wait for its reservation would exceed the caller's maximum wait.
    WaitTooLong,
    /// The charge fits, but another charge of the same call was denied, so nothing was spent.
    RefusedElsewhere,
    /// The caller is on a [deny list](crate::protection::DenyList). The response reveals only that retries will fail.
    DenyList,
    /// The caller is temporarily [blocked](crate::protection::AutoBlock) or [paused](crate::RateLimiter::pause). The
    /// response reveals only when to retry.
    Blocked,
}

impl Reason {
    /// A stable name for logs and metrics: the name of the variant in snake case, such as `quota_exceeded`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::WithinQuota => "within_quota",
            Reason::Reserved => "reserved",
            Reason::FailOpen => "fail_open",
            Reason::QuotaExceeded => "quota_exceeded",
            Reason::CostTooLarge => "cost_too_large",
            Reason::CostAboveShard => "cost_above_shard",
            Reason::WaitTooLong => "wait_too_long",
            Reason::RefusedElsewhere => "refused_elsewhere",
            Reason::DenyList => "deny_list",
            Reason::Blocked => "blocked",
        }
    }
}
