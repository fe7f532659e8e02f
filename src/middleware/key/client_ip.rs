//! The client's address as a key.

use std::net::{IpAddr, SocketAddr};

#[cfg(feature = "axum")]
use ::axum::extract::{ConnectInfo, connect_info::MockConnectInfo};
use http::Extensions;
use http::header::{FORWARDED, HeaderMap, HeaderName};
use http::request::Parts;
use ipnet::{IpNet, Ipv6Net};

use super::super::headers::field_name;
use super::forwarded::{address, entries, node};
use super::request::only;
use super::{Extraction, Found, KeyError, KeyExtractor};
use crate::policy::{CidrError, Key, KeyFault, canonical, embedded, parse_network, parse_prefix};

/// Uses the client's address as the key. Unless a proxy is [trusted](ClientIp::trust), this is the peer's address.
///
/// Each IPv4 address is a separate key. All IPv6 addresses with the same first 64 bits share one key, since one client
/// usually has a whole /64 network. IPv4-mapped and [NAT64](ClientIp::nat64) addresses are treated as IPv4 addresses.
///
/// axum provides the peer's address through `into_make_service_with_connect_info::<SocketAddr>()`, and tonic provides
/// it automatically (enable the `tonic` feature). For other servers, insert a [`PeerAddr`] extension. Requests without
/// a peer address are refused with 500 and counted as [mistakes](crate::observe::Mistake).
///
/// ```
/// # use tollgate::{key, Quota, RateLimitLayer, MINUTE};
/// let quota = Quota::token_bucket(10, MINUTE);
/// RateLimitLayer::new(quota, key::client_ip());
/// // Limit larger networks instead of single addresses.
/// RateLimitLayer::new(quota, key::client_ip().prefixes(24, 48));
/// // Behind your own proxies, which append to X-Forwarded-For.
/// RateLimitLayer::new(quota, key::client_ip().trust(["10.0.0.0/8", "fd00::/8"]));
/// // Behind a CDN that sets its own header, if the service can be reached only from the CDN's addresses.
/// RateLimitLayer::new(quota, key::client_ip().trust(["192.0.2.0/24"]).from_header("cf-connecting-ip"));
/// ```
pub fn client_ip() -> ClientIp {
    ClientIp {
        prefix_v4: Key::DEFAULT_IPV4_PREFIX,
        prefix_v6: Key::DEFAULT_IPV6_PREFIX,
        nat64: Vec::new(),
        trust: Trust::PeerOnly,
        header: AddressHeader::XForwardedFor,
    }
}

/// The extractor returned by [`client_ip`]. See [`client_ip`] for an example.
#[derive(Clone, Debug)]
pub struct ClientIp {
    prefix_v4: u8,
    prefix_v6: u8,
    nat64: Vec<Ipv6Net>,
    trust: Trust,
    header: AddressHeader,
}

#[derive(Clone, Debug)]
enum Trust {
    PeerOnly,
    Networks(Vec<IpNet>),
    Hops(usize),
}

#[derive(Clone, Debug)]
enum AddressHeader {
    XForwardedFor,
    Forwarded,
    Single(HeaderName),
}

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl ClientIp {
    /// Sets how many leading bits of an IPv4 or IPv6 address form the key. Defaults to 32 for IPv4 and 64 for IPv6.
    #[must_use]
    pub fn prefixes(mut self, v4: u8, v6: u8) -> ClientIp {
        self.prefix_v4 = v4;
        self.prefix_v6 = v6;
        self
    }

    /// Trusts proxies in these networks to report their clients' addresses. Clients in these networks are trusted as
    /// well, so run test clients elsewhere.
    ///
    /// If the peer is trusted, all lines of `X-Forwarded-For` (or of the header set by
    /// [`from_forwarded`](ClientIp::from_forwarded) or [`from_header`](ClientIp::from_header)) are read from right to
    /// left. The first address outside the networks is the client's. An invalid entry ends the search, and the last
    /// proxy found so far counts as the client. No other header is read.
    ///
    /// # Panics
    /// Panics if a string is not a network, or if a network is within one of the [NAT64 prefixes](ClientIp::nat64).
    #[track_caller]
    #[must_use]
    pub fn trust<I>(self, networks: I) -> ClientIp
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        match self.try_trust(networks) {
            Ok(client_ip) => client_ip,
            Err(error) => panic!("tollgate: {error}"),
        }
    }

    /// Like [`trust`](ClientIp::trust), but for networks that are known only at run time.
    ///
    /// # Errors
    /// Fails if a string is not a network, or if a network is within one of the NAT64 prefixes.
    pub fn try_trust<I>(mut self, networks: I) -> Result<ClientIp, CidrError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        self.trust = Trust::Networks(parse_networks(networks)?);
        self.checked()
    }

    /// Assumes that every request has passed through exactly `hops` proxies, regardless of their addresses. The
    /// client's address is then the `hops`-th header entry from the right or, if that entry is missing or invalid, the
    /// peer's address. Use this only if clients cannot reach the service without passing through the proxies.
    #[must_use]
    pub fn trust_hops(mut self, hops: usize) -> ClientIp {
        self.trust = if hops == 0 { Trust::PeerOnly } else { Trust::Hops(hops) };
        self
    }

    /// Reads `Forwarded` (RFC 7239) from [trusted](ClientIp::trust) proxies instead of `X-Forwarded-For`. Unless
    /// `trust` or at least one [hop](ClientIp::trust_hops) is set, every request is refused with 500.
    #[must_use]
    pub fn from_forwarded(mut self) -> ClientIp {
        self.header = AddressHeader::Forwarded;
        self
    }

    /// Reads a header that contains a single address and that [trusted](ClientIp::trust) proxies always overwrite, such
    /// as `cf-connecting-ip`, `x-real-ip` or `cloudfront-viewer-address`. If the header is repeated, the proxy counts
    /// as the client. Unless `trust` or at least one [hop](ClientIp::trust_hops) is set, every request is refused with
    /// 500.
    ///
    /// # Panics
    /// Panics if `name` is not a lower-case header name.
    #[track_caller]
    #[must_use]
    pub fn from_header(mut self, name: &'static str) -> ClientIp {
        self.header = AddressHeader::Single(field_name(name));
        self
    }

    /// Maps each address with one of these NAT64 prefixes (32, 40, 48, 56, 64 or 96 bits) to the IPv4 address that it
    /// contains (RFC 6052). Keys, trusted proxies, deny rules and blocks then use the IPv4 address. Without this
    /// mapping, IPv4 clients behind a translator that uses your own prefix might share one key.
    ///
    /// The well-known prefix `64:ff9b::/96` is always mapped, except for private IPv4 addresses, which RFC 6052 forbids
    /// in this prefix. If your translator uses this prefix for private addresses anyway, list the prefix here.
    ///
    /// # Panics
    /// Panics if a string is not a NAT64 prefix, or if a prefix contains a [trusted](ClientIp::trust) network.
    #[track_caller]
    #[must_use]
    pub fn nat64<I>(self, prefixes: I) -> ClientIp
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        match self.try_nat64(prefixes) {
            Ok(client_ip) => client_ip,
            Err(error) => panic!("tollgate: {error}"),
        }
    }

    /// Like [`nat64`](ClientIp::nat64), but for prefixes that are known only at run time.
    ///
    /// # Errors
    /// Fails if a string is not a NAT64 prefix, or if a prefix contains a trusted network.
    pub fn try_nat64<I>(mut self, prefixes: I) -> Result<ClientIp, CidrError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        self.nat64 = prefixes.into_iter().map(|prefix| parse_prefix(prefix.as_ref())).collect::<Result<_, _>>()?;
        self.checked()
    }

    /// Rejects trusted networks within a NAT64 prefix, since no address matches such a network after the mapping.
    fn checked(self) -> Result<ClientIp, CidrError> {
        let Trust::Networks(networks) = &self.trust else { return Ok(self) };
        for network in networks {
            let within = |prefix: &&Ipv6Net| matches!(network, IpNet::V6(v6) if prefix.contains(v6));
            if let Some(prefix) = self.nat64.iter().find(within) {
                let problem = format_args!("is within the NAT64 prefix {prefix}; write the IPv4 network instead");
                return Err(CidrError::new(&network.to_string(), problem));
            }
        }
        Ok(self)
    }

    fn canonical(&self, address: IpAddr) -> IpAddr {
        let address = canonical(address);
        let IpAddr::V6(v6) = address else { return address };
        let prefix = self.nat64.iter().find(|prefix| prefix.contains(&v6));
        prefix.map_or(address, |prefix| IpAddr::V4(embedded(v6, prefix.prefix_len())))
    }

    /// Returns a predicate for [`skip`](crate::RateLimitLayer::skip) that returns true for clients in these networks.
    ///
    /// # Panics
    /// Panics if a string is not a network.
    #[track_caller]
    pub fn within<I>(self, networks: I) -> impl Fn(&Parts) -> bool + Send + Sync + 'static
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let networks = match parse_networks(networks) {
            Ok(networks) => networks,
            Err(error) => panic!("tollgate: {error}"),
        };
        move |parts: &Parts| {
            self.resolve(parts).is_some_and(|address| networks.iter().any(|network| network.contains(&address)))
        }
    }

    /// Returns the key for requests from this address, so that you can inspect or reset the client. To deny addresses,
    /// use [`DenyRule::network`](crate::protection::DenyRule::network).
    pub fn key(&self, address: IpAddr) -> Key {
        Key::network(self.canonical(address), self.prefix_v4, self.prefix_v6)
    }

    /// Returns the client's address in canonical form, or `None` if the server does not provide the peer's address.
    pub fn resolve(&self, parts: &Parts) -> Option<IpAddr> {
        let headers = &parts.headers;
        let peer = self.canonical(peer(&parts.extensions)?.ip());
        Some(match &self.trust {
            Trust::PeerOnly => peer,
            Trust::Hops(hops) => self.recorded(headers).nth(hops - 1).flatten().map_or(peer, |ip| self.canonical(ip)),
            Trust::Networks(networks) => {
                let is_trusted = |address: &IpAddr| networks.iter().any(|network| network.contains(address));
                let mut client = peer;
                let mut recorded = self.recorded(headers);
                while is_trusted(&client) {
                    // An invalid entry must not be skipped, since all entries to its left could be forged.
                    let Some(Some(address)) = recorded.next() else { break };
                    client = self.canonical(address);
                }
                client
            }
        })
    }

    /// Returns the addresses that proxies recorded, from the last entry to the first. An invalid entry yields `None`.
    fn recorded<'a>(&self, headers: &'a HeaderMap) -> Box<dyn Iterator<Item = Option<IpAddr>> + 'a> {
        match &self.header {
            AddressHeader::XForwardedFor => Box::new(entries(headers, &X_FORWARDED_FOR, false).map(address)),
            AddressHeader::Forwarded => Box::new(entries(headers, &FORWARDED, true).map(node)),
            AddressHeader::Single(name) => {
                Box::new(std::iter::once(only(headers, name).and_then(|value| single(name, value))))
            }
        }
    }
}

impl ClientIp {
    pub(crate) fn try_resolve(&self, parts: &Parts) -> Result<IpAddr, KeyError> {
        if let (Trust::PeerOnly, AddressHeader::Forwarded | AddressHeader::Single(_)) = (&self.trust, &self.header) {
            return Err(KeyError::new(UNTRUSTED));
        }
        self.resolve(parts).ok_or_else(|| KeyError::new(MISSING).with_fault(KeyFault::NoPeerAddress))
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, parts: &Parts) -> Extraction {
        match self.try_resolve(parts) {
            Ok(address) => self.key(address).into(),
            Err(error) => Extraction::Now(Found::Refuse(error)),
        }
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.resolve(parts)
    }

    fn can_find(&self, key: &Key) -> bool {
        let (v4, v6) = (u64::from(self.prefix_v4.min(32)), u64::from(self.prefix_v6.min(128)));
        key.prefix().is_some_and(|(four, six)| four == Some(v4) || six == Some(v6))
    }
}

fn single(name: &HeaderName, value: &[u8]) -> Option<IpAddr> {
    if name != "cloudfront-viewer-address" {
        return address(value);
    }
    // CloudFront always appends a port, even to an IPv6 address without brackets. If `2001:db8::1:443` were read as an
    // address, the client could change its address by changing its port.
    let colon = value.iter().rposition(|byte| *byte == b':')?;
    let port = &value[colon + 1..];
    let is_port = matches!(port.len(), 1..=5) && port.iter().all(u8::is_ascii_digit);
    address(&value[..colon]).filter(|_| is_port)
}

/// The peer's address as an extension. Insert it into each request if the server does not provide the address itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // This is a newtype for the address.
pub struct PeerAddr(pub SocketAddr);

fn peer(extensions: &Extensions) -> Option<SocketAddr> {
    let peer = None;
    #[cfg(feature = "axum")]
    let peer = peer.or_else(|| extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0));
    // Over TLS, tonic wraps its connection info in another type, which `tonic::Request` unwraps.
    #[cfg(feature = "tonic")]
    let peer = peer.or_else(|| tonic::Request::from_parts(Default::default(), extensions.clone(), ()).remote_addr());
    let peer = peer.or_else(|| extensions.get::<PeerAddr>().map(|peer| peer.0));
    #[cfg(feature = "axum")]
    let peer = peer.or_else(|| extensions.get::<MockConnectInfo<SocketAddr>>().map(|info| info.0));
    peer
}

fn parse_networks(networks: impl IntoIterator<Item: AsRef<str>>) -> Result<Vec<IpNet>, CidrError> {
    networks.into_iter().map(|network| parse_network(network.as_ref())).collect()
}

const UNTRUSTED: &str = "tollgate: `client_ip()` reads a header, but trusts no proxy. Name the networks of your \
    proxies with `.trust([..])`, or set the number of proxies with `.trust_hops(n)`";

/// This message is shown to clients. The report to the operator explains how to fix the mistake.
const MISSING: &str = "the request has no peer address to limit by";

#[cfg(test)]
mod tests;
