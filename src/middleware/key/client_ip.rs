//! The client's address as a key.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;

use super::{Extraction, KeyError, KeyExtractor};
use crate::policy::Key;

/// The address at the other end of the connection. No header is believed.
///
/// IPv4 addresses count one by one; of IPv6 the first 64 bits count, since whoever has one address of such a network has them
/// all. IPv4 addresses that a dual-stack socket shows as IPv6 are IPv4.
///
/// The server has to tell the address: axum by `into_make_service_with_connect_info::<SocketAddr>()`, others by a [`PeerAddr`]
/// among the request's extensions. Without it every request is answered with 500 and what to do.
///
/// ```
/// use tollgate::{key, Quota, RateLimitLayer, MINUTE};
///
/// let layer = RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip());
/// let by_site = RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip().prefixes(24, 48));
/// ```
pub fn client_ip() -> ClientIp {
    ClientIp { prefix_v4: 32, prefix_v6: 64 }
}

/// See [`client_ip`].
#[derive(Clone, Copy, Debug)]
pub struct ClientIp {
    prefix_v4: u8,
    prefix_v6: u8,
}

impl ClientIp {
    /// How many leading bits of an address count. Defaults to 32 and 64.
    #[must_use]
    pub fn prefixes(mut self, v4: u8, v6: u8) -> ClientIp {
        self.prefix_v4 = v4;
        self.prefix_v6 = v6;
        self
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, parts: &Parts) -> Extraction {
        match peer(parts) {
            Some(address) => Key::network(address, self.prefix_v4, self.prefix_v6).into(),
            None => Extraction::Now(Err(KeyError::new(MISSING))),
        }
    }
}

/// The address at the other end of the connection, for servers that do not tell it in a way of their own: to be put among a
/// request's extensions by whoever accepts connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs)] // An address is all there is to it.
pub struct PeerAddr(pub SocketAddr);

fn peer(parts: &Parts) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(peer)) = parts.extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(peer.ip());
    }
    parts.extensions.get::<PeerAddr>().map(|PeerAddr(peer)| peer.ip())
}

const MISSING: &str = "tollgate: the request has no peer address to limit by. In axum, serve with \
    `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`; with another server, insert \
    `tollgate::key::PeerAddr` into the request's extensions; in tests, layer `axum::extract::connect_info::MockConnectInfo` \
    outside the limiter";
