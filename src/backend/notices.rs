//! Notices, which publish run-time changes such as new quotas and blocks to all limiters on a backend.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use super::BackendFuture;

/// A publish/subscribe channel between the limiters on a backend.
///
/// # Contract
/// - The channel keeps the last notice of each topic until it is withdrawn or expires. The number of notices is
///   bounded: a full channel first drops notices that would expire.
/// - A new [subscriber](NoticeChannel::subscribe) receives all current notices. After that, it receives every published
///   notice, in order and within a delay that the channel documents. If it may have missed a notice, it receives all
///   current notices again.
/// - **Publishing is eager**: it finishes even if the future is dropped. When the future completes, subscribers of the
///   same process have received the notice.
/// - A lost notice counts as withdrawn.
///
/// ```
/// use std::{collections::BTreeMap, sync::{Arc, Mutex, Weak}};
/// use tollgate::backend::{BackendFuture, NoticeChannel, NoticeSubscriber, Notice};
///
/// /// A channel within one process: notices by topic, and subscribers. A real channel also drops expired notices.
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
/// channel.publish_later(Notice { topic: b"limits".to_vec(), text: Some("another quota".into()), lasts: None });
/// assert_eq!(subscriber.0.lock().unwrap().len(), 1);
/// ```
pub trait NoticeChannel: fmt::Debug + Send + Sync + 'static {
    /// Publishes a notice, replacing the current one for its topic.
    ///
    /// # Errors
    /// The future fails if the channel cannot be reached; other subscribers may or may not have received the notice.
    fn publish(&self, notice: Notice) -> BackendFuture<()>;

    /// Publishes a notice in the background, as soon as possible. A channel may retry until it succeeds, for a limited
    /// number of pending notices. The default does not retry.
    fn publish_later(&self, notice: Notice) {
        drop(self.publish(notice));
    }

    /// Delivers the current notices and all later ones to `subscriber` until it is dropped.
    fn subscribe(&self, subscriber: Weak<dyn NoticeSubscriber>);
}

/// A receiver of a channel's notices. Limiters [subscribe](NoticeChannel::subscribe) when they are built. See
/// [`NoticeChannel`] for an example.
pub trait NoticeSubscriber: Send + Sync + 'static {
    /// Handles published notices. If `all` is set, these are all current notices, and any other notice is withdrawn.
    fn receive(&self, notices: Vec<Notice>, all: bool);
}

/// A message on a [`NoticeChannel`]: a topic, its text and its lifetime. See [`NoticeChannel`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // A new field would be a new contract.
pub struct Notice {
    /// The topic.
    pub topic: Vec<u8>,
    /// The content; `None` withdraws the notice of this topic.
    pub text: Option<String>,
    /// The time from now until the notice expires; `None` if it stays until withdrawn.
    pub lasts: Option<Duration>,
}
