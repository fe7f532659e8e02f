//! The notice channel, which consists of three keys that every process polls.
//!
//! Each process polls for notices that are newer than the last version it has read. A process reads all notices again
//! if the server lost data, or if the process missed a withdrawal that the server has forgotten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind as RedisErrorKind, FromRedisValue, ServerErrorKind, Value};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::batcher::Batcher;
use super::error::{ServerStatus, classify, server_status};
use super::script::NOTICES;
use super::slot;
use crate::backend::{BackendFuture, Error, ErrorKind, Notice, NoticeChannel, NoticeSubscriber};

pub(super) struct RedisNoticeChannel {
    batcher: Arc<Batcher>,
    keys: [String; 3],
    slot: u16,
    poll_interval: Duration,
    state: Mutex<State>,
    publish_permits: Arc<Semaphore>,
    /// Stays locked until all notices that a call has read are delivered, so that they are delivered in order.
    cursor: tokio::sync::Mutex<Cursor>,
}

#[derive(Default)]
struct State {
    subscribers: Vec<Weak<dyn NoticeSubscriber>>,
    has_new_subscriber: bool,
    polling: bool,
    poll_failed: bool,
    /// Notices from `publish_later`, ordered by number, with the instants at which they expire.
    pending: BTreeMap<u64, (Notice, Option<Instant>)>,
    next_number: u64,
}

#[derive(Debug, Default)]
struct Cursor {
    /// If the server reports a different epoch, it has lost data.
    epoch: Vec<u8>,
    version: u64,
    /// The version of the last withdrawal that the server has forgotten, in the server's format.
    floor: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct NoticePage {
    cursor: Cursor,
    /// Whether this page and the following pages contain all current notices.
    all: bool,
    more: bool,
    pub(super) notices: Vec<Notice>,
}

impl RedisNoticeChannel {
    pub(super) fn new(batcher: Arc<Batcher>, prefix: &str, poll_interval: Duration) -> RedisNoticeChannel {
        // The braces put all three keys in one slot of a cluster.
        let key = |name: &str| format!("{prefix}:1:{{notices}}:{name}");
        let keys = [key("notices"), key("order"), key("ends")];
        let slot = if batcher.link.has_slots() { slot::of(b"notices") } else { 0 };
        let publish_permits = Arc::new(Semaphore::new(MAX_PUBLISHING));
        let (state, cursor) = Default::default();
        RedisNoticeChannel { batcher, keys, slot, poll_interval, state, publish_permits, cursor }
    }

    async fn poll(self: Arc<Self>) {
        loop {
            let mut has_more = Ok(true);
            while let Ok(true) = has_more {
                has_more = self.exchange(&[]).await;
            }
            self.state().poll_failed = has_more.is_err();
            sleep(self.poll_interval).await;
            let mut state = self.state();
            state.subscribers.retain(|subscriber| subscriber.strong_count() > 0);
            if state.subscribers.is_empty() {
                state.polling = false;
                return;
            }
        }
    }

    /// Publishes `notices` or, if it is empty, pending notices. Delivers new notices to the subscribers. Returns
    /// whether more notices are pending, but always `false` if the server refused pending notices.
    async fn exchange(&self, notices: &[Notice]) -> Result<bool, Error> {
        let mut cursor = self.cursor.lock().await;
        let (mut numbers, mut pending) = (Vec::new(), Vec::new());
        {
            let mut state = self.state();
            if std::mem::take(&mut state.has_new_subscriber) {
                *cursor = Cursor::default();
            }
            if notices.is_empty() {
                let now = Instant::now();
                state.pending.retain(|_, (_, until)| until.is_none_or(|until| until > now));
                for (number, (notice, until)) in state.pending.iter().take(MAX_PUBLISHED_TOGETHER) {
                    let lasts = until.map(|until| until.saturating_duration_since(now));
                    numbers.push(*number);
                    pending.push(Notice { lasts, ..notice.clone() });
                }
            }
        }
        let mut to_publish = if pending.is_empty() { notices } else { &pending };
        let (mut received, mut all, mut is_refused) = (Vec::new(), false, false);
        loop {
            let result = self.call(&cursor, std::mem::take(&mut to_publish)).await;
            // If another program wrote the data on the server, the pages may never end.
            let is_endless = |page: &NoticePage| {
                page.more && (page.cursor.version <= cursor.version || received.len() > MAX_RECEIVED)
            };
            let page = match result {
                Ok(page) if !is_endless(&page) || page.all && !all => page,
                // The server refused the pending notices, but new notices must still be received.
                Err(error) if error.kind() == ErrorKind::Protocol && !numbers.is_empty() => {
                    numbers.clear();
                    is_refused = true;
                    continue;
                }
                result => {
                    let error = result.err().unwrap_or_else(invalid_data);
                    // The next call reads the discarded pages again.
                    if !received.is_empty() || all {
                        *cursor = Cursor::default();
                    }
                    return Err(error);
                }
            };
            for number in numbers.drain(..) {
                self.state().pending.remove(&number);
            }
            all |= page.all;
            if page.all {
                received.clear();
            }
            received.extend(page.notices);
            *cursor = page.cursor;
            if !page.more {
                break;
            }
        }
        let has_more = !is_refused && !self.state().pending.is_empty();
        if all || !received.is_empty() {
            let subscribers: Vec<_> = self.state().subscribers.iter().filter_map(Weak::upgrade).collect();
            for subscriber in subscribers {
                subscriber.receive(received.clone(), all);
            }
        }
        Ok(has_more)
    }

    async fn call(&self, cursor: &Cursor, notices: &[Notice]) -> Result<NoticePage, Error> {
        let (link, time) = (&self.batcher.link, MIN_TIMEOUT.max(self.batcher.deadline));
        let mut in_full = false;
        loop {
            let mut command = NOTICES.command(in_full);
            command.arg(self.keys.len()).arg(&self.keys).arg(&cursor.epoch).arg(cursor.version).arg(&cursor.floor);
            notices.iter().for_each(|notice| add(&mut command, notice));
            let connection = link.generation();
            match timeout(time, link.run::<Value>(&command)).await {
                Ok(Ok(reply)) => return parse_reply(reply).ok_or_else(invalid_data),
                Ok(Err(error)) if error.kind() == NO_SCRIPT && !in_full => in_full = true,
                Ok(Err(error)) => {
                    if server_status(&error) != ServerStatus::Responsive {
                        link.discard(connection);
                    }
                    return Err(classify(error));
                }
                Err(_) => {
                    link.discard(connection);
                    let message =
                        format!("the Redis server did not reply within {time:?}; the notice may have been published");
                    return Err(Error::new(ErrorKind::Timeout, message));
                }
            }
        }
    }

    /// Returns the number of pending notices, and whether the last poll failed (`None` if there are no subscribers).
    pub(super) fn health(&self) -> (usize, Option<bool>) {
        let state = self.state();
        (state.pending.len(), state.polling.then_some(state.poll_failed))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NoticeChannel for Arc<RedisNoticeChannel> {
    fn publish(&self, notice: Notice) -> BackendFuture<()> {
        // An older notice on the same topic must not be published after this one.
        self.state().pending.retain(|_, (pending, _)| pending.topic != notice.topic);
        let unavailable = |message| BackendFuture::ready(Err(Error::new(ErrorKind::Unavailable, message)));
        if self.batcher.circuit_open_at(self.slot) {
            let message = "the circuit breaker is open because the Redis server failed; the notice was not \
                           published, so retry later";
            return unavailable(message.to_owned());
        }
        let Ok(permit) = Arc::clone(&self.publish_permits).try_acquire_owned() else {
            return unavailable(format!(
                "{MAX_PUBLISHING} notices are already waiting for the Redis server; this one was not published, so \
                 retry later"
            ));
        };
        let channel = Arc::clone(self);
        let (sender, receiver) = oneshot::channel();
        // Runs in a task, so that the notice is published even if the future is dropped.
        self.batcher.runtime.spawn(async move {
            let result = channel.exchange(&[notice]).await.map(|_| ());
            drop(permit);
            let _ = sender.send(result);
        });
        BackendFuture::boxed(async move { receiver.await.unwrap_or_else(|_| Err(super::runtime_ended())) })
    }

    fn publish_later(&self, notice: Notice) {
        let until = notice.lasts.and_then(|lasts| Instant::now().checked_add(lasts));
        let mut state = self.state();
        if state.pending.len() >= MAX_PENDING {
            // Drop the oldest notice, which expires first if all lifetimes are equal.
            state.pending.pop_first();
        }
        let number = state.next_number;
        state.next_number += 1;
        state.pending.insert(number, (notice, until));
        let is_first = state.pending.len() == 1;
        drop(state);
        // The exchange also publishes notices that are added before it starts. If it fails, the polling task retries.
        if is_first && !self.batcher.circuit_open_at(self.slot) {
            let channel = Arc::clone(self);
            self.batcher.runtime.spawn(async move { channel.exchange(&[]).await.map(|_| ()) });
        }
    }

    fn subscribe(&self, subscriber: Weak<dyn NoticeSubscriber>) {
        let mut state = self.state();
        state.subscribers.push(subscriber);
        state.has_new_subscriber = true;
        if !std::mem::replace(&mut state.polling, true) {
            drop(state);
            self.batcher.runtime.spawn(Arc::clone(self).poll());
        }
    }
}

fn add(command: &mut Cmd, notice: &Notice) {
    let lasts = notice.lasts.map_or(0, |lasts| lasts.as_millis().clamp(1, MAX_LASTS_MILLIS));
    let mark = match notice.text {
        None => "-",
        Some(_) if notice.topic.starts_with(PAUSES) => ">",
        Some(_) => "+",
    };
    command.arg(&notice.topic).arg(mark).arg(notice.text.as_deref().unwrap_or("")).arg(lasts as u64);
}

pub(super) fn parse_reply(reply: Value) -> Option<NoticePage> {
    let Value::Array(values) = reply else { return None };
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
        let is_current = bytes(values.next()?)? == b"+";
        let until = number(values.next()?)?;
        let text = String::from_utf8(bytes(values.next()?)?).ok()?;
        let age = Duration::from_micros(now.saturating_mul(1000).saturating_sub(number(values.next()?)?));
        let lasts = (until > 0).then(|| Duration::from_millis(until.saturating_sub(now)));
        notices.push(Notice { topic, text: is_current.then_some(text), lasts: lasts.filter(|_| is_current), age });
    }
    Some(NoticePage { cursor: Cursor { epoch, version, floor }, all, more, notices })
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

const NO_SCRIPT: RedisErrorKind = RedisErrorKind::Server(ServerErrorKind::NoScript);

fn invalid_data() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the notices on the server are in the format of a different tollgate version; give each version its own prefix",
    )
}

/// The minimum timeout of a call on the notice channel. Requests do not wait for these calls.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The topic prefix of pauses. If a row has several pauses, the one that ends last applies.
const PAUSES: &[u8] = b"pause\0";

const MAX_PUBLISHING: usize = 1000;

const MAX_PUBLISHED_TOGETHER: usize = 200;

const MAX_PENDING: usize = 20_000;

/// The maximum number of notices per exchange, which exceeds the number that the server keeps.
const MAX_RECEIVED: usize = 200_000;

/// A hundred years.
const MAX_LASTS_MILLIS: u128 = 100 * 365 * 86_400_000;

debug_fields!(RedisNoticeChannel, |channel| every: channel.poll_interval);
