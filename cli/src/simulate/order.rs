//! Puts requests in the order of their times, as far as a bounded buffer allows.

use std::collections::BTreeMap;

/// The parts of a request that limits need.
#[derive(Clone, Debug)]
pub struct Request {
    pub micros: u64,
    pub whole_second: bool,
    /// The number of the caller.
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

/// Holds requests for some seconds, and returns them second by second.
#[derive(Debug)]
pub struct Order {
    seconds: BTreeMap<u64, Vec<Request>>,
    /// For how many seconds requests are held.
    held: u64,
    count: usize,
    max: usize,
    /// All requests before this second have been returned.
    next: u64,
    /// The requests that came too late to be sorted. They count as requests of the first second that is still held.
    pub late: u64,
}

impl Order {
    pub fn new(held: u64, max: usize) -> Order {
        Order { seconds: BTreeMap::new(), held, count: 0, max, next: 0, late: 0 }
    }

    /// Adds a request, and passes the seconds that are complete to `done`.
    pub fn add(&mut self, mut request: Request, mut done: impl FnMut(u64, Vec<Request>)) {
        let mut second = request.micros / 1_000_000;
        if second < self.next {
            (self.late, second) = (self.late + 1, self.next);
            request.micros = second * 1_000_000;
        }
        self.seconds.entry(second).or_default().push(request);
        self.count += 1;
        while let Some(first) = self.seconds.first_entry() {
            let last = second.max(self.next);
            if *first.key() + self.held >= last && self.count <= self.max {
                break;
            }
            let (second, requests) = first.remove_entry();
            (self.count, self.next) = (self.count - requests.len(), second + 1);
            done(second, requests);
        }
    }

    /// Passes all requests that are left to `done`.
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
    fn requests_are_sorted_while_they_are_held() {
        assert_eq!(order(5, 100, &[10, 12, 11, 10, 14]), (vec![(10, 2), (11, 1), (12, 1), (14, 1)], 0));
    }

    #[test]
    fn late_requests_are_counted_and_keep_their_order() {
        assert_eq!(order(5, 100, &[10, 20, 9, 21]), (vec![(10, 1), (11, 1), (20, 1), (21, 1)], 1));
    }

    #[test]
    fn a_full_buffer_returns_its_first_second() {
        assert_eq!(order(100, 3, &[1, 2, 3, 4, 5, 1]), (vec![(1, 1), (2, 1), (3, 2), (4, 1), (5, 1)], 1));
    }
}
