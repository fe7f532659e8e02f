//! The assignment of a policy's quotas to the windows of a row.

use std::fmt;
use std::time::Duration;

use super::duration;
use super::quotas::Quotas;
use crate::algorithm::{Algorithm, Quota};

/// The maximum number of windows per row.
pub(crate) const MAX_WINDOWS: usize = 8;

/// One quota of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) index: u8,
    pub(crate) count: u8,
    /// The number of shards that precede this one in the charge. Only a check reads several shards.
    pub(crate) shard: u8,
    /// Whether a denial of the charge is enforced. If not, the charge is in shadow mode.
    pub(crate) enforced: bool,
    pub(crate) leased: bool,
    /// For a charge that was spent from a lease, the sequence number of the last report before the charge.
    pub(crate) lease: u32,
    /// The number that the limiter has assigned to the caller's tier, or 0 if there is no tier or no observer.
    pub(crate) tier: u8,
}

impl Part {
    pub(crate) const WHOLE: Part =
        Part { index: 0, count: 1, shard: 0, enforced: true, leased: false, lease: 0, tier: 0 };

    pub(crate) const fn is_first(self) -> bool {
        self.index == 0 && self.shard == 0
    }
}

/// The windows of a policy, for all of its lists of quotas.
///
/// If every list has only one quota, all quotas use window 0, so that spent tokens carry over to a tier with another
/// period. Otherwise, each quota uses the window of its period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    /// The periods and their algorithms, longest period first.
    periods: [(u64, Algorithm); MAX_WINDOWS],
    len: u8,
    /// Whether any list has several quotas. If not, the other fields are not used.
    several: bool,
    fault: Option<WindowFault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowFault {
    TooManyPeriods,
    /// Two quotas with this period, in microseconds, have different algorithms.
    Algorithms(u64),
}

impl fmt::Display for WindowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WindowFault::TooManyPeriods => {
                write!(f, "the quotas have more than {MAX_WINDOWS} different periods; use fewer")
            }
            WindowFault::Algorithms(period) => {
                let (count, unit) = duration::parts(Duration::from_micros(*period));
                write!(
                    f,
                    "two quotas with a period of {count} {unit} have different algorithms; a key has one row for all \
                     tiers, so quotas with the same period must use the same algorithm"
                )
            }
        }
    }
}

impl Windows {
    pub(super) const fn of(quotas: &Quotas) -> Windows {
        let none = Windows { periods: [(0, Algorithm::TokenBucket); MAX_WINDOWS], len: 0, several: false, fault: None };
        none.with(quotas)
    }

    pub(super) const fn with(mut self, quotas: &Quotas) -> Windows {
        let mut i = 0;
        while i < quotas.count() {
            self = self.with_quota(quotas.at(i));
            i += 1;
        }
        self.several |= quotas.count() > 1;
        self
    }

    const fn with_quota(mut self, quota: &Quota) -> Windows {
        let (period, algorithm) = (quota.period_micros(), quota.algorithm());
        let mut place = 0;
        while place < self.len as usize && self.periods[place].0 > period {
            place += 1;
        }
        if place < self.len as usize && self.periods[place].0 == period {
            if self.periods[place].1 as u8 != algorithm as u8 && self.fault.is_none() {
                self.fault = Some(WindowFault::Algorithms(period));
            }
            return self;
        }
        if self.len as usize == MAX_WINDOWS {
            self.fault = Some(WindowFault::TooManyPeriods);
            return self;
        }
        let mut last = self.len as usize;
        while last > place {
            self.periods[last] = self.periods[last - 1];
            last -= 1;
        }
        self.periods[place] = (period, algorithm);
        self.len += 1;
        self
    }

    pub(super) const fn fault(&self) -> Option<WindowFault> {
        if self.several { self.fault } else { None }
    }

    pub(super) const fn several(&self) -> bool {
        self.several
    }

    /// Returns the window of each quota in a list. The list need not belong to the policy. Quotas with unknown periods
    /// use the free windows, longest period first.
    #[inline]
    pub(super) fn assign(&self, quotas: &Quotas) -> [u8; Quotas::MAX] {
        let mut windows = [0; Quotas::MAX];
        if self.several || quotas.len() > 1 {
            self.assign_several(quotas, &mut windows);
        }
        windows
    }

    fn assign_several(&self, quotas: &Quotas, windows: &mut [u8; Quotas::MAX]) {
        let known = if self.several { &self.periods[..usize::from(self.len)] } else { &[] };
        let position = |quota: &Quota| known.iter().position(|(period, _)| *period == quota.period_micros());
        let (mut taken, mut rest) = (0u32, Vec::new());
        for (i, quota) in quotas.iter().enumerate() {
            match position(quota) {
                Some(window) => (windows[i], taken) = (window as u8, taken | 1 << window),
                None => rest.push(i),
            }
        }
        rest.sort_unstable_by_key(|i| std::cmp::Reverse(quotas[*i].period_micros()));
        for i in rest {
            windows[i] = taken.trailing_ones() as u8;
            taken |= 1 << windows[i];
        }
    }

    /// Returns the algorithm of a window, if the policy has quotas for it. `own` is the policy's own first quota.
    pub(super) fn algorithm(&self, window: u8, own: &Quota) -> Option<Algorithm> {
        if self.several {
            return self.periods[..usize::from(self.len)].get(usize::from(window)).map(|(_, algorithm)| *algorithm);
        }
        (window == 0).then_some(own.algorithm())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(lists: &[&str]) -> Windows {
        let lists: Vec<Quotas> = lists.iter().map(|text| text.parse().expect("quotas")).collect();
        lists[1..].iter().fold(Windows::of(&lists[0]), Windows::with)
    }

    fn assigned(windows: &Windows, text: &str) -> Vec<u8> {
        let quotas: Quotas = text.parse().expect("quotas");
        windows.assign(&quotas)[..quotas.len()].to_vec()
    }

    #[test]
    fn single_quotas_share_a_window_whatever_their_periods() {
        let tiers = windows(&["10/s", "1000/d", "5/min"]);
        for text in ["10/s", "1000/d", "7/w"] {
            assert_eq!(assigned(&tiers, text), [0]);
        }
        // The quota with the longest period uses the window that single quotas share.
        assert_eq!(assigned(&tiers, "10/s; 1000/d; 5/min"), [2, 0, 1]);
    }

    #[test]
    fn quotas_of_several_lists_are_matched_by_period() {
        let tiers = windows(&["10/s; 1000/d", "50/s; 20000/d", "100/s; 500000/30d"]);
        assert_eq!(assigned(&tiers, "10/s; 1000/d"), [2, 1]);
        assert_eq!(assigned(&tiers, "500000/30d; 100/s"), [0, 2]);
        assert_eq!(assigned(&tiers, "7/d"), [1]);
        assert_eq!(assigned(&tiers, "7/h"), [0]);
        assert_eq!(assigned(&tiers, "1/s; 7/h; 9/d; 70/w"), [2, 3, 1, 0]);
        assert_eq!(assigned(&tiers, "1/ms; 7/h; 9/min; 70/w"), [3, 1, 2, 0]);
    }

    #[test]
    fn faults_are_reported_only_if_a_list_has_several_quotas() {
        assert_eq!(windows(&["1/s", "1/s fixed"]).fault(), None);
        assert_eq!(windows(&["1/s; 1/d", "1/s fixed"]).fault(), Some(WindowFault::Algorithms(1_000_000)));
        let nine = ["1/s", "1/2s", "1/3s", "1/4s", "1/5s", "1/6s", "1/7s", "1/8s", "1/9s"];
        assert_eq!(windows(&nine).fault(), None);
        assert_eq!(windows(&[&nine[..], &["1/s; 1/2s"]].concat()).fault(), Some(WindowFault::TooManyPeriods));
        assert_eq!(windows(&["1/s; 1/2s; 1/3s; 1/4s", "1/5s; 1/6s; 1/7s; 1/8s"]).fault(), None);
    }
}
