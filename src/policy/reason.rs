//! Why a decision is what it is, and who made it.

/// Who made a decision: the backend, or somebody in its stead.
///
/// ```
/// use tollgate::policy::DecidedBy;
///
/// # use tollgate::{Policy, Quota, RateLimiter, MINUTE};
/// # static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::backend::Error> {
/// # let limiter = RateLimiter::default();
/// let decision = limiter.try_limit(&API, "ada").await?;
/// assert_eq!(decision.decided_by(), DecidedBy::Backend);
/// assert_eq!(decision.decided_by().as_str(), "backend");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecidedBy {
    /// The limiter's backend.
    Backend,
    /// The backend could not, so a limiter in this process did, by a share of the quota.
    Fallback,
    /// The backend could not, so the charge was granted unseen.
    FailOpen,
    /// The limiter by itself, before any quota: a deny list, or a block.
    Limiter,
    /// The limiter by itself: what a remote backend said before tells that it would deny. See
    /// [`RateLimiterBuilder::block_cache`](crate::limiter::RateLimiterBuilder::block_cache).
    BlockCache,
}

impl DecidedBy {
    /// A name that stays the same, for logs and metrics: `backend`, `fallback`, `fail_open`, `limiter`, `block_cache`.
    pub const fn as_str(self) -> &'static str {
        match self {
            DecidedBy::Backend => "backend",
            DecidedBy::Fallback => "fallback",
            DecidedBy::FailOpen => "fail_open",
            DecidedBy::Limiter => "limiter",
            DecidedBy::BlockCache => "block_cache",
        }
    }
}

/// Why a decision is what it is.
///
/// ```
/// use tollgate::Reason;
///
/// # use tollgate::{Policy, Quota, RateLimiter, MINUTE};
/// # static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::backend::Error> {
/// # let limiter = RateLimiter::default();
/// let decision = limiter.try_acquire(&API, "ada").cost(11).await?;
/// assert_eq!(decision.reason(), Reason::CostTooLarge);
/// assert_eq!(decision.reason().as_str(), "cost_too_large");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It fits.
    WithinQuota,
    /// It fits after a wait.
    Reserved,
    /// The backend could not decide, and the policy lets such charges pass: see
    /// [`FailureMode::Allow`](crate::FailureMode::Allow).
    FailOpen,
    /// It does not fit now; it will after [`Decision::retry_after`](crate::Decision::retry_after), which is `None` if that
    /// is past the last instant, [`Micros::MAX`](crate::algorithm::Micros::MAX).
    QuotaExceeded,
    /// The cost is more than the quota ever has, with all that may be reserved: it will never fit.
    CostTooLarge,
    /// The cost is more than the quota has at once, and its turn is further away than the caller would wait: it will
    /// never fit without waiting longer.
    WaitTooLong,
    /// It fits by itself, but another charge of the same call was refused, so nothing was spent.
    RefusedElsewhere,
    /// The caller is on a [deny list](crate::protection::DenyList): [`Decision::denied_rule`](crate::Decision::denied_rule) tells
    /// by what. Clients are told only that waiting does not help.
    DenyList,
    /// The caller is [blocked](crate::protection::AutoBlock) for a time: [`Decision::denied_rule`](crate::Decision::denied_rule)
    /// tells by what. Clients are told only when to come back. Or the key is [paused](crate::RateLimiter::pause), or was
    /// blocked while the call waited for its turn: then there is no rule.
    Blocked,
}

impl Reason {
    /// A name that stays the same, for logs and metrics: `within_quota`, `reserved`, `fail_open`, `quota_exceeded`,
    /// `cost_too_large`, `wait_too_long`, `refused_elsewhere`, `deny_list`, `blocked`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::WithinQuota => "within_quota",
            Reason::Reserved => "reserved",
            Reason::FailOpen => "fail_open",
            Reason::QuotaExceeded => "quota_exceeded",
            Reason::CostTooLarge => "cost_too_large",
            Reason::WaitTooLong => "wait_too_long",
            Reason::RefusedElsewhere => "refused_elsewhere",
            Reason::DenyList => "deny_list",
            Reason::Blocked => "blocked",
        }
    }
}
