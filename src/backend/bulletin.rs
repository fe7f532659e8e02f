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
/// - Whoever [subscribes](Bulletin::subscribe) is told all notices that stand, and then each that is posted, by anybody,
///   in the order in which that was done and within a time that the board states. When it cannot tell what was missed,
///   it tells all of them anew.
/// - **Posting is posted**: it is carried out even if the future is dropped. When the future is done, the poster's own
///   subscribers have been told.
/// - Loss forgives: a notice that is lost is as good as withdrawn.
pub trait Bulletin: fmt::Debug + Send + Sync + 'static {
    /// Posts a notice in the place of the one that stands under its topic.
    fn post(&self, notice: Notice) -> BackendFuture<()>;

    /// Posts a notice that nobody waits for, as soon as that is possible: it is tried again while it fails, as long as the
    /// board has room to remember it. By default it is posted once.
    fn tell(&self, notice: Notice) {
        drop(self.post(notice));
    }

    /// Tells `reader`, until that is gone.
    fn subscribe(&self, reader: Weak<dyn BulletinReader>);
}

/// Whoever is told.
pub trait BulletinReader: Send + Sync + 'static {
    /// These notices were posted. `all`: they are all that stand, and whatever else was told before does not any more.
    fn read(&self, notices: Vec<Notice>, all: bool);
}

/// A line on a board.
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
