//! The client's address depends only on the entries of trusted proxies, not on those that a client wrote before them.
//!
//! An input consists of a few bytes of choices, the entries that proxies append, and two possible prefixes written by a
//! client, separated by `|`. Lines of the header end with a newline.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;

use http::request::Parts;
use http::{HeaderName, HeaderValue};
use tollgate::key::{ClientIp, PeerAddr, client_ip};

/// Checks `X-Forwarded-For`.
pub fn x_forwarded_for(data: &[u8]) {
    Input::read(data, false).check();
}

/// Checks `Forwarded`.
pub fn forwarded(data: &[u8]) {
    Input::read(data, true).check();
}

const TRUSTED: [&str; 3] = ["10.0.0.0/8", "fd00::/8", "192.0.2.64/26"];

/// Extractors that trust these networks: two for lists in `X-Forwarded-For` and `Forwarded`, and two for a single
/// address in these headers.
static EXTRACTORS: LazyLock<[ClientIp; 4]> = LazyLock::new(|| {
    let trusting = || client_ip().trust(TRUSTED);
    [trusting(), trusting().from_forwarded(), trusting().from_header(X), trusting().from_header("forwarded")]
});

/// The addresses in the inputs. The first four are trusted.
const ADDRESSES: [IpAddr; 8] = [
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfdff, 1, 2, 3, 4, 5, 6, 7)),
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 1, 2, 3, 4)),
];

/// Whether the address is in [`TRUSTED`], computed independently.
fn is_trusted(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 10 || u32::from(*v4) & !63 == u32::from(Ipv4Addr::new(192, 0, 2, 64)),
        IpAddr::V6(v6) => v6.octets()[0] == 0xfd,
    }
}

/// An entry that a proxy appends: its address, if it has one, and its text.
#[derive(Debug)]
struct Entry(Option<IpAddr>, String);

#[derive(Debug)]
struct Input<'a> {
    is_forwarded: bool,
    peer: IpAddr,
    hops: usize,
    /// Whether the first proxy appends to the client's line instead of adding a line.
    joins: bool,
    /// The entries that the proxies append. The nearest proxy's entry is the last one.
    tail: Vec<Entry>,
    one: &'a [u8],
    other: &'a [u8],
}

impl<'a> Input<'a> {
    fn read(data: &'a [u8], is_forwarded: bool) -> Input<'a> {
        let byte = |at: usize| data.get(at).copied().unwrap_or(0);
        let entries = usize::from(byte(2) % 5);
        let tail = (0..entries).map(|i| Entry::of(byte(3 + 2 * i), byte(4 + 2 * i), is_forwarded)).collect();
        let rest = data.get(3 + 2 * entries..).unwrap_or(&[]);
        let mut prefixes = rest.splitn(2, |byte| *byte == b'|');
        Input {
            is_forwarded,
            peer: ADDRESSES[usize::from(byte(0) % 8)],
            hops: usize::from(byte(1) >> 1) % 7,
            joins: byte(1) & 1 == 1,
            tail,
            one: prefixes.next().unwrap_or(&[]),
            other: prefixes.next().unwrap_or(&[]),
        }
    }

    fn check(&self) {
        let (one, other) = (self.parts(self.one), self.parts(self.other));
        self.check_networks(&one, &other);
        self.check_hops(&one, &other);
        assert_eq!(self.source().resolve(&one), Some(self.peer), "without trusted proxies: {self:?}");
        let single = &EXTRACTORS[2 + usize::from(self.is_forwarded)];
        self.check_origin(single.resolve(&one), &one);
        if !self.is_forwarded {
            self.check_against_split(&one);
        }
    }

    fn check_networks(&self, one: &Parts, other: &Parts) {
        let client_ip = &EXTRACTORS[usize::from(self.is_forwarded)];
        let (found, other_found) = (client_ip.resolve(one), client_ip.resolve(other));
        match self.walk() {
            Ok(expected) => {
                assert_eq!(found, Some(expected), "{self:?}");
                assert_eq!(other_found, Some(expected), "the other prefix changes the result: {self:?}");
            }
            // All hops are trusted: the result is the last hop, or an address that the client wrote.
            Err(last) => {
                if found != Some(last) {
                    self.check_origin(found, one);
                }
            }
        }
    }

    fn check_hops(&self, one: &Parts, other: &Parts) {
        let client_ip = self.source().trust_hops(self.hops);
        let (found, other_found) = (client_ip.resolve(one), client_ip.resolve(other));
        if self.hops > self.tail.len() {
            return self.check_origin(found, one);
        }
        let nearest = self.tail.iter().rev();
        let named = if self.hops == 0 { None } else { nearest.skip(self.hops - 1).map(|entry| entry.0).next() };
        assert_eq!(found, Some(named.flatten().unwrap_or(self.peer)), "{self:?}");
        assert_eq!(other_found, found, "the other prefix changes the result: {self:?}");
    }

    /// Returns the first untrusted address from the right, or the leftmost hop as an error if all hops are trusted.
    fn walk(&self) -> Result<IpAddr, IpAddr> {
        let mut hop = self.peer;
        if !is_trusted(&hop) {
            return Ok(hop);
        }
        for Entry(address, _) in self.tail.iter().rev() {
            let Some(address) = *address else { return Ok(hop) };
            hop = address;
            if !is_trusted(&hop) {
                return Ok(hop);
            }
        }
        Err(hop)
    }

    /// Checks that the found address is the peer's, or occurs in the header.
    fn check_origin(&self, found: Option<IpAddr>, parts: &Parts) {
        let found = found.expect("expected at least the peer");
        let name = if self.is_forwarded { "forwarded" } else { X };
        let mut lines = parts.headers.get_all(name).iter();
        assert!(
            found == self.peer || lines.any(|line| named(line.as_bytes()).contains(&found)),
            "{found} is neither the peer nor in the header: {self:?}"
        );
    }

    /// Checks the result against an implementation that splits the whole header.
    fn check_against_split(&self, parts: &Parts) {
        let lines: Vec<&[u8]> = parts.headers.get_all(X).iter().map(HeaderValue::as_bytes).collect();
        let all = lines.join(&b',');
        let read = |entry: &[u8]| address(std::str::from_utf8(entry.trim_ascii()).ok()?);
        let entries = all.split(|byte| *byte == b',').rev().take(if lines.is_empty() { 0 } else { 64 });
        let entries: Vec<Option<IpAddr>> = entries.map(read).collect();
        let mut hop = self.peer;
        for entry in &entries {
            let (Some(address), true) = (*entry, is_trusted(&hop)) else { break };
            hop = address;
        }
        assert_eq!(EXTRACTORS[0].resolve(parts), Some(hop), "{self:?}");
        let nth = self.hops.checked_sub(1).and_then(|i| entries.get(i).copied()).flatten();
        assert_eq!(client_ip().trust_hops(self.hops).resolve(parts), Some(nth.unwrap_or(self.peer)), "{self:?}");
    }

    fn source(&self) -> ClientIp {
        if self.is_forwarded { client_ip().from_forwarded() } else { client_ip() }
    }

    /// Returns a request with this prefix and the proxies' entries.
    fn parts(&self, prefix: &[u8]) -> Parts {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        // Servers reject invalid header values.
        let lines = prefix.split(|byte| *byte == b'\n');
        let mut lines: Vec<Vec<u8>> =
            lines.filter(|l| HeaderValue::from_bytes(l).is_ok()).map(<[u8]>::to_vec).collect();
        for (i, Entry(_, text)) in self.tail.iter().enumerate() {
            match lines.last_mut() {
                Some(line) if self.joins || i > 0 => {
                    line.extend(b", ");
                    line.extend(text.as_bytes());
                }
                _ => lines.push(text.as_bytes().to_vec()),
            }
        }
        let name = HeaderName::from_static(if self.is_forwarded { "forwarded" } else { X });
        for line in lines {
            parts.headers.append(&name, HeaderValue::from_bytes(&line).expect("a value"));
        }
        parts.extensions.insert(PeerAddr(SocketAddr::new(self.peer, 4711)));
        parts
    }
}

impl Entry {
    fn of(who: u8, how: u8, is_forwarded: bool) -> Entry {
        let who = usize::from(who % 10);
        let Some(address) = ADDRESSES.get(who).copied() else {
            let text = if who == 8 { "unknown" } else { "_hidden" };
            return Entry(None, if is_forwarded { format!("for={text}") } else { text.to_owned() });
        };
        let node = match (address, how % 4) {
            (IpAddr::V4(v4), 0 | 1) => v4.to_string(),
            (IpAddr::V4(v4), 2) => format!("{v4}:{}", 1000 + u16::from(how)),
            (IpAddr::V4(v4), _) => format!("[{}]", v4.to_ipv6_mapped()),
            (IpAddr::V6(v6), 0 | 1) => format!("[{v6}]"),
            (IpAddr::V6(v6), 2) => format!("[{v6}]:443"),
            (IpAddr::V6(v6), _) => v6.to_string(),
        };
        if !is_forwarded {
            return Entry(Some(address), node);
        }
        let value = match how >> 2 & 3 {
            0 => format!("\"{node}\""),
            // Any character of a quoted string may be escaped (RFC 9110, section 5.6.4).
            1 => format!("\"{}\\{}\"", &node[..node.len() - 1], &node[node.len() - 1..]),
            _ if node.contains([':', '[']) => format!("\"{node}\""),
            _ => node,
        };
        let text = match how >> 4 & 7 {
            0 => format!("For={value};proto=https"),
            1 => format!("by=\"[fd00::1]\";for={value}"),
            2 => format!("host=\"a,b;for=6.6.6.6\";for={value}"),
            3 => format!("FOR={value};host=\"\\\"\""),
            4 => format!("proto=http; for={value}"),
            _ => format!("for={value}"),
        };
        Entry(Some(address), text)
    }
}

/// Parses an entry as the documentation describes.
fn address(text: &str) -> Option<IpAddr> {
    let plain = text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    plain.or_else(with_port).or_else(in_brackets).map(crate::as_counted)
}

/// All addresses that any parser could find in a line.
fn named(line: &[u8]) -> Vec<IpAddr> {
    let text: String = line.iter().filter(|byte| **byte != b'\\').map(|byte| char::from(*byte)).collect();
    let runs = text.split(|c: char| !c.is_ascii_hexdigit() && c != ':' && c != '.');
    runs.filter_map(|run| address(run).or_else(|| address(run.rsplit_once(':')?.0))).collect()
}

const X: &str = "x-forwarded-for";
