//! A ledger of what each charge still owes, as a check that does not use the crate's arithmetic.
//!
//! Charges are repaid in the order in which they were made, whether by time or by a credit. A refund can give back only
//! what its own charge still owes.

use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug)]
pub(super) struct Ledger<K>(HashMap<K, Account>);

#[derive(Debug, Default)]
struct Account {
    /// The number of each charge and what it owes, oldest first.
    charges: Vec<(u64, f64)>,
    /// Whether another quota wrote the row, so that the levels say nothing about single charges.
    is_unclear: bool,
}

impl<K> Default for Ledger<K> {
    fn default() -> Ledger<K> {
        Ledger(HashMap::new())
    }
}

impl<K: Hash + Eq> Ledger<K> {
    /// Repays the oldest charges until they owe `level` tokens together. `None` if the level is not known.
    pub(super) fn roll(&mut self, row: K, level: Option<f64>) {
        let account = self.0.entry(row).or_default();
        let Some(level) = level else {
            account.is_unclear = true;
            return;
        };
        if level == 0.0 {
            *account = Account::default();
            return;
        }
        let mut repaid = account.charges.iter().map(|(_, owed)| owed).sum::<f64>() - level;
        for (_, owed) in &mut account.charges {
            let part = owed.min(repaid.max(0.0));
            *owed -= part;
            repaid -= part;
        }
        account.charges.retain(|(_, owed)| *owed > 0.0);
    }

    pub(super) fn charge(&mut self, row: K, number: u64, cost: u64) {
        self.0.entry(row).or_default().charges.push((number, cost as f64));
    }

    /// Returns what a charge owes, or `None` if this is not known.
    pub(super) fn outstanding(&self, row: K, number: u64) -> Option<f64> {
        let Some(account) = self.0.get(&row) else { return Some(0.0) };
        let owed = account.charges.iter().filter(|(charge, _)| *charge == number).map(|(_, owed)| owed).sum();
        (!account.is_unclear).then_some(owed)
    }

    /// Records that `given` tokens of a charge were given back, or that more were charged if it is negative.
    pub(super) fn refund(&mut self, row: K, number: u64, given: f64) {
        let account = self.0.entry(row).or_default();
        match account.charges.iter_mut().find(|(charge, _)| *charge == number) {
            Some((_, owed)) => *owed = (*owed - given).max(0.0),
            None if given < 0.0 => account.charges.push((number, -given)),
            None => {}
        }
    }

    pub(super) fn forget(&mut self, is_of: impl Fn(&K) -> bool) {
        self.0.retain(|row, _| !is_of(row));
    }
}
