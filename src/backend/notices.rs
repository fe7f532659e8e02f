//! What limiters on one backend tell each other while they run: quotas that were changed, callers who are blocked.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use super::BackendFuture;

/// A board that all limiters on a backend can read and post notices on.
///
/// # Contract
/// - One notice stands under each topic: the one that was posted last. It stands until it is withdrawn or its time is
///   over. A board holds so many of them; of those that it has no room for, notices with a time go first.
/// - Whoever [subscribes](NoticeChannel::subscribe) is told all notices that stand, and then each that is posted, by
///   anybody, in the order in which that was done and within a time that the board states. When it cannot tell what was
///   missed, it tells all of them anew.
/// - **Posting is posted**: it is carried out even if the future is dropped. When the future is done, the poster's own
///   subscribers have been told.
/// - Loss forgives: a notice that is lost is as good as withdrawn.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Arc, Mutex, Weak};
/// use tollgate::backend::{BackendFuture, NoticeChannel, NoticeSubscriber, Notice};
///
/// /// A board in one process: notices by topic, and who is told. A real one withdraws them when their time is over.
/// #[derive(Default)]
/// struct Board(Mutex<(BTreeMap<Vec<u8>, Notice>, Vec<Weak<dyn NoticeSubscriber>>)>);
///
/// impl NoticeChannel for Board {
///     fn publish(&self, notice: Notice) -> BackendFuture<()> {
///         let readers = {
///             let (notices, readers) = &mut *self.0.lock().unwrap();
///             notices.insert(notice.topic.clone(), notice.clone());
///             readers.retain(|reader| reader.strong_count() > 0);
///             readers.clone()
///         };
///         for reader in readers.iter().filter_map(Weak::upgrade) {
///             reader.receive(vec![notice.clone()], false);
///         }
///         BackendFuture::ready(Ok(()))
///     }
///
///     fn subscribe(&self, reader: Weak<dyn NoticeSubscriber>) {
///         let (notices, readers) = &mut *self.0.lock().unwrap();
///         if let Some(reader) = reader.upgrade() {
///             reader.receive(notices.values().cloned().collect(), true);
///         }
///         readers.push(reader);
///     }
/// }
/// # impl std::fmt::Debug for Board {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("Board") }
/// # }
///
/// #[derive(Default)]
/// struct Reader(Mutex<Vec<Notice>>);
///
/// impl NoticeSubscriber for Reader {
///     fn receive(&self, notices: Vec<Notice>, all: bool) {
///         let mut known = self.0.lock().unwrap();
///         if all {
///             known.clear();
///         }
///         known.extend(notices);
///     }
/// }
///
/// let (board, reader) = (Board::default(), Arc::new(Reader::default()));
/// let told: Arc<dyn NoticeSubscriber> = Arc::clone(&reader) as _;
/// board.subscribe(Arc::downgrade(&told));
/// board.publish_later(Notice { topic: b"limits".to_vec(), text: Some("another quota".into()), lasts: None });
/// assert_eq!(reader.0.lock().unwrap().len(), 1);
/// ```
pub trait NoticeChannel: fmt::Debug + Send + Sync + 'static {
    /// Posts a notice in the place of the one that stands under its topic.
    ///
    /// # Errors
    /// The future's, if the board cannot be reached: others may have been told, or not.
    fn publish(&self, notice: Notice) -> BackendFuture<()>;

    /// Posts a notice that nobody waits for, as soon as that is possible: it is tried again while it fails, as long as
    /// the board has room to remember it. By default it is posted once.
    fn publish_later(&self, notice: Notice) {
        drop(self.publish(notice));
    }

    /// Tells `reader` what stands and what is posted, until that is gone: it is held weakly.
    fn subscribe(&self, reader: Weak<dyn NoticeSubscriber>);
}

/// Whoever is told what is posted on a board: a limiter, which [subscribes](NoticeChannel::subscribe) when it is built.
///
/// See [`NoticeChannel`] for an example.
pub trait NoticeSubscriber: Send + Sync + 'static {
    /// These notices were posted. `all`: they are all that stand, and whatever else was told before does not any more.
    fn receive(&self, notices: Vec<Notice>, all: bool);
}

/// A line on a [board](NoticeChannel): what is so, about what, for how long.
///
/// ```
/// use tollgate::backend::Notice;
/// use tollgate::HOUR;
///
/// let blocked = Notice { topic: b"mallory".to_vec(), text: Some("blocked".into()), lasts: Some(HOUR) };
/// let withdrawn = Notice { text: None, lasts: None, ..blocked.clone() };
/// assert_eq!(withdrawn.topic, blocked.topic);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // A new field would be a new contract.
pub struct Notice {
    /// What it is about.
    pub topic: Vec<u8>,
    /// What is so; `None` = nothing any more.
    pub text: Option<String>,
    /// For how long from now on; `None` = until it is withdrawn.
    pub lasts: Option<Duration>,
}
