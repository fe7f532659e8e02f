//! The times at which calls arrive in the simulation.

use std::time::Duration;

use crate::algorithm::SECOND;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Load {
    /// All processes have the same demand. The total demand is this multiple of the limit.
    Even(f64),
    /// The total demand is twice the limit. The demand of process `i` is proportional to `1 / (i + 1)`.
    Skewed,
    /// On average, the total demand is twice the limit. Each process makes calls only during one second out of four.
    Bursty,
}

pub(super) struct Random(u64);

const CYCLE: f64 = 4.0;
const BURST: f64 = 1.0;

impl Load {
    /// Returns the time of the next call by a process. All times are measured from the start of the simulation.
    pub(super) fn next_arrival(
        self,
        process: usize,
        processes: usize,
        limit: u64,
        now: Duration,
        random: &mut Random,
    ) -> Duration {
        let (limit, count) = (limit as f64, processes as f64);
        let per_second = match self {
            Load::Even(demand) => limit * demand / count,
            Load::Skewed => 2.0 * limit / (process + 1) as f64 / (1..=processes).map(|i| 1.0 / i as f64).sum::<f64>(),
            Load::Bursty => 2.0 * limit / count * CYCLE / BURST,
        };
        let mut wait = (-random.unit().ln() / per_second).min(100.0);
        if self == Load::Bursty {
            wait = after_bursts(process, now.as_secs_f64(), wait);
        }
        // The minimum of a microsecond ensures that time advances even for a very busy process.
        now + Duration::from_secs_f64(wait).max(SECOND / 1_000_000)
    }
}

/// Returns how many seconds pass after `now` until the process has spent `wait` seconds in its bursts.
fn after_bursts(process: usize, now: f64, wait: f64) -> f64 {
    let phase = (now + process as f64 * 0.618 * CYCLE) % CYCLE;
    let (until_next, left) = if phase < BURST { (0.0, BURST - phase) } else { (CYCLE - phase, BURST) };
    let rest = wait - left;
    if rest < 0.0 {
        return until_next + wait;
    }
    until_next + left + (CYCLE - BURST) + (rest / BURST).floor() * CYCLE + rest % BURST
}

impl Random {
    pub(super) fn new() -> Random {
        Random(0x9e37_79b9_7f4a_7c15)
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number that is greater than 0 and at most 1.
    pub(super) fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

#[test]
fn each_burst_lasts_one_second_out_of_four() {
    let close = |actual: f64, expected: f64| assert!((actual - expected).abs() < 1e-9, "{actual}, not {expected}");
    close(after_bursts(0, 0.25, 0.5), 0.5);
    close(after_bursts(0, 0.25, 1.0), 4.0);
    close(after_bursts(0, 0.25, 2.0), 8.0);
    close(after_bursts(0, 3.0, 0.5), 1.5);
}
