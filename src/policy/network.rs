//! Networks in CIDR notation.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::nat64::{canonical, embedded, is_well_known, well_known};

/// Parses a network or an address. Converts IPv4-mapped and NAT64 networks to IPv4. Rejects `10.0.0.7/8` as ambiguous.
pub(crate) fn parse_network(text: &str) -> Result<IpNet, CidrError> {
    let network = parse(text)?;
    if network != network.trunc() {
        let (network, address) = (network.trunc(), network.addr());
        let problem = format!(
            "is an address within a network; write \"{network}\" for the network or \"{address}\" for the address"
        );
        return Err(CidrError::new(text, problem));
    }
    Ok(network)
}

fn parse(text: &str) -> Result<IpNet, CidrError> {
    let network = text.parse().or_else(|_| text.parse().map(|address: IpAddr| IpNet::from(canonical(address))));
    let invalid = || CidrError::new(text, NOT_A_NETWORK);
    match network {
        Ok(IpNet::V6(v6)) if v6.prefix_len() >= 96 => match v6.addr().to_ipv4_mapped() {
            Some(v4) => IpNet::new(IpAddr::V4(v4), v6.prefix_len() - 96).map_err(|_| invalid()),
            None if v6.prefix_len() == 96 && is_well_known(v6.addr()) => Err(CidrError::new(text, ALL_OF_IPV4)),
            None if well_known(v6.addr()).is_some() => {
                IpNet::new(IpAddr::V4(embedded(v6.addr(), 96)), v6.prefix_len() - 96).map_err(|_| invalid())
            }
            None => Ok(IpNet::V6(v6)),
        },
        // This network contains the IPv4-mapped addresses but would not match them, because addresses are compared in
        // canonical form, which is never IPv4-mapped.
        Ok(IpNet::V6(v6)) if v6.addr().to_ipv4_mapped().is_some() => Err(invalid()),
        Ok(IpNet::V6(v6)) if is_well_known(v6.addr()) => Err(CidrError::new(text, ALL_OF_IPV4)),
        Ok(network) => Ok(network),
        Err(_) => Err(invalid()),
    }
}

/// The error for text that is not a network. The message shows the first 64 characters of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CidrError(String);

const NOT_A_NETWORK: &str =
    "is not a network; write one address, or an address and a prefix length, as in \"10.0.0.0/8\"";
const ALL_OF_IPV4: &str = "covers all clients behind NAT64, which are identified by their IPv4 addresses; write the \
    IPv4 networks that you mean";

impl CidrError {
    pub(crate) fn new(text: &str, problem: impl fmt::Display) -> CidrError {
        let text: String = text.chars().take(64).collect();
        CidrError(format!("{text:?} {problem}"))
    }
}

impl fmt::Display for CidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CidrError {}
