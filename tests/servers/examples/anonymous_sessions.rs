use std::net::{Ipv4Addr, SocketAddr};

use super::running::{Example, LOCALHOST, get, send, statuses};

#[tokio::test]
async fn an_address_without_a_session_gets_three_requests() {
    let example = Example::start("anonymous_sessions", &[]);
    assert_eq!(statuses(4, example.address(), "GET /", &[]).await, example.promised("200 200 200 429"));
}

#[tokio::test]
async fn a_session_raises_the_limit_and_the_captcha_raises_it_further() {
    let example = Example::start("anonymous_sessions", &[]);
    let server = example.address();
    let cookie = open(&example, server).await;
    let visitor = get(server, &[&cookie]).await;
    assert!(visitor.has(example.promised(r#"ratelimit-policy: "pages";q=10;w=3600"#)), "{visitor:?}");
    assert!(visitor.has(example.promised(r#"ratelimit: "pages";r=9;t=3240"#)), "{visitor:?}");

    for (guess, reply) in [("six times nine", "wrong\n"), ("forty-two", "promoted\n")] {
        let response = send(LOCALHOST, server, "POST /captcha", &[&cookie], example.promised(guess)).await;
        assert_eq!(response.body, example.promised(reply));
    }
    let human = get(server, &[&cookie]).await;
    assert!(human.has(example.promised(r#"ratelimit-policy: "pages";q=100;w=3600"#)), "{human:?}");
    assert!(human.has(example.promised(r#"ratelimit: "pages";r=98;t=3528"#)), "{human:?}");
}

#[tokio::test]
async fn a_made_up_session_is_limited_by_address() {
    let example = Example::start("anonymous_sessions", &[]);
    let server = example.address();
    for left in (0..3).rev() {
        let response = get(server, &[&format!("cookie: sid=invented-{left}")]).await;
        assert!(response.value("ratelimit").unwrap().starts_with(&format!("\"pages\";r={left};")), "{response:?}");
    }
    assert_eq!(get(server, &["cookie: sid=another"]).await.status(), 429);
}

#[cfg(target_os = "linux")] // macOS assigns only 127.0.0.1 to the loopback interface.
#[tokio::test]
async fn a_session_is_ignored_if_another_address_sends_it() {
    let example = Example::start("anonymous_sessions", &[]);
    let server = example.address();
    let cookie = open(&example, server).await;
    let stolen = send(Ipv4Addr::new(127, 0, 0, 2), server, "GET /", &[&cookie], "").await;
    assert!(stolen.has(example.promised(r#"ratelimit-policy: "pages";q=3;w=3600"#)), "{stolen:?}");
}

#[tokio::test]
async fn opening_sessions_and_answering_captchas_share_one_limit() {
    let example = Example::start("anonymous_sessions", &[]);
    let server = example.address();
    example
        .promised("Opening sessions and answering captchas share a limit of five requests per hour for each address");
    let cookie = open(&example, server).await;
    assert_eq!(statuses(4, server, "POST /captcha", &[&cookie]).await, "403 403 403 403");
    let response = send(LOCALHOST, server, "POST /captcha", &[&cookie], "forty-two").await;
    assert_eq!(response.status(), 429);
    assert_eq!(statuses(1, server, "POST /session", &[]).await, "429");
}

/// Opens a session. Returns its cookie as a header line.
async fn open(example: &Example, server: SocketAddr) -> String {
    let response = send(LOCALHOST, server, "POST /session", &[], "").await;
    assert_eq!(response.body, example.promised("welcome\n"));
    format!("cookie: {}", response.value("set-cookie").unwrap().split(';').next().unwrap())
}
