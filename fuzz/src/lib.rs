//! The bodies of the fuzz targets: each accepts any bytes, and panics if a property is violated.
//!
//! The expected results are computed independently, as the documentation describes, because a round trip alone does not
//! reveal a mistake that is made in both directions.

#[path = "../../tests/support/admitted.rs"]
#[allow(dead_code)]
mod admitted;
pub mod algebra;
pub mod client_address;
pub mod configuration;
pub mod durations;
pub mod headers;
pub mod keys;
pub mod leases;
#[path = "../../tests/support/model.rs"]
#[allow(dead_code)]
mod model;
pub mod quotas;
pub mod raw;
pub mod redis_replies;
pub mod redis_server;
pub mod redis_socket;

/// A target: its name, which is also the name of its corpus, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, to replay their corpora.
pub const TARGETS: [Target; 11] = [
    ("algebra", algebra::run),
    ("configuration", configuration::run),
    ("durations", durations::run),
    ("forwarded", client_address::forwarded),
    ("headers", headers::run),
    ("keys", keys::run),
    ("leases", leases::run),
    ("quotas", quotas::run),
    ("redis_replies", redis_replies::run),
    ("redis_server", redis_server::run),
    ("x_forwarded_for", client_address::x_forwarded_for),
];

/// Returns the address that limits count: the embedded IPv4 address of an IPv4-mapped address, or of an address in
/// NAT64's well-known prefix if the embedded address is public. Other addresses are returned unchanged.
pub(crate) fn as_counted(address: std::net::IpAddr) -> std::net::IpAddr {
    use std::net::{IpAddr, Ipv4Addr};
    let IpAddr::V6(v6) = address.to_canonical() else { return address.to_canonical() };
    let v4 = Ipv4Addr::from_bits(u128::from(v6) as u32);
    let is_private = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_unspecified();
    if u128::from(v6) >> 32 == 0x0064_ff9b << 64 && !is_private { IpAddr::V4(v4) } else { address }
}
