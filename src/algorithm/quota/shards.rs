//! The division of a quota into shards.

use super::super::error::QuotaError;
use super::build::built;
use super::{Quota, UNLIMITED};

/// Describes how a quota is divided, or which shard of a divided quota it represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Division {
    /// The number of shards, which is 1 if the quota is not divided.
    pub(super) shards: u8,
    index: Option<u8>,
    /// The remainders of the rate, the capacity and `max_reserved`. [`Quota::whole`] needs them to undo the division.
    remainders: [u8; 3],
}

impl Division {
    pub(super) const NONE: Division = Division { shards: 1, index: None, remainders: [0; 3] };
}

impl Quota {
    /// The largest number of shards.
    pub const MAX_SHARDS: u64 = 64;

    /// Divides the quota of a very busy key among `shards` rows. Each shard has an equal share of the rate, the
    /// capacity and the reservations (to within one token). A charge spends tokens from only one shard. See
    /// [shards](crate::docs::shards) for when shards help and what they cost.
    ///
    /// ```
    /// use tollgate::{policy::Reason, Policy, Quota, RateLimiter, MINUTE};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::backend::Error> {
    /// static SEARCH: Policy = Policy::new("search", Quota::fixed_window(100, MINUTE).shards(4));
    /// let limiter = RateLimiter::default();
    /// assert!(limiter.try_acquire(&SEARCH, "all").cost(25).await?.is_allowed()); // spends all of one shard's tokens
    /// assert_eq!(limiter.remaining(&SEARCH, "all").await?, 75);
    /// assert_eq!(limiter.try_acquire(&SEARCH, "all").cost(26).await?.reason(), Reason::CostAboveShard);
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    /// Panics if `shards` is 0 or over [`MAX_SHARDS`](Quota::MAX_SHARDS), if it exceeds the rate, the capacity or a
    /// nonzero `max_reserved`, or if a shard takes longer than [`Quota::MAX_WINDOW`] to refill. In a `const`, this is a
    /// compile error. See [`Quota::try_shards`].
    #[track_caller]
    #[must_use]
    pub const fn shards(self, shards: u64) -> Quota {
        built(self.try_shards(shards))
    }

    /// Like [`Quota::shards`], but for values that are known only at run time.
    ///
    /// # Errors
    /// Fails if [`Quota::shards`] would panic.
    pub const fn try_shards(mut self, shards: u64) -> Result<Quota, QuotaError> {
        if shards == 0 || shards > Quota::MAX_SHARDS {
            return Err(QuotaError::new("shards is ", shards, "; it must be between 1 and 64"));
        }
        self.division = Division { shards: shards as u8, ..Division::NONE };
        self.finish()
    }

    /// Returns the number of shards, which is 1 by default.
    pub const fn get_shards(&self) -> u64 {
        self.division.shards as u64
    }

    pub(crate) const fn shard(&self, index: u8) -> Quota {
        if self.division.shards == 1 {
            return *self;
        }
        // Every shard was checked when the quota was built.
        self.divided(index).derived()
    }

    /// Returns the quota of which this quota is a shard, or `self` if this quota is not a shard.
    pub(crate) const fn whole(&self) -> Quota {
        let Division { shards, index, remainders } = self.division;
        let Some(index) = index else { return *self };
        let whole = Quota {
            rate: total(self.rate, remainders[0], index, shards),
            capacity: total(self.capacity, remainders[1], index, shards),
            max_reserved: total(self.max_reserved, remainders[2], index, shards),
            division: Division { shards, ..Division::NONE },
            ..*self
        };
        whole.derived()
    }

    pub(crate) const fn shard_index(&self) -> Option<u8> {
        self.division.index
    }

    /// Returns the share of `tokens` that belongs to shard `index`.
    pub(crate) const fn share(&self, tokens: u64, index: u8) -> u64 {
        share(tokens, index, self.division.shards)
    }

    pub(crate) const fn whole_capacity(&self) -> u64 {
        let Division { shards, index, remainders } = self.division;
        match index {
            Some(index) => total(self.capacity, remainders[1], index, shards),
            None => self.capacity,
        }
    }

    /// Estimates the total tokens of all shards from `tokens`, the total of `read` shards.
    pub(crate) fn across_shards(&self, tokens: u64, read: usize) -> u64 {
        if self.division.index.is_none() {
            return tokens;
        }
        let all = u128::from(tokens) * u128::from(self.division.shards) / read.max(1) as u128;
        all.min(self.whole_capacity().into()) as u64
    }

    /// Returns how many shards are large enough for `cost`. If `reserves` is set, reservable tokens count, too.
    pub(crate) fn shards_for(&self, cost: u64, reserves: bool) -> u8 {
        let shards = self.division.shards;
        let max_cost = |index| {
            let capacity = share(self.capacity, index, shards);
            if reserves { capacity.saturating_add(share(self.max_reserved, index, shards)) } else { capacity }
        };
        // Shards with an additional token come first, so `max_cost` never increases with the index.
        (0..shards).take_while(|index| cost <= max_cost(*index)).count() as u8
    }

    pub(super) const fn check_shards(&self) -> Result<(), QuotaError> {
        let Division { shards, index, .. } = self.division;
        if shards == 1 || index.is_some() {
            return Ok(());
        }
        let least = shards as u64;
        if self.rate < least {
            return Err(QuotaError::new("rate is ", self.rate, TOO_FEW));
        }
        if self.capacity < least {
            return Err(QuotaError::new("capacity is ", self.capacity, TOO_FEW));
        }
        if self.max_reserved > 0 && self.max_reserved < least {
            return Err(QuotaError::new("max_reserved is ", self.max_reserved, TOO_FEW));
        }
        let mut i = 0;
        while i < shards {
            if let Err(error) = self.divided(i).finish() {
                return Err(error);
            }
            i += 1;
        }
        Ok(())
    }

    const fn divided(&self, index: u8) -> Quota {
        let shards = self.division.shards;
        Quota {
            rate: share(self.rate, index, shards),
            capacity: share(self.capacity, index, shards),
            max_reserved: share(self.max_reserved, index, shards),
            division: Division {
                shards,
                index: Some(index),
                remainders: [
                    remainder_of(self.rate, shards),
                    remainder_of(self.capacity, shards),
                    remainder_of(self.max_reserved, shards),
                ],
            },
            ..*self
        }
    }
}

const TOO_FEW: &str = "; every shard needs at least one token, so raise this value or use fewer shards";

const fn share(tokens: u64, index: u8, shards: u8) -> u64 {
    match tokens {
        UNLIMITED => UNLIMITED,
        tokens => tokens / shards as u64 + (index < remainder_of(tokens, shards)) as u64,
    }
}

const fn remainder_of(tokens: u64, shards: u8) -> u8 {
    (tokens % shards as u64) as u8
}

/// Reverses [`share`].
const fn total(share: u64, remainder: u8, index: u8, shards: u8) -> u64 {
    match share {
        UNLIMITED => UNLIMITED,
        share => (share - (index < remainder) as u64) * shards as u64 + remainder as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{DAY, MINUTE, SECOND};

    #[test]
    fn the_shards_add_up_to_the_whole_quota() {
        let list = [
            Quota::token_bucket(10, SECOND).shards(7),
            Quota::token_bucket(1000, MINUTE).capacity(77).max_reserved(65).shards(64),
            Quota::fixed_window(129, DAY).capacity(333).unlimited_reservations().start(5 * SECOND).shards(2),
            Quota::fixed_window(64, DAY).shards(64).seeded(1_234_567),
            Quota::sliding_window(100, MINUTE).shards(3),
            Quota::token_bucket(Quota::MAX_TOKENS, SECOND).shards(64),
        ];
        for quota in list {
            let shards: Vec<Quota> = (0..quota.get_shards()).map(|index| quota.shard(index as u8)).collect();
            let sum = |tokens: fn(&Quota) -> u64| shards.iter().map(tokens).sum::<u64>();
            assert_eq!((sum(Quota::rate), sum(Quota::get_capacity)), (quota.rate(), quota.get_capacity()), "{quota:?}");
            match quota.get_max_reserved() {
                Some(tokens) => assert_eq!(sum(|shard| shard.get_max_reserved().unwrap_or(0)), tokens),
                None => assert!(shards.iter().all(|shard| shard.get_max_reserved().is_none())),
            }
            for (index, shard) in (0..).zip(&shards) {
                assert_eq!((shard.whole(), shard.shard_index()), (quota, Some(index)));
                assert_eq!(
                    (shard.algorithm(), shard.period(), shard.get_start()),
                    (quota.algorithm(), quota.period(), quota.get_start())
                );
                let spread = shards[0].get_capacity() - shard.get_capacity();
                assert!(spread <= 1 && shards[0].rate() - shard.rate() <= 1);
            }
        }
        let undivided = Quota::token_bucket(10, SECOND);
        assert_eq!((undivided.shards(1), undivided.shard(0), undivided.whole()), (undivided, undivided, undivided));
    }

    #[test]
    fn a_shard_has_the_stamp_of_an_equal_undivided_quota() {
        let shard = Quota::token_bucket(10, SECOND).capacity(21).shards(4).shard(0);
        assert_eq!(shard.stamp(), Quota::token_bucket(3, SECOND).capacity(6).stamp());
    }

    #[test]
    fn only_shards_that_are_large_enough_are_used() {
        let quota = Quota::token_bucket(10, SECOND).max_reserved(9).shards(4);
        let shards = |cost, reserves| quota.shards_for(cost, reserves);
        assert_eq!([0, 2, 3, 4].map(|cost| shards(cost, false)), [4, 4, 2, 0]);
        assert_eq!([4, 5, 6, 7].map(|cost| shards(cost, true)), [4, 2, 1, 0]);
    }

    #[test]
    fn a_shard_without_tokens_is_an_error() {
        let quota = Quota::token_bucket(10, SECOND);
        for (result, expected) in [
            (quota.try_shards(0), "shards is 0; it must be between 1 and 64"),
            (quota.try_shards(65), "shards is 65; it must be between 1 and 64"),
            (
                quota.try_shards(11),
                "rate is 10; every shard needs at least one token, so raise this value or use fewer shards",
            ),
            (quota.shards(10).try_capacity(9), "capacity is 9; every shard needs"),
            (quota.shards(4).try_max_reserved(3), "max_reserved is 3; every shard needs"),
        ] {
            let error = result.expect_err(expected).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(quota.shards(10).try_max_reserved(0).is_ok());
        assert!(quota.shards(10).try_max_reserved(10).is_ok());
    }

    #[test]
    fn a_shard_that_refills_too_slowly_is_an_error() {
        // The quota refills in 200 years. The shards have rates of 2 and 1, so the second one takes 300 years.
        let quota = Quota::token_bucket(3, DAY).capacity(219_000);
        let error = quota.try_shards(2).expect_err("expected the second shard to refill too slowly").to_string();
        assert!(error.starts_with("capacity is 109500; at this rate it takes over 285 years"), "{error}");
    }

    #[test]
    fn the_tokens_of_some_shards_are_extrapolated_to_all_shards() {
        let quota = Quota::token_bucket(10, MINUTE).shards(4);
        assert_eq!([0, 1, 2, 3].map(|index| quota.share(6, index)), [2, 2, 1, 1]);
        let shard = quota.shard(3);
        assert_eq!((quota.whole_capacity(), shard.whole_capacity()), (10, 10));
        assert_eq!([(3, 2), (4, 3), (6, 2)].map(|(tokens, read)| shard.across_shards(tokens, read)), [6, 5, 10]);
        assert_eq!(quota.across_shards(3, 2), 3);
    }
}
