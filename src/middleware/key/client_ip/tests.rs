//! Tests of the client address behind proxies.

use super::*;

fn parts(peer: Option<&str>, headers: &[(&'static str, &str)]) -> Parts {
    let mut request = http::Request::builder();
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut parts = request.body(()).expect("a request").into_parts().0;
    if let Some(peer) = peer {
        parts.extensions.insert(PeerAddr(SocketAddr::new(peer.parse().expect("an address"), 4711)));
    }
    parts
}

fn refused(client_ip: &ClientIp, parts: &Parts) -> String {
    match client_ip.extract(parts) {
        Extraction::Now(Found::Refuse(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_header_without_a_trusted_proxy_is_an_error() {
    let parts = parts(Some("10.0.0.1"), &[("cf-connecting-ip", "203.0.113.9")]);
    assert!(refused(&client_ip().from_header("cf-connecting-ip"), &parts).contains(".trust([..])"));
    assert!(refused(&client_ip().from_forwarded(), &parts).contains(".trust([..])"));
}

#[test]
fn no_header_is_trusted_without_a_peer_address() {
    let parts = parts(None, &[("x-forwarded-for", "203.0.113.9")]);
    assert!(refused(&client_ip().trust(["0.0.0.0/0"]), &parts).contains("no peer address"));
}

#[cfg(feature = "tonic")]
#[test]
fn a_peer_address_provided_by_tonic_is_found() {
    let mut parts = parts(None, &[]);
    assert_eq!(client_ip().resolve(&parts), None);
    let remote_addr = Some(SocketAddr::from(([192, 0, 2, 1], 4711)));
    parts.extensions.insert(tonic::transport::server::TcpConnectInfo { local_addr: None, remote_addr });
    assert_eq!(client_ip().resolve(&parts), "192.0.2.1".parse().ok());
}

#[test]
fn the_client_is_the_first_untrusted_address_from_the_right() {
    let found = |written: &str| {
        let parts = parts(Some("10.0.0.1"), &[("x-forwarded-for", written)]);
        client_ip().trust(["10.0.0.0/8"]).resolve(&parts).expect("a peer").to_string()
    };
    assert_eq!(found("6.6.6.6, 203.0.113.9, 10.0.0.3, 10.0.0.2"), "203.0.113.9");
    assert_eq!(found("203.0.113.9"), "203.0.113.9");
    // If the chain ends or an entry is invalid, the last proxy found before that counts as the client.
    assert_eq!(found("10.0.0.3, 10.0.0.2"), "10.0.0.3");
    assert_eq!(found("203.0.113.9, unknown, 10.0.0.2"), "10.0.0.2");
}

#[test]
fn hops_are_counted_from_the_right() {
    let parts = parts(Some("192.0.2.1"), &[("x-forwarded-for", "198.51.100.3, unknown, 198.51.100.1")]);
    for (hops, client) in [
        (0, "192.0.2.1"),
        (1, "198.51.100.1"),
        // The second entry is invalid, and there is no fourth one.
        (2, "192.0.2.1"),
        (3, "198.51.100.3"),
        (4, "192.0.2.1"),
    ] {
        let client_ip = client_ip().trust_hops(hops);
        assert_eq!(client_ip.resolve(&parts), client.parse().ok(), "{hops}");
        assert_eq!(client_ip.address(&parts), client.parse().ok(), "{hops}");
    }
}

#[test]
fn the_key_is_the_network_of_the_resolved_address() {
    for peer in ["10.0.0.1", "192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1"] {
        let parts = parts(Some(peer), &[("x-forwarded-for", "198.51.100.3"), ("forwarded", "for=198.51.100.4")]);
        for client_ip in [
            client_ip(),
            client_ip().prefixes(24, 48),
            client_ip().trust(["10.0.0.0/8"]),
            client_ip().trust_hops(1),
            client_ip().trust_hops(1).from_forwarded().prefixes(16, 32),
        ] {
            let address = client_ip.resolve(&parts).expect("a peer");
            let key = Key::network(address, client_ip.prefix_v4, client_ip.prefix_v6);
            match client_ip.extract(&parts) {
                Extraction::Now(Found::Subject(subject)) => assert_eq!(subject.key(), Some(&key), "{peer}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn trusted_networks_are_canonicalized() {
    let resolve = |trusted: &str| {
        let parts = parts(Some("::ffff:10.1.2.3"), &[("x-forwarded-for", "203.0.113.9")]);
        client_ip().trust([trusted]).resolve(&parts).expect("a peer").to_string()
    };
    for trusted in ["10.0.0.0/8", "::ffff:10.0.0.0/104", "10.1.2.3", "::ffff:10.1.2.3"] {
        assert_eq!(resolve(trusted), "203.0.113.9", "{trusted}");
    }
    assert_eq!(resolve("10.9.0.0/16"), "10.1.2.3");
    let error = client_ip().try_trust(["10.0.0.0/33"]).expect_err("an invalid network").to_string();
    assert!(error.starts_with("\"10.0.0.0/33\" is not a network"), "{error}");
}

#[test]
fn only_cloudfront_may_append_a_port_to_an_ipv6_address_without_brackets() {
    let (cloudfront, other) =
        (HeaderName::from_static("cloudfront-viewer-address"), HeaderName::from_static("x-real-ip"));
    let ip = |text: &str| text.parse().ok();
    for (value, from_cloudfront, from_others) in [
        ("203.0.113.9:443", ip("203.0.113.9"), ip("203.0.113.9")),
        ("2001:db8:0:0:0:0:0:1:46532", ip("2001:db8::1"), None),
        ("2001:db8::3:4:5:6:4711", ip("2001:db8::3:4:5:6"), ip("2001:db8::3:4:5:6:4711")),
        ("[2001:db8::1]:443", ip("2001:db8::1"), ip("2001:db8::1")),
        ("203.0.113.9, 10.0.0.1", None, None),
        ("garbage:80", None, None),
        ("203.0.113.9:http", None, None),
        ("203.0.113.9:000080", None, ip("203.0.113.9")),
        ("203.0.113.9:", None, None),
        ("203.0.113.9", None, ip("203.0.113.9")),
        (":80", None, None),
    ] {
        assert_eq!(single(&cloudfront, value.as_bytes()), from_cloudfront, "{value}");
        assert_eq!(single(&other, value.as_bytes()), from_others, "{value}");
    }
    assert_eq!(single(&other, b"203.0.113.9"), ip("203.0.113.9"));
}
