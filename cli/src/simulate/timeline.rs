//! Refused requests over time, in a bounded number of periods.

/// Counts of requests by period. The periods become longer as the log continues.
#[derive(Clone, Debug)]
pub struct Timeline {
    first: u64,
    /// The length of a period in seconds.
    width: u64,
    counts: Vec<u32>,
}

const MAX_PERIODS: usize = 512;

impl Timeline {
    /// Creates a timeline that begins with this second.
    pub fn new(first: u64) -> Timeline {
        Timeline { first, width: 1, counts: Vec::new() }
    }

    /// Counts a request. A request before the first second counts toward the first second.
    pub fn add(&mut self, second: u64) {
        let since = second.saturating_sub(self.first);
        while since / self.width >= MAX_PERIODS as u64 {
            self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.width *= 2;
        }
        let period = (since / self.width) as usize;
        if period >= self.counts.len() {
            self.counts.resize(period + 1, 0);
        }
        self.counts[period] += 1;
    }

    /// Returns the middle of each period, as seconds since 1970, and the requests per second in that period.
    pub fn rates(&self) -> impl Iterator<Item = (f64, f64)> {
        let point = |(i, count): (usize, &u32)| {
            let begin = self.first + i as u64 * self.width;
            (begin as f64 + self.width as f64 / 2.0, f64::from(*count) / self.width as f64)
        };
        self.counts.iter().enumerate().map(point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_become_longer_and_lose_no_requests() {
        let mut timeline = Timeline::new(1000);
        (0..100_000).for_each(|i| timeline.add(1000 + i / 10));
        let total: f64 = timeline.rates().map(|(_, rate)| rate * timeline.width as f64).sum();
        assert_eq!((timeline.width, timeline.counts.len(), total.round()), (32, 313, 100_000.0));
        assert_eq!(timeline.rates().next(), Some((1016.0, 10.0)));
    }
}
