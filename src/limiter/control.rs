//! Methods that change the quotas and blocks of a running limiter, or return its statistics.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::guard::{BlockOrigin, MAX_MANUAL_BLOCKS};
use super::mistake::Mistakes;
use super::notices::NoticeContent;
use super::observer::{Blocked, Reset};
use super::overrides::{Override, QuotaScope, Setting};
use super::{Inner, RateLimiter, SetQuotaError};
use crate::algorithm::whole_micros;
use crate::backend::{BackendFuture, Error, ErrorKind, Health, Notice, NoticeSubscriber, RowId};
use crate::policy::{Digest, MAX_WINDOWS, Policy, PolicyName, Quotas, Signal, Subject};
use crate::sync::atomic::Ordering;

impl RateLimiter {
    /// Replaces a policy's quota for all callers, regardless of their tier, with the given quota or [quotas](Quotas).
    /// `None` restores the quota that the program defines. Callers with [their own quota](Subject::quota) keep that
    /// quota. Tokens that callers have already spent stay spent. The policy is identified by its name.
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let api = Policy::new("api", Quota::token_bucket(30, MINUTE)).tier("free", Quota::token_bucket(60, MINUTE));
    /// let limiter = RateLimiter::default();
    /// limiter.set_quota(&api, Quota::token_bucket(20, MINUTE)).await?;
    /// limiter.set_tier_quota(&api, "free", Quota::token_bucket(40, MINUTE)).await?;
    /// limiter.set_key_quota(&api, "ada", Quota::token_bucket(300, MINUTE)).await?;
    /// let set: Vec<String> = limiter.set_quotas().iter().map(|set| set.quotas.to_string()).collect();
    /// assert_eq!(set, ["20/min", "40/min", "300/min"]);
    ///
    /// limiter.set_quota(&api, None).await?;
    /// assert_eq!(limiter.remaining(&api, "eve").await?, 30);
    /// # Ok(()) }
    /// ```
    ///
    /// The change takes effect immediately in this limiter and its clones, and within a second in all other limiters on
    /// a shared backend. It also applies to limiters that start later.
    ///
    /// # Errors
    /// Fails if the quota is invalid (it denies everything, or its algorithm is not the policy's), if 100,000 changes
    /// are already in effect, or if publishing the change fails. In the last case, the change may still have been made.
    pub async fn set_quota(&self, policy: &Policy, quota: impl Into<Option<Quotas>>) -> Result<(), SetQuotaError> {
        let quotas = quota.into().map(Arc::new);
        policy.check_change(None, quotas.as_deref())?;
        self.change(policy, Setting::Quotas(QuotaScope::All, quotas)).await
    }

    /// Like [`set_quota`](RateLimiter::set_quota), but for the callers in one tier. A quota set for a tier takes
    /// precedence over a quota set for all callers.
    ///
    /// # Errors
    /// Fails in the same cases as [`set_quota`](RateLimiter::set_quota), and if a quota is set for an unknown tier.
    pub async fn set_tier_quota(
        &self,
        policy: &Policy,
        tier: &str,
        quota: impl Into<Option<Quotas>>,
    ) -> Result<(), SetQuotaError> {
        let quotas = quota.into().map(Arc::new);
        if quotas.is_some() {
            // A removal is not checked, because a different version of the program may have set a quota for this tier.
            policy.check_change(Some(tier), quotas.as_deref())?;
        }
        self.change(policy, Setting::Quotas(QuotaScope::Tier(tier.to_owned()), quotas)).await
    }

    /// Like [`set_quota`](RateLimiter::set_quota), but for one key. A quota set for a key takes precedence over all
    /// other quotas, including the [caller's own](Subject::quota).
    ///
    /// # Errors
    /// Fails in the same cases as [`set_quota`](RateLimiter::set_quota).
    pub async fn set_key_quota(
        &self,
        policy: &Policy,
        subject: impl Into<Subject>,
        quota: impl Into<Option<Quotas>>,
    ) -> Result<(), SetQuotaError> {
        let quotas = quota.into().map(Arc::new);
        policy.check_change(None, quotas.as_deref())?;
        let key = self.row_key(subject.into().key());
        self.change(policy, Setting::Quotas(QuotaScope::Key(key), quotas)).await
    }

    /// Returns the tiers whose quotas have been set at run time, including tiers that the policy does not define.
    #[cfg(feature = "serde")]
    pub(crate) fn changed_tiers(&self, policy: &crate::policy::PolicyName) -> Vec<String> {
        self.inner.overrides.tiers(policy)
    }

    #[cfg(feature = "serde")]
    pub(crate) fn shares_settings(&self) -> bool {
        self.inner.backend.notice_channel().is_some()
    }

    pub(super) async fn change(&self, policy: &Policy, setting: Setting) -> Result<(), SetQuotaError> {
        let change = Override { policy: policy.name().clone(), setting };
        if !self.inner.overrides.accepts(&change) {
            return Err(SetQuotaError::TooMany);
        }
        let content = NoticeContent::Override(change);
        // If there is a notice channel, it delivers the change to this limiter too, in the same order as to all others.
        if self.inner.backend.notice_channel().is_none() {
            self.inner.apply([(content.clone(), Duration::ZERO)], false);
        }
        self.inner.publish(&content).await.map_err(SetQuotaError::Backend)
    }

    /// Blocks a signal for the given duration. On a shared backend, the block takes effect in all processes within a
    /// second. A new block on a signal replaces the earlier block, even if that block would have lasted longer. Unlike
    /// automatic blocks, manual blocks are never dropped before they end. If a call is already waiting when its key is
    /// blocked, the call is denied at its due time.
    ///
    /// ```
    /// # use tollgate::{protection::Signal, Policy, Quota, RateLimiter, Reason, DAY, MINUTE};
    /// # static API: Policy = Policy::new("api", Quota::token_bucket(30, MINUTE));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
    /// # let limiter = RateLimiter::default();
    /// limiter.block(Signal::key("mallory"), DAY).await?;
    /// assert_eq!(limiter.try_limit(&API, "mallory").await?.reason(), Reason::Blocked);
    /// limiter.unblock(Signal::key("mallory")).await?;
    /// assert!(limiter.try_limit(&API, "mallory").await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Fails if 100,000 manual blocks are already active, or if other processes cannot be notified. In the latter case,
    /// the block still takes effect in this process.
    pub async fn block(&self, signal: Signal, lasts: Duration) -> Result<(), Error> {
        let id = self.inner.hash.digest(&signal.to_key());
        let now = self.inner.time.now();
        if !self.inner.guard.manual.block(id, now, now + lasts) {
            let message = format!(
                "{MAX_MANUAL_BLOCKS} callers are already blocked manually, which is the maximum; unblock some, or use \
                 a deny list"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.inner.guard.manual.describe(id, BlockOrigin { since: now, rule: signal.to_listed() });
        let rule = signal.to_rule();
        let blocked = Blocked { rule: &rule, lasts, times: 0 };
        self.inner.observers.iter().for_each(|observer| observer.blocked(&blocked));
        self.inner.publish(&NoticeContent::ManualBlock(id, Some(lasts))).await
    }

    /// Lifts all manual and automatic blocks on a signal, and resets the signal's count of denials.
    ///
    /// # Errors
    /// Fails if the backend cannot notify the other processes. The blocks are still lifted in this process.
    pub async fn unblock(&self, signal: Signal) -> Result<(), Error> {
        let id = self.inner.hash.digest(&signal.to_key());
        let content = [NoticeContent::ManualBlock(id, None), NoticeContent::Block(id, None)];
        self.inner.apply(content.clone().map(|content| (content, Duration::ZERO)), false);
        let [manual, automatic] = content.map(|content| self.inner.publish(&content));
        manual.await.and(automatic.await)
    }

    /// Returns statistics about the limiter and its backend, without contacting a server. See [`Stats`] for an example.
    pub fn stats(&self) -> Stats {
        let Inner { backend, guard, overrides, time, waiting, mistakes, .. } = &*self.inner;
        let Health { rows, evictions, overflowed, circuit_open, pending_notices, poll_failed, .. } = backend.health();
        let (offenders, blocked) = guard.len(time.now());
        let (waiting, changed_quotas) = (waiting.load(Ordering::Relaxed), overrides.quota_count());
        let mistakes = mistakes.counts();
        let (leases, leased_tokens) = self.inner.leases.as_ref().map_or((0, 0), |leases| leases.counts());
        Stats {
            rows,
            evictions,
            overflowed,
            circuit_open,
            waiting,
            offenders,
            blocked,
            changed_quotas,
            pending_notices,
            poll_failed,
            mistakes,
            leases,
            leased_tokens,
        }
    }

    /// Gives this process's [leases](crate::Policy::leases) back to the backend. Call this method after the last use of
    /// the limiter, before the program exits. Otherwise, the leased tokens stay spent until the leases end, which takes
    /// up to four seconds.
    ///
    /// # Errors
    /// Fails if the backend fails.
    pub fn shutdown(&self) -> BackendFuture<()> {
        match &self.inner.leases {
            Some(leases) => leases.shut_down(),
            None => BackendFuture::ready(Ok(())),
        }
    }

    /// Returns the number of rows that the backend holds in this process for each policy, largest number first. The
    /// list is empty for a remote backend. Policies after the first 1,024 are counted together as `(others)`.
    pub fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> {
        self.inner.backend.rows_by_policy()
    }
}

/// The statistics of a limiter, from [`RateLimiter::stats`].
///
/// ```
/// # use tollgate::{protection::Signal, Policy, Quota, RateLimiter, DAY, MINUTE};
/// # static API: Policy = Policy::new("api", Quota::token_bucket(30, MINUTE));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let limiter = RateLimiter::default();
/// limiter.limit(&API, "ada").await?;
/// limiter.block(Signal::key("mallory"), DAY).await?;
///
/// let stats = limiter.stats();
/// assert_eq!((stats.rows, stats.blocked, stats.waiting), (Some(1), 1, 0));
/// assert_eq!(limiter.rows_by_policy(), [(API.name().clone(), 1)]);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of rows that the backend holds in this process. `None` for a remote backend.
    pub rows: Option<usize>,
    /// The number of rows evicted before they expired. Their keys have full quotas again. `None` for a remote backend.
    pub evictions: Option<u64>,
    /// The number of charges to rows that several keys share because the table was full. A growing number means that a
    /// policy is being flooded with keys; see [`RateLimiter::rows_by_policy`]. `None` for a remote backend.
    pub overflowed: Option<u64>,
    /// Whether the circuit breaker is open, in which case calls fail immediately. `None` for a backend without one.
    pub circuit_open: Option<bool>,
    /// The number of calls that are waiting for their due times.
    pub waiting: usize,
    /// The number of callers whose denials are being counted, including blocked callers.
    pub offenders: usize,
    /// The number of active blocks, manual and automatic.
    pub blocked: usize,
    /// The number of quotas that have been changed at run time.
    pub changed_quotas: usize,
    /// The number of automatic blocks that have not yet been published to the other processes.
    pub pending_notices: usize,
    /// Whether the last poll for notices from other processes failed. Earlier notices stay in effect. `None` if there
    /// is no notice channel, because the backend is a memory backend or the channel is turned off.
    pub poll_failed: Option<bool>,
    /// The mistakes in the program that the limiter has noticed. Every count should be 0.
    pub mistakes: Mistakes,
    /// The number of [leases](crate::Policy::leases) held. Two leases on the same quota of a key count as one.
    pub leases: usize,
    /// The number of leased tokens that this process has not yet spent.
    pub leased_tokens: u64,
}

impl Inner {
    /// Deletes rows, each given with its number of shards. Returns whether any row was found.
    pub(super) fn reset(&self, rows: &[(RowId<'_>, u8)]) -> BackendFuture<bool> {
        let mut shards: SmallVec<[RowId<'_>; 2]> = SmallVec::new();
        for (row, number) in rows {
            shards.extend((0..*number).map(|index| RowId { key: row.key.shard(index), ..*row }));
        }
        let was_local = self.failure.reset(&shards);
        let done = self.backend.reset(&shards);
        let windows = |row: &RowId<'_>| {
            let row = row.digest();
            (0..MAX_WINDOWS as u8).map(move |window| row.window(window))
        };
        self.forget_denials(shards.iter().flat_map(windows));
        if let Some(leases) = &self.leases {
            leases.forget(shards.iter().flat_map(windows));
        }
        for (row, _) in rows {
            let reset = Reset { policy: row.policy, key: Some(row.key) };
            self.observers.iter().for_each(|observer| observer.reset(&reset));
        }
        done.map(move |found| was_local || found > 0)
    }

    /// Removes rows from the block cache. Call the backend first; otherwise, an outdated row might be cached again.
    pub(super) fn forget_denials(&self, windows: impl Iterator<Item = Digest>) {
        if let Some(cache) = &self.block_cache {
            cache.forget(windows);
        }
    }

    pub(super) fn publish(&self, content: &NoticeContent) -> BackendFuture<()> {
        match self.backend.notice_channel() {
            Some(channel) => channel.publish(content.to_notice()),
            None => BackendFuture::ready(Ok(())),
        }
    }

    pub(super) fn publish_later(&self, content: &NoticeContent) {
        if let Some(channel) = self.backend.notice_channel() {
            channel.publish_later(content.to_notice());
        }
    }

    /// Applies notices, each given with its age. If `all` is true, they replace all settings except blocks and pauses.
    pub(super) fn apply(&self, content: impl IntoIterator<Item = (NoticeContent, Duration)>, all: bool) {
        let now = self.time.now();
        let mut changes = Vec::new();
        for (content, age) in content {
            let since = now.minus(whole_micros(age));
            match content {
                NoticeContent::Override(change) => changes.push((change, since)),
                NoticeContent::Block(id, Some((lasts, times))) => self.guard.block(id, now, since, lasts, times),
                NoticeContent::Block(id, None) => self.guard.unblock(id),
                // If this process's block table is full, the block is ignored.
                NoticeContent::ManualBlock(id, Some(lasts)) => {
                    self.guard.manual.block(id, now, now + lasts);
                    self.guard.manual.describe(id, BlockOrigin { since, rule: None });
                }
                NoticeContent::ManualBlock(id, None) => self.guard.manual.unblock(id),
                NoticeContent::Pause(row, Some(lasts)) => drop(self.guard.pauses.pause(row, now, now + lasts)),
                NoticeContent::Pause(row, None) => self.guard.pauses.resume(row),
            }
        }
        if all {
            self.overrides.replace(changes);
        } else {
            changes.into_iter().for_each(|(change, since)| self.overrides.set(change, since));
        }
    }
}

impl NoticeSubscriber for Inner {
    fn receive(&self, notices: Vec<Notice>, all: bool) {
        self.apply(notices.iter().filter_map(|notice| Some((NoticeContent::parse(notice)?, notice.age))), all);
    }
}

debug_fields! {
    Inner, |inner|
    backend: inner.backend,
    failure: inner.failure,
    guard: inner.guard,
    block_cache: inner.block_cache,
    changed_quotas: inner.overrides.quota_count(),
    observers: inner.observers.len()
}
