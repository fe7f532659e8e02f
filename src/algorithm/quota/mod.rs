//! Quotas. Their text and serde representations are in `policy`.

mod build;
mod shards;

use std::fmt;
use std::time::Duration;

use self::build::built;
use self::shards::Division;
use super::Micros;
use super::error::{QuotaError, TOO_MANY};

/// One second. In a `const`, where `*` is not available, write multiples as `SECOND.saturating_mul(10)`.
pub const SECOND: Duration = Duration::from_secs(1);
/// Sixty seconds.
pub const MINUTE: Duration = Duration::from_secs(60);
/// Sixty minutes.
pub const HOUR: Duration = Duration::from_secs(3600);
/// Twenty-four hours.
pub const DAY: Duration = Duration::from_secs(86_400);
/// Seven days.
pub const WEEK: Duration = Duration::from_secs(604_800);

/// Determines how spent tokens are refilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Continuously refills `rate` tokens per `period`, and allows bursts of up to `capacity` tokens.
    TokenBucket,
    /// Adds `rate` tokens at each window boundary; unused tokens roll over, up to `capacity`.
    FixedWindow,
    /// Counts the current window in full, and the previous window in proportion to its overlap with the last `period`.
    SlidingWindow,
}

impl Algorithm {
    pub(crate) const ALL: [Algorithm; 3] = [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow];

    /// The algorithm's name in configuration files and in the JSON for clients.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Algorithm::TokenBucket => "token_bucket",
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::SlidingWindow => "sliding_window",
        }
    }

    /// The word for the algorithm in the text form of a quota. A token bucket has none.
    pub(crate) const fn word(self) -> Option<&'static str> {
        match self {
            Algorithm::TokenBucket => None,
            Algorithm::FixedWindow => Some("fixed"),
            Algorithm::SlidingWindow => Some("sliding"),
        }
    }

    pub(crate) const fn has_windows(self) -> bool {
        !matches!(self, Algorithm::TokenBucket)
    }

    /// Returns whether [`State::carry`](super::State::carry) contains spent tokens.
    pub(crate) const fn carries_a_count(self) -> bool {
        matches!(self, Algorithm::SlidingWindow)
    }

    /// The number of low bits that the [`tag`](Algorithm::tag) occupies in a [stamp](Quota::stamp).
    pub(crate) const TAG_BITS: u32 = 3;

    /// The nonzero number that identifies the algorithm in a [stamp](Quota::stamp).
    pub(crate) const fn tag(self) -> u32 {
        self as u32 + 1
    }
}

/// The number of tokens that a key may spend, and how fast they are refilled.
///
/// `rate`, `capacity`, `max_reserved` and costs are whole numbers of tokens, up to [`Quota::MAX_TOKENS`]. Times are
/// whole numbers of microseconds. The constructors are `const`, so an invalid quota in a `const` does not compile. For
/// values that are known only at run time, use the `try_` variants, [`FromStr`](std::str::FromStr) or, with the `serde`
/// feature, a configuration file.
///
/// ```
/// use tollgate::{Quota, DAY, HOUR, MINUTE, SECOND};
///
/// const SEARCH: Quota = Quota::token_bucket(10, SECOND).capacity(50);
/// assert_eq!(SEARCH, "10/s burst 50".parse()?);
/// assert_eq!((SEARCH.rate(), SEARCH.period(), SEARCH.get_capacity(), SEARCH.window()), (10, SECOND, 50, 5 * SECOND));
/// assert_eq!(Quota::per_minute(60), Quota::token_bucket(60, MINUTE));
///
/// let daily = Quota::fixed_window(1000, DAY).start(8 * HOUR); // days that begin at 08:00 UTC
/// // Ten tokens immediately, and fifty more for callers that wait up to five seconds.
/// let patient = Quota::token_bucket(10, SECOND).max_reserved(50);
/// let error = Quota::try_sliding_window(0, MINUTE).unwrap_err();
/// assert_eq!(error.to_string(), "rate is 0; it must be between 1 and 999999999999999 tokens");
/// # Ok::<(), tollgate::policy::ParseQuotaError>(())
/// ```
///
/// ```compile_fail
/// const NEVER: tollgate::Quota = tollgate::Quota::token_bucket(0, tollgate::MINUTE);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    algorithm: Algorithm,
    stamp: u32,
    phase: Phase,
    division: Division,
    rate: u64,
    period: u64,
    capacity: u64,
    max_reserved: u64,
    start: u64,
    /// The rate in lowest terms: exactly `grain_tokens` tokens are refilled every `grain_micros` microseconds.
    pub(in crate::algorithm) grain_tokens: u64,
    pub(in crate::algorithm) grain_micros: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Unset,
    Start,
    Seed,
}

const UNLIMITED: u64 = u64::MAX;

impl Quota {
    /// The largest number of tokens in a quota or cost: `10^15 - 1`. This is the largest integer that a structured
    /// field can contain (RFC 9651, section 3.3.1), and it is exact in an `f64`.
    pub const MAX_TOKENS: u64 = 999_999_999_999_999;

    /// The longest period: 100 years.
    pub const MAX_PERIOD: Duration = Duration::from_secs(3_155_760_000);

    /// The longest permitted time to refill the capacity or the reservable tokens: `2^53 - 1` microseconds (285 years).
    pub const MAX_WINDOW: Duration = Duration::from_micros(Micros::MAX.get());

    /// Creates a token bucket, which continuously refills `rate` tokens per `period` and holds up to `rate` tokens. Set
    /// a smaller [`capacity`](Quota::capacity) to limit bursts: without one, `token_bucket(3600, HOUR)` allows all 3600
    /// tokens to be spent in one second. Any interval admits at most `capacity + rate * interval / period` tokens.
    ///
    /// # Panics
    /// Panics if `rate` is 0 or over [`Quota::MAX_TOKENS`], or if `period` is 0, over [`Quota::MAX_PERIOD`] or not a
    /// whole number of microseconds. In a `const`, this is a compile error. See [`Quota::try_token_bucket`].
    #[track_caller]
    pub const fn token_bucket(rate: u64, period: Duration) -> Quota {
        built(Quota::try_token_bucket(rate, period))
    }

    /// Creates a fixed window, which adds `rate` tokens at each boundary. By default, unused tokens expire at the next
    /// boundary; with a larger [`capacity`](Quota::capacity), they roll over. Boundaries are one `period` apart. Unless
    /// [`start`](Quota::start) sets them, they differ from key to key, so that keys are not all reset at the same
    /// instant. A new key has the full capacity, and its first window may be short.
    ///
    /// # Panics
    /// Panics in the same cases as [`Quota::token_bucket`]. See [`Quota::try_fixed_window`].
    #[track_caller]
    pub const fn fixed_window(rate: u64, period: Duration) -> Quota {
        built(Quota::try_fixed_window(rate, period))
    }

    /// Creates a sliding window, which limits the tokens spent in the last `period` to `limit`. The spent tokens are
    /// estimated on the assumption that the previous window's tokens were spent at an even rate. Windows are aligned to
    /// UTC unless [`start`](Quota::start) is set.
    ///
    /// Unlike a fixed window, a sliding window does not allow a burst of `limit` tokens on each side of a boundary. It
    /// can still admit up to `2 * limit - 1` tokens in a period that starts in the middle of a window; see [the worst
    /// window](crate::docs::choosing#the-worst-window). Reservations are not supported. The capacity equals the limit.
    ///
    /// # Panics
    /// Panics in the same cases as [`Quota::token_bucket`]. See [`Quota::try_sliding_window`].
    #[track_caller]
    pub const fn sliding_window(limit: u64, period: Duration) -> Quota {
        built(Quota::try_sliding_window(limit, period))
    }

    /// Like [`Quota::token_bucket`], but for values that are known only at run time.
    ///
    /// # Errors
    /// Fails if [`Quota::token_bucket`] would panic. The error shows the invalid value and the valid range.
    pub const fn try_token_bucket(rate: u64, period: Duration) -> Result<Quota, QuotaError> {
        Quota::base(Algorithm::TokenBucket, rate, period)
    }

    /// Like [`Quota::fixed_window`], but for values that are known only at run time.
    ///
    /// # Errors
    /// Fails in the same cases as [`Quota::try_token_bucket`].
    pub const fn try_fixed_window(rate: u64, period: Duration) -> Result<Quota, QuotaError> {
        Quota::base(Algorithm::FixedWindow, rate, period)
    }

    /// Like [`Quota::sliding_window`], but for values that are known only at run time.
    ///
    /// # Errors
    /// Fails in the same cases as [`Quota::try_token_bucket`].
    pub const fn try_sliding_window(limit: u64, period: Duration) -> Result<Quota, QuotaError> {
        Quota::base(Algorithm::SlidingWindow, limit, period)
    }

    /// Sets how many tokens can be spent at once after a long idle period. The default is `rate`. A capacity of 0,
    /// which requires reservations, prevents bursts and spaces requests evenly.
    ///
    /// # Panics
    /// Panics if `capacity` is over [`Quota::MAX_TOKENS`] or takes longer than [`Quota::MAX_WINDOW`] to refill, or if
    /// the quota is a sliding window. See [`Quota::try_capacity`].
    #[track_caller]
    #[must_use]
    pub const fn capacity(self, capacity: u64) -> Quota {
        built(self.try_capacity(capacity))
    }

    /// Like [`Quota::capacity`], but for values that are known only at run time.
    ///
    /// # Errors
    /// Fails if [`Quota::capacity`] would panic.
    pub const fn try_capacity(mut self, capacity: u64) -> Result<Quota, QuotaError> {
        if matches!(self.algorithm, Algorithm::SlidingWindow) {
            return Err(QuotaError::new(
                "capacity is ",
                capacity,
                " for a sliding window; its capacity equals its limit and cannot be set",
            ));
        }
        self.capacity = capacity;
        self.finish()
    }

    /// Sets how many tokens beyond the capacity a key's waiting callers may reserve in total. The default is 0.
    ///
    /// # Panics
    /// Panics if `tokens` is over [`Quota::MAX_TOKENS`] or takes longer than [`Quota::MAX_WINDOW`] to refill, or if the
    /// quota is a sliding window. See [`Quota::try_max_reserved`].
    #[track_caller]
    #[must_use]
    pub const fn max_reserved(self, tokens: u64) -> Quota {
        built(self.try_max_reserved(tokens))
    }

    /// Like [`Quota::max_reserved`], but for values that are known only at run time.
    ///
    /// # Errors
    /// Fails if [`Quota::max_reserved`] would panic.
    pub const fn try_max_reserved(mut self, tokens: u64) -> Result<Quota, QuotaError> {
        if tokens > Quota::MAX_TOKENS {
            return Err(QuotaError::new("max_reserved is ", tokens, TOO_MANY));
        }
        if matches!(self.algorithm, Algorithm::SlidingWindow) && tokens > 0 {
            return Err(QuotaError::new(
                "max_reserved is ",
                tokens,
                " for a sliding window, which does not support reservations; leave it out, or use a token bucket",
            ));
        }
        self.max_reserved = tokens;
        self.finish()
    }

    /// Removes the bound on reservations, so that every waiting caller gets a due time, however far in the future.
    ///
    /// # Panics
    /// Panics if the quota is a sliding window. See [`Quota::try_unlimited_reservations`].
    #[track_caller]
    #[must_use]
    pub const fn unlimited_reservations(self) -> Quota {
        built(self.try_unlimited_reservations())
    }

    /// Like [`Quota::unlimited_reservations`], but for an algorithm that is known only at run time.
    ///
    /// # Errors
    /// Fails if the quota is a sliding window.
    pub const fn try_unlimited_reservations(mut self) -> Result<Quota, QuotaError> {
        if matches!(self.algorithm, Algorithm::SlidingWindow) {
            return Err(QuotaError::without_value(
                "unlimited reservations are set for a sliding window, which does not support reservations; leave them out, or use a token bucket",
            ));
        }
        self.max_reserved = UNLIMITED;
        self.finish()
    }

    /// Places a window boundary at `start` after the Unix epoch. All boundaries are one `period` apart.
    /// `Duration::ZERO` aligns them to UTC. The epoch was a Thursday, so use `4 * DAY` for weeks that begin on Monday.
    /// Token buckets ignore `start`.
    ///
    /// # Panics
    /// Panics if `start` is not a whole number of microseconds. See [`Quota::try_start`].
    #[track_caller]
    #[must_use]
    pub const fn start(self, start: Duration) -> Quota {
        built(self.try_start(start))
    }

    /// Like [`Quota::start`], but for values that are known only at run time.
    ///
    /// # Errors
    /// Fails if `start` is not a whole number of microseconds.
    pub const fn try_start(mut self, start: Duration) -> Result<Quota, QuotaError> {
        if start.subsec_nanos() % 1000 != 0 {
            return Err(QuotaError::new(
                "start is not a whole number of microseconds (",
                (start.subsec_nanos() % 1000) as u64,
                " ns left over)",
            ));
        }
        self.start = (start.as_micros() % self.period as u128) as u64;
        self.phase = Phase::Start;
        self.finish()
    }

    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The number of tokens refilled every [`period`](Quota::period).
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    /// The time in which [`rate`](Quota::rate) tokens are refilled.
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period)
    }

    /// The capacity, which is the size of the largest burst. The `RateLimit-Policy` header shows it as `q`.
    pub const fn get_capacity(&self) -> u64 {
        self.capacity
    }

    /// The number of tokens that may be reserved beyond the capacity, or `None` if there is no bound.
    pub const fn get_max_reserved(&self) -> Option<u64> {
        match self.max_reserved {
            UNLIMITED => None,
            tokens => Some(tokens),
        }
    }

    /// The offset of the window boundaries from the epoch, modulo the period, or `None` if no boundaries are set.
    pub const fn get_start(&self) -> Option<Duration> {
        match self.phase {
            Phase::Unset => None,
            Phase::Start | Phase::Seed => Some(Duration::from_micros(self.start)),
        }
    }

    /// The time that the limit covers: for a sliding window, the period; otherwise, the time in which the full capacity
    /// (at least one token) is refilled. The `RateLimit-Policy` header shows it as `w`, in whole seconds, rounded up.
    pub const fn window(&self) -> Duration {
        match self.algorithm {
            Algorithm::SlidingWindow => self.period(),
            Algorithm::TokenBucket | Algorithm::FixedWindow => Duration::from_micros(self.fill_micros()),
        }
    }

    pub(crate) const fn stamp(&self) -> u32 {
        self.stamp
    }

    #[must_use]
    #[inline]
    pub(crate) const fn seeded(mut self, seed: u64) -> Quota {
        if self.wants_seed() {
            self.start = seed % self.period;
            self.phase = Phase::Seed;
        }
        self
    }

    pub(crate) const fn wants_seed(&self) -> bool {
        !matches!(self.phase, Phase::Start) && matches!(self.algorithm, Algorithm::FixedWindow)
    }

    pub(crate) const fn validate(&self) -> Result<(), QuotaError> {
        if self.capacity == 0 && self.max_reserved == 0 {
            return Err(QuotaError::without_value(
                "capacity is 0 without reservations: every request would be refused; raise it, or allow reservations",
            ));
        }
        Ok(())
    }

    pub(crate) const fn period_micros(&self) -> u64 {
        self.period
    }

    /// Returns the rate as a number of tokens and a number of microseconds, in lowest terms for a bucket.
    #[cfg(feature = "redis")]
    pub(crate) const fn pace(&self) -> (u64, u64) {
        match self.algorithm {
            Algorithm::TokenBucket => (self.grain_tokens, self.grain_micros),
            Algorithm::FixedWindow | Algorithm::SlidingWindow => (self.rate, self.period),
        }
    }

    pub(crate) const fn start_micros(&self) -> u64 {
        self.start
    }

    pub(crate) const fn fill_micros(&self) -> u64 {
        self.micros_to_fill() as u64
    }

    pub(crate) const fn reserves(&self) -> bool {
        self.max_reserved > 0
    }

    /// The largest number of tokens outstanding after a reservation. A stored row can exceed it by up to one grain.
    pub(crate) const fn ceiling(&self) -> u64 {
        if self.max_reserved == UNLIMITED { MAX_SPENT - Quota::MAX_TOKENS } else { self.capacity + self.max_reserved }
    }

    /// Creates a token bucket of `tokens` per second. In one second, a key can spend almost twice `tokens`: a full
    /// burst plus the refill. For a hard limit, see [a strict limit](crate::docs::choosing#a-strict-limit).
    ///
    /// # Panics
    /// Panics in the same cases as [`Quota::token_bucket`].
    #[track_caller]
    pub const fn per_second(tokens: u64) -> Quota {
        Quota::token_bucket(tokens, SECOND)
    }

    /// Creates a token bucket of `tokens` per minute. Panics like [`Quota::token_bucket`].
    #[track_caller]
    pub const fn per_minute(tokens: u64) -> Quota {
        Quota::token_bucket(tokens, MINUTE)
    }

    /// Creates a token bucket of `tokens` per hour. Panics like [`Quota::token_bucket`].
    #[track_caller]
    pub const fn per_hour(tokens: u64) -> Quota {
        Quota::token_bucket(tokens, HOUR)
    }

    /// Creates a token bucket of `tokens` per day. Panics like [`Quota::token_bucket`].
    #[track_caller]
    pub const fn per_day(tokens: u64) -> Quota {
        Quota::token_bucket(tokens, DAY)
    }
}

/// The largest token count in a row. All integers up to this number are exact in an `f64`.
pub(crate) const MAX_SPENT: u64 = (1 << 53) - 1;

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quota")
            .field("algorithm", &self.algorithm)
            .field("rate", &self.rate)
            .field("period", &self.period())
            .field("capacity", &self.capacity)
            .field("max_reserved", &self.get_max_reserved())
            .field("start", &self.get_start())
            .field("shards", &self.get_shards())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_stored_in_lowest_terms() {
        let quota = Quota::token_bucket(10, MINUTE);
        assert_eq!((quota.grain_tokens, quota.grain_micros), (1, 6_000_000));
        let quota = Quota::token_bucket(1_000_000_000_000, 30 * DAY);
        assert_eq!((quota.grain_tokens, quota.grain_micros), (125, 324));
    }

    #[test]
    fn out_of_range_values_are_rejected_and_named_in_the_error() {
        let most = Quota::MAX_TOKENS;
        for (result, text) in [
            (Quota::try_token_bucket(most + 1, SECOND), "rate is 1000000000000000"),
            (Quota::try_token_bucket(1, Duration::ZERO), "period is 0 s"),
            (Quota::try_token_bucket(1, Duration::MAX), "period"),
            (
                Quota::try_token_bucket(1, Duration::from_nanos(1500)),
                "period is not a whole number of microseconds (500 ns left over)",
            ),
            (Quota::token_bucket(1, SECOND).try_capacity(u64::MAX), "capacity is 18446744073709551615"),
            (Quota::token_bucket(1, WEEK).try_capacity(most), "over 285 years"),
            (Quota::token_bucket(1, SECOND).try_max_reserved(u64::MAX), "max_reserved is 18446744073709551615"),
            (Quota::fixed_window(1, WEEK).try_max_reserved(most), "over 285 years"),
            (Quota::sliding_window(1, SECOND).try_capacity(2), "sliding window"),
            (Quota::sliding_window(1, SECOND).try_max_reserved(2), "sliding window"),
            (Quota::sliding_window(1, SECOND).try_unlimited_reservations(), "sliding window"),
            (Quota::fixed_window(1, SECOND).try_start(Duration::from_nanos(1)), "(1 ns left over)"),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        assert!(Quota::try_token_bucket(most, SECOND).is_ok());
        assert!(Quota::try_fixed_window(1, Quota::MAX_PERIOD).is_ok_and(|slow| slow.window() < Quota::MAX_WINDOW));
    }

    #[test]
    fn a_capacity_of_zero_needs_reservations() {
        let quota = Quota::token_bucket(10, MINUTE).capacity(0);
        assert!(quota.validate().is_err());
        assert!(quota.max_reserved(5).validate().is_ok());
        assert!(quota.unlimited_reservations().validate().is_ok());
    }

    #[test]
    fn different_quotas_have_different_stamps() {
        let quota = Quota::fixed_window(10, MINUTE);
        assert_ne!(quota.stamp(), quota.capacity(11).stamp());
        assert_ne!(quota.stamp(), quota.start(Duration::ZERO).stamp());
        assert_eq!(quota.stamp(), quota.seeded(12345).stamp());
        let mut stamps = std::collections::HashSet::new();
        for rate in
            [1, 2, 3, 5, 6, 10, 15, 20, 24, 30, 40, 50, 60, 100, 120, 200, 250, 300, 400, 500, 600, 1000, 5000, 10_000]
        {
            for period in [SECOND, MINUTE, HOUR, DAY] {
                stamps.insert(Quota::token_bucket(rate, period).stamp());
                stamps.insert(Quota::fixed_window(rate, period).stamp());
                stamps.insert(Quota::sliding_window(rate, period).stamp());
            }
        }
        assert_eq!(stamps.len(), 24 * 4 * 3);
    }

    #[test]
    fn stamps_do_not_change_between_versions() {
        // Rows in Redis outlive an upgrade. The expected stamps were computed independently.
        for (quota, stamp) in [
            (Quota::token_bucket(10, MINUTE), 0x191d_e581),
            (Quota::token_bucket(10, MINUTE).capacity(20).max_reserved(5), 0x2b3d_ea39),
            (Quota::token_bucket(10, MINUTE).unlimited_reservations(), 0x89f1_6c51),
            (Quota::fixed_window(1000, DAY).start(8 * HOUR), 0x72c6_3c9a),
            (Quota::fixed_window(1000, DAY), 0x09a0_e0b2),
            (Quota::sliding_window(100, MINUTE), 0xfbfb_ba9b),
        ] {
            assert_eq!(quota.stamp(), stamp, "{quota:?}");
        }
    }

    #[test]
    fn bounds_are_exact_to_the_token_and_the_microsecond() {
        let (most, micro) = (Quota::MAX_TOKENS, Duration::from_micros(1));
        for rate in [1, 2, most] {
            assert_eq!(Quota::try_token_bucket(rate, SECOND).map(|quota| quota.rate()), Ok(rate));
        }
        for period in [micro, 2 * micro, Quota::MAX_PERIOD] {
            assert_eq!(Quota::try_token_bucket(1, period).map(|quota| quota.period()), Ok(period));
        }
        for (rate, period) in [(0, SECOND), (most + 1, SECOND), (1, Duration::ZERO), (1, Quota::MAX_PERIOD + micro)] {
            assert!(Quota::try_token_bucket(rate, period).is_err(), "{rate} / {period:?}");
        }
        // The longest refill time is 2^53 - 1 = 6361 * 1,416,003,655,831 microseconds.
        let (slow, whole) = (Quota::token_bucket(1, 6361 * micro), 1_416_003_655_831);
        assert_eq!(slow.try_capacity(whole).map(|quota| quota.window()), Ok(Quota::MAX_WINDOW));
        assert_eq!(
            slow.try_capacity(whole + 1).unwrap_err().to_string().split(';').next(),
            Some("capacity is 1416003655832")
        );
        assert_eq!(slow.try_max_reserved(whole).map(|quota| quota.get_max_reserved()), Ok(Some(whole)));
        assert!(
            slow.try_max_reserved(whole + 1).unwrap_err().to_string().contains("max_reserved is 1416003655832; at")
        );
        let fast = Quota::token_bucket(most, SECOND);
        assert!(fast.try_capacity(most).is_ok() && fast.try_max_reserved(most).is_ok());
        assert!(fast.try_capacity(most + 1).is_err() && fast.try_max_reserved(most + 1).is_err());
        assert!(Quota::sliding_window(1, SECOND).try_max_reserved(0).is_ok());
    }

    #[test]
    fn getters_return_the_configured_values() {
        let quota = Quota::fixed_window(10, MINUTE).capacity(25).max_reserved(7).start(90 * SECOND);
        assert_eq!((quota.algorithm(), quota.rate(), quota.period()), (Algorithm::FixedWindow, 10, MINUTE));
        assert_eq!(
            (quota.get_capacity(), quota.get_max_reserved(), quota.get_start()),
            (25, Some(7), Some(30 * SECOND))
        );
        assert_eq!((quota.ceiling(), quota.reserves(), quota.fill_micros()), (32, true, 180_000_000));
        assert_eq!(
            format!("{quota:?}"),
            "Quota { algorithm: FixedWindow, rate: 10, period: 60s, capacity: 25, max_reserved: Some(7), start: Some(30s), shards: 1 }"
        );
        let plain = Quota::token_bucket(10, MINUTE);
        assert_eq!(
            (plain.get_max_reserved(), plain.reserves(), plain.ceiling(), plain.get_start()),
            (Some(0), false, 10, None)
        );
        // The sum of the largest possible debt and the largest cost is exact in an `f64`.
        let endless = plain.unlimited_reservations();
        assert_eq!((endless.get_max_reserved(), endless.reserves()), (None, true));
        assert_eq!(endless.ceiling() + Quota::MAX_TOKENS, 9_007_199_254_740_991);
        // A capacity of 0 counts as one token. A full sliding window takes two windows to empty.
        assert_eq!(plain.capacity(0).max_reserved(1).window(), 6 * SECOND);
        assert_eq!(Quota::sliding_window(10, MINUTE).fill_micros(), 120_000_000);
        assert!(Quota::fixed_window(1, SECOND).try_start(Duration::from_micros(5)).is_ok());
        #[cfg(feature = "redis")]
        assert_eq!(
            (plain.pace(), quota.pace(), Quota::sliding_window(4, MINUTE).pace()),
            ((1, 6_000_000), (10, 60_000_000), (4, 60_000_000))
        );
    }

    #[test]
    fn a_seed_applies_only_to_fixed_windows_without_a_start() {
        let seeded = |quota: Quota| quota.seeded(90_000_001).get_start();
        assert_eq!(seeded(Quota::fixed_window(10, MINUTE)), Some(Duration::from_micros(30_000_001)));
        assert_eq!(seeded(Quota::fixed_window(10, MINUTE).start(SECOND)), Some(SECOND));
        assert_eq!(seeded(Quota::sliding_window(10, MINUTE)), None);
        assert_eq!(seeded(Quota::sliding_window(10, MINUTE).start(SECOND)), Some(SECOND));
        assert_eq!(seeded(Quota::token_bucket(10, MINUTE)), None);
    }

    #[test]
    fn scaled_numbers_are_never_rounded_down_to_zero() {
        let quota = Quota::fixed_window(10, MINUTE).capacity(25).max_reserved(7).start(20 * SECOND);
        let half = Quota::fixed_window(5, MINUTE).capacity(12).max_reserved(3).start(20 * SECOND);
        assert_eq!((quota.scaled(0.5), quota.scaled(1.0)), (half, quota));
        let least = Quota::fixed_window(1, MINUTE).max_reserved(1).start(20 * SECOND);
        assert_eq!(quota.scaled(0.001), least);
        let patient = Quota::token_bucket(10, MINUTE).capacity(0).unlimited_reservations();
        assert_eq!(patient.scaled(0.5), Quota::token_bucket(5, MINUTE).capacity(0).unlimited_reservations());
        assert_eq!(Quota::fixed_window(10, MINUTE).seeded(5).scaled(0.5), Quota::fixed_window(5, MINUTE).seeded(5));
    }

    #[test]
    fn the_window_is_the_time_that_the_limit_covers() {
        assert_eq!(Quota::sliding_window(100, MINUTE).window(), MINUTE);
        assert_eq!(Quota::fixed_window(100, MINUTE).window(), MINUTE);
        assert_eq!(Quota::fixed_window(100, MINUTE).capacity(250).window(), 3 * MINUTE);
        assert_eq!(Quota::token_bucket(100, MINUTE).capacity(250).window(), 150 * SECOND);
    }
}
