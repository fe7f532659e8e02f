//! Threat 1: a client that pretends to have another address.

use std::net::Ipv4Addr;

use tollgate::key::{ClientIp, client_ip};
use tollgate::{RateLimitLayer, key};

use super::client::{CLIENT, ONE, hello, limiter, parts, raw, request, send, serve_v4};

const PROXY: &str = "10.0.0.1";

fn behind_proxies() -> ClientIp {
    client_ip().trust(["10.0.0.0/8", "fd00::/8"])
}

/// The header lines that reach the service. Each `{}` is replaced with the attempt number.
type Lines = &'static [(&'static str, &'static str)];

/// A spoof: its name, the extractor, the peer address, and the header lines.
type Spoof = (&'static str, fn() -> ClientIp, &'static str, Lines);

const SPOOFS: [Spoof; 17] = [
    ("no proxy is trusted", client_ip, CLIENT, &[("x-forwarded-for", "6.6.6.{}"), ("forwarded", "for=6.6.6.{}")]),
    ("the peer is not a proxy", behind_proxies, CLIENT, &[("x-forwarded-for", "6.6.6.{}")]),
    ("leftmost entry", behind_proxies, PROXY, &[("x-forwarded-for", "6.6.6.{}, 203.0.113.9")]),
    ("the leftmost of many entries", behind_proxies, PROXY, &[("x-forwarded-for", "6.6.6.{}, 7.7.7.{}, 203.0.113.9")]),
    ("a port after the honest entry", behind_proxies, PROXY, &[("x-forwarded-for", "6.6.6.{}, 203.0.113.9:55{}")]),
    (
        "Forwarded in addition to X-Forwarded-For",
        behind_proxies,
        PROXY,
        &[("forwarded", "for=6.6.6.{}"), ("x-forwarded-for", CLIENT)],
    ),
    (
        "X-Forwarded-For in addition to Forwarded",
        || behind_proxies().from_forwarded(),
        PROXY,
        &[("x-forwarded-for", "6.6.6.{}"), ("forwarded", "for=203.0.113.9")],
    ),
    ("two lines", behind_proxies, PROXY, &[("x-forwarded-for", "6.6.6.{}"), ("x-forwarded-for", CLIENT)]),
    (
        "the leftmost element of Forwarded",
        || behind_proxies().from_forwarded(),
        PROXY,
        &[("forwarded", "for=6.6.6.{}, for=203.0.113.9")],
    ),
    (
        "a quote that never closes",
        || behind_proxies().from_forwarded(),
        PROXY,
        &[("forwarded", "for=\"\\\"x, for=6.6.6.{}, for=203.0.113.9")],
    ),
    ("an entry that is not an address", behind_proxies, PROXY, &[("x-forwarded-for", "6.6.6.{}, unknown")]),
    ("an empty entry", behind_proxies, PROXY, &[("x-forwarded-for", "6.6.6.{},")]),
    ("an empty line", behind_proxies, PROXY, &[("x-forwarded-for", "6.6.6.{}"), ("x-forwarded-for", "")]),
    (
        "other headers with addresses",
        behind_proxies,
        PROXY,
        &[
            ("x-real-ip", "6.6.6.{}"),
            ("cf-connecting-ip", "6.6.6.{}"),
            ("true-client-ip", "6.6.6.{}"),
            ("x-client-ip", "6.6.6.{}"),
            ("x-forwarded-for", CLIENT),
        ],
    ),
    (
        "a proxy on a dual-stack socket",
        behind_proxies,
        "::ffff:10.0.0.1",
        &[("x-forwarded-for", "6.6.6.{}, 203.0.113.9")],
    ),
    (
        "more entries than hops",
        || client_ip().trust_hops(2),
        PROXY,
        &[("x-forwarded-for", "6.6.6.{}, 7.7.7.{}, 203.0.113.9, 10.0.0.2")],
    ),
    (
        "a client line before the proxy's line",
        || behind_proxies().from_header("cf-connecting-ip"),
        PROXY,
        &[("cf-connecting-ip", "6.6.6.{}"), ("cf-connecting-ip", CLIENT)],
    ),
];

#[tokio::test]
async fn t01_known_spoofs_get_only_one_request_through() {
    for (name, extractor, peer, lines) in SPOOFS {
        let (limiter, backend, _clock) = limiter();
        let app = hello().layer(RateLimitLayer::new(ONE, extractor()).limiter(&limiter));
        let mut statuses = Vec::new();
        for attempt in 10..30 {
            let lines: Vec<_> =
                lines.iter().map(|(name, value)| (*name, value.replace("{}", &attempt.to_string()))).collect();
            statuses.push(send(&app, request(peer, &lines)).await.status);
        }
        let mut expected = [429; 20];
        expected[0] = 200;
        assert_eq!((name, &statuses[..], backend.len()), (name, &expected[..], 1));
    }
}

#[test]
fn t01_forwarded_headers_cannot_be_spoofed() {
    let xff = "x-forwarded-for";
    let forwarded = || behind_proxies().from_forwarded();
    let hops = |hops| client_ip().trust_hops(hops);
    let single = || behind_proxies().from_header("x-real-ip");
    // Each case has an extractor, a peer, header lines, and the expected client.
    #[allow(clippy::type_complexity)]
    let table: &[(ClientIp, &str, &[(&str, &str)], &str)] = &[
        // These requests are honest.
        (behind_proxies(), PROXY, &[(xff, CLIENT)], CLIENT),
        (behind_proxies(), PROXY, &[(xff, "203.0.113.9, 10.0.0.2")], CLIENT),
        (behind_proxies(), PROXY, &[(xff, "203.0.113.9"), (xff, "10.0.0.2")], CLIENT),
        (behind_proxies(), PROXY, &[], PROXY),
        (behind_proxies(), "fd00::1", &[(xff, "2001:db8::9")], "2001:db8::9"),
        (forwarded(), PROXY, &[("forwarded", "for=\"[2001:db8::9]:4711\";proto=https, for=10.0.0.2")], "2001:db8::9"),
        // Entries are read from the right, up to an unreadable entry. The proxy that added the unreadable entry is
        // treated as the client.
        (behind_proxies(), PROXY, &[(xff, "6.6.6.6, unknown, 10.0.0.2")], "10.0.0.2"),
        (behind_proxies(), PROXY, &[(xff, "6.6.6.6,, 10.0.0.2")], "10.0.0.2"),
        (behind_proxies(), PROXY, &[(xff, "6.6.6.6, 203.0.113.009")], PROXY),
        (behind_proxies(), PROXY, &[(xff, "6.6.6.6, 203.0.113.9 7.7.7.7")], PROXY),
        (forwarded(), PROXY, &[("forwarded", "for=6.6.6.6, for=_hidden, for=10.0.0.2")], "10.0.0.2"),
        (forwarded(), PROXY, &[("forwarded", "for=6.6.6.6, for=203.0.113.9;for=7.7.7.7")], PROXY),
        (forwarded(), PROXY, &[("forwarded", "for=6.6.6.6, garbage")], PROXY),
        // A client inside a trusted network keeps its address.
        (behind_proxies(), PROXY, &[(xff, "10.9.9.9")], "10.9.9.9"),
        // Hops are counted from the right. If entries are missing or invalid, the peer is the client.
        (hops(1), "198.51.100.1", &[(xff, "6.6.6.6, 203.0.113.9")], CLIENT),
        (hops(2), "198.51.100.1", &[(xff, "6.6.6.6, 203.0.113.9, 198.51.100.2")], CLIENT),
        (hops(2), "198.51.100.1", &[(xff, "6.6.6.6"), (xff, "203.0.113.9"), (xff, "198.51.100.2")], CLIENT),
        (hops(3), "198.51.100.1", &[(xff, "6.6.6.6, 203.0.113.9")], "198.51.100.1"),
        (hops(1), "198.51.100.1", &[(xff, "6.6.6.6,")], "198.51.100.1"),
        (hops(1), "198.51.100.1", &[], "198.51.100.1"),
        (hops(0), "198.51.100.1", &[(xff, "6.6.6.6")], "198.51.100.1"),
        (hops(1000), "198.51.100.1", &[(xff, "6.6.6.6")], "198.51.100.1"),
        // A header for a single address is read only if a proxy sends it exactly once, with exactly one address.
        (single(), PROXY, &[("x-real-ip", CLIENT), (xff, "6.6.6.6")], CLIENT),
        (single(), "198.51.100.1", &[("x-real-ip", "6.6.6.6")], "198.51.100.1"),
        (single(), PROXY, &[("x-real-ip", "6.6.6.6"), ("x-real-ip", CLIENT)], PROXY),
        (single(), PROXY, &[("x-real-ip", CLIENT), ("x-real-ip", CLIENT)], PROXY),
        (single(), PROXY, &[("x-real-ip", "6.6.6.6, 203.0.113.9")], PROXY),
        (single(), PROXY, &[("x-real-ip", "")], PROXY),
    ];
    for (extractor, peer, lines, client) in table {
        let found = extractor.resolve(&parts(peer, lines));
        assert_eq!(found, client.parse().ok(), "{peer} {lines:?}");
    }
}

#[test]
fn t01_a_viewer_address_is_separated_from_its_port() {
    let cdn = behind_proxies().from_header("cloudfront-viewer-address");
    // An IPv6 address followed by a port of up to four digits may itself be a valid IPv6 address. The client can choose
    // the port and the host part, but must not be able to choose the network.
    for (value, client) in [
        ("203.0.113.9:443", CLIENT),
        ("2001:db8::9:443", "2001:db8::9"),
        ("2001:db8::9:44300", "2001:db8::9"),
        ("2001:db8::3:4:5:6:4711", "2001:db8::3:4:5:6"),
        ("2001:db8:0:0:3:4:5:6:4711", "2001:db8::3:4:5:6"),
        ("[2001:db8::9]:4711", "2001:db8::9"),
        ("6.6.6.6", PROXY),
        (":4711", PROXY),
        ("203.0.113.9:", PROXY),
        ("203.0.113.9:http", PROXY),
    ] {
        let found = cdn.resolve(&parts(PROXY, &[("cloudfront-viewer-address", value)]));
        assert_eq!(found, client.parse().ok(), "{value}");
    }
}

#[tokio::test]
async fn t01_no_header_changes_the_caller_on_a_real_socket() {
    let spoofs = |i: u8| {
        let names = ["x-forwarded-for", "x-real-ip", "cf-connecting-ip", "x-client-ip", "true-client-ip"];
        let mut lines: Vec<_> = names.iter().map(|name| format!("{name}: 6.6.6.{i}")).collect();
        lines.push(format!("forwarded: for=6.6.6.{i}"));
        lines
    };
    let port = serve_v4(hello().layer(RateLimitLayer::new(ONE, key::client_ip()))).await;
    let proxied = serve_v4(hello().layer(RateLimitLayer::new(ONE, key::client_ip().trust(["127.0.0.0/8"])))).await;
    for attempt in 0..20 {
        let status = if attempt == 0 { 200 } else { 429 };
        assert_eq!(raw(port, Ipv4Addr::LOCALHOST, "GET /", &spoofs(attempt)).await.0, status);
        // The proxy adds its entry as a separate last line.
        let mut lines = spoofs(attempt);
        lines.push("x-forwarded-for: 203.0.113.9".into());
        assert_eq!(raw(proxied, Ipv4Addr::LOCALHOST, "GET /", &lines).await.0, status);
    }
}
