//! The builder of a limiter.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use super::block_cache::BlockCache;
use super::failure::Failure;
use super::guard::Guard;
use super::leases::Leases;
use super::local::LocalTime;
use super::mistake_tracker::MistakeTracker;
use super::overrides::Overrides;
use super::queue::Queues;
use super::shards::Shards;
use super::tier_names::TierNames;
use super::{AutoBlock, DenyList, FailureMode, Inner, Observer, RateLimiter, waiting};
use crate::backend::{Backend, NoticeSubscriber};
use crate::policy::{Key, Policy, Quota, Secret};
use crate::sync::atomic::AtomicUsize;

/// Builds a [`RateLimiter`].
///
/// ```
/// use tollgate::protection::{AutoBlock, DenyList, DenyRule};
/// use tollgate::{key::Secret, FailureMode, MemoryBackend, Policy, Quota, RateLimiter, Reason, HOUR};
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let list = DenyList::from_iter([DenyRule::key("mallory")]);
/// let limiter = RateLimiter::builder(MemoryBackend::new())
///     .secret(Secret::random())
///     .deny_list(&list)
///     .auto_block(AutoBlock::new([&LOGIN]).threshold(10).without_keys()) // the account names are not verified
///     // The following settings matter for remote backends.
///     .on_failure(FailureMode::fallback(0.25))
///     .fallback_backend(MemoryBackend::builder().max_rows(10_000).build())
///     .block_cache(4096)
///     .build();
/// assert_eq!(limiter.try_limit(&LOGIN, "mallory").await?.reason(), Reason::DenyList);
/// # Ok(()) }
/// ```
pub struct RateLimiterBuilder {
    backend: Box<dyn Backend>,
    secret: Option<Secret>,
    failure: Failure,
    max_waiting: usize,
    deny: Option<DenyList>,
    auto_block: Option<AutoBlock>,
    block_cache: usize,
    sample_shards: u8,
    observers: Vec<Arc<dyn Observer>>,
}

impl RateLimiterBuilder {
    pub(super) fn new(backend: impl Backend) -> RateLimiterBuilder {
        let backend: Box<dyn Backend> = Box::new(backend);
        RateLimiterBuilder {
            secret: backend.secret(),
            backend,
            failure: Failure::default(),
            max_waiting: waiting::DEFAULT_MAX_WAITING,
            deny: None,
            auto_block: None,
            block_cache: DEFAULT_BLOCK_CACHE_ROWS,
            sample_shards: Quota::MAX_SHARDS as u8,
            observers: Vec::new(),
        }
    }

    /// Sets the secret that is used to hash keys. Processes that share a backend need the same secret. Defaults to the
    /// backend's secret or, if it has none, to a random secret. To [save](RateLimiter::save) the state of a limiter,
    /// set the secret of [its backend](crate::backend::MemoryBackendBuilder::secret) instead.
    #[must_use]
    pub fn secret(mut self, secret: Secret) -> RateLimiterBuilder {
        self.secret = Some(secret);
        self
    }

    /// Sets how calls are decided when the backend fails. Defaults to [`FailureMode::Deny`].
    #[must_use]
    pub fn on_failure(mut self, mode: FailureMode) -> RateLimiterBuilder {
        self.failure.default = mode;
        self
    }

    /// Sets the [failure mode](RateLimiterBuilder::on_failure) for one policy, which is identified by its name.
    #[must_use]
    pub fn on_failure_of(mut self, policy: &Policy, mode: FailureMode) -> RateLimiterBuilder {
        self.failure.of.insert(policy.name().as_str().to_owned(), mode);
        self
    }

    /// Sets the backend that [`FailureMode::Fallback`] uses. This backend must answer without waiting. Defaults to a
    /// [`MemoryBackend`](crate::MemoryBackend) on the system clock.
    #[must_use]
    pub fn fallback_backend(mut self, backend: impl Backend) -> RateLimiterBuilder {
        self.failure.fallback = OnceLock::from(Box::new(backend) as Box<dyn Backend>);
        self
    }

    /// Sets how many calls may wait at the same time, in layers and in [`wait_up_to`](super::Acquire::wait_up_to).
    /// Further calls are allowed or denied immediately. Defaults to 10,000.
    #[cfg(feature = "wait")]
    #[must_use]
    pub fn max_waiting(mut self, calls: usize) -> RateLimiterBuilder {
        self.max_waiting = calls;
        self
    }

    /// Sets the [deny list](DenyList). By default, there is none.
    #[must_use]
    pub fn deny_list(mut self, list: &DenyList) -> RateLimiterBuilder {
        self.deny = Some(list.clone());
        self
    }

    /// Blocks callers that are denied repeatedly. Off by default.
    #[must_use]
    pub fn auto_block(mut self, rules: AutoBlock) -> RateLimiterBuilder {
        self.auto_block = Some(rules);
        self
    }

    /// Sets how many rows of a remote backend are cached (100 bytes each; 0 turns the cache off). Defaults to 16,384.
    ///
    /// A cached row is used for one second. If it shows that the backend would deny a call, the call is denied without
    /// contacting the backend. Refunds, resets and quota changes made by this limiter take effect immediately. Changes
    /// made by other processes take effect within a second.
    #[must_use]
    pub fn block_cache(mut self, rows: usize) -> RateLimiterBuilder {
        self.block_cache = rows;
        self
    }

    /// Sets how many of a quota's [shards](Quota::shards) are read by checks, snapshots and the status endpoint: at
    /// least 1 and at most [`Quota::MAX_SHARDS`], which is the default. If a quota has more shards than this number, a
    /// random sample of them is read, and the number of remaining tokens is an estimate.
    #[must_use]
    pub fn sample_shards(mut self, shards: u64) -> RateLimiterBuilder {
        self.sample_shards = shards.clamp(1, Quota::MAX_SHARDS) as u8;
        self
    }

    /// Adds an [observer](Observer), which is notified of every decision. Can be called several times.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> RateLimiterBuilder {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Builds the limiter.
    pub fn build(self) -> RateLimiter {
        let guard = Guard::new(self.deny, self.auto_block);
        let block_cache = (self.backend.is_remote() && self.block_cache > 0).then(|| BlockCache::new(self.block_cache));
        let channel = self.backend.notice_channel();
        let hash = self.secret.unwrap_or_else(Secret::random);
        let time = || LocalTime::new(self.backend.clock());
        let leases = self.backend.lease_backend().map(|backend| Leases::new(backend, time()));
        let inner = Arc::new(Inner {
            time: time(),
            backend: self.backend,
            anonymous: hash.digest(&Key::anonymous()),
            hash,
            failure: self.failure,
            queues: Queues::default(),
            waiting: AtomicUsize::new(0),
            max_waiting: self.max_waiting,
            guard,
            overrides: Overrides::default(),
            shards: Shards::new(self.sample_shards),
            leases,
            block_cache,
            observes_keys: self.observers.iter().any(|observer| observer.needs_keys()),
            observers: self.observers,
            tier_names: TierNames::new(),
            mistakes: MistakeTracker::default(),
        });
        if let Some(channel) = channel {
            let reader: Weak<Inner> = Arc::downgrade(&inner);
            channel.subscribe(reader as Weak<dyn NoticeSubscriber>);
        }
        RateLimiter { inner }
    }
}

impl fmt::Debug for RateLimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiterBuilder")
            .field("backend", &self.backend)
            .field("failure", &self.failure)
            .field("deny", &self.deny)
            .field("auto_block", &self.auto_block)
            .field("observers", &self.observers.len())
            .finish_non_exhaustive()
    }
}

const DEFAULT_BLOCK_CACHE_ROWS: usize = 16_384;
