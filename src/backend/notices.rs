//! Notices, which announce run-time changes, such as new quotas and blocks, to all limiters on a backend.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use super::BackendFuture;

/// A publish/subscribe channel between the limiters on a backend.
///
/// # Contract
/// - The channel keeps the last notice of each topic until the notice is withdrawn or expires. The number of notices is
///   bounded. If the channel is full, it drops notices with a limited lifetime first.
/// - A new [subscriber](NoticeChannel::subscribe) receives all current notices. After that, it receives every published
///   notice, in order and within a delay that the channel documents. If a subscriber may have missed a notice, it
///   receives all current notices again.
/// - **Publishing is eager**: it finishes even if the future is dropped. When the future completes, the subscribers in
///   the same process have received the notice.
/// - If the channel loses a notice, the notice counts as withdrawn.
///
/// ```
/// use std::{collections::BTreeMap, sync::{Arc, Mutex, Weak}, time::Duration};
/// use tollgate::backend::{BackendFuture, NoticeChannel, NoticeSubscriber, Notice};
///
/// /// Notices by topic, and the subscribers. A real channel also drops expired notices.
/// #[derive(Debug, Default)]
/// struct Channel(Mutex<(BTreeMap<Vec<u8>, Notice>, Vec<Weak<dyn NoticeSubscriber>>)>);
///
/// impl NoticeChannel for Channel {
///     fn publish(&self, notice: Notice) -> BackendFuture<()> {
///         let subscribers = {
///             let (notices, subscribers) = &mut *self.0.lock().unwrap();
///             notices.insert(notice.topic.clone(), notice.clone());
///             subscribers.clone()
///         };
///         subscribers.iter().filter_map(Weak::upgrade).for_each(|to| to.receive(vec![notice.clone()], false));
///         BackendFuture::ready(Ok(()))
///     }
///     fn subscribe(&self, subscriber: Weak<dyn NoticeSubscriber>) {
///         let (notices, subscribers) = &mut *self.0.lock().unwrap();
///         if let Some(subscriber) = subscriber.upgrade() {
///             subscriber.receive(notices.values().cloned().collect(), true);
///         }
///         subscribers.push(subscriber);
///     }
/// }
///
/// #[derive(Default)]
/// struct Subscriber(Mutex<Vec<Notice>>);
///
/// impl NoticeSubscriber for Subscriber {
///     fn receive(&self, notices: Vec<Notice>, all: bool) {
///         let mut known = self.0.lock().unwrap();
///         known.retain(|_| !all);
///         known.extend(notices);
///     }
/// }
///
/// let (channel, subscriber) = (Channel::default(), Arc::new(Subscriber::default()));
/// let shared: Arc<dyn NoticeSubscriber> = Arc::clone(&subscriber) as _;
/// channel.subscribe(Arc::downgrade(&shared));
/// let text = Some("another quota".into());
/// channel.publish_later(Notice { topic: b"limits".to_vec(), text, lasts: None, age: Duration::ZERO });
/// assert_eq!(subscriber.0.lock().unwrap().len(), 1);
/// ```
pub trait NoticeChannel: fmt::Debug + Send + Sync + 'static {
    /// Publishes a notice, replacing the current one for its topic.
    ///
    /// # Errors
    /// The future fails if the channel cannot be reached. In this case, other subscribers may or may not have received
    /// the notice.
    fn publish(&self, notice: Notice) -> BackendFuture<()>;

    /// Publishes a notice in the background, as soon as possible. A channel may keep a limited number of pending
    /// notices and retry until they are published. The default implementation does not retry.
    fn publish_later(&self, notice: Notice) {
        drop(self.publish(notice));
    }

    /// Delivers the current notices and all later ones to `subscriber` until it is dropped.
    fn subscribe(&self, subscriber: Weak<dyn NoticeSubscriber>);
}

/// Receives the notices of a channel. Limiters [subscribe](NoticeChannel::subscribe) when they are built.
pub trait NoticeSubscriber: Send + Sync + 'static {
    /// Handles published notices. If `all` is set, `notices` contains all current notices, so every other notice counts
    /// as withdrawn.
    fn receive(&self, notices: Vec<Notice>, all: bool);
}

/// A message on a [`NoticeChannel`], with a topic, text and a lifetime. See [`NoticeChannel`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // A new field would change the contract.
pub struct Notice {
    /// The topic.
    pub topic: Vec<u8>,
    /// The content of the notice. `None` withdraws the current notice of the topic.
    pub text: Option<String>,
    /// The time from now until the notice expires. `None` if the notice stays until it is withdrawn.
    pub lasts: Option<Duration>,
    /// The time since the notice was published, by the channel's clock. It is zero when a notice is published. A
    /// channel that does not know the time leaves it at zero.
    pub age: Duration,
}
