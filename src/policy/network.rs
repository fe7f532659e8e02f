//! Networks in CIDR notation, as addresses are compared: in their canonical form.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// The network that `text` writes: `"10.0.0.0/8"`, or one address. IPv4 networks that are written as IPv6 are IPv4.
pub(crate) fn parse_network(text: &str) -> Result<IpNet, CidrError> {
    let network = text.parse().or_else(|_| text.parse().map(|address: IpAddr| IpNet::from(address.to_canonical())));
    match network {
        // `::ffff:10.0.0.0/104` is 10.0.0.0/8.
        Ok(IpNet::V6(v6)) if v6.prefix_len() >= 96 => match v6.addr().to_ipv4_mapped() {
            Some(v4) => IpNet::new(IpAddr::V4(v4), v6.prefix_len() - 96).map_err(|_| CidrError::new(text)),
            None => Ok(IpNet::V6(v6)),
        },
        // Wider than all of IPv4, and no canonical address is in it.
        Ok(IpNet::V6(v6)) if v6.addr().to_ipv4_mapped().is_some() => Err(CidrError::new(text)),
        Ok(network) => Ok(network),
        Err(_) => Err(CidrError::new(text)),
    }
}

/// Why a text is no network: the text (its first 64 characters), and what would do.
///
/// ```
/// use tollgate::key;
///
/// let error = key::client_ip().try_trust(["10.0.0.0/33"]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#""10.0.0.0/33" is no network; write an address and a prefix length, as in "10.0.0.0/8", or one address"#
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CidrError(String);

impl CidrError {
    fn new(text: &str) -> CidrError {
        CidrError(text.chars().take(64).collect())
    }
}

impl fmt::Display for CidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no network; write an address and a prefix length, as in \"10.0.0.0/8\", or one address",
            self.0
        )
    }
}

impl std::error::Error for CidrError {}
