//! Threat 3 behind NAT64 (RFC 6052): IPv4 clients whose addresses are embedded in IPv6 addresses.

use std::net::{IpAddr, Ipv4Addr};

use axum::Router;
use tollgate::key::client_ip;
use tollgate::{
    HOUR, Key, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, Reason, key,
    protection::{DenyList, DenyRule, Signal},
};

use super::client::{ONE, hello, limiter, parts, request, send};

const ADA: &str = "203.0.113.7";

async fn status(app: &Router, peer: &str) -> u16 {
    send(app, request::<&str, &str>(peer, &[])).await.status
}

#[tokio::test]
async fn ipv4_clients_behind_nat64_have_separate_buckets() {
    let (limiter, backend, _clock) = limiter();
    let app = hello().layer(RateLimitLayer::new(ONE, key::client_ip()).limiter(&limiter));
    for host in 0..100 {
        assert_eq!(status(&app, &format!("64:ff9b::203.0.113.{host}")).await, 200, "{host}");
    }
    for host in 0..100 {
        assert_eq!(status(&app, &format!("203.0.113.{host}")).await, 429, "{host}");
        assert_eq!(status(&app, &format!("64:ff9b::203.0.113.{host}")).await, 429, "{host}");
    }
    assert_eq!(backend.len(), 100);
    assert_eq!(Key::from("64:ff9b::cb00:7107".parse::<IpAddr>().unwrap()), Key::from(Ipv4Addr::new(203, 0, 113, 7)));
}

#[tokio::test]
async fn deny_rules_and_blocks_match_the_ipv4_address() {
    let written = ["203.0.113.0/24", "64:ff9b::203.0.113.0/120", "64:ff9b::203.0.113.7", ADA];
    for rule in written {
        let list = DenyList::from_iter([DenyRule::network(rule).unwrap()]);
        let limiter = RateLimiter::builder(MemoryBackend::new()).deny_list(&list).build();
        let app = hello().layer(RateLimitLayer::new(ONE, key::client_ip()).limiter(&limiter));
        let statuses = [status(&app, "64:ff9b::203.0.113.7").await, status(&app, ADA).await];
        assert_eq!(statuses, [429, 429], "{rule}");
        assert_eq!(status(&app, "64:ff9b::203.0.114.7").await, 200, "{rule}");
    }
    static TEN: Policy = Policy::new("ten", Quota::per_second(10));
    for (blocked, comes_as) in [(ADA, "64:ff9b::203.0.113.7"), ("64:ff9b::203.0.113.7", ADA)] {
        let limiter = RateLimiter::default();
        limiter.block(Signal::ip(blocked.parse().unwrap()), HOUR).await.unwrap();
        let decision = limiter.try_acquire(&TEN, "ada").ip(comes_as.parse().unwrap()).await.unwrap();
        assert_eq!(decision.reason(), Reason::Blocked, "{blocked}");
    }
}

#[test]
fn proxies_behind_nat64_are_trusted_by_their_ipv4_addresses() {
    let behind = client_ip().trust(["198.51.100.0/24"]);
    for proxy in ["198.51.100.1", "64:ff9b::198.51.100.1"] {
        for entry in [ADA, "64:ff9b::203.0.113.7", "[64:ff9b::cb00:7107]:443"] {
            let line = format!("6.6.6.6, {entry}, 64:ff9b::198.51.100.2");
            assert_eq!(
                behind.resolve(&parts(proxy, &[("x-forwarded-for", line)])),
                ADA.parse().ok(),
                "{proxy} {entry}"
            );
        }
    }
}

#[test]
fn private_addresses_in_the_well_known_prefix_are_not_trusted() {
    // According to RFC 6052, section 3.1, translators must not embed private addresses in the well-known prefix.
    for private in ["10.0.0.1", "127.0.0.1", "192.168.0.1", "169.254.0.1", "0.0.0.0"] {
        let peer = format!("64:ff9b::{private}");
        let behind = client_ip().trust(["10.0.0.0/8", "127.0.0.0/8", "192.168.0.0/16", "169.254.0.0/16"]);
        let found = behind.resolve(&parts(&peer, &[("x-forwarded-for", ADA)]));
        assert_eq!(found, peer.parse().ok());
        // An operator whose translator embeds private addresses can opt in.
        let found = behind.nat64(["64:ff9b::/96"]).resolve(&parts(&peer, &[("x-forwarded-for", "203.0.113.8")]));
        let expected = if private == "0.0.0.0" { private } else { "203.0.113.8" };
        assert_eq!(found, expected.parse().ok());
    }
}

#[test]
fn operator_prefixes_of_every_rfc_6052_length_are_supported() {
    // The examples in RFC 6052, section 2.4, embed 192.0.2.33 in each prefix.
    for (prefix, address) in [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
    ] {
        let clients = client_ip().nat64([prefix]);
        assert_eq!(clients.resolve(&parts::<&str, &str>(address, &[])), "192.0.2.33".parse().ok(), "{prefix}");
        let other = "2001:db9::1";
        assert_eq!(clients.resolve(&parts::<&str, &str>(other, &[])), other.parse().ok(), "{prefix}");
        let behind = clients.trust(["192.0.2.32/28"]);
        assert_eq!(behind.resolve(&parts(address, &[("x-forwarded-for", address)])), "192.0.2.33".parse().ok());
        assert_eq!(behind.resolve(&parts(address, &[("x-forwarded-for", ADA)])), ADA.parse().ok(), "{prefix}");
    }
}

#[test]
fn networks_that_can_never_match_behind_nat64_are_rejected() {
    let error = |result: Result<key::ClientIp, key::CidrError>| result.unwrap_err().to_string();
    for prefix in ["2001:db8::/33", "192.0.2.0/24", "2001:db8::1/96", "2001:db8::", "everything"] {
        assert!(error(client_ip().try_nat64([prefix])).contains("is not a NAT64 prefix"), "{prefix}");
    }
    // These networks cover the well-known NAT64 prefix, but clients behind it are identified by their IPv4 addresses.
    for network in ["64:ff9b::/96", "64:ff9b::/64"] {
        assert!(error(client_ip().try_trust([network])).contains("IPv4"), "{network}");
        assert!(DenyRule::network(network).unwrap_err().to_string().contains("IPv4"), "{network}");
    }
    let mine = "2001:db8:64::/96";
    assert!(error(client_ip().nat64([mine]).try_trust(["2001:db8:64::a00:0/104"])).contains(mine));
    assert!(error(client_ip().trust(["2001:db8:64::a00:0/104"]).try_nat64([mine])).contains(mine));
}
