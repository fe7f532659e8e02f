//! Choices for a limiter.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use super::block_cache::BlockCache;
use super::failure::Failure;
use super::guard::Guard;
use super::local::LocalTime;
use super::mistake_tracker::MistakeTracker;
use super::overrides::Overrides;
use super::queue::Queues;
use super::{AutoBlock, DenyList, FailureMode, Inner, Observer, RateLimiter, waiting};
use crate::backend::{Backend, NoticeSubscriber};
use crate::policy::{Key, Policy, Secret};
use crate::sync::atomic::AtomicUsize;

/// Choices for a [`RateLimiter`].
///
/// ```
/// use tollgate::{observe::{Decided, Observer}, protection::{AutoBlock, DenyList, DenyRule}, FailureMode, MemoryBackend, Policy, Quota};
/// use tollgate::{key::Secret, RateLimiter, Reason, HOUR, SECOND};
///
/// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
/// static SEARCH: Policy = Policy::new("search", Quota::token_bucket(10, SECOND));
///
/// struct Log;
///
/// impl Observer for Log {
///     fn decided(&self, observed: &Decided<'_>) {
///         println!("{} {}", observed.decision().policy(), observed.outcome().as_str());
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
/// let list = DenyList::from_iter([DenyRule::key("mallory")]);
/// let limiter = RateLimiter::builder(MemoryBackend::new())
///     .secret(Secret::random())
///     .deny_list(&list)
///     .auto_block(AutoBlock::new([&LOGIN]).threshold(10).without_keys()) // anybody can name an account
///     .observer(Log)
///     // For a backend elsewhere, when it is down; and what of it is remembered here.
///     .on_failure(FailureMode::fallback(0.25))
///     .on_failure_of(&SEARCH, FailureMode::Allow)
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
    observers: Vec<Arc<dyn Observer>>,
}

impl RateLimiterBuilder {
    pub(super) fn new(backend: impl Backend) -> RateLimiterBuilder {
        let backend: Box<dyn Backend> = Box::new(backend);
        RateLimiterBuilder {
            secret: backend.secret(),
            backend,
            failure: Failure::default(),
            max_waiting: waiting::MAX_WAITING,
            deny: None,
            auto_block: None,
            block_cache: BLOCK_CACHE,
            observers: Vec::new(),
        }
    }

    /// The secret under which keys are hashed. Defaults to a random one; processes that share a backend need the same.
    #[must_use]
    pub fn secret(mut self, secret: Secret) -> RateLimiterBuilder {
        self.secret = Some(secret);
        self
    }

    /// What to do when the backend cannot decide. Defaults to [`FailureMode::Deny`].
    #[must_use]
    pub fn on_failure(mut self, mode: FailureMode) -> RateLimiterBuilder {
        self.failure.default = mode;
        self
    }

    /// [`on_failure`](RateLimiterBuilder::on_failure) for one policy, and all that go by its name.
    #[must_use]
    pub fn on_failure_of(mut self, policy: &Policy, mode: FailureMode) -> RateLimiterBuilder {
        self.failure.of.insert(policy.name().as_str().to_owned(), mode);
        self
    }

    /// The backend of [`FailureMode::Fallback`], one that answers at once. Defaults to a
    /// [`MemoryBackend`](crate::MemoryBackend) on the system's clock.
    #[must_use]
    pub fn fallback_backend(mut self, backend: impl Backend) -> RateLimiterBuilder {
        self.failure.fallback = OnceLock::from(Box::new(backend) as Box<dyn Backend>);
        self
    }

    /// How many may wait for their turns at once, in layers and in [`wait_up_to`](crate::limiter::Acquire::wait_up_to). Defaults
    /// to 10,000. Whoever comes when all places are taken is decided without waiting: allowed if it fits at once, else
    /// denied.
    ///
    /// How many wait of one key is the quota's to say: [`Quota::max_reserved`](crate::Quota::max_reserved).
    ///
    /// ```
    /// use tollgate::{MemoryBackend, Policy, Quota, RateLimiter, SECOND};
    ///
    /// static CALLS: Policy = Policy::new("calls", Quota::token_bucket(1, SECOND).unlimited_reservations());
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let limiter = RateLimiter::builder(MemoryBackend::new()).max_waiting(0).build();
    /// assert!(limiter.acquire(&CALLS, "ada").wait_up_to(SECOND).await.is_ok()); // it fits at once
    /// assert!(limiter.acquire(&CALLS, "ada").wait_up_to(SECOND).await.is_err()); // it would have to wait
    /// # }
    /// ```
    #[cfg(feature = "wait")]
    #[must_use]
    pub fn max_waiting(mut self, places: usize) -> RateLimiterBuilder {
        self.max_waiting = places;
        self
    }

    /// Whom to deny whatever the limits say. The list can be edited while it is in use, and shared by limiters. Nobody
    /// by default; said again, the last list counts.
    #[must_use]
    pub fn deny_list(mut self, list: &DenyList) -> RateLimiterBuilder {
        self.deny = Some(list.clone());
        self
    }

    /// Blocks whoever is denied again and again. Off by default.
    #[must_use]
    pub fn auto_block(mut self, rules: AutoBlock) -> RateLimiterBuilder {
        self.auto_block = Some(rules);
        self
    }

    /// How many rows of a remote backend to remember as they were last seen; 0 = none. Defaults to 16,384, at 100 bytes
    /// each. For backends in this process it is not needed, and does nothing.
    ///
    /// A key that is known to be denied is denied here, without a journey, until the backend may allow it again, and for
    /// a second at most: then the backend is asked again. For a smaller cost or a longer wait the backend may allow it
    /// earlier, and that counts. What this limiter gives back, resets or changes is seen at once; what other processes
    /// give back, reset or change, within a second.
    #[must_use]
    pub fn block_cache(mut self, rows: usize) -> RateLimiterBuilder {
        self.block_cache = rows;
        self
    }

    /// Somebody to be told of every decision. Said several times, each is. Nobody by default.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> RateLimiterBuilder {
        self.observers.push(Arc::new(observer));
        self
    }

    /// The limiter, with these choices.
    pub fn build(self) -> RateLimiter {
        let guard = Guard::new(self.deny, self.auto_block);
        let block_cache = (self.backend.is_remote() && self.block_cache > 0).then(|| BlockCache::new(self.block_cache));
        let channel = self.backend.notice_channel();
        let hash = self.secret.unwrap_or_else(Secret::random);
        let inner = Arc::new(Inner {
            time: LocalTime::new(self.backend.clock()),
            backend: self.backend,
            anonymous: hash.digest(&Key::anonymous()),
            hash,
            failure: self.failure,
            queues: Queues::default(),
            waiting: AtomicUsize::new(0),
            max_waiting: self.max_waiting,
            guard,
            overrides: Overrides::default(),
            block_cache,
            observers: self.observers,
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

/// Rows of a remote backend that are remembered unless told otherwise.
const BLOCK_CACHE: usize = 16_384;
