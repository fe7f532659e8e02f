//! The choice of shards (step 3), for quotas that are divided among several rows.
//!
//! Two shards are drawn at random. The limiter first tries the shard that had more tokens when last read. If that shard
//! denies the charge, the limiter tries the other one. The levels of the shards are only hints, so they are stored in
//! a table of fixed size, in which shards may overwrite each other's entries.

use std::fmt;
use std::sync::OnceLock;

use smallvec::SmallVec;

use super::decide::Takes;
use crate::algorithm::{Quota, State, Step};
use crate::backend::Take;
use crate::policy::{Digest, Part, Placement, random};
use crate::sync::atomic::{AtomicU64, Ordering};

pub(super) struct Shards {
    /// The instant at which each shard will be full, in microseconds. The table is created on first use.
    levels: OnceLock<Box<[AtomicU64]>>,
    placement: Placement,
    sample: u8,
}

/// For each take, the shard that is tried second. The list is empty if there is no other shard to try.
pub(super) type Others = SmallVec<[u8; 4]>;

const LEVELS: usize = 1 << 13;

impl Shards {
    pub(super) fn new(sample: u8) -> Shards {
        Shards { levels: OnceLock::new(), placement: Placement::random(), sample }
    }

    /// Moves each take whose quota has several shards to one of the shards. If several takes of a key have the same
    /// number of shards, they move to the same shard, so that their rows are in the same cluster slot.
    #[inline]
    pub(super) fn choose(&self, takes: &mut [Take<'_>]) -> Others {
        if takes.iter().all(|take| take.quota.get_shards() == 1) { Others::new() } else { self.choose_among(takes) }
    }

    fn choose_among(&self, takes: &mut [Take<'_>]) -> Others {
        let (random, mut others) = (random(), Others::new());
        let mut pairs: SmallVec<[(Digest, [u8; 2]); 2]> = SmallVec::new();
        for charge in takes.chunk_by_mut(|_, next| !next.part.is_first()) {
            let (key, drawn) = (charge[0].row.key, draw(shards_for(charge), random));
            let [a, b] = drawn;
            let same = |(earlier, pair): &&(Digest, [u8; 2])| *earlier == key && [[a, b], [b, a]].contains(pair);
            let [first, second] = match pairs.iter().find(same) {
                Some((_, pair)) => *pair,
                None => {
                    let mut pair = drawn;
                    pair.sort_by_key(|index| self.level(charge, *index));
                    pairs.push((key, pair));
                    pair
                }
            };
            for take in charge {
                *take = take.at_shard(first);
                others.push(second);
            }
        }
        others
    }

    /// Replaces each charge whose quota has several shards with charges on all of these shards, or on a sample of them.
    #[inline]
    pub(super) fn expand(&self, takes: &mut Takes<'_>) {
        if takes.iter().any(|take| take.quota.get_shards() > 1) {
            *takes = self.expanded(takes);
        }
    }

    fn expanded<'a>(&self, takes: &[Take<'a>]) -> Takes<'a> {
        let (random, mut all) = (random(), Takes::new());
        for charge in takes.chunk_by(|_, next| !next.part.is_first()) {
            let shards = charge[0].quota.get_shards() as u8;
            let read = shards.min(self.sample);
            let first = if read < shards { draw(shards_for(charge), random)[0] } else { 0 };
            for shard in 0..read {
                let at = |take: &Take<'a>| take.at_shard((first + shard) % shards);
                all.extend(charge.iter().map(at).map(|take| Take { part: Part { shard, ..take.part }, ..take }));
            }
        }
        all
    }

    #[inline]
    pub(super) fn observe(&self, takes: &[Take<'_>], steps: &[Step]) {
        for (take, step) in takes.iter().zip(steps) {
            if take.quota.shard_index().is_some() {
                self.level_of(take.digest()).store(full_at(&take.quota, &step.state), Ordering::Relaxed);
            }
        }
    }

    /// Returns the instant at which a shard will be full in all windows of the charge, or 0 if this instant is unknown.
    fn level(&self, charge: &[Take<'_>], index: u8) -> u64 {
        let level = |take: &Take<'_>| self.level_of(take.digest_at_shard(index)).load(Ordering::Relaxed);
        charge.iter().map(level).max().unwrap_or(0)
    }

    fn level_of(&self, id: Digest) -> &AtomicU64 {
        let levels = self.levels.get_or_init(|| (0..LEVELS).map(|_| AtomicU64::new(0)).collect());
        &levels[self.placement.place(id) as usize % LEVELS]
    }
}

/// Returns the takes for a second attempt, in which the denied keys use their other shards. Returns `None` if a second
/// attempt would not help, for example because an enforced take without another shard was denied.
pub(super) fn other_takes<'a>(takes: &[Take<'a>], others: &Others, steps: &[Step]) -> Option<Takes<'a>> {
    if others.is_empty() || takes.len() != steps.len() {
        return None;
    }
    let mut denied: SmallVec<[Digest; 2]> = SmallVec::new();
    for ((take, step), other) in takes.iter().zip(steps).zip(others) {
        if step.is_allowed() {
            continue;
        }
        match take.quota.shard_index() {
            Some(index) if index != *other => denied.push(take.key()),
            _ if take.part.enforced => return None,
            _ => {}
        }
    }
    let other = |(take, other): (&Take<'a>, &u8)| {
        if denied.contains(&take.key()) { take.at_shard(*other) } else { *take }
    };
    (!denied.is_empty()).then(|| takes.iter().zip(others).map(other).collect())
}

/// Reverses the choice of shards. Returns the original takes of each charge, even if several shards were read.
pub(super) fn undivided<'a>(takes: &[Take<'a>]) -> impl Iterator<Item = Take<'a>> {
    takes.iter().filter(|take| take.part.shard == 0).map(Take::whole)
}

/// Returns the largest `n` such that each of the first `n` shards is large enough for the charge.
fn shards_for(charge: &[Take<'_>]) -> u8 {
    let shards = |take: &Take<'_>| take.quota.shards_for(take.ask.tokens(), take.ask.max_wait().is_some());
    charge.iter().map(shards).min().unwrap_or(0)
}

/// Draws two different numbers below `shards`, if possible.
pub(super) fn draw(shards: u8, random: u64) -> [u8; 2] {
    if shards < 2 {
        return [0; 2];
    }
    let below = |bits: u64, limit: u8| (((bits & 0xffff_ffff) * u64::from(limit)) >> 32) as u8;
    let first = below(random, shards);
    [first, (first + 1 + below(random >> 32, shards - 1)) % shards]
}

pub(super) fn full_at(quota: &Quota, state: &State) -> u64 {
    let micros = state.spent / quota.rate() as f64 * quota.period_micros() as f64;
    state.at.get().saturating_add(micros as u64)
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("sample", &self.sample).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pairs_of_different_shards_are_equally_likely() {
        for shards in [2u8, 3, 7, 64] {
            let mut counts = vec![0u32; usize::from(shards) * usize::from(shards)];
            let pairs = u32::from(shards) * u32::from(shards - 1);
            for _ in 0..pairs * 200 {
                let [first, second] = draw(shards, random());
                counts[usize::from(first) * usize::from(shards) + usize::from(second)] += 1;
            }
            for (i, count) in counts.into_iter().enumerate() {
                let is_pair = i / usize::from(shards) != i % usize::from(shards);
                assert!(
                    if is_pair { (100..=300).contains(&count) } else { count == 0 },
                    "{shards} shards, pair {i}: drawn {count} times"
                );
            }
        }
        assert_eq!([draw(0, 7), draw(1, u64::MAX)], [[0; 2]; 2]);
    }
}
