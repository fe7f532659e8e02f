//! Listings of the quotas, enforcement settings and blocks that were set at run time.

use std::time::Duration;

use super::RateLimiter;
use crate::policy::{DenyRule, Digest, Enforce, PolicyName, Quotas};

impl RateLimiter {
    /// Returns the quotas that any process on the backend has [set](RateLimiter::set_quota) at run time, ordered by
    /// policy. Within a policy, the quota for all callers comes first, followed by the quotas for tiers and for keys.
    /// The list includes quotas that have no effect in this process because its policy uses a different algorithm or
    /// does not define the tier.
    pub fn set_quotas(&self) -> Vec<SetQuota> {
        self.inner.overrides.list(self.inner.time.now())
    }

    /// Returns the [enforcement settings](RateLimiter::set_enforcement) that were made at run time, ordered by policy.
    pub fn set_enforcements(&self) -> Vec<SetEnforcement> {
        self.inner.overrides.list_enforcements(self.inner.time.now())
    }

    /// Returns the active blocks in this process, in arbitrary order. A caller with both a [manual](RateLimiter::block)
    /// and an automatic block is listed twice.
    pub fn blocks(&self) -> Vec<Block> {
        self.inner.guard.list(self.inner.time.now())
    }
}

/// A quota set at run time, from [`RateLimiter::set_quotas`]. A quota with neither a tier nor a key applies to all
/// callers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SetQuota {
    /// The policy.
    pub policy: PolicyName,
    /// The tier, if the quota is for one tier.
    pub tier: Option<String>,
    /// The key's [digest](RateLimiter::digest), if the quota is for one key.
    pub key: Option<Digest>,
    /// The quotas that replace the policy's own.
    pub quotas: Quotas,
    /// The time since the quota was set, in this or another process. The quota does not expire.
    pub age: Duration,
}

/// An enforcement setting that was set at run time, from [`RateLimiter::set_enforcements`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SetEnforcement {
    /// The policy.
    pub policy: PolicyName,
    /// The keys for which denials are enforced.
    pub enforce: Enforce,
    /// The time since the setting was made, in this or another process. The setting does not expire.
    pub age: Duration,
}

/// An active block, from [`RateLimiter::blocks`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Block {
    /// The digest of the blocked key or signal. For a key, this is the result of [`RateLimiter::digest`].
    pub digest: Digest,
    /// The blocked address, user agent or label. `None` for a key (keys are not stored), for a block made by another
    /// process (processes share only digests), and for text longer than [`DenyRule::MAX_LENGTH`].
    pub rule: Option<DenyRule>,
    /// The time since the block was made, in this or another process.
    pub age: Duration,
    /// The time until the block ends; never zero.
    pub left: Duration,
    /// How many times in a row the caller has been blocked automatically, including this block; 0 for a manual block.
    pub times: u32,
    /// Whether this is a manual block, made by [`RateLimiter::block`].
    pub by_hand: bool,
}
