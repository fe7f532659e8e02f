//! The board of notices: in three keys on the server, read now and then by every process.
//!
//! Each notice has a version, later than all before it, so a reader asks for what came after the last one that it
//! knows. A board that was lost, or forgot something that the reader missed, is told whole.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind as RedisKind, FromRedisValue, ServerErrorKind, Value};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::error::{Fault, classify, fault};
use super::lanes::Lanes;
use super::script::NOTICES;
use super::slot;
use crate::backend::{BackendFuture, Error, ErrorKind, Notice, NoticeChannel, NoticeSubscriber};

/// See [`NoticeChannel`].
pub(super) struct Board {
    lanes: Arc<Lanes>,
    keys: [String; 3],
    /// Of the three, on a cluster.
    slot: u16,
    /// How often it is read.
    every: Duration,
    readers: Mutex<Readers>,
    /// As many posts may be on their way.
    posts: Arc<Semaphore>,
    /// What the readers were told. Held while the server is asked and they are told, so that they are told in order.
    told: tokio::sync::Mutex<Told>,
}

#[derive(Default)]
struct Readers {
    all: Vec<Weak<dyn NoticeSubscriber>>,
    /// Those who were told nothing yet.
    new: bool,
    /// A task reads the board.
    reading: bool,
    /// Whether it could not, the last time.
    deaf: bool,
    /// Notices that nobody waits for, and by when they are over.
    pending_notices: VecDeque<(Notice, Option<Instant>)>,
}

/// Up to where.
#[derive(Debug, Default)]
struct Told {
    epoch: Vec<u8>,
    version: u64,
    /// Of the last withdrawal that the board has forgotten: as it writes it.
    floor: Vec<u8>,
}

/// What the server says.
#[derive(Debug)]
pub(super) struct Page {
    told: Told,
    all: bool,
    more: bool,
    pub(super) notices: Vec<Notice>,
}

impl Board {
    pub(super) fn new(lanes: Arc<Lanes>, prefix: &str, every: Duration) -> Board {
        // One slot of a cluster for all three.
        let key = |name: &str| format!("{prefix}:1:{{notices}}:{name}");
        let keys = [key("notices"), key("order"), key("ends")];
        let slot = if lanes.link.has_slots() { slot::of(b"notices") } else { 0 };
        let (readers, told) = Default::default();
        Board { lanes, keys, slot, every, readers, posts: Arc::new(Semaphore::new(MOST_POSTS)), told }
    }

    /// Until the last reader is gone.
    async fn read_on(self: Arc<Self>) {
        loop {
            // What cannot be read or told now is the next time; whoever decides finds out by himself that the server is gone.
            let mut answer = Ok(true);
            while let Ok(true) = answer {
                answer = self.exchange(&[]).await;
            }
            self.readers().deaf = answer.is_err();
            sleep(self.every).await;
            let mut readers = self.readers();
            readers.all.retain(|reader| reader.strong_count() > 0);
            if readers.all.is_empty() {
                readers.reading = false;
                return;
            }
        }
    }

    /// Posts these notices, and those that are to be told besides, and tells the readers what was posted since they
    /// were last told. Whether more is to be told besides.
    async fn exchange(&self, notices: &[Notice]) -> Result<bool, Error> {
        let mut told = self.told.lock().await;
        let mut pending_notices = Vec::new();
        {
            let mut readers = self.readers();
            if std::mem::take(&mut readers.new) {
                *told = Told::default();
            }
            if notices.is_empty() {
                let now = Instant::now();
                readers.pending_notices.retain(|(_, until)| until.is_none_or(|until| until > now));
                pending_notices.extend(readers.pending_notices.iter().take(TOGETHER).map(|(notice, until)| Notice {
                    lasts: until.map(|until| until.saturating_duration_since(now)),
                    ..notice.clone()
                }));
            }
        }
        let mut posted = if pending_notices.is_empty() { notices } else { &pending_notices };
        let (mut collected, mut anew) = (Vec::new(), false);
        loop {
            let answer = self.ask(&told, std::mem::take(&mut posted)).await;
            // A board that goes on and on is none.
            let is_endless =
                |page: &Page| page.more && (page.told.version <= told.version || collected.len() > MOST_READ);
            let page = match answer {
                Ok(page) if !is_endless(&page) || page.all && !anew => page,
                answer => {
                    let error = answer.err().unwrap_or_else(nonsense);
                    // What was read so far is told the next time, with the rest.
                    if !collected.is_empty() || anew {
                        *told = Told::default();
                    }
                    return Err(error);
                }
            };
            anew |= page.all;
            if page.all {
                collected.clear();
            }
            collected.extend(page.notices);
            *told = page.told;
            if !page.more {
                break;
            }
        }
        let rest = {
            let mut readers = self.readers();
            let told = pending_notices.len().min(readers.pending_notices.len());
            readers.pending_notices.drain(..told);
            !readers.pending_notices.is_empty()
        };
        if anew || !collected.is_empty() {
            let readers: Vec<_> = self.readers().all.iter().filter_map(Weak::upgrade).collect();
            for reader in readers {
                reader.receive(collected.clone(), anew);
            }
        }
        Ok(rest)
    }

    async fn ask(&self, told: &Told, notices: &[Notice]) -> Result<Page, Error> {
        let link = &self.lanes.link;
        let mut in_full = false;
        loop {
            let mut command = NOTICES.command(in_full);
            command.arg(self.keys.len()).arg(&self.keys).arg(&told.epoch).arg(told.version).arg(&told.floor);
            notices.iter().for_each(|notice| add(&mut command, notice));
            let number = link.number();
            match timeout(PATIENCE.max(self.lanes.deadline), link.run::<Value>(&command)).await {
                Ok(Ok(answer)) => return page(answer).ok_or_else(nonsense),
                // The server needs the script in full once.
                Ok(Err(error)) if error.kind() == NO_SCRIPT && !in_full => in_full = true,
                Ok(Err(error)) => {
                    if fault(&error) != Fault::Answered {
                        link.lost(number);
                    }
                    return Err(classify(error));
                }
                Err(_) => {
                    link.lost(number);
                    let message = format!("the Redis server did not answer within {PATIENCE:?}; it may have been told");
                    return Err(Error::new(ErrorKind::Timeout, message));
                }
            }
        }
    }

    /// How many notices are still to be told, and whether the board could not be read the last time; `None` while nobody
    /// reads it.
    pub(super) fn health(&self) -> (usize, Option<bool>) {
        let readers = self.readers();
        (readers.pending_notices.len(), readers.reading.then_some(readers.deaf))
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NoticeChannel for Arc<Board> {
    fn publish(&self, notice: Notice) -> BackendFuture<()> {
        let unavailable = |message| BackendFuture::ready(Err(Error::new(ErrorKind::Unavailable, message)));
        if self.lanes.is_broken_at(self.slot) {
            let message = "the Redis server did not answer a moment ago; nobody was told, so say it again when it does";
            return unavailable(message.to_owned());
        }
        let Ok(permit) = Arc::clone(&self.posts).try_acquire_owned() else {
            return unavailable(format!(
                "{MOST_POSTS} notices wait for the Redis server already; nobody was told of this one"
            ));
        };
        let board = Arc::clone(self);
        let (done, receiver) = oneshot::channel();
        // A task of its own: it is posted whether anybody waits or not.
        self.lanes.runtime.spawn(async move {
            let answer = board.exchange(&[notice]).await.map(|_| ());
            drop(permit);
            let _ = done.send(answer);
        });
        BackendFuture::boxed(async move { receiver.await.unwrap_or_else(|_| Err(super::ended())) })
    }

    fn publish_later(&self, notice: Notice) {
        let until = notice.lasts.and_then(|lasts| Instant::now().checked_add(lasts));
        let mut readers = self.readers();
        if readers.pending_notices.len() >= MOST_UNTOLD {
            // The oldest is over first, if all last as long.
            readers.pending_notices.pop_front();
        }
        readers.pending_notices.push_back((notice, until));
        let first = readers.pending_notices.len() == 1;
        drop(readers);
        // Those that come until then are told with it; if it cannot be told, whoever reads the board tries again.
        if first && !self.lanes.is_broken_at(self.slot) {
            let board = Arc::clone(self);
            self.lanes.runtime.spawn(async move { board.exchange(&[]).await.map(|_| ()) });
        }
    }

    fn subscribe(&self, reader: Weak<dyn NoticeSubscriber>) {
        let mut readers = self.readers();
        readers.all.push(reader);
        readers.new = true;
        if !std::mem::replace(&mut readers.reading, true) {
            drop(readers);
            self.lanes.runtime.spawn(Arc::clone(self).read_on());
        }
    }
}

fn add(command: &mut Cmd, notice: &Notice) {
    let lasts = notice.lasts.map_or(0, |lasts| lasts.as_millis().clamp(1, LONGEST));
    let mark = if notice.text.is_some() { "+" } else { "-" };
    command.arg(&notice.topic).arg(mark).arg(notice.text.as_deref().unwrap_or("")).arg(lasts as u64);
}

pub(super) fn page(answer: Value) -> Option<Page> {
    let Value::Array(values) = answer else { return None };
    let mut values = values.into_iter();
    let epoch = bytes(values.next()?)?;
    let now = number(values.next()?)?;
    let all = number(values.next()?)? == 1;
    let more = number(values.next()?)? == 1;
    let version = number(values.next()?)?;
    let floor = bytes(values.next()?)?;
    let mut notices = Vec::new();
    while let Some(topic) = values.next() {
        let topic = bytes(topic)?;
        let stands = bytes(values.next()?)? == b"+";
        let until = number(values.next()?)?;
        let text = String::from_utf8(bytes(values.next()?)?).ok()?;
        let lasts = (until > 0).then(|| Duration::from_millis(until.saturating_sub(now)));
        notices.push(Notice { topic, text: stands.then_some(text), lasts: lasts.filter(|_| stands) });
    }
    Some(Page { told: Told { epoch, version, floor }, all, more, notices })
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

fn number(value: Value) -> Option<u64> {
    u64::try_from(i64::from_redis_value(value).ok()?).ok()
}

const NO_SCRIPT: RedisKind = RedisKind::Server(ServerErrorKind::NoScript);

fn nonsense() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the board of notices is not as this version of the crate writes it; another one may use the same prefix",
    )
}

/// How long a post may take. Nobody's request waits for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Posts that may be on their way at once.
const MOST_POSTS: usize = 1000;

/// Notices that are posted in one call.
const TOGETHER: usize = 200;

/// Notices that nobody waits for, and that wait to be told.
const MOST_UNTOLD: usize = 20_000;

/// Notices that are read at once: more than there may be on a board.
const MOST_READ: usize = 200_000;

/// Milliseconds that a notice may stand, unless it has no end: a hundred years.
const LONGEST: u128 = 100 * 365 * 86_400_000;

debug_fields!(Board, |board| every: board.every);
