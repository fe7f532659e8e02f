//! Threat 2: headers that two parsers read differently, or that take too long to parse.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate::key::{ClientIp, Extraction, Found, client_ip};
use tollgate::{Key, key::KeyExtractor};

use super::client::parts;

const PEER: &str = "10.0.0.1";

fn behind_proxies() -> ClientIp {
    client_ip().trust(["10.0.0.0/8"])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn t02_nothing_prepended_to_x_forwarded_for_changes_the_client(chain in chain(), attack in attack()) {
        let entries = chain.hops.iter().map(|hop| hop.spelled.clone().into_bytes()).collect();
        let lines = attack.prepend_to("x-forwarded-for", entries);
        let client = chain.client();
        prop_assert_eq!(behind_proxies().resolve(&parts(PEER, &lines)), Some(client));
        prop_assert_eq!(key(&behind_proxies(), &lines), Key::network(client, 32, 64));
        // Trusting as many hops as there are entries gives the same result.
        let hops = client_ip().trust_hops(chain.hops.len());
        prop_assert_eq!(hops.resolve(&parts(PEER, &lines)), Some(client));
    }

    #[test]
    fn t02_nothing_prepended_to_forwarded_changes_the_client(chain in chain(), attack in attack(), host in garbage()) {
        let lines = attack.prepend_to("forwarded", chain.elements(&host));
        let client = chain.client();
        prop_assert_eq!(behind_proxies().from_forwarded().resolve(&parts(PEER, &lines)), Some(client));
        let hops = client_ip().trust_hops(chain.hops.len()).from_forwarded();
        prop_assert_eq!(hops.resolve(&parts(PEER, &lines)), Some(client));
    }

    #[test]
    fn t02_entries_to_the_left_of_an_unreadable_entry_are_ignored(
        chain in chain(),
        attack in attack(),
        at in any::<prop::sample::Index>(),
        bad in prop::sample::select(vec!["", "unknown", "_hidden", "1.2.3", "010.0.0.1", "1.2.3.4:x", "fe80::1%eth0"]),
    ) {
        let at = at.index(chain.hops.len());
        // The proxy that added the unreadable entry is treated as the client. Its address is the next entry to the
        // right or, if there is none, the peer address.
        let last = chain.hops.get(at + 1).map_or(PEER.parse().unwrap(), |hop| hop.address);
        let mut entries: Vec<_> = chain.hops.iter().map(|hop| hop.spelled.clone().into_bytes()).collect();
        entries[at] = bad.into();
        let lines = attack.prepend_to("x-forwarded-for", entries);
        prop_assert_eq!(behind_proxies().resolve(&parts(PEER, &lines)), Some(last));
        let mut elements = chain.elements(b"");
        elements[at] = format!("for={bad}").into_bytes();
        let lines = attack.prepend_to("forwarded", elements);
        prop_assert_eq!(behind_proxies().from_forwarded().resolve(&parts(PEER, &lines)), Some(last));
    }

    #[test]
    fn t02_arbitrary_header_bytes_neither_cause_a_panic_nor_replace_an_untrusted_peer_address(
        attack in attack(),
        name in prop::sample::select(vec!["x-forwarded-for", "forwarded", "x-real-ip"]),
        hops in 0..70_usize,
    ) {
        let lines = attack.prepend_to(name, Vec::new());
        let sources: [fn(ClientIp) -> ClientIp; 3] =
            [|ip| ip, |ip| ip.from_forwarded(), |ip| ip.from_header("x-real-ip")];
        for source in sources {
            for extractor in [client_ip(), behind_proxies(), client_ip().trust_hops(hops)] {
                prop_assert!(source(extractor).resolve(&parts(PEER, &lines)).is_some());
            }
            // An untrusted peer is identified by its own address, whatever headers it sends.
            let stranger = source(behind_proxies()).resolve(&parts("198.51.100.7", &lines));
            prop_assert_eq!(stranger, "198.51.100.7".parse().ok());
        }
    }
}

#[test]
fn t02_a_header_of_ten_megabytes_is_parsed_quickly() {
    let patterns = [
        "10.0.0.2,",
        ",",
        "\"",
        "\\\"",
        "\"\\\\",
        "for=\"",
        "for=10.0.0.2,",
        "for=\"10.0.0.2\";host=\"a,\",",
        ";",
        " ",
    ];
    let began = Instant::now();
    for pattern in patterns {
        let value = pattern.repeat(10_000_000 / pattern.len());
        let many: Vec<_> = (0..10_000).map(|_| ("x-forwarded-for", pattern.repeat(100).into_bytes())).collect();
        for lines in
            [vec![("x-forwarded-for", value.clone().into_bytes())], vec![("forwarded", value.into_bytes())], many]
        {
            for ip in [behind_proxies(), behind_proxies().from_forwarded(), client_ip().trust_hops(1_000_000)] {
                let client = ip.resolve(&parts(PEER, &lines)).unwrap();
                assert!(client == IpAddr::from([10, 0, 0, 1]) || client == IpAddr::from([10, 0, 0, 2]), "{client}");
                // A linear parser takes milliseconds; a quadratic one would take hours.
                assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
            }
        }
    }
}

#[test]
fn t02_entries_beyond_the_64th_from_the_right_are_ignored() {
    let chain = ["10.0.0.2"; 200].join(", ");
    for attack in ["6.6.6.6", "6.6.6.6, 7.7.7.7"] {
        let lines = [("x-forwarded-for", format!("{attack}, {chain}"))];
        assert_eq!(behind_proxies().resolve(&parts(PEER, &lines)), "10.0.0.2".parse().ok());
    }
}

fn key(extractor: &impl KeyExtractor, lines: &[(&str, Vec<u8>)]) -> Key {
    match extractor.extract(&parts(PEER, lines)) {
        Extraction::Now(Found::Subject(subject)) => subject.key().cloned().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The entries that honest proxies add: the client, then every proxy except the last one, which is the peer.
#[derive(Clone, Debug)]
struct Chain {
    hops: Vec<Hop>,
}

#[derive(Clone, Debug)]
struct Hop {
    address: IpAddr,
    spelled: String,
}

impl Chain {
    fn client(&self) -> IpAddr {
        self.hops[0].address
    }

    /// Returns the entries as elements of a `Forwarded` header, each with the parameter `host="<host>"`.
    fn elements(&self, host: &[u8]) -> Vec<Vec<u8>> {
        let quoted: Vec<u8> = host
            .iter()
            .flat_map(|byte| {
                let escape = matches!(byte, b'"' | b'\\').then_some(b'\\');
                escape.into_iter().chain([*byte])
            })
            .collect();
        let element = |hop: &Hop| {
            let node = if hop.address.is_ipv6() { format!("[{}]", hop.address) } else { hop.address.to_string() };
            let head = format!("for=\"{node}\";proto=https;host=\"").into_bytes();
            [&head[..], &quoted[..], b"\""].concat()
        };
        self.hops.iter().map(element).collect()
    }
}

fn chain() -> impl Strategy<Value = Chain> {
    let client = prop_oneof![
        any::<u8>().prop_map(|last| IpAddr::from([203, 0, 113, last])),
        any::<[u16; 4]>().prop_map(|[a, b, c, d]| IpAddr::from([0x2001, 0xdb8, a, b, 0, 0, c, d])),
    ];
    let proxy = any::<[u8; 2]>().prop_map(|[a, b]| IpAddr::from([10, 0, a, b]));
    let spelled = |hop: IpAddr, spelling: u8| {
        let spelled = match (hop, spelling) {
            (IpAddr::V4(_), 0) => format!("{hop}:4711"),
            (IpAddr::V4(v4), 1) => format!("::ffff:{v4}"),
            (IpAddr::V6(_), 0) => format!("[{hop}]:4711"),
            (IpAddr::V6(_), 1) => format!("[{hop}]"),
            _ => hop.to_string(),
        };
        Hop { address: hop, spelled }
    };
    (client, vec(proxy, 0..4), vec(0..4_u8, 4)).prop_map(move |(client, proxies, spellings)| {
        let hops = std::iter::once(client).chain(proxies).zip(spellings);
        Chain { hops: hops.map(|(hop, spelling)| spelled(hop, spelling)).collect() }
    })
}

/// Header lines sent by the client, and whether each proxy appends to the last line or adds a new one.
#[derive(Clone, Debug)]
struct Attack {
    lines: Vec<Vec<u8>>,
    joined: Vec<bool>,
}

impl Attack {
    fn prepend_to<'a>(&self, name: &'a str, honest: Vec<Vec<u8>>) -> Vec<(&'a str, Vec<u8>)> {
        let mut lines = self.lines.clone();
        for (entry, joined) in honest.into_iter().zip(self.joined.iter().cycle()) {
            match lines.last_mut().filter(|_| *joined) {
                Some(line) => line.extend_from_slice(&[b", ", &entry[..]].concat()),
                None => lines.push(entry),
            }
        }
        lines.into_iter().map(|line| (name, line)).collect()
    }
}

fn attack() -> impl Strategy<Value = Attack> {
    (vec(garbage(), 0..5), vec(any::<bool>(), 4)).prop_map(|(lines, joined)| Attack { lines, joined })
}

/// Generates random header values that consist mostly of syntax from `X-Forwarded-For` and `Forwarded`.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let words: &[&[u8]] = &[
        b"\"",
        b"\\",
        b",",
        b";",
        b"=",
        b" ",
        b"\t",
        b"[",
        b"]",
        b":",
        b"for=",
        b"6.6.6.6",
        b"10.0.0.9",
        b"::1",
        b"host=\"",
        b"unknown",
    ];
    let byte = any::<u8>().prop_map(|byte| if byte < b' ' || byte == 0x7f { b'\t' } else { byte });
    let piece = prop_oneof![3 => prop::sample::select(words.to_vec()).prop_map(<[u8]>::to_vec), 1 => vec(byte, 1..4)];
    vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}
