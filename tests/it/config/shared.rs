//! Reloads on a shared backend. A reload in one process applies to all processes, whichever files they started with.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tollgate::backend::{
    Adjustment, Backend, BackendFuture, MemoryBackend, Notice, NoticeChannel, NoticeSubscriber, RowId, Steps, Take,
};
use tollgate::config::ConfigErrorKind;
use tollgate::{
    Config, RateLimiter,
    backend::{Error, ErrorKind},
    limiter::SetQuotaError,
    policy::Enforce,
};

use super::app::toml;

/// A memory backend with a notice channel.
#[derive(Clone, Debug)]
struct SharedBackend {
    rows: Arc<MemoryBackend>,
    channel: Arc<Channel>,
}

#[derive(Default)]
struct Channel {
    notices: Mutex<BTreeMap<Vec<u8>, Notice>>,
    subscribers: Mutex<Vec<Weak<dyn NoticeSubscriber>>>,
    published: AtomicUsize,
    /// How many notices the channel accepts before it becomes unavailable.
    capacity: AtomicUsize,
    /// Whether the channel yields once before it confirms a notice.
    is_slow: AtomicBool,
}

impl SharedBackend {
    fn new() -> SharedBackend {
        let channel = Channel { capacity: AtomicUsize::new(usize::MAX), ..Channel::default() };
        SharedBackend { rows: Arc::default(), channel: Arc::new(channel) }
    }

    /// Delivers all stored notices to the last subscriber, because `subscribe` does not deliver any.
    fn deliver_to_last_subscriber(&self) {
        let all = self.channel.notices.lock().unwrap().values().cloned().collect();
        self.channel.subscribers.lock().unwrap().last().unwrap().upgrade().unwrap().receive(all, true);
    }
}

impl Backend for SharedBackend {
    fn acquire(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.rows.acquire(takes)
    }

    fn peek(&self, takes: &[Take<'_>]) -> BackendFuture<Steps> {
        self.rows.peek(takes)
    }

    fn settle(&self, settlements: &[Adjustment<'_>]) -> BackendFuture<bool> {
        self.rows.settle(settlements)
    }

    fn reset(&self, rows: &[RowId<'_>]) -> BackendFuture<usize> {
        self.rows.reset(rows)
    }

    fn notice_channel(&self) -> Option<Arc<dyn NoticeChannel>> {
        Some(Arc::clone(&self.channel) as Arc<dyn NoticeChannel>)
    }
}

impl NoticeChannel for Channel {
    fn publish(&self, notice: Notice) -> BackendFuture<()> {
        if self.published.fetch_add(1, Ordering::Relaxed) >= self.capacity.load(Ordering::Relaxed) {
            return BackendFuture::ready(Err(Error::new(ErrorKind::Unavailable, "the channel is unavailable")));
        }
        self.notices.lock().unwrap().insert(notice.topic.clone(), notice.clone());
        let subscribers = self.subscribers.lock().unwrap().clone();
        subscribers
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|subscriber| subscriber.receive(vec![notice.clone()], false));
        if !self.is_slow.load(Ordering::Relaxed) {
            return BackendFuture::ready(Ok(()));
        }
        BackendFuture::boxed(async {
            tokio::task::yield_now().await;
            Ok(())
        })
    }

    fn subscribe(&self, subscriber: Weak<dyn NoticeSubscriber>) {
        self.subscribers.lock().unwrap().push(subscriber);
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Channel")
    }
}

fn file(own: u32, free: u32) -> Config {
    toml(&format!(
        "[policies.api]\nquota = \"{own}/min\"\ntiers = {{ free = \"{free}/min\" }}\n[deny]\nkeys = ['\"k{own}\"']"
    ))
}

/// Returns the rates that `limiter` applies to the policy `api` and to its tier `free`.
fn rates(config: &Config, limiter: &RateLimiter) -> (u64, u64) {
    let api = config.policy("api").unwrap();
    let rate = |subject: tollgate::Subject| limiter.quotas(api, subject)[0].rate();
    (rate("ada".into()), rate(tollgate::Subject::new("ada").tier("free")))
}

#[tokio::test]
async fn a_reload_in_one_process_applies_to_all_processes() {
    let backend = SharedBackend::new();
    let (first_config, second_config) = (file(10, 20), file(11, 20));
    let (first, second) =
        (first_config.limiter(backend.clone()).build(), second_config.limiter(backend.clone()).build());
    for (own, free) in [(30, 40), (11, 20), (10, 20), (11, 21), (11, 20)] {
        // The first process must be notified even if the second process reloads its original file.
        second_config.reload(&second, &file(own, free)).await.unwrap();
        assert_eq!(rates(&first_config, &first), (own.into(), free.into()));
        assert_eq!(rates(&second_config, &second), (own.into(), free.into()));
        assert!(first_config.reload(&first, &file(own, free)).await.unwrap().quotas().is_empty());
        assert_eq!(rates(&second_config, &second), (own.into(), free.into()));
    }
}

#[tokio::test]
async fn a_restarted_program_applies_an_edited_file_by_reloading_it() {
    let backend = SharedBackend::new();
    let old = file(10, 20);
    let limiter = old.limiter(backend.clone()).build();
    old.reload(&limiter, &file(30, 40)).await.unwrap();
    drop(limiter);

    // The quotas of the last reload still apply after a restart.
    let new = file(50, 60);
    let limiter = new.limiter(backend.clone()).build();
    backend.deliver_to_last_subscriber();
    assert_eq!(rates(&new, &limiter), (30, 40));
    // The next reload replaces these quotas, even if their notices have not arrived yet.
    let limiter = new.limiter(backend.clone()).build();
    assert_eq!(rates(&new, &limiter), (50, 60));
    new.reload(&limiter, &new).await.unwrap();
    backend.deliver_to_last_subscriber();
    assert_eq!(rates(&new, &limiter), (50, 60));
}

#[tokio::test]
async fn a_reload_changes_the_enforcement_in_all_processes_and_overrides_earlier_reloads() {
    let file = |setting: &str| toml(&format!("policies.api = {{ quota = \"10/min\"{setting} }}"));
    let backend = SharedBackend::new();
    let old = file(", shadow = true");
    let enforcement = |limiter: &RateLimiter| limiter.enforcement(old.policy("api").unwrap());
    let (first, second) = (old.limiter(backend.clone()).build(), old.limiter(backend.clone()).build());
    old.reload(&first, &file("")).await.unwrap();
    assert_eq!([enforcement(&first), enforcement(&second)], [Enforce::Always; 2]);
    drop((first, second));

    // A reload after a restart replaces the stored enforcement, even if its notice has not arrived yet.
    let new = file(", enforce = 0.5");
    let limiter = new.limiter(backend.clone()).build();
    let reloaded = new.reload(&limiter, &new).await.unwrap();
    backend.deliver_to_last_subscriber();
    assert_eq!(limiter.enforcement(new.policy("api").unwrap()), Enforce::Share(0.5));
    assert!(reloaded.is_empty());
}

#[tokio::test]
async fn a_failed_reload_keeps_the_deny_list_and_can_be_retried() {
    let backend = SharedBackend::new();
    let config = file(10, 20);
    let limiter = config.limiter(backend.clone()).build();
    backend.channel.capacity.store(1, Ordering::Relaxed);
    let error = config.reload(&limiter, &file(30, 40)).await.unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Limiter);
    let message = error.to_string();
    assert!(message.starts_with("limits.toml: policies.api.quota: "), "{message}");
    assert!(message.contains("cannot set 30/min") && message.contains("the channel is unavailable"), "{message}");
    let cause = error.source().unwrap().source().unwrap();
    assert!(matches!(cause.downcast_ref(), Some(SetQuotaError::Backend(_))), "{cause:?}");
    assert_eq!(rates(&config, &limiter), (10, 40));
    assert!(config.deny_list().contains(&tollgate::protection::DenyRule::key("k10")));

    backend.channel.capacity.store(usize::MAX, Ordering::Relaxed);
    config.reload(&limiter, &file(30, 40)).await.unwrap();
    assert_eq!(rates(&config, &limiter), (30, 40));
    assert!(config.deny_list().contains(&tollgate::protection::DenyRule::key("k30")));
}

#[tokio::test]
async fn a_reload_is_refused_while_another_is_in_progress() {
    let backend = SharedBackend::new();
    let config = file(10, 20);
    backend.channel.is_slow.store(true, Ordering::Relaxed);
    let limiter = config.limiter(backend).build();
    {
        let new = file(30, 40);
        let mut first = std::pin::pin!(config.reload(&limiter, &new));
        let waker = std::task::Waker::noop();
        assert!(first.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        let error = config.reload(&limiter, &file(31, 41)).await.unwrap_err();
        assert_eq!(error.kind(), ConfigErrorKind::Busy);
        assert_eq!(error.to_string(), "limits.toml: another reload is in progress; retry when it is done");
    }
    config.reload(&limiter, &file(32, 42)).await.unwrap();
    assert_eq!(rates(&config, &limiter), (32, 42));
}

#[tokio::test]
async fn the_quota_of_a_removed_tier_is_withdrawn() {
    let backend = SharedBackend::new();
    let old = file(10, 20);
    old.reload(&old.limiter(backend.clone()).build(), &old).await.unwrap();
    let new = toml("[policies.api]\nquota = \"7/min\"");
    let limiter = new.limiter(backend.clone()).build();
    backend.deliver_to_last_subscriber();
    new.reload(&limiter, &new).await.unwrap();
    assert_eq!(rates(&new, &limiter), (7, 7));
    assert_eq!(limiter.stats().changed_quotas, 1);
}
