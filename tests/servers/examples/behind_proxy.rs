//! The clients use several addresses in 127.0.0.0/8. Linux assigns all of them to the loopback interface, but macOS
//! assigns only 127.0.0.1.
#![cfg(target_os = "linux")]

use std::net::{Ipv4Addr, SocketAddr};

use super::running::{Example, send};

const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

#[tokio::test]
async fn forged_addresses_do_not_bypass_the_limit() {
    let example = Example::start("behind_proxy", &[]);
    let (proxy, app) = (example.address(), example.address());
    assert_eq!(forging(4, ONE, proxy).await, example.promised("200 200 200 429"));

    let other = send(OTHER, proxy, "GET /", &[], "").await;
    assert_eq!(other.status_line(), example.promised("HTTP/1.1 200 OK"));
    assert!(other.has(example.promised(r#"ratelimit-policy: "app";q=3;w=3600"#)), "{other:?}");
    assert!(other.has(example.promised(r#"ratelimit: "app";r=2;t=2400"#)), "{other:?}");

    // Requests that the same client sends directly to the app use the same bucket, which is already empty.
    assert_eq!(forging(2, ONE, app).await, "429 429");
}

/// Sends requests, each with a different forged address. Returns their statuses.
async fn forging(times: usize, client: Ipv4Addr, server: SocketAddr) -> String {
    let mut statuses = Vec::new();
    for i in 1..=times {
        let forged = format!("x-forwarded-for: 203.0.113.{i}");
        statuses.push(send(client, server, "GET /", &[&forged], "").await.status().to_string());
    }
    statuses.join(" ")
}
