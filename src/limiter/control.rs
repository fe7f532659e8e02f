//! What can be changed and asked while a limiter runs: quotas, blocks, how it is.

use std::time::Duration;

use super::guard::{BlockOrigin, MAX_MANUAL_BLOCKS};
use super::mistake::Mistakes;
use super::notices::NoticeContent;
use super::observer::{Blocked, Reset};
use super::overrides::{Override, QuotaScope};
use super::{Inner, RateLimiter, SetQuotaError};
use crate::algorithm::Quota;
use crate::backend::{BackendFuture, Error, ErrorKind, Health, Notice, NoticeSubscriber, RowId};
use crate::policy::{Policy, PolicyName, Signal, Subject};
use crate::sync::atomic::Ordering;

impl RateLimiter {
    /// Puts another quota in the place of the policy's, for all its callers whatever their tier, from now on; `None`
    /// puts back what the program says. What callers have spent stays spent.
    ///
    /// ```
    /// use tollgate::{Policy, Quota, RateLimiter, MINUTE};
    ///
    /// static SEARCH: Policy = Policy::new("search", Quota::sliding_window(100, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::default();
    /// limiter.set_quota(&SEARCH, Some(Quota::sliding_window(20, MINUTE))).await?;
    /// assert_eq!(limiter.remaining(&SEARCH, "ada").await?, 20);
    /// limiter.set_quota(&SEARCH, None).await?;
    /// assert_eq!(limiter.remaining(&SEARCH, "ada").await?, 100);
    /// # Ok(()) }
    /// ```
    ///
    /// It holds for this limiter and its clones at once, and, on a backend that processes share, for all of theirs
    /// within a second, new ones included. It goes by the policy's name.
    ///
    /// # Errors
    /// If the quota refuses everything or has another algorithm than the policy, 100,000 quotas are changed already, or
    /// the backend cannot be told. Then nothing has changed, unless the backend was told and could not say so.
    pub async fn set_quota(&self, policy: &Policy, quota: Option<Quota>) -> Result<(), SetQuotaError> {
        policy.check_change(None, quota.as_ref())?;
        self.change(Override { policy: policy.name().clone(), scope: QuotaScope::All, quota }).await
    }

    /// [`set_quota`](RateLimiter::set_quota) for the callers of one tier: before that, whatever is set for all.
    ///
    /// ```
    /// use tollgate::{Policy, Quota, RateLimiter, Subject, MINUTE};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let api = Policy::new("api", Quota::token_bucket(30, MINUTE)).tier("free", Quota::token_bucket(60, MINUTE));
    /// let limiter = RateLimiter::default();
    /// limiter.set_tier_quota(&api, "free", Some(Quota::token_bucket(40, MINUTE))).await?;
    /// assert_eq!(limiter.quota(&api, Subject::new("ada").tier("free")).limit(), 40);
    /// assert_eq!(limiter.quota(&api, "eve").limit(), 30); // who has no tier
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As there, and if the policy has no such tier.
    pub async fn set_tier_quota(&self, policy: &Policy, tier: &str, quota: Option<Quota>) -> Result<(), SetQuotaError> {
        if quota.is_some() {
            // What was set by a program that knew the tier can be taken back by one that does not.
            policy.check_change(Some(tier), quota.as_ref())?;
        }
        self.change(Override { policy: policy.name().clone(), scope: QuotaScope::Tier(tier.to_owned()), quota }).await
    }

    /// [`set_quota`](RateLimiter::set_quota) for one key: before whatever is set for its tier, or for all.
    ///
    /// ```
    /// use tollgate::{Policy, Quota, RateLimiter, MINUTE};
    ///
    /// static API: Policy = Policy::new("api", Quota::token_bucket(30, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::default();
    /// limiter.set_key_quota(&API, "ada", Some(Quota::token_bucket(300, MINUTE))).await?;
    /// assert_eq!((limiter.quota(&API, "ada").limit(), limiter.quota(&API, "eve").limit()), (300, 30));
    /// limiter.set_key_quota(&API, "ada", None).await?; // as the program says, again
    /// assert_eq!(limiter.quota(&API, "ada").limit(), 30);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub async fn set_key_quota(
        &self,
        policy: &Policy,
        subject: impl Into<Subject>,
        quota: Option<Quota>,
    ) -> Result<(), SetQuotaError> {
        policy.check_change(None, quota.as_ref())?;
        let key = self.row_key(subject.into().key());
        self.change(Override { policy: policy.name().clone(), scope: QuotaScope::Key(key), quota }).await
    }

    /// The tiers of a policy whose quotas were changed, those included that the policy does not have.
    #[cfg(feature = "serde")]
    pub(crate) fn changed_tiers(&self, policy: &crate::policy::PolicyName) -> Vec<String> {
        self.inner.overrides.tiers(policy)
    }

    /// Whether other processes may have set quotas that are not known here yet.
    #[cfg(feature = "serde")]
    pub(crate) fn shares_quotas(&self) -> bool {
        self.inner.backend.notice_channel().is_some()
    }

    async fn change(&self, change: Override) -> Result<(), SetQuotaError> {
        if !self.inner.overrides.accepts(&change) {
            return Err(SetQuotaError::TooMany);
        }
        let content = NoticeContent::Quota(change);
        // The channel delivers it to this limiter, too, in the order in which others changed it.
        if self.inner.backend.notice_channel().is_none() {
            self.inner.apply([content.clone()], false);
        }
        self.inner.publish(&content).await.map_err(SetQuotaError::Backend)
    }

    /// Blocks a caller for so long from now on: whoever has that key (under every policy), address, user agent or
    /// label. On a backend that processes share, in all of them, within a second. Nobody is forgotten before their
    /// time, whatever [automatic blocking](crate::protection::AutoBlock) has to remember; at most 100,000 can be blocked at once.
    /// The last call for a caller counts, also if it ends earlier.
    ///
    /// Calls of a blocked key that wait for their turns already are denied when these come. A server that asks a client to
    /// wait is a case for [`pause`](RateLimiter::pause).
    ///
    /// ```
    /// use tollgate::{protection::Signal, Policy, Quota, RateLimiter, Reason, DAY, MINUTE};
    ///
    /// static API: Policy = Policy::new("api", Quota::token_bucket(30, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
    /// let limiter = RateLimiter::default();
    /// limiter.block(Signal::key("mallory"), DAY).await?;
    /// assert_eq!(limiter.try_limit(&API, "mallory").await?.reason(), Reason::Blocked);
    /// limiter.unblock(Signal::key("mallory")).await?;
    /// assert!(limiter.try_limit(&API, "mallory").await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If 100,000 are blocked already. If the backend cannot tell the other processes; in this one it holds.
    pub async fn block(&self, signal: Signal, lasts: Duration) -> Result<(), Error> {
        let id = self.inner.hash.digest(&signal.to_key());
        let now = self.inner.time.now();
        if !self.inner.guard.manual.block(id, now, now + lasts) {
            let message =
                format!("{MAX_MANUAL_BLOCKS} callers are blocked by hand already; unblock some, or use a deny list");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.inner.guard.manual.describe(id, BlockOrigin { since: now, rule: signal.to_listed() });
        let rule = signal.to_rule();
        let blocked = Blocked { rule: &rule, lasts, times: 0 };
        self.inner.observers.iter().for_each(|observer| observer.blocked(&blocked));
        self.inner.publish(&NoticeContent::ManualBlock(id, Some(lasts))).await
    }

    /// Ends a caller's block, however they came by it, and forgets their denials.
    ///
    /// # Errors
    /// If the backend cannot tell the other processes; in this one it holds.
    pub async fn unblock(&self, signal: Signal) -> Result<(), Error> {
        let id = self.inner.hash.digest(&signal.to_key());
        let content = [NoticeContent::ManualBlock(id, None), NoticeContent::Block(id, None)];
        self.inner.apply(content.clone(), false);
        let [one, other] = content.map(|content| self.inner.publish(&content));
        one.await.and(other.await)
    }

    /// How it is doing: what it holds, who waits, whether its backend is out of reach. Cheap: nothing is asked of a
    /// server. See [`Stats`] for an example.
    pub fn stats(&self) -> Stats {
        let Inner { backend, guard, overrides, time, waiting, mistakes, .. } = &*self.inner;
        let Health { rows, evictions, overflowed, circuit_open, pending_notices, poll_failed, .. } = backend.health();
        let (offenders, blocked) = guard.len(time.now());
        let (waiting, changed_quotas) = (waiting.load(Ordering::Relaxed), overrides.len());
        let mistakes = mistakes.counts();
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
        }
    }

    /// The rows that the backend holds in this process for each policy, most first: which policy fills the table. A
    /// remote backend has none. Policies beyond the first 1,024 are counted together as `(others)`.
    ///
    /// ```
    /// # use tollgate::{Policy, Quota, RateLimiter, MINUTE};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::LimitError> {
    /// static API: Policy = Policy::new("api", Quota::token_bucket(30, MINUTE));
    ///
    /// let limiter = RateLimiter::default();
    /// limiter.limit(&API, "ada").await?;
    /// limiter.limit(&API, "eve").await?;
    /// assert_eq!(limiter.rows_by_policy(), [(API.name().clone(), 2)]);
    /// # Ok(()) }
    /// ```
    pub fn rows_by_policy(&self) -> Vec<(PolicyName, usize)> {
        self.inner.backend.rows_by_policy()
    }
}

/// How a limiter is doing: what [`RateLimiter::stats`] returns.
///
/// ```
/// use tollgate::{protection::Signal, Policy, Quota, RateLimiter, DAY, MINUTE};
///
/// static API: Policy = Policy::new("api", Quota::token_bucket(30, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::default();
/// limiter.limit(&API, "ada").await?;
/// limiter.block(Signal::key("mallory"), DAY).await?;
/// limiter.set_quota(&API, Some(Quota::token_bucket(20, MINUTE))).await?;
///
/// let stats = limiter.stats();
/// assert_eq!((stats.rows, stats.waiting, stats.circuit_open), (Some(1), 0, None));
/// assert_eq!((stats.evictions, stats.overflowed), (Some(0), Some(0)));
/// assert_eq!((stats.blocked, stats.offenders, stats.changed_quotas, stats.pending_notices), (1, 0, 1, 0));
/// assert_eq!(stats.poll_failed, None); // there is nobody to be told by
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Rows that the backend holds in this process; `None` of a remote one.
    pub rows: Option<usize>,
    /// Rows that the backend dropped to make room, before they were repaid: each forgave its key what it had spent.
    /// `None` of a remote one.
    pub evictions: Option<u64>,
    /// Charges of callers without a row of their own, decided on a row that several of them share. More than a
    /// few mean that a policy is flooded with keys: see [`RateLimiter::rows_by_policy`]. `None` of a remote one.
    pub overflowed: Option<u64>,
    /// Whether the backend is out of reach and calls fail at once; `None` of one that cannot be.
    pub circuit_open: Option<bool>,
    /// How many wait for their turns.
    pub waiting: usize,
    /// How many callers are remembered for being denied, those included who are blocked for that.
    pub offenders: usize,
    /// How many are blocked, for that or by hand.
    pub blocked: usize,
    /// How many quotas are changed at run time.
    pub changed_quotas: usize,
    /// How many earned blocks are still to be told to the other processes. It stays above 0 while they cannot be told.
    pub pending_notices: usize,
    /// Whether what other processes tell (quotas set, blocks) could not be read when that was tried last. While that is
    /// so, this process goes by what it knew. `None` where there is nothing to read: in memory, and of a backend that was
    /// told not to.
    pub poll_failed: Option<bool>,
    /// Mistakes of the program that the limiter noticed: each number should be 0. See
    /// [`Observer::mistake`](crate::observe::Observer::mistake).
    pub mistakes: Mistakes,
}

impl Inner {
    /// Forgets what was spent, wherever that is known, and returns whether there was a row.
    pub(super) fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<bool> {
        let was_local = self.failure.reset(rows);
        let done = self.backend.reset(rows);
        self.forget_denials(rows.iter().copied());
        for row in rows {
            let reset = Reset { policy: row.policy, key: row.key };
            self.observers.iter().for_each(|observer| observer.reset(&reset));
        }
        done.map(move |found| was_local || found > 0)
    }

    /// Something may have been given back: what the backend said before is not so any more. To be called after it was
    /// told, since an answer from before then may still come.
    pub(super) fn forget_denials<'a>(&self, rows: impl Iterator<Item = RowId<'a>>) {
        if let Some(cache) = &self.block_cache {
            cache.forget(rows);
        }
    }

    /// Tells the other limiters, if there can be any.
    pub(super) fn publish(&self, content: &NoticeContent) -> BackendFuture<()> {
        match self.backend.notice_channel() {
            Some(channel) => channel.publish(content.to_notice()),
            None => BackendFuture::ready(Ok(())),
        }
    }

    /// Tells the other limiters when that is possible; nobody waits for it.
    pub(super) fn publish_later(&self, content: &NoticeContent) {
        if let Some(channel) = self.backend.notice_channel() {
            channel.publish_later(content.to_notice());
        }
    }

    /// What is so from now on. `all`: no other quotas are changed. A block that is not told of again stays: it was
    /// earned.
    pub(super) fn apply(&self, content: impl IntoIterator<Item = NoticeContent>, all: bool) {
        let now = self.time.now();
        let mut changes = Vec::new();
        for content in content {
            match content {
                NoticeContent::Quota(change) => changes.push(change),
                NoticeContent::Block(id, Some((lasts, times))) => self.guard.block(id, now, lasts, times),
                NoticeContent::Block(id, None) => self.guard.unblock(id),
                // There may be more on a board than there is room for; whoever posted them was told of his own.
                NoticeContent::ManualBlock(id, Some(lasts)) => drop(self.guard.manual.block(id, now, now + lasts)),
                NoticeContent::ManualBlock(id, None) => self.guard.manual.unblock(id),
                NoticeContent::Pause(row, Some(lasts)) => drop(self.guard.pauses.pause(row, now, now + lasts)),
                NoticeContent::Pause(row, None) => self.guard.pauses.resume(row),
            }
        }
        if all {
            self.overrides.replace(changes);
        } else {
            changes.into_iter().for_each(|change| self.overrides.set(change));
        }
    }
}

impl NoticeSubscriber for Inner {
    fn receive(&self, notices: Vec<Notice>, all: bool) {
        self.apply(notices.iter().filter_map(NoticeContent::parse), all);
    }
}

debug_fields! {
    Inner, |inner|
    backend: inner.backend,
    failure: inner.failure,
    guard: inner.guard,
    block_cache: inner.block_cache,
    changed_quotas: inner.overrides.len(),
    observers: inner.observers.len()
}
