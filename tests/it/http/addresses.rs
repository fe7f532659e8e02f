//! Which addresses count as one client, and where client addresses come from.

use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use tollgate::key::PeerAddr;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, key};

use crate::support::client::{hello, oneshot, serve};

const ONE: Policy = Policy::new("one", Quota::token_bucket(1, MINUTE));

fn limited() -> Router {
    hello().layer(RateLimitLayer::new(ONE, key::client_ip()))
}

#[tokio::test]
async fn each_ipv4_address_in_any_form_and_each_ipv6_64_prefix_has_one_bucket() {
    let app = limited();
    for (peer, status) in [
        ("203.0.113.7", 200),
        ("::ffff:203.0.113.7", 429),
        ("::ffff:cb00:7107", 429),
        ("::ffff:203.0.113.8", 200),
        ("203.0.113.8", 429),
        ("2001:db8:0:1::1", 200),
        ("2001:db8:0:1:ffff:ffff:ffff:ffff", 429),
        ("2001:db8:0:2::1", 200),
    ] {
        assert_eq!((peer, oneshot(&app, from(ConnectInfo(socket(peer)))).await.status), (peer, status));
    }
}

#[tokio::test]
async fn addresses_within_a_configured_prefix_share_a_bucket() {
    let app = hello().layer(RateLimitLayer::new(ONE, key::client_ip().prefixes(24, 48)));
    for (peer, status) in [
        ("203.0.113.7", 200),
        ("203.0.113.250", 429),
        ("203.0.114.7", 200),
        ("2001:db8:0:1::1", 200),
        ("2001:db8:0:2::1", 429),
        ("2001:db8:1:1::1", 200),
    ] {
        assert_eq!((peer, oneshot(&app, from(ConnectInfo(socket(peer)))).await.status), (peer, status));
    }
}

#[tokio::test]
async fn the_peer_address_can_come_from_connect_info_peer_addr_or_a_mock() {
    let app = limited();
    assert_eq!(oneshot(&app, from(PeerAddr(socket("203.0.113.7")))).await.status, 200);
    let mocked = app.layer(MockConnectInfo(socket("203.0.113.7")));
    assert_eq!(oneshot(&mocked, Request::new(Body::empty())).await.status, 429);
    // The connection takes precedence over the mock, as in axum.
    assert_eq!(oneshot(&mocked, from(ConnectInfo(socket("203.0.113.8")))).await.status, 200);
}

#[tokio::test]
async fn no_header_changes_the_client_address() {
    let client = serve(limited()).await;
    assert_eq!(client.get().await.status, 200);
    for line in ["x-forwarded-for: 203.0.113.7", "forwarded: for=203.0.113.7", "x-real-ip: 203.0.113.7"] {
        assert_eq!((line, client.send("GET", &[line]).await.status), (line, 429));
    }
}

fn socket(address: &str) -> SocketAddr {
    // The port differs for each connection and must not affect the key.
    static PORT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(1024);
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), PORT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

fn from(peer: impl Clone + Send + Sync + 'static) -> Request {
    Request::builder().extension(peer).body(Body::empty()).unwrap()
}
