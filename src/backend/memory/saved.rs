//! Saving the rows of a table as bytes, and loading them into another table.
//!
//! The bytes consist of the version, the time, the policies' names, and the rows. All numbers are little-endian.

use std::collections::HashMap;

use super::row::{Row, RowKey};
use super::table::Table;
use crate::algorithm::{Algorithm, Micros, State, writer};
use crate::backend::bytes::ByteReader;
use crate::backend::{Error, ErrorKind, LoadedRows, SavedRows};
use crate::policy::PolicyName;

pub(super) fn save(table: &Table, now: Micros) -> SavedRows {
    let mut rows = table.rows();
    rows.retain(|(_, row)| !row.is_expired(now));
    // Loading drops the last rows if the table is full, so the most important rows come first.
    rows.sort_unstable_by_key(|(key, row)| (key.is_carry(), !row.is_senior(), !row.denies(now)));
    let names = table.names();
    let mut bytes = Vec::with_capacity(64 + names.len() * 32 + rows.len() * ROW_BYTES);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&now.get().to_le_bytes());
    bytes.extend_from_slice(&(names.len() as u32).to_le_bytes());
    for (number, name) in names {
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.push(name.as_str().len() as u8); // at most `PolicyName::MAX_LENGTH`
        bytes.extend_from_slice(name.as_str().as_bytes());
    }
    for (key, row) in &rows {
        bytes.extend_from_slice(&key.to_bytes());
        bytes.extend_from_slice(&row.to_bytes());
    }
    SavedRows { rows: rows.len(), bytes }
}

/// Adds the rows to a table whose clock shows `now`. Changes nothing if any of the bytes are invalid.
pub(super) fn load(table: &Table, now: Micros, bytes: &[u8]) -> Result<LoadedRows, Error> {
    let invalid = |what: &str| {
        let message = format!("the saved rows are invalid: {what}; save them again with this version of the crate");
        Error::new(ErrorKind::Protocol, message)
    };
    let mut reader = ByteReader::new(bytes);
    match reader.u32() {
        Some(VERSION) => {}
        Some(other) => return Err(invalid(&format!("expected version {VERSION}, found {other}"))),
        None => return Err(invalid("the version is missing")),
    }
    let (saved_at, names) = head(&mut reader).ok_or_else(|| invalid("the time or the policy names are malformed"))?;
    let rows = reader.rest();
    if rows.len() % ROW_BYTES != 0 {
        return Err(invalid("the last row is incomplete"));
    }
    if let Some(position) = saved_rows(rows).position(|row| row.is_none()) {
        return Err(invalid(&format!("row {position} contains invalid values")));
    }
    names.into_iter().for_each(|(number, name)| table.remember_name(number, &name));
    if now < saved_at {
        return Ok(add(table, now, adapted_to_clock(rows, now).into_iter()));
    }
    Ok(add(table, now, saved_rows(rows).flatten()))
}

fn head(reader: &mut ByteReader<'_>) -> Option<(Micros, Vec<(u32, PolicyName)>)> {
    let saved_at = Micros::new(reader.u64()?);
    let mut names = Vec::new();
    for _ in 0..reader.u32()? {
        let number = reader.u32()?;
        let length = reader.u8()?;
        let name = std::str::from_utf8(reader.bytes(length.into())?).ok()?;
        names.push((number, PolicyName::try_new(name).ok()?));
    }
    Some((saved_at, names))
}

/// Yields `None` for each row with invalid values.
fn saved_rows(bytes: &[u8]) -> impl Iterator<Item = Option<(RowKey, Row)>> {
    bytes.chunks_exact(ROW_BYTES).map(|bytes| {
        let mut reader = ByteReader::new(bytes);
        Some((RowKey::from_bytes(reader.array()?)?, Row::from_bytes(reader.array()?)?))
    })
}

fn add(table: &Table, now: Micros, rows: impl Iterator<Item = (RowKey, Row)>) -> LoadedRows {
    let mut counts = LoadedRows::default();
    for (key, row) in rows {
        let mut shard = table.lock(table.shard_of(key));
        // Carry rows come after the main rows. Without its main row, a carry row is needed only for refunds of earlier
        // charges, whose receipts cannot be saved.
        let is_alone = key.is_carry() && !shard.rows.get(key.row()).is_some_and(|row| row.has_carry());
        if row.is_expired(now) || is_alone {
            counts.expired += 1;
        } else if shard.rows.get(key).is_some() {
            counts.existing += 1;
        } else if shard.is_full() {
            counts.dropped += 1;
        } else {
            shard.add_unnamed(key, row);
            counts.loaded += 1;
        }
    }
    counts
}

/// Adapts rows to a clock that was set back. A row that is too far ahead of the clock would count as unspent. Such a
/// row is therefore moved to `now`, as if its tokens had just been spent.
fn adapted_to_clock(bytes: &[u8], now: Micros) -> Vec<(RowKey, Row)> {
    let rows: Vec<(RowKey, Row)> = saved_rows(bytes).flatten().collect();
    let carries: HashMap<RowKey, f64> =
        rows.iter().filter(|(key, _)| key.is_carry()).map(|(key, row)| (key.row(), row.spent)).collect();
    let adapted = |(key, row): (RowKey, Row)| {
        let (ahead, lasts) = (row.at().micros_since(now), row.expires().micros_since(row.at()));
        // A row that is ahead by less than half of `lasts` is left unchanged. `SECOND` covers the rounding of `lasts`.
        if ahead == 0 || ahead.saturating_add(SECOND) < lasts / 2 {
            return (key, row);
        }
        let clear = if row.expires() == Micros::MAX { Micros::MAX } else { now.plus(lasts) };
        let mut state = State { spent: row.spent, at: now, carry: 0.0, stamp: row.stamp, clear };
        let algorithm = writer(&state);
        if algorithm == Some(Algorithm::SlidingWindow) && row.has_carry() {
            state.spent += carries.get(&key).copied().unwrap_or(0.0);
        }
        let is_bucket = algorithm == Some(Algorithm::TokenBucket);
        if !is_bucket {
            // The window boundaries are unknown. A stamp without an algorithm keeps the tokens spent until `clear`.
            state.stamp |= (1 << Algorithm::TAG_BITS) - 1;
        }
        (key, row.rewritten(&state, is_bucket && row.has_carry()))
    };
    rows.into_iter().map(adapted).collect()
}

/// The version of the format. Increment it if the layout, the row keys or the meaning of a row's numbers changes.
const VERSION: u32 = 1;
const ROW_BYTES: usize = RowKey::BYTES + Row::BYTES;
const SECOND: u64 = 1_000_000;
