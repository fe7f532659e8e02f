//! Saving the state of a limiter, and loading it after a restart.

mod entries;
mod error;
mod file;
mod frames;

use std::io::{Read, Write};
use std::time::Duration;

use self::entries::{Entries, Entry};
use self::frames::{FrameKind, FrameReader, FrameWriter};
use super::notices::NoticeContent;
use super::{Inner, RateLimiter};
use crate::policy::Secret;

pub use error::{StateError, StateErrorKind};

impl RateLimiter {
    /// Writes the state of this limiter: the rows of its [`MemoryBackend`](crate::MemoryBackend), the changes made to
    /// policies at run time (quotas, enforcement and resets), and all blocks and pauses. The
    /// [restarts](crate::docs::restarts) page lists what is not saved. To write to a file, use
    /// [`save_to_file`](RateLimiter::save_to_file).
    ///
    /// The backend needs a [secret](crate::backend::MemoryBackendBuilder::secret), because only a process with the same
    /// secret can find the rows again. Keys, addresses and other signals appear in the state only as digests. The state
    /// is authenticated with the secret.
    ///
    /// ```
    /// use tollgate::{key::Secret, MemoryBackend, Policy, Quota, RateLimiter, HOUR};
    /// static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let secret = Secret::new([7; 16]); // in production, 16 random bytes from your secret store
    /// let limiter = || RateLimiter::new(MemoryBackend::builder().secret(secret).build());
    ///
    /// let before = limiter();
    /// before.limit(&LOGIN, "ada").await?;
    /// let mut state = Vec::new();
    /// assert_eq!(before.save(&mut state)?.rows, 1);
    ///
    /// let after = limiter();
    /// assert_eq!(after.load(&state[..])?.rows, 1);
    /// assert_eq!(after.remaining(&LOGIN, "ada").await?, 4);
    /// # Ok(()) }
    /// ```
    ///
    /// Decisions continue during the save. Each saved row is consistent, but charges made during the save might not be
    /// included. Only active blocks are saved, so [escalation](crate::protection::AutoBlock::escalate) starts over for
    /// callers that are not blocked at the time of the save.
    ///
    /// This method blocks the thread and uses 40 bytes of memory for each row. In a service, call it after the server
    /// has stopped, or in [`spawn_blocking`](https://docs.rs/tokio/latest/tokio/task/fn.spawn_blocking.html).
    ///
    /// # Errors
    /// Fails if the backend has no secret or cannot be saved (Redis stores its rows itself), if the limiter has a
    /// different [secret](crate::limiter::RateLimiterBuilder::secret), or if writing fails.
    pub fn save(&self, to: impl Write) -> Result<Saved, StateError> {
        let secret = self.inner.state_secret()?;
        let Some(rows) = self.inner.backend.save_rows() else { return Err(StateError::unsupported()) };
        let (entries, mut saved) = self.inner.entries();
        saved.rows = rows.rows;
        let mut frames = FrameWriter::start(to, secret)?;
        frames.write(FrameKind::Entries, &entries.to_bytes())?;
        frames.write(FrameKind::Rows, &rows.bytes)?;
        saved.bytes = frames.finish()?;
        Ok(saved)
    }

    /// Loads the state that a limiter with the same secret has [saved](RateLimiter::save). Call this before the first
    /// request.
    ///
    /// - **Rows** continue as if the process had kept running. If a quota has changed since the save, spent tokens stay
    ///   spent. A key that already has a row keeps that row. If the table is smaller than before, the rows of denied
    ///   keys are loaded first, and rows for which no slot is free are [dropped](Loaded::dropped).
    /// - **Quotas and enforcement settings** replace those set in this limiter for the same policy and the same
    ///   callers. A loaded quota is ignored while the policy has a different algorithm.
    /// - **Blocks and pauses** end when they would have ended without the restart. Loaded blocks are listed
    ///   without their rules.
    ///
    /// If the clock was set back, the time since the save counts as 0. As long as a key's quota is unchanged, the key
    /// never gains tokens from loading, and has its full quota again after at most twice the time of a full refill.
    ///
    /// # Errors
    /// Fails if the backend has no secret or cannot load rows, if reading fails, or if the state is incomplete, has
    /// been modified, or was saved with a different secret or version of the format. The whole state is read into
    /// memory and checked before anything changes, so a failure leaves the limiter unchanged.
    pub fn load(&self, from: impl Read) -> Result<Loaded, StateError> {
        let secret = self.inner.state_secret()?;
        let mut frames = FrameReader::start(from, secret)?;
        let (mut entries, mut rows) = (Vec::new(), Vec::new());
        while let Some(kind) = frames.next_frame()? {
            let bytes = match kind {
                FrameKind::Entries => &mut entries,
                FrameKind::Rows => &mut rows,
                FrameKind::End => continue,
            };
            bytes.extend_from_slice(frames.payload());
        }
        let entries = Entries::parse(&entries).map_err(StateError::damaged)?;
        let counts = self.inner.backend.load_rows(&rows).map_err(StateError::backend)?;
        let mut loaded = self.inner.load_entries(&entries);
        (loaded.rows, loaded.existing) = (counts.loaded, counts.existing);
        loaded.expired += counts.expired;
        loaded.dropped += counts.dropped;
        Ok(loaded)
    }
}

/// A summary of what a limiter has [saved](RateLimiter::save).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// The number of rows. A sliding window may need two rows for each key.
    pub rows: usize,
    /// The number of changes made to policies at run time: quotas, enforcement and resets.
    pub changes: usize,
    /// The number of manual and automatic blocks.
    pub blocks: usize,
    /// The number of pauses.
    pub pauses: usize,
    /// The size of the state in bytes.
    pub bytes: u64,
}

/// A summary of what a limiter has [loaded](RateLimiter::load).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// The time since the state was saved, or zero if the clock was set back.
    pub age: Duration,
    /// The number of rows that were added.
    pub rows: usize,
    /// The number of loaded changes to policies: quotas, enforcement and resets.
    pub changes: usize,
    /// The number of loaded manual and automatic blocks that are in effect.
    pub blocks: usize,
    /// The number of loaded pauses that are in effect.
    pub pauses: usize,
    /// The number of rows, blocks and pauses that were skipped because they had expired.
    pub expired: usize,
    /// The number of rows that were skipped because their keys already had rows.
    pub existing: usize,
    /// The number of rows, changes, blocks and pauses for which this limiter had no space; see
    /// [`max_rows`](crate::backend::MemoryBackendBuilder::max_rows) and
    /// [`max_entries`](crate::protection::AutoBlock::max_entries).
    pub dropped: usize,
}

impl Inner {
    fn state_secret(&self) -> Result<Secret, StateError> {
        if self.backend.is_remote() {
            return Err(StateError::unsupported());
        }
        match self.backend.secret() {
            Some(secret) if secret.is_same(&self.hash) => Ok(secret),
            Some(_) => Err(StateError::two_secrets()),
            None => Err(StateError::no_secret()),
        }
    }

    fn entries(&self) -> (Entries, Saved) {
        let now = self.time.now();
        let changes = self.overrides.all().into_iter();
        let changes = changes.map(|(change, since)| (NoticeContent::Override(change), now.since(since)));
        let blocks = self.guard.list(now).into_iter().map(|block| match block.by_hand {
            true => (NoticeContent::ManualBlock(block.digest, Some(block.left)), block.age),
            false => (NoticeContent::Block(block.digest, Some((block.left, block.times))), block.age),
        });
        let pauses = self.guard.pauses.list(now).into_iter();
        let pauses = pauses.map(|(row, end)| (NoticeContent::Pause(row, Some(end.since(now))), Duration::ZERO));

        let mut all: Vec<Entry> = changes.map(Entry::new).collect();
        let changes = all.len();
        all.extend(blocks.map(Entry::new));
        let blocks = all.len() - changes;
        all.extend(pauses.map(Entry::new));
        let pauses = all.len() - changes - blocks;
        let entries = Entries { saved_at: self.time.calendar(), all };
        (entries, Saved { changes, blocks, pauses, ..Saved::default() })
    }

    fn load_entries(&self, entries: &Entries) -> Loaded {
        let age = self.time.calendar().since(entries.saved_at);
        let mut loaded = Loaded { age, ..Loaded::default() };
        let (mut blocks, mut pauses) = (Vec::new(), Vec::new());
        for entry in &entries.all {
            let Some((content, age)) = entry.after(age) else {
                loaded.expired += 1;
                continue;
            };
            match &content {
                NoticeContent::Override(change) if self.overrides.accepts(change) => loaded.changes += 1,
                NoticeContent::Override(_) => {
                    loaded.dropped += 1;
                    continue;
                }
                NoticeContent::Block(id, _) => blocks.push((*id, false)),
                NoticeContent::ManualBlock(id, _) => blocks.push((*id, true)),
                NoticeContent::Pause(row, _) => pauses.push(*row),
            }
            self.apply([(content, age)], false);
        }
        // A full table drops entries, so only the entries that took effect are counted.
        let now = self.time.now();
        let listed = self.guard.list(now);
        let active: std::collections::HashSet<_> = listed.iter().map(|block| (block.digest, block.by_hand)).collect();
        loaded.blocks = blocks.iter().filter(|block| active.contains(*block)).count();
        let is_paused = |row| self.guard.pauses.until([row].into_iter(), now).is_some();
        loaded.pauses = pauses.iter().filter(|row| is_paused(**row)).count();
        loaded.dropped += blocks.len() - loaded.blocks + pauses.len() - loaded.pauses;
        loaded
    }
}
