//! Lists of what was changed at run time: quotas that were set, and blocks.

use std::time::Duration;

use super::RateLimiter;
use crate::algorithm::Quota;
use crate::policy::{DenyRule, Digest, PolicyName};

impl RateLimiter {
    /// The quotas that are [set](RateLimiter::set_quota) at run time, by this process or another one on the same backend.
    /// At most 100,000, ordered by policy; in a policy the quota of all callers comes first, then tiers, then keys.
    ///
    /// ```
    /// use tollgate::{Policy, Quota, RateLimiter, Subject, MINUTE};
    ///
    /// static API: Policy = Policy::new("api", Quota::token_bucket(30, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::default();
    /// limiter.set_quota(&API, Some(Quota::token_bucket(20, MINUTE))).await?;
    /// limiter.set_key_quota(&API, "ada", Some(Quota::token_bucket(300, MINUTE))).await?;
    ///
    /// let set = limiter.set_quotas();
    /// let texts: Vec<String> = set.iter().map(|set| format!("{} {}", set.policy, set.quota)).collect();
    /// assert_eq!(texts, ["api 20/min", "api 300/min"]);
    /// assert_eq!(set[1].key, Some(limiter.digest(Subject::new("ada").key())));
    /// # Ok(()) }
    /// ```
    ///
    /// A quota is listed even if it is not in force: one of another algorithm than the policy's, which another version of
    /// the program may have set, or of a tier that the policy does not have.
    pub fn set_quotas(&self) -> Vec<SetQuota> {
        self.inner.overrides.list()
    }

    /// The blocks that hold in this process now, in no order: at most 100,000 made [by hand](RateLimiter::block), and
    /// as many earned by denials as there are [entries](crate::protection::AutoBlock::max_entries). A caller that is blocked both
    /// ways is listed twice. The list is made when this is called: its length is the number of blocks.
    ///
    /// ```
    /// use tollgate::{protection::Signal, RateLimiter, HOUR};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
    /// let limiter = RateLimiter::default();
    /// limiter.block(Signal::ip([192, 0, 2, 7].into()), HOUR).await?;
    /// let [block] = &limiter.blocks()[..] else { panic!("one block") };
    /// assert_eq!(block.rule.as_ref().map(|rule| rule.to_string()), Some("network 192.0.2.7/32".to_owned()));
    /// assert!(block.by_hand && block.left <= HOUR);
    /// # Ok(()) }
    /// ```
    pub fn blocks(&self) -> Vec<Block> {
        self.inner.guard.list(self.inner.time.now())
    }
}

/// A quota that is set at run time: an entry of [`RateLimiter::set_quotas`]. Without a tier and a key it is that of all
/// callers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SetQuota {
    /// The policy.
    pub policy: PolicyName,
    /// The tier, if it is the quota of one.
    pub tier: Option<String>,
    /// The key's [digest](RateLimiter::digest), if it is the quota of one key.
    pub key: Option<Digest>,
    /// The quota in the place of the policy's own.
    pub quota: Quota,
}

/// A block that holds: an entry of [`RateLimiter::blocks`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Block {
    /// The digest of what is blocked; of a key the one that [`RateLimiter::digest`] returns.
    pub digest: Digest,
    /// What is blocked: an address, a user agent or a label. `None` of a key, since keys are not kept; of a block that
    /// another process made, since processes share digests only; and of a text longer than
    /// [`DenyRule::MAX_LENGTH`].
    pub rule: Option<DenyRule>,
    /// How long ago this process made the block; `None` if another process did.
    pub age: Option<Duration>,
    /// The time until the block ends, more than zero.
    pub left: Duration,
    /// How many times in a row the caller was blocked by its denials, this time included; 0 of a block by hand.
    pub times: u32,
    /// Whether [`RateLimiter::block`] made it; else it was earned by denials.
    pub by_hand: bool,
}
