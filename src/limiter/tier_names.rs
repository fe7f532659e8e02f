//! Numbers for tier names, so that a decision can store the tier of its charge in one byte.

use std::sync::OnceLock;

/// The first 64 tiers that a limiter encounters. The number is limited because a program can create any number of tiers
/// at run time.
#[derive(Debug)]
pub(super) struct TierNames([OnceLock<Box<str>>; MAX_TIERS]);

impl TierNames {
    pub(super) fn new() -> TierNames {
        TierNames([const { OnceLock::new() }; MAX_TIERS])
    }

    /// Returns the number of a tier, which is greater than 0. All tiers after the first 64 share one number.
    pub(super) fn number(&self, name: &str) -> u8 {
        let is_same = |slot: &OnceLock<Box<str>>| **slot.get_or_init(|| name.into()) == *name;
        (1..).zip(&self.0).find(|(_, slot)| is_same(slot)).map_or(OTHERS_NUMBER, |(number, _)| number)
    }

    /// Returns the name of a tier, or `None` for the number 0.
    pub(super) fn name(&self, number: u8) -> Option<&str> {
        match usize::from(number).checked_sub(1)? {
            index if index < MAX_TIERS => self.0[index].get().map(|name| &**name),
            _ => Some(OTHERS),
        }
    }
}

const MAX_TIERS: usize = 64;
const OTHERS_NUMBER: u8 = MAX_TIERS as u8 + 1;
const OTHERS: &str = "(others)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_after_the_first_64_share_a_number() {
        let tiers = TierNames::new();
        let name = |number: usize| format!("tier-{number}");
        for _round in 0..2 {
            for number in 0..MAX_TIERS {
                assert_eq!(tiers.name(tiers.number(&name(number))), Some(&*name(number)));
            }
            for number in MAX_TIERS..1000 {
                assert_eq!(tiers.name(tiers.number(&name(number))), Some(OTHERS));
            }
        }
        assert_eq!(tiers.name(0), None);
    }
}
