//! Validation of a quota's parameters, and derivation of its other fields.

use std::time::Duration;

use super::super::error::{QuotaError, TOO_LONG, TOO_MANY};
use super::super::token_bucket;
use super::shards::Division;
use super::{Algorithm, Phase, Quota, UNLIMITED};

impl Quota {
    pub(crate) const fn base(algorithm: Algorithm, rate: u64, period: Duration) -> Result<Quota, QuotaError> {
        if rate == 0 || rate > Quota::MAX_TOKENS {
            return Err(QuotaError::new("rate is ", rate, "; it must be between 1 and 999999999999999 tokens"));
        }
        if period.subsec_nanos() % 1000 != 0 {
            return Err(QuotaError::new(
                "period is not a whole number of microseconds (",
                (period.subsec_nanos() % 1000) as u64,
                " ns left over)",
            ));
        }
        if period.is_zero() || period.as_micros() > Quota::MAX_PERIOD.as_micros() {
            return Err(QuotaError::new(
                "period is ",
                period.as_secs(),
                " s; it must be between 1 microsecond and 100 years",
            ));
        }
        let micros = period.as_micros() as u64;
        Quota {
            algorithm,
            stamp: 0,
            phase: Phase::Unset,
            division: Division::NONE,
            rate,
            period: micros,
            capacity: rate,
            max_reserved: 0,
            start: 0,
            grain_tokens: 1,
            grain_micros: 1,
        }
        .finish()
    }

    /// Scales the rate, the capacity and the reservable tokens by `share` (0 to 1). Rounds down, but never to zero.
    pub(crate) fn scaled(&self, share: f64) -> Quota {
        let of = |tokens: u64| match tokens {
            0 | UNLIMITED => tokens,
            tokens => ((tokens as f64 * share) as u64).clamp(1, tokens),
        };
        Quota::base(self.algorithm, of(self.rate), self.period())
            .and_then(|base| {
                let (capacity, max_reserved) = (of(self.capacity), of(self.max_reserved));
                Quota { capacity, max_reserved, phase: self.phase, start: self.start, ..base }.finish()
            })
            // The scaled quota is invalid if the rounded-down rate would take too long to refill it.
            .unwrap_or(*self)
    }

    /// Checks the values that depend on each other, and derives the other fields.
    pub(super) const fn finish(self) -> Result<Quota, QuotaError> {
        if self.capacity > Quota::MAX_TOKENS {
            return Err(QuotaError::new("capacity is ", self.capacity, TOO_MANY));
        }
        let derived = self.derived();
        let span = Quota::MAX_WINDOW.as_micros();
        if derived.micros_to_fill() > span {
            return Err(QuotaError::new("capacity is ", self.capacity, TOO_LONG));
        }
        if self.max_reserved != UNLIMITED && derived.micros_to_repay(self.max_reserved) > span {
            return Err(QuotaError::new("max_reserved is ", self.max_reserved, TOO_LONG));
        }
        match self.check_shards() {
            Ok(()) => Ok(derived),
            Err(error) => Err(error),
        }
    }

    pub(super) const fn derived(mut self) -> Quota {
        let common = gcd(self.rate, self.period);
        self.grain_tokens = self.rate / common;
        self.grain_micros = self.period / common;
        self.stamp = self.digest();
        self
    }

    pub(super) const fn micros_to_fill(&self) -> u128 {
        // A capacity of 0 counts as one token. Otherwise, the refill time would be 0, and even the smallest backward
        // step of the clock would count as a jump.
        self.micros_to_repay(if self.capacity == 0 { 1 } else { self.capacity })
    }

    const fn micros_to_repay(&self, tokens: u64) -> u128 {
        let period = self.period as u128;
        match self.algorithm {
            Algorithm::TokenBucket => token_bucket::micros_to_repay(self, tokens),
            Algorithm::FixedWindow => (tokens as u128).div_ceil(self.rate as u128) * period,
            Algorithm::SlidingWindow => 2 * period,
        }
    }

    const fn digest(&self) -> u32 {
        // The stamp is the FNV-1a hash of the numbers, folded into the bits above the algorithm's tag.
        let numbers = [
            self.algorithm as u64,
            self.rate,
            self.period,
            self.capacity,
            self.max_reserved,
            if matches!(self.phase, Phase::Start) { self.start + 1 } else { 0 },
        ];
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut i = 0;
        while i < numbers.len() {
            let bytes = numbers[i].to_le_bytes();
            let mut j = 0;
            while j < bytes.len() {
                hash = (hash ^ bytes[j] as u64).wrapping_mul(0x0100_0000_01b3);
                j += 1;
            }
            i += 1;
        }
        (((hash ^ (hash >> (32 + Algorithm::TAG_BITS))) as u32) << Algorithm::TAG_BITS) | self.algorithm.tag()
    }
}

#[track_caller]
pub(super) const fn built(result: Result<Quota, QuotaError>) -> Quota {
    match result {
        Ok(quota) => quota,
        Err(error) => error.panic(),
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
