//! Threats 3 and 4: many clients that are counted as one, and a client that uses many addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use proptest::prelude::*;
use tokio::net::TcpListener;
use tollgate::key::client_ip;
use tollgate::{RateLimitLayer, RateLimiter, key};

use super::client::{ONE, hello, limiter, parts, raw, request, send, serve};

fn limited(limiter: &RateLimiter) -> Router {
    hello().layer(RateLimitLayer::new(ONE, key::client_ip()).limiter(limiter))
}

#[tokio::test]
async fn t03_ipv4_clients_of_a_dual_stack_listener_have_separate_buckets() {
    if TcpListener::bind("[::1]:0").await.is_err() {
        eprintln!("skipped: this machine has no IPv6");
        return;
    }
    let (limiter, backend, _clock) = limiter();
    let peer = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.ip().to_string() };
    let layer = RateLimitLayer::new(ONE, key::client_ip()).limiter(&limiter);
    let port = serve(Router::new().route("/", get(peer)).layer(layer), TcpListener::bind("[::]:0").await.unwrap());
    let [ada, bob] = [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)];
    // The socket reports both peers as IPv6 addresses.
    assert_eq!(raw(port, ada, "GET /", &[]).await, (200, format!("::ffff:{ada}")));
    assert_eq!(raw(port, bob, "GET /", &[]).await, (200, format!("::ffff:{bob}")));
    for client in [ada, bob, ada] {
        assert_eq!(raw(port, client, "GET /", &[]).await.0, 429);
    }
    assert_eq!(backend.len(), 2);
}

#[tokio::test]
async fn t03_ipv4_mapped_addresses_share_the_bucket_of_the_ipv4_address() {
    let (limiter, backend, _clock) = limiter();
    let by_peer = limited(&limiter);
    let behind = client_ip().trust(["10.0.0.0/8"]);
    let by_xff = hello().layer(RateLimitLayer::new(ONE, behind.clone()).limiter(&limiter));
    let by_forwarded = hello().layer(RateLimitLayer::new(ONE, behind.from_forwarded()).limiter(&limiter));
    let mut statuses = Vec::new();
    for spelled in ["1.2.3.4", "::ffff:1.2.3.4", "::ffff:102:304", "0:0:0:0:0:FFFF:0102:0304"] {
        statuses.push(send(&by_peer, request::<&str, &str>(spelled, &[])).await.status);
        for proxy in ["10.0.0.1", "::ffff:10.0.0.1"] {
            statuses.push(send(&by_xff, request(proxy, &[("x-forwarded-for", spelled)])).await.status);
            let node = format!("for=\"[{spelled}]\"");
            if spelled.contains(':') {
                statuses.push(send(&by_forwarded, request(proxy, &[("forwarded", node)])).await.status);
            }
        }
    }
    assert_eq!((statuses[0], backend.len()), (200, 1));
    assert!(statuses[1..].iter().all(|status| *status == 429), "{statuses:?}");
    // The next IPv4 address belongs to a different client, even if the IPv6 prefix length is 0.
    let wide = hello().layer(RateLimitLayer::new(ONE, client_ip().prefixes(32, 0)).limiter(&limiter));
    assert_eq!(send(&wide, request::<&str, &str>("::ffff:1.2.3.5", &[])).await.status, 200);
    assert_eq!(send(&by_peer, request::<&str, &str>("1.2.3.5", &[])).await.status, 429);
}

#[test]
fn t03_an_ipv4_mapped_network_is_trusted_like_the_ipv4_network() {
    for network in ["10.0.0.0/8", "::ffff:10.0.0.0/104", "::ffff:a00:0/104"] {
        let behind = client_ip().trust([network]);
        for proxy in ["10.0.0.1", "::ffff:10.0.0.1"] {
            let lines = [("x-forwarded-for", "6.6.6.6, ::ffff:203.0.113.9, ::ffff:10.0.0.2")];
            assert_eq!(behind.resolve(&parts(proxy, &lines)), "203.0.113.9".parse().ok(), "{network} {proxy}");
        }
        for stranger in ["11.0.0.1", "::a00:1", "::1", "64:ff9b::a00:1"] {
            let lines = [("x-forwarded-for", "6.6.6.6")];
            assert_eq!(behind.resolve(&parts(stranger, &lines)), stranger.parse().ok(), "{network} {stranger}");
        }
    }
}

#[tokio::test]
async fn t04_ten_thousand_addresses_in_one_network_share_a_bucket() {
    let (limiter, backend, _clock) = limiter();
    let app = limited(&limiter);
    let network: Ipv6Addr = "2001:db8:1:2::".parse().unwrap();
    let mut passed = 0;
    for i in 0..10_000_u64 {
        // Spread the host part over all 64 bits.
        let host = u128::from(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let address = IpAddr::V6((u128::from(network) | host).into());
        let status = send(&app, request::<&str, &str>(&address.to_string(), &[])).await.status;
        assert!(status == 200 || status == 429);
        passed += usize::from(status == 200);
    }
    assert_eq!((passed, backend.len()), (1, 1));
    for neighbor in ["2001:db8:1:1:ffff:ffff:ffff:ffff", "2001:db8:1:3::"] {
        assert_eq!(send(&app, request::<&str, &str>(neighbor, &[])).await.status, 200);
    }
}

#[tokio::test]
async fn t04_a_coarser_rule_limits_clients_that_own_many_networks() {
    let (limiter, _backend, _clock) = limiter();
    let site = tollgate::Policy::new("site", tollgate::Quota::token_bucket(10, tollgate::MINUTE));
    let layer = RateLimitLayer::new(ONE, key::client_ip()).and(site, key::client_ip().prefixes(24, 48));
    let app = hello().layer(layer.limiter(&limiter));
    let mut passed = 0;
    for i in 0..1000 {
        let address = format!("2001:db8:1:{i:x}::1");
        passed += usize::from(send(&app, request::<&str, &str>(&address, &[])).await.status == 200);
    }
    assert_eq!(passed, 10);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn t04_all_spellings_of_an_address_resolve_to_one_client(address in any::<[u16; 8]>(), zeros in 0..8_usize) {
        let mut groups = address;
        groups[..zeros].fill(0);
        groups.rotate_left(zeros / 2);
        let address = Ipv6Addr::from(groups);
        let whole = groups.map(|group| format!("{group:04X}")).join(":");
        let short = groups.map(|group| format!("{group:x}")).join(":");
        let behind = client_ip().trust(["198.51.100.1"]).prefixes(32, 128);
        let found = |extractor: &tollgate::key::ClientIp, name: &str, value: String| {
            extractor.resolve(&parts("198.51.100.1", &[(name, value)]))
        };
        let client = Some(IpAddr::V6(address).to_canonical());
        let forwarded = behind.clone().from_forwarded();
        let single = behind.clone().from_header("x-real-ip");
        for text in [address.to_string(), whole, short] {
            for spelled in [text.clone(), format!("[{text}]"), format!("[{text}]:4711")] {
                prop_assert_eq!(found(&behind, "x-forwarded-for", spelled.clone()), client);
                prop_assert_eq!(found(&single, "x-real-ip", spelled.clone()), client);
                prop_assert_eq!(found(&forwarded, "forwarded", format!("FOR=\"{spelled}\";by=_x")), client);
            }
        }
    }
}
