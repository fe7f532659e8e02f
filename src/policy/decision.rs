//! The decision on a single charge.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::allowed::Allowed;
use super::decisions::Denied;
use super::deny_rule::DenyRule;
use super::digest::Digest;
use super::duration;
use super::name::PolicyName;
use super::reason::{DecidedBy, Reason};
use super::windows::Part;
use crate::algorithm::{Micros, Quota, State, Step, Verdict, available, next_change, roll, roll_if_own, spent, when};

/// The decision on a single charge, returned by the `try_` methods, such as
/// [`RateLimiter::try_limit`](crate::RateLimiter::try_limit). The methods without `try_` return an [`Allowed`] decision
/// or, for a denial, an error.
///
/// ```
/// # use tollgate::{clock::ManualClock, MemoryBackend, Policy, Quota, RateLimiter, Reason, MINUTE, SECOND};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
/// # let limiter = RateLimiter::new(MemoryBackend::builder().clock(ManualClock::new()).build());
/// static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10, MINUTE));
///
/// let first = limiter.try_acquire(&CHAT, "ada").cost(8).await?;
/// assert!(first.is_allowed());
/// assert_eq!((first.capacity(), first.remaining(), first.reset()), (10, 2, 48 * SECOND));
///
/// let denied = limiter.try_acquire(&CHAT, "ada").cost(3).await?;
/// assert_eq!((denied.policy().as_str(), denied.reason()), ("chat", Reason::QuotaExceeded));
/// assert_eq!((denied.cost(), denied.remaining(), denied.retry_after()), (3, 2, Some(6 * SECOND)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a denial is not an error here: check `is_allowed()`, or call `limit`, which fails on a denial"]
pub struct Decision {
    of: ChargedQuota,
    step: Step,
    reason: Reason,
    decided_by: DecidedBy,
    denied_rule: Option<Arc<DenyRule>>,
    charged: bool,
    /// After a check that has read several shards, the rows of this quota: one for each shard that was read.
    shards: Option<ShardRows>,
    /// Whether this charge is in shadow mode and its call was let through instead of denied.
    shadowed: bool,
}

pub(super) type ShardRows = Arc<[(Quota, State)]>;

#[derive(Clone, Debug)]
pub(crate) struct ChargedQuota {
    pub(crate) policy: PolicyName,
    /// The key of the row, which differs from the caller's key if the row is a shard.
    pub(crate) row_key: Digest,
    /// The quota of the row. If the row is a shard, this is the shard's quota.
    pub(crate) quota: Quota,
    pub(crate) cost: u64,
    pub(crate) window: u8,
    pub(crate) part: Part,
}

impl Decision {
    #[inline]
    pub(crate) fn new(of: ChargedQuota, step: Step, all_granted: bool) -> Decision {
        let reason = match step.verdict {
            Verdict::Deny { retry: Some(_) } => Reason::QuotaExceeded,
            Verdict::Deny { retry: None } => permanent_reason(of.cost, &of.quota),
            _ if !all_granted => Reason::RefusedElsewhere,
            Verdict::Reserve { .. } => Reason::Reserved,
            Verdict::Allow => Reason::WithinQuota,
        };
        let decided_by = DecidedBy::Backend;
        Decision { of, step, reason, decided_by, denied_rule: None, charged: true, shards: None, shadowed: false }
    }

    /// Creates a denial caused by a deny list (`retry` is `None`) or a block. The denial reports 0 remaining tokens.
    pub(crate) fn blocked(
        of: ChargedQuota,
        rule: Option<Arc<DenyRule>>,
        now: Micros,
        retry: Option<Duration>,
    ) -> Decision {
        // Advance the row to `now` first: the row of a sliding window counts as unspent unless its time is a window
        // boundary.
        let unspent = State { at: now, stamp: of.quota.stamp(), ..State::default() };
        let state = State { spent: of.quota.get_capacity() as f64, ..roll(&of.quota, &unspent, now) };
        let reason = if retry.is_some() { Reason::Blocked } else { Reason::DenyList };
        let step = Step { verdict: Verdict::Deny { retry }, state, now };
        let denied = Decision::new(of, step, false);
        Decision { reason, decided_by: DecidedBy::Limiter, denied_rule: rule, ..denied }
    }

    pub(crate) fn by(mut self, decided_by: DecidedBy) -> Decision {
        self.decided_by = decided_by;
        if decided_by == DecidedBy::FailOpen && self.reason == Reason::WithinQuota {
            self.reason = Reason::FailOpen;
        }
        self
    }

    /// Returns the decision of a check that has read several shards. `all_granted` is whether all charges in the call
    /// were granted.
    pub(super) fn with_shards(self, shards: ShardRows, all_granted: bool) -> Decision {
        let decision = Decision::new(self.of, self.step, all_granted).by(self.decided_by);
        Decision { charged: false, shards: Some(shards), ..decision }
    }

    /// Converts the decision of a call into that of a check, which does not spend the call's `tokens`.
    pub(super) fn uncharged(mut self, tokens: u64) -> Decision {
        self.step.state.spent = (self.step.state.spent - tokens as f64).max(0.0);
        self.charged = false;
        self
    }

    pub(super) fn let_through(mut self) -> Decision {
        self.shadowed = !self.of.part.enforced;
        self
    }

    /// Returns whether the call may proceed, after the [`delay`](Decision::delay) if there is one. If so, the tokens
    /// were spent, unless this is a check or the charge [was let through](Decision::is_shadowed).
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.shadowed || self.is_granted()
    }

    /// Returns whether the charge would have been denied but was let through because its policy is in [shadow
    /// mode](super::Enforce). Nothing was spent.
    pub const fn is_shadowed(&self) -> bool {
        self.shadowed
    }

    pub(crate) const fn is_enforced(&self) -> bool {
        self.of.part.enforced
    }

    #[inline]
    fn is_granted(&self) -> bool {
        matches!(self.reason, Reason::WithinQuota | Reason::Reserved | Reason::FailOpen)
    }

    /// Returns whether this charge was denied by its quota, a deny list or a block, rather than because another charge
    /// was denied. For a charge in shadow mode, this is true only if it [was let through](Decision::is_shadowed).
    pub fn is_violated(&self) -> bool {
        !self.is_granted() && self.reason != Reason::RefusedElsewhere && (self.shadowed || self.is_enforced())
    }

    /// The reason why the charge was allowed or denied.
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// The component that made the decision, which is usually the backend.
    pub const fn decided_by(&self) -> DecidedBy {
        self.decided_by
    }

    /// The deny rule or blocked signal that caused the denial, if any. For a [paused](crate::RateLimiter::pause) key,
    /// this is `None`. Do not show the rule to clients, because they could then evade it.
    pub fn denied_rule(&self) -> Option<&DenyRule> {
        self.denied_rule.as_deref()
    }

    /// The policy's name.
    pub const fn policy(&self) -> &PolicyName {
        &self.of.policy
    }

    /// The name of the limit in headers and status reports: the policy's name or, if the policy has several
    /// [quotas](super::Quotas), the policy's name and the quota's period, as in `api;10s`.
    pub fn name(&self) -> Cow<'_, str> {
        let ChargedQuota { policy, quota, part, .. } = &self.of;
        limit_name(policy, quota, part.count.into())
    }

    pub(crate) const fn of(&self) -> &ChargedQuota {
        &self.of
    }

    /// The key's digest, as returned by [`RateLimiter::digest`](crate::RateLimiter::digest).
    pub fn key(&self) -> Digest {
        self.of.quota.shard_index().map_or(self.of.row_key, |index| self.of.row_key.shard(index))
    }

    /// The quota that was applied, such as the policy's own quota or that of the caller's tier.
    pub const fn quota(&self) -> Quota {
        self.of.quota.whole()
    }

    /// The number of tokens requested, which may be 0.
    pub const fn cost(&self) -> u64 {
        self.of.cost
    }

    /// The [capacity](Quota::get_capacity) of the quota: the largest number of tokens that can be spent at once.
    #[doc(alias = "limit")]
    pub const fn capacity(&self) -> u64 {
        self.of.quota.whole_capacity()
    }

    /// The number of whole tokens left after this decision or, for a check, available now. It is 0 while the key is in
    /// debt. If the quota has [shards](Quota::shards), it is an estimate, unless a check has read [all of
    /// them](Decision::shards_read).
    pub fn remaining(&self) -> u64 {
        let now = self.step.now;
        let tokens = self.rows().map(|(quota, state)| available(quota, &roll_if_own(quota, state, now), now)).sum();
        self.of.quota.across_shards(tokens, self.shards_read())
    }

    /// Returns the number of spent tokens, rounded up. This number exceeds the capacity while the key is in debt.
    #[cfg(feature = "admin")]
    pub(crate) fn spent(&self) -> u64 {
        let now = self.step.now;
        let tokens: f64 = self.rows().map(|(quota, row)| spent(quota, &roll_if_own(quota, row, now), now)).sum();
        self.of.quota.across_shards(tokens.ceil() as u64, self.shards_read())
    }

    /// Returns whether this charge raised the row's spent tokens to or past `share` of the capacity.
    pub(crate) fn passes(&self, share: f64) -> bool {
        let (row, now) = (self.row(), self.step.now);
        let after = spent(&self.of.quota, &row, now);
        let level = share * self.of.quota.get_capacity() as f64;
        after - (self.of.cost as f64) < level && level <= after
    }

    /// The number of [shards](Quota::get_shards) that were read, which is 1 unless a check has read
    /// [several](crate::limiter::RateLimiterBuilder::sample_shards).
    pub fn shards_read(&self) -> usize {
        self.shards.as_ref().map_or(1, |shards| shards.len())
    }

    /// The rows that were read, with their quotas. There are several rows only for a check of a quota with shards.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&Quota, &State)> {
        let own = self.shards.is_none().then_some((&self.of.quota, &self.step.state));
        own.into_iter().chain(self.shards.iter().flat_map(|shards| shards.iter().map(|(quota, state)| (quota, state))))
    }

    /// The time until the full capacity is available again if nothing else is spent, with microsecond precision.
    pub fn reset(&self) -> Duration {
        let now = self.step.now;
        let full = self.rows().map(|(quota, state)| when(quota, &roll_if_own(quota, state, now), now, 0.0));
        full.map(|full| full.unwrap_or(Micros::MAX).since(now)).max().unwrap_or_default()
    }

    /// How long to wait until the same charge would succeed if nothing else is spent, with microsecond precision.
    /// `None` if the charge fits or can never succeed. A denial that was let through has a wait, too.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.step.verdict {
            Verdict::Deny { retry } => retry,
            _ => None,
        }
    }

    /// The delay until the reservation is due, with microsecond precision. It is zero if the call need not wait or was
    /// denied, or if the charge is in [shadow mode](super::Enforce).
    pub const fn delay(&self) -> Duration {
        match self.step.verdict {
            Verdict::Reserve { wait } if self.of.part.enforced => wait,
            _ => Duration::ZERO,
        }
    }

    pub(crate) fn due(&self) -> Micros {
        self.step.now + self.delay()
    }

    /// The time over which the [`remaining`](Decision::remaining) tokens may be spent: `t` in the `RateLimit` header.
    ///
    /// - After a denial by this quota, it is [`retry_after`](Decision::retry_after).
    /// - For fixed and sliding windows, it is the time until the window ends.
    /// - For a token bucket, it is the time to refill as many tokens as remain. If none remain, it is the time until
    ///   the next token.
    ///
    /// For a reservation, this time starts when the reservation is due.
    pub fn window(&self) -> Duration {
        let Decision { of: ChargedQuota { quota, .. }, step, .. } = self;
        let remaining = self.remaining();
        let (from, until) = match step.verdict {
            Verdict::Deny { retry: Some(retry) } => return retry,
            Verdict::Reserve { wait } if self.charged && !wait.is_zero() => {
                let due = step.now + wait;
                (due, next_change(quota, &roll_if_own(quota, &step.state, due), due))
            }
            _ if remaining > 0 && !quota.algorithm().has_windows() => {
                let whole = quota.whole();
                let tokens = State { spent: remaining as f64, at: step.now, stamp: whole.stamp(), ..State::default() };
                (step.now, when(&whole, &tokens, step.now, 0.0))
            }
            _ => (step.now, next_change(quota, &self.row(), step.now)),
        };
        until.unwrap_or(Micros::MAX).since(from)
    }

    /// Returns the row, refilled up to the instant of the decision.
    fn row(&self) -> State {
        roll_if_own(&self.of.quota, &self.step.state, self.step.now)
    }

    /// The verdict, the row and the instant of this decision, as the [algorithms](crate::algorithm) represent them.
    pub const fn step(&self) -> &Step {
        &self.step
    }

    /// Converts the decision to a `Result`, with an error that a handler can return.
    ///
    /// # Errors
    /// Fails if the call was denied.
    pub fn into_result(self) -> Result<Allowed, Denied> {
        if self.is_allowed() { Ok(Allowed::new(self)) } else { Err(Denied::new(self.into())) }
    }
}

/// Returns the name of the limit for one of `count` quotas that apply together.
pub(crate) fn limit_name<'n>(policy: &'n PolicyName, quota: &Quota, count: usize) -> Cow<'n, str> {
    if count == 1 {
        return policy.as_str().into();
    }
    let (count, unit) = duration::parts(quota.period());
    format!("{policy};{count}{unit}").into()
}

#[cold]
fn permanent_reason(cost: u64, quota: &Quota) -> Reason {
    let whole = quota.whole();
    let is_above_shard = |shard: u64, whole: u64| shard < cost && cost <= whole;
    if is_above_shard(quota.get_capacity(), whole.get_capacity()) || is_above_shard(quota.ceiling(), whole.ceiling()) {
        Reason::CostAboveShard
    } else if cost > quota.ceiling() {
        Reason::CostTooLarge
    } else if cost > quota.get_capacity() {
        Reason::WaitTooLong
    } else {
        // The cost would fit eventually, but only after the last representable instant.
        Reason::QuotaExceeded
    }
}

#[cfg(test)]
mod tests;
