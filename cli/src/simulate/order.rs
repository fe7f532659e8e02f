//! Sorts requests by time, as far as a bounded buffer allows.

use std::collections::BTreeMap;

/// The parts of a request that limits need.
#[derive(Clone, Debug)]
pub struct Request {
    pub micros: u64,
    pub whole_second: bool,
    /// The number that identifies the caller.
    pub caller: u32,
    /// The parts that only routes and deny lists need.
    pub target: Option<Box<Target>>,
}

#[derive(Clone, Debug, Default)]
pub struct Target {
    pub method: String,
    pub path: String,
    pub user_agent: String,
    pub address: Option<std::net::IpAddr>,
}

impl Request {
    /// Returns 1, plus 1 for every 256 bytes of text.
    fn size(&self) -> usize {
        let texts = |target: &Target| target.method.len() + target.path.len() + target.user_agent.len();
        1 + self.target.as_deref().map_or(0, texts) / 256
    }
}

/// Holds requests for some seconds, and returns them second by second.
#[derive(Debug)]
pub struct Order {
    seconds: BTreeMap<u64, Vec<Request>>,
    /// The number of seconds for which requests are held.
    held: u64,
    /// The total size of the requests that are held.
    size: usize,
    max: usize,
    /// All requests before this second have been returned.
    next: u64,
    /// The number of requests that were logged too late to be sorted. They are moved to the second `next`.
    pub late: u64,
}

impl Order {
    /// Holds requests for `held` seconds, up to a total [size](Request::size) of `max`.
    pub fn new(held: u64, max: usize) -> Order {
        Order { seconds: BTreeMap::new(), held, size: 0, max, next: 0, late: 0 }
    }

    /// Adds a request, and passes the seconds that are complete to `done`.
    pub fn add(&mut self, mut request: Request, mut done: impl FnMut(u64, Vec<Request>)) {
        let mut second = request.micros / 1_000_000;
        if second < self.next {
            (self.late, second) = (self.late + 1, self.next);
            request.micros = second * 1_000_000;
        }
        self.size += request.size();
        self.seconds.entry(second).or_default().push(request);
        while let Some(first) = self.seconds.first_entry() {
            let last = second.max(self.next);
            if first.key().saturating_add(self.held) >= last && self.size <= self.max {
                break;
            }
            let (second, requests) = first.remove_entry();
            let size: usize = requests.iter().map(Request::size).sum();
            (self.size, self.next) = (self.size - size, second + 1);
            done(second, requests);
        }
    }

    /// Passes all remaining requests to `done`.
    pub fn finish(self, mut done: impl FnMut(u64, Vec<Request>)) {
        self.seconds.into_iter().for_each(|(second, requests)| done(second, requests));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(held: u64, max: usize, seconds: &[u64]) -> (Vec<(u64, usize)>, u64) {
        let (mut order, mut done) = (Order::new(held, max), Vec::new());
        for second in seconds {
            let request = Request { micros: second * 1_000_000, whole_second: true, caller: 0, target: None };
            order.add(request, |second, requests| done.push((second, requests.len())));
        }
        let late = order.late;
        order.finish(|second, requests| done.push((second, requests.len())));
        (done, late)
    }

    #[test]
    fn held_requests_are_sorted_by_time() {
        assert_eq!(order(5, 100, &[10, 12, 11, 10, 14]), (vec![(10, 2), (11, 1), (12, 1), (14, 1)], 0));
    }

    #[test]
    fn late_requests_are_counted_and_moved_to_a_later_second() {
        assert_eq!(order(5, 100, &[10, 20, 9, 21]), (vec![(10, 1), (11, 1), (20, 1), (21, 1)], 1));
    }

    /// Regression: a compressed log of a few megabytes filled the memory, because the size of requests was ignored.
    #[test]
    fn long_paths_and_user_agents_fill_the_buffer() {
        let (mut order, mut done) = (Order::new(100, 1000), 0);
        for second in 0..100 {
            let target = Some(Box::new(Target { user_agent: "x".repeat(60_000), ..Target::default() }));
            let request = Request { micros: second * 1_000_000, whole_second: true, caller: 0, target };
            order.add(request, |_, requests| done += requests.len());
        }
        assert!((90..99).contains(&done), "{} of 100 requests are held", 100 - done);
    }

    #[test]
    fn a_full_buffer_returns_its_first_second() {
        assert_eq!(order(100, 3, &[1, 2, 3, 4, 5, 1]), (vec![(1, 1), (2, 1), (3, 2), (4, 1), (5, 1)], 1));
    }
}
