//! A few takes on rows that are there: what most calls of several charges come to.

use super::lock::Guard;
use super::locked::Locked;
use super::row::{Row, Slot};
use super::shard::Shard;
use super::{MemoryBackend, RowId, Take};
use crate::algorithm::{Ask, Quota, Step, step_inlined};

/// A take that borrows its quota.
#[derive(Clone, Copy)]
pub(crate) struct TakeRef<'a> {
    pub(crate) row: RowId<'a>,
    pub(crate) quota: &'a Quota,
    pub(crate) ask: Ask,
}

impl<'a> TakeRef<'a> {
    #[inline]
    pub(crate) fn of(take: &'a Take<'_>) -> TakeRef<'a> {
        TakeRef { row: take.row, quota: &take.quota, ask: take.ask }
    }
}

impl MemoryBackend {
    /// Takes on as many different rows that are there, without twins: all of them, or none. `None`: it is another case,
    /// and nothing was done.
    // For each number by itself: as many answers, and places for them, are written without looking how many there are.
    pub(crate) fn decide_few<const N: usize>(&self, lines: &[TakeRef<'_>; N], store: bool) -> Option<[Step; N]> {
        let slots = lines.each_ref().map(|line| Slot::of(&line.row));
        if (1..N).any(|i| slots[..i].contains(&slots[i])) {
            return None;
        }
        let shards = slots.map(|slot| self.table.shard_of(slot));
        match shards.iter().all(|shard| *shard == shards[0]) {
            true => self.decide_under(|| self.table.lock(shards[0]), lines, &slots, store),
            false => self.decide_under(|| Locked::new(&self.table, &slots), lines, &slots, store),
        }
    }

    #[inline]
    fn decide_under<S: Shards, const N: usize>(
        &self,
        lock: impl Fn() -> S,
        lines: &[TakeRef<'_>; N],
        slots: &[Slot; N],
        store: bool,
    ) -> Option<[Step; N]> {
        let worth = &self.table.worth;
        let mut shards = lock();
        let now = self.clock.now();
        // All are looked for before the first is decided: none waits for another.
        let mut rows = [Row::EMPTY; N];
        for (row, slot) in rows.iter_mut().zip(slots) {
            *row = shards.shard(*slot).find(*slot).filter(|row| !row.has_twin())?;
        }
        let mut steps: [Step; N] = std::array::from_fn(|i| {
            step_inlined(lines[i].quota, &worth.state_for(&rows[i], lines[i].quota), now, lines[i].ask)
                .told(lines[i].quota)
        });
        if steps.iter().any(|step| step.state.carry != 0.0) {
            return None;
        }
        if !steps.iter().all(Step::is_allowed) {
            // Nothing is spent: whatever fitted leaves its row as it was.
            for (i, step) in steps.iter_mut().enumerate().filter(|(_, step)| step.is_allowed()) {
                step.state = worth.state_for(&rows[i], lines[i].quota);
            }
        } else if store {
            for (i, Step { state, .. }) in steps.iter().enumerate() {
                let known = worth.stamp(&rows[i]) == state.stamp;
                let quota = if known { rows[i].quota() } else { worth.learn(lines[i].quota) };
                if let Some(row) = shards.shard(slots[i]).find_mut(slots[i]) {
                    *row = Row::new(state.spent, state.at, quota, false);
                }
            }
        }
        Some(steps)
    }
}

/// What holds the rows of a call, locked.
trait Shards {
    fn shard(&mut self, slot: Slot) -> &mut Shard;
}

impl Shards for Guard<'_, Shard> {
    #[inline(always)]
    fn shard(&mut self, _: Slot) -> &mut Shard {
        self
    }
}

impl Shards for Locked<'_> {
    fn shard(&mut self, slot: Slot) -> &mut Shard {
        Locked::shard(self, slot).1
    }
}
