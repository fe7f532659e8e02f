//! Measures lookups of addresses in deny lists of different lengths, interleaved in one process. Part of `make bench`.
//!
//! Prints a Markdown table with the median nanoseconds per lookup, and the ratio to the shortest list.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tollgate::protection::{DenyList, DenyRule, Signals};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(40);
const LENGTHS: [usize; 4] = [10, 1_000, 10_000, 100_000];

pub fn print() {
    println!("| callers | networks | ns per lookup | to 10 networks |");
    println!("| --- | ---: | ---: | ---: |");
    // The last field is the `n` in "one of `n` callers is denied".
    for (label, callers, v6, one_in) in [
        ("1,000 by IPv4, a tenth denied", 1_000, false, 10),
        ("1,000 by IPv6, a tenth denied", 1_000, true, 10),
        ("30,000 by IPv4, a tenth denied", 30_000, false, 10),
        ("30,000 by IPv6, a tenth denied", 30_000, true, 10),
        ("1,000 by IPv4, all denied", 1_000, false, 1),
        ("1,000 by IPv6, all denied", 1_000, true, 1),
    ] {
        let lists: Vec<_> = LENGTHS.iter().map(|length| list(*length, callers, v6, one_in)).collect();
        let mut times = vec![Vec::new(); lists.len()];
        for round in 0..ROUNDS {
            // Alternate the order, because the machine warms up.
            for turn in 0..lists.len() {
                let which = (round + turn) % lists.len();
                times[which].push(time(&lists[which]));
            }
        }
        let times: Vec<f64> = times.into_iter().map(median).collect();
        for (length, ns) in LENGTHS.iter().zip(&times) {
            println!("| {label} | {length} | {ns:.0} | {:.2} |", ns / times[0]);
        }
    }
}

/// Returns a list of random networks of 4096 addresses down to one (for IPv6, from a provider's network to a
/// customer's), and callers, some of which are on the list.
fn list(length: usize, callers: usize, v6: bool, one_in: usize) -> (DenyList, Vec<Signals>) {
    let mut random = Random(length as u64 + 1);
    let mut networks = Vec::new();
    let list = DenyList::from_iter((0..length).map(|_| {
        let (address, prefix) = if v6 {
            (IpAddr::V6(random.v6().into()), 32 + random.below(33))
        } else {
            (IpAddr::V4((random.next() as u32).into()), 20 + random.below(13))
        };
        networks.push(address);
        DenyRule::network(&format!("{}/{prefix}", network(address, prefix as u32))).expect("a network")
    }));
    let callers = (0..callers).map(|i| {
        Signals::new().ip(match (i % one_in == 0, v6) {
            (true, _) => networks[random.below(length as u64) as usize],
            (false, true) => IpAddr::V6(random.v6().into()),
            (false, false) => IpAddr::V4((random.next() as u32).into()),
        })
    });
    let callers = callers.collect();
    (list, callers)
}

/// Returns the first address of a network.
fn network(address: IpAddr, prefix: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((address.to_bits() & u32::MAX << (32 - prefix)).into()),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & u128::MAX << (128 - prefix)).into()),
    }
}

/// Returns the nanoseconds per lookup in one round.
fn time((list, callers): &(DenyList, Vec<Signals>)) -> f64 {
    let begin = Instant::now();
    let mut calls = 0usize;
    while begin.elapsed() < ROUND {
        for _ in 0..1000 {
            black_box(list.find(None, black_box(&callers[calls % callers.len()])));
            calls += 1;
        }
    }
    begin.elapsed().as_nanos() as f64 / calls as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 32
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns an address within the allocated range 2000::/3.
    fn v6(&mut self) -> u128 {
        let high = 0x2000_0000 | self.next() & 0x1fff_ffff;
        u128::from(high) << 96 | u128::from(self.next()) << 64 | u128::from(self.next())
    }
}
