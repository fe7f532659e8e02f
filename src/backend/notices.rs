//! Notices of run-time changes, such as new quotas and blocks, for all limiters that share a backend.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use super::BackendFuture;

/// A publish/subscribe channel between the limiters that share a backend.
///
/// # Contract
/// - The channel keeps the latest notice on each topic until it is withdrawn or expires. A full channel drops notices
///   with a limited lifetime first. A lost notice counts as withdrawn.
/// - A [subscriber](NoticeChannel::subscribe) receives all current notices, and then every new notice, in order and
///   within a delay that the channel documents. A subscriber that may have missed a notice receives all current notices
///   again.
/// - **Publishing is eager**: it finishes even if the future is dropped. When the future completes, the subscribers in
///   the same process have received the notice.
///
/// ```
/// use std::{collections::BTreeMap, sync::{Mutex, Weak}};
/// use tollgate::backend::{BackendFuture, NoticeChannel, NoticeSubscriber, Notice};
///
/// /// Notices by topic, and the subscribers. A real channel also drops expired notices.
/// #[derive(Debug, Default)]
/// struct Channel(Mutex<(BTreeMap<Vec<u8>, Notice>, Vec<Weak<dyn NoticeSubscriber>>)>);
///
/// impl NoticeChannel for Channel {
///     fn publish(&self, notice: Notice) -> BackendFuture<()> {
///         let (notices, subscribers) = &mut *self.0.lock().unwrap();
///         notices.insert(notice.topic.clone(), notice.clone());
///         subscribers.iter().filter_map(Weak::upgrade).for_each(|to| to.receive(vec![notice.clone()], false));
///         BackendFuture::ready(Ok(()))
///     }
///     fn subscribe(&self, subscriber: Weak<dyn NoticeSubscriber>) {
///         let (notices, subscribers) = &mut *self.0.lock().unwrap();
///         if let Some(to) = subscriber.upgrade() { to.receive(notices.values().cloned().collect(), true); }
///         subscribers.push(subscriber);
///     }
/// }
/// ```
pub trait NoticeChannel: fmt::Debug + Send + Sync + 'static {
    /// Publishes a notice, which replaces the current notice on its topic.
    ///
    /// # Errors
    /// The future fails if the channel cannot be reached. Some subscribers may nevertheless have received the notice.
    fn publish(&self, notice: Notice) -> BackendFuture<()>;

    /// Publishes a notice in the background. A channel may retry some notices; the default implementation does not.
    fn publish_later(&self, notice: Notice) {
        drop(self.publish(notice));
    }

    /// Delivers the current notices and all later ones to `subscriber` until it is dropped.
    fn subscribe(&self, subscriber: Weak<dyn NoticeSubscriber>);
}

/// Receives the notices of a channel. Limiters [subscribe](NoticeChannel::subscribe) when they are built.
pub trait NoticeSubscriber: Send + Sync + 'static {
    /// Handles published notices. If `all` is true, `notices` contains every current notice; any others have been
    /// withdrawn or have expired.
    fn receive(&self, notices: Vec<Notice>, all: bool);
}

/// A message on a [`NoticeChannel`], with a topic, a text and a lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // A new field would change the contract.
pub struct Notice {
    /// The topic.
    pub topic: Vec<u8>,
    /// The content of the notice. `None` withdraws the current notice on the topic.
    pub text: Option<String>,
    /// The time from now until the notice expires, or `None` if the notice stays until it is withdrawn.
    pub lasts: Option<Duration>,
    /// The age of the notice according to the channel's clock. Zero if the notice is new or its age is unknown.
    pub age: Duration,
}
