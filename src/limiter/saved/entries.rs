//! The entries of a saved state: settings, blocks and pauses, each stored as a [notice](Notice).

use std::time::Duration;

use crate::algorithm::{Micros, whole_micros};
use crate::backend::Notice;
use crate::backend::bytes::ByteReader;
use crate::limiter::notices::NoticeContent;

pub(super) struct Entries {
    pub(super) saved_at: Micros,
    pub(super) all: Vec<Entry>,
}

/// A notice whose `lasts` is the time from the save until the notice expires.
pub(super) struct Entry(Notice);

impl Entry {
    pub(super) fn new((content, age): (NoticeContent, Duration)) -> Entry {
        Entry(Notice { age, ..content.to_notice() })
    }

    /// Returns the entry's content, and its age once `age` has passed since the save. Returns `None` if the entry has
    /// expired by then.
    pub(super) fn after(&self, age: Duration) -> Option<(NoticeContent, Duration)> {
        let lasts = match self.0.lasts {
            Some(lasts) => Some(lasts.checked_sub(age).filter(|left| !left.is_zero())?),
            None => None,
        };
        let content = NoticeContent::parse(&Notice { lasts, ..self.0.clone() })?;
        Some((content, self.0.age.saturating_add(age)))
    }
}

impl Entries {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.saved_at.get().to_le_bytes().to_vec();
        for Entry(Notice { topic, text, lasts, age }) in &self.all {
            put(&mut bytes, topic);
            put(&mut bytes, text.as_deref().unwrap_or_default().as_bytes());
            let lasts = lasts.map_or(NEVER, |lasts| whole_micros(lasts).min(NEVER - 1));
            bytes.extend_from_slice(&lasts.to_le_bytes());
            bytes.extend_from_slice(&whole_micros(*age).to_le_bytes());
        }
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Entries, String> {
        let mut reader = ByteReader::new(bytes);
        let saved_at = Micros::new(reader.u64().ok_or("the time at which the state was saved is missing")?);
        let mut all = Vec::new();
        while !reader.is_empty() {
            let notice = notice(&mut reader).ok_or_else(|| format!("entry {} is incomplete", all.len()))?;
            if NoticeContent::parse(&notice).is_none() {
                return Err(format!("entry {} has an unknown kind or an unknown quota", all.len()));
            }
            all.push(Entry(notice));
        }
        Ok(Entries { saved_at, all })
    }
}

fn notice(reader: &mut ByteReader<'_>) -> Option<Notice> {
    let topic = take(reader)?.to_vec();
    let text = String::from_utf8(take(reader)?.to_vec()).ok()?;
    let lasts = reader.u64()?;
    let lasts = (lasts != NEVER).then(|| Duration::from_micros(lasts));
    let age = Duration::from_micros(reader.u64()?);
    Some(Notice { topic, text: Some(text), lasts, age })
}

fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(part);
}

fn take<'a>(reader: &mut ByteReader<'a>) -> Option<&'a [u8]> {
    let length = reader.u32()?;
    reader.bytes(usize::try_from(length).ok()?)
}

/// The value of `lasts` for an entry that does not expire.
const NEVER: u64 = u64::MAX;
