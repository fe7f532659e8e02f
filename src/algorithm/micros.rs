//! Instants in whole microseconds.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An instant, as a whole number of microseconds since the Unix epoch.
///
/// The range is `0 ..= 2^53 - 1`, which ends in the year 2255. Every instant in this range is exact in an `f64`, and
/// therefore in Lua and JavaScript. Values beyond the range are clamped.
///
/// ```
/// use tollgate::{algorithm::Micros, SECOND};
/// let noon = Micros::new(43_200_000_000);
/// assert_eq!(((noon + SECOND).get(), (noon + SECOND).since(noon)), (43_201_000_000, SECOND));
/// assert_eq!(Micros::MAX + SECOND, Micros::MAX);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(u64);

impl Micros {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Micros = Micros(0);

    /// The last instant, `2^53 - 1` microseconds after the epoch.
    pub const MAX: Micros = Micros((1 << 53) - 1);

    /// Creates the instant that is `micros` microseconds after the epoch, clamped to [`Micros::MAX`].
    #[inline]
    pub const fn new(micros: u64) -> Micros {
        if micros > Micros::MAX.0 { Micros::MAX } else { Micros(micros) }
    }

    /// The number of microseconds since the epoch.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, or zero if `earlier` is later than `self`.
    #[inline]
    pub const fn since(self, earlier: Micros) -> Duration {
        Duration::from_micros(self.micros_since(earlier))
    }

    #[inline]
    pub(crate) const fn micros_since(self, earlier: Micros) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    #[inline]
    pub(crate) const fn plus(self, micros: u64) -> Micros {
        Micros::new(self.0.saturating_add(micros))
    }

    /// Rounds up to a whole second. Returns [`Micros::MAX`] if the number of seconds does not fit in 32 bits.
    pub(crate) const fn to_whole_second(self) -> Micros {
        Micros::from_seconds(self.to_seconds())
    }

    /// Returns the number of seconds, rounded up. `u32::MAX` represents [`Micros::MAX`].
    pub(crate) const fn to_seconds(self) -> u32 {
        let seconds = self.0.div_ceil(1_000_000);
        if seconds < u32::MAX as u64 { seconds as u32 } else { u32::MAX }
    }

    pub(crate) const fn from_seconds(seconds: u32) -> Micros {
        if seconds == u32::MAX { Micros::MAX } else { Micros(seconds as u64 * 1_000_000) }
    }

    pub(crate) const fn minus(self, micros: u64) -> Micros {
        Micros(self.0.saturating_sub(micros))
    }
}

impl std::ops::Add<Duration> for Micros {
    type Output = Micros;

    fn add(self, duration: Duration) -> Micros {
        self.plus(whole_micros(duration))
    }
}

impl From<SystemTime> for Micros {
    /// Converts a system time to an instant. Times before the epoch become the epoch.
    fn from(time: SystemTime) -> Micros {
        Micros::EPOCH + time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
    }
}

impl fmt::Debug for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// Converts a duration to microseconds, rounded up, because a retry after a shorter wait would be denied again.
pub(crate) fn whole_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_saturate_at_both_ends() {
        assert_eq!(Micros::new(u64::MAX), Micros::MAX);
        assert_eq!(Micros::MAX + Duration::MAX, Micros::MAX);
        assert_eq!(Micros::EPOCH.minus(1), Micros::EPOCH);
        assert_eq!(Micros::from(UNIX_EPOCH - Duration::from_secs(1)), Micros::EPOCH);
        assert_eq!((Micros::MAX.get() as f64) as u64, Micros::MAX.get());
        assert_eq!(Micros::MAX.get(), 9_007_199_254_740_991);
        assert_eq!((Micros::new(5).minus(2), format!("{:?}", Micros::new(5))), (Micros::new(3), "5us".into()));
        assert_eq!(Micros::from(UNIX_EPOCH + Duration::from_secs(1)), Micros::new(1_000_000));
    }

    #[test]
    fn seconds_round_up_and_saturate_at_32_bits() {
        let second = |micros| Micros::new(micros).to_whole_second().get();
        assert_eq!((second(0), second(1), second(1_000_000), second(1_000_001)), (0, 1_000_000, 1_000_000, 2_000_000));
        let last = 4_294_967_294_000_000;
        assert_eq!((second(last), second(last + 1)), (last, Micros::MAX.get()));
        assert_eq!(Micros::MAX.to_seconds(), u32::MAX);
    }

    #[test]
    fn durations_round_up() {
        assert_eq!(whole_micros(Duration::from_nanos(1)), 1);
        assert_eq!(whole_micros(Duration::from_nanos(1000)), 1);
        assert_eq!(whole_micros(Duration::from_nanos(1001)), 2);
        assert_eq!(whole_micros(Duration::MAX), u64::MAX);
    }
}
