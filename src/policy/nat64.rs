//! Canonical addresses: IPv4 addresses embedded in IPv6 addresses count as IPv4 addresses (RFC 4291, RFC 6052).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

use super::network::CidrError;

/// Converts IPv4-mapped addresses and addresses in NAT64's well-known prefix to IPv4 addresses.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => well_known(v6).map_or(address, IpAddr::V4),
        v4 => v4,
    }
}

/// Returns the IPv4 address embedded in an address in `64:ff9b::/96`. Returns `None` for private addresses: translators
/// must not embed them (RFC 6052, section 3.1), and an embedded private address could impersonate a proxy in a private
/// network.
pub(super) fn well_known(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = is_well_known(address).then(|| embedded(address, 96))?;
    let is_private = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_unspecified();
    (!is_private).then_some(v4)
}

pub(super) fn is_well_known(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0x64, 0xff9b, 0, 0, 0, 0, _, _])
}

/// Returns the IPv4 address that follows a prefix of `prefix` bits, skipping bits 64 to 71 (RFC 6052, section 2.2).
pub(crate) fn embedded(address: Ipv6Addr, prefix: u8) -> Ipv4Addr {
    let octets = address.octets().into_iter().enumerate().skip(usize::from(prefix / 8)).filter(|(at, _)| *at != 8);
    let mut v4 = [0; 4];
    v4.iter_mut().zip(octets).for_each(|(to, (_, octet))| *to = octet);
    v4.into()
}

pub(crate) fn parse_prefix(text: &str) -> Result<Ipv6Net, CidrError> {
    let is_prefix =
        |prefix: &Ipv6Net| matches!(prefix.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96) && prefix.trunc() == *prefix;
    text.parse().ok().filter(is_prefix).ok_or_else(|| {
        CidrError::new(
            text,
            "is not a NAT64 prefix; write an IPv6 network with a prefix length of 32, 40, 48, 56, 64 or 96 (RFC 6052), as in \"2001:db8:64::/96\"",
        )
    })
}
