//! Which network an address is in: of many that may lie in one another, the smallest.
//!
//! Networks that lie in one another cut all addresses into stretches, each of which falls under one of them or none. The
//! stretches are searched by halves, from a table that tells for the leading bits of an address where to begin: so the
//! search is about as short among a hundred thousand networks as among ten.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// Networks of both kinds, each with something to be found by it.
#[derive(Debug)]
pub(super) struct Networks<V> {
    v4: Stretches<u32, V>,
    /// By the first halves of addresses, in which most networks end: half as much to look at.
    v6: Stretches<u64, V>,
    /// Networks within one first half, by the other half.
    deep: HashMap<u64, Stretches<u64, V>>,
}

impl<V: Clone> Networks<V> {
    /// Of networks that are different from one another.
    pub(super) fn new(networks: impl IntoIterator<Item = (IpNet, V)>) -> Networks<V> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let mut deep: HashMap<u64, Vec<(u64, u64, V)>> = HashMap::new();
        for (network, value) in networks {
            match network {
                IpNet::V4(net) => v4.push((net.network().into(), net.broadcast().into(), value)),
                IpNet::V6(net) => {
                    let (first, last) = (halves(net.network()), halves(net.broadcast()));
                    if net.prefix_len() <= 64 {
                        v6.push((first.0, last.0, value));
                    } else {
                        deep.entry(first.0).or_default().push((first.1, last.1, value));
                    }
                }
            }
        }
        let deep = deep.into_iter().map(|(half, within)| (half, Stretches::new(within)));
        Networks { v4: Stretches::new(v4), v6: Stretches::new(v6), deep: deep.collect() }
    }

    /// What is to be found by the smallest network that this canonical address is in.
    pub(super) fn find(&self, address: IpAddr) -> Option<&V> {
        match address {
            IpAddr::V4(address) => self.v4.find(address.into()),
            IpAddr::V6(address) => {
                let (first, other) = halves(address);
                let deep = if self.deep.is_empty() { None } else { self.deep.get(&first) };
                deep.and_then(|within| within.find(other)).or_else(|| self.v6.find(first))
            }
        }
    }
}

impl<V: Clone> Default for Networks<V> {
    fn default() -> Networks<V> {
        Networks::new([])
    }
}

fn halves(address: Ipv6Addr) -> (u64, u64) {
    let bits = u128::from(address);
    ((bits >> 64) as u64, bits as u64)
}

/// All addresses from the first network's on, cut where networks begin and end.
#[derive(Debug)]
struct Stretches<A, V> {
    /// Where each begins.
    starts: Vec<A>,
    /// Whether each falls under a network, a bit each: most addresses do not, and no more need be looked at then.
    under: Vec<u64>,
    /// What is to be found there.
    values: Vec<Option<V>>,
    /// For each value of the leading bits, counted from the first start on, the stretch in which it begins.
    table: Vec<u32>,
    /// How many bits are not leading.
    shift: u32,
}

/// Leading bits that the table has entries for: 256 KB at most, so that a processor keeps it at hand.
const MOST_BITS: u32 = 16;

impl<A: Address, V: Clone> Stretches<A, V> {
    /// Of networks: first address, last address, what is to be found.
    fn new(mut networks: Vec<(A, A, V)>) -> Stretches<A, V> {
        // Those that contain others before these.
        networks.sort_unstable_by(|(a, a_last, _), (b, b_last, _)| a.cmp(b).then(b_last.cmp(a_last)));
        let (starts, under, values, table) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut stretches = Stretches { starts, under, values, table, shift: 0 };
        let mut open: Vec<(A, V)> = Vec::new();
        for (first, last, value) in networks {
            stretches.close(&mut open, Some(first));
            stretches.cut(first, Some(value.clone()));
            open.push((last, value));
        }
        stretches.close(&mut open, None);
        stretches.index();
        stretches
    }

    /// Ends the open networks that end before `next`, innermost first.
    fn close(&mut self, open: &mut Vec<(A, V)>, next: Option<A>) {
        while let Some(last) = open.last().map(|(last, _)| *last) {
            if next.is_some_and(|next| next <= last) {
                return;
            }
            open.pop();
            if let Some(after) = last.successor() {
                self.cut(after, open.last().map(|(_, value)| value.clone()));
            }
        }
    }

    /// A stretch begins; nothing is left of one that began at the same address.
    fn cut(&mut self, start: A, value: Option<V>) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.values.pop();
        }
        self.starts.push(start);
        self.values.push(value);
    }

    fn index(&mut self) {
        let (Some(first), Some(last)) = (self.starts.first(), self.starts.last()) else { return };
        let bits = self.starts.len().ilog2().clamp(1, MOST_BITS);
        let span = last.minus(*first);
        self.shift = span.bits().saturating_sub(bits);
        let entries = span.leading(self.shift) + 1;
        let mut stretch = 0;
        for entry in 0..entries {
            let begins = |start: A| start.minus(*first).leading(self.shift);
            // The last one that begins before this entry's addresses, or right there.
            while stretch + 1 < self.starts.len() && begins(self.starts[stretch + 1]) < entry {
                stretch += 1;
            }
            self.table.push(stretch as u32);
        }
        self.under = vec![0; self.starts.len().div_ceil(64)];
        for (stretch, value) in self.values.iter().enumerate() {
            self.under[stretch / 64] |= u64::from(value.is_some()) << (stretch % 64);
        }
    }

    fn find(&self, address: A) -> Option<&V> {
        let first = self.starts.first().copied().filter(|first| *first <= address)?;
        let entry = address.minus(first).leading(self.shift).min(self.table.len() - 1);
        let from = self.table[entry] as usize;
        let to = self.table.get(entry + 1).map_or(self.starts.len(), |next| *next as usize + 1);
        let near = &self.starts[from..to];
        // The one before the first that begins later. Mostly there are a few: counting them all is quicker than stopping at
        // the right one, which nobody can foresee.
        let later = match near.len() {
            0..=8 => near.iter().map(|start| usize::from(*start <= address)).sum(),
            _ => near.partition_point(|start| *start <= address),
        };
        let stretch = from + usize::checked_sub(later, 1)?;
        let is_under = self.under[stretch / 64] >> (stretch % 64) & 1 == 1;
        if is_under { self.values[stretch].as_ref() } else { None }
    }
}

/// An address as a number.
trait Address: Copy + Ord {
    fn successor(self) -> Option<Self>;
    fn minus(self, other: Self) -> Self;
    /// Bits that are not leading zeros.
    fn bits(self) -> u32;
    fn leading(self, shift: u32) -> usize;
}

macro_rules! address {
    ($($number:ty)*) => {$(
        impl Address for $number {
            fn successor(self) -> Option<Self> {
                self.checked_add(1)
            }

            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            fn bits(self) -> u32 {
                <$number>::BITS - self.leading_zeros()
            }

            fn leading(self, shift: u32) -> usize {
                usize::try_from(self >> shift).unwrap_or(usize::MAX)
            }
        }
    )*};
}

address!(u32 u64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn network() -> impl Strategy<Value = IpNet> {
        // Few different bits, so that they lie in one another and side by side.
        let v4 = (0u32..8, 0u32..8, 0u8..=32).prop_map(|(high, low, prefix)| {
            IpNet::new(IpAddr::V4((high << 29 | low).into()), prefix).expect("a prefix").trunc()
        });
        let v6 = (0u128..4, 0u128..4, 0u8..=128).prop_map(|(high, low, prefix)| {
            IpNet::new(IpAddr::V6((high << 126 | low).into()), prefix).expect("a prefix").trunc()
        });
        prop_oneof![v4, v6]
    }

    fn smallest(networks: &[(IpNet, u32)], address: IpAddr) -> Option<u32> {
        let around = networks.iter().filter(|(network, _)| network.contains(&address));
        around.max_by_key(|(network, _)| network.prefix_len()).map(|(_, number)| *number)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]
        #[test]
        fn the_smallest_network_is_found(networks in proptest::collection::hash_set(network(), 0..20)) {
            let networks: Vec<(IpNet, u32)> = networks.into_iter().zip(0..).collect();
            let found = Networks::new(networks.iter().copied());
            // Every address at which something can change.
            for (network, _) in &networks {
                let (first, last) = (network.network(), network.broadcast());
                let near = match (first, last) {
                    (IpAddr::V4(first), IpAddr::V4(last)) => {
                        let (first, last) = (u32::from(first), u32::from(last));
                        [first, first.wrapping_sub(1), last, last.wrapping_add(1)].map(|a| IpAddr::V4(a.into()))
                    }
                    (IpAddr::V6(first), IpAddr::V6(last)) => {
                        let (first, last) = (u128::from(first), u128::from(last));
                        [first, first.wrapping_sub(1), last, last.wrapping_add(1)].map(|a| IpAddr::V6(a.into()))
                    }
                    _ => unreachable!("one network, one kind"),
                };
                for address in near {
                    prop_assert_eq!(found.find(address).copied(), smallest(&networks, address), "{}", address);
                }
            }
        }
    }

    #[test]
    fn many_networks_of_real_sizes_are_told_apart() {
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 32
        };
        let networks: std::collections::HashSet<IpNet> = (0..3000)
            .map(|_| {
                let v4 = IpNet::new(IpAddr::V4((next() as u32).into()), 8 + (next() % 25) as u8);
                let v6 = u128::from(0x2001_0db8 + next() % 4096) << 96 | u128::from(next()) << 64;
                let v6 = IpNet::new(IpAddr::V6(v6.into()), 20 + (next() % 45) as u8);
                if next() % 2 == 0 { v4 } else { v6 }.expect("a prefix").trunc()
            })
            .collect();
        let networks: Vec<(IpNet, u32)> = networks.into_iter().zip(0..).collect();
        let found = Networks::new(networks.iter().copied());
        for _ in 0..3000 {
            let v4 = IpAddr::V4((next() as u32).into());
            let v6 = IpAddr::V6((u128::from(0x2001_0db8 + next() % 4096) << 96 | u128::from(next()) << 64).into());
            for address in [v4, v6] {
                assert_eq!(found.find(address).copied(), smallest(&networks, address), "{address}");
            }
        }
    }
}
