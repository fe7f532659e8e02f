//! Requests that the router refuses: bad tokens, missing permissions, other origins, wrong methods and large inputs.

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use tollgate::admin::{Admin, Operator, bearer_tokens};
use tollgate::{Quota, RateLimitLayer, RateLimiter, key};

use super::client::{EDITOR, READER, TestResponse, TestServer};

const READS: [&str; 5] = ["policies", "top", "limited", "blocks", "key?key=7"];
const CHANGES: [(&str, &str); 6] = [
    ("reset", r#"{"policy":"api","key":"7"}"#),
    ("credit", r#"{"policy":"api","key":"7","tokens":1}"#),
    ("block", r#"{"key":"7","lasts":"1h"}"#),
    ("unblock", r#"{"key":"7"}"#),
    ("quota", r#"{"policy":"api","quota":"20/min"}"#),
    ("enforcement", r#"{"policy":"api","enforce":0.5}"#),
];

fn assert_problem(response: &TestResponse, status: u16, detail: &str) {
    assert_eq!(response.status, status, "{}", response.body);
    assert_eq!(response.headers[CONTENT_TYPE], "application/problem+json");
    assert_eq!(response.headers[CACHE_CONTROL], "no-store");
    assert_eq!(response.body["status"], status);
    let found = response.body["detail"].as_str().unwrap();
    assert!(found.contains(detail), "expected {detail:?} in {found:?}");
}

#[tokio::test]
async fn every_endpoint_refuses_requests_without_a_valid_token() {
    let server = TestServer::start().await;
    let json = ("content-type", "application/json");
    for token in ["", "Bearer wrong token of the same length", EDITOR, "Basic dXNlcjpwYXNzd29yZA==", "Bearer "] {
        for path in READS.into_iter().chain(["missing", "key/7"]) {
            assert_problem(&server.send("GET", path, &[("authorization", token)], "").await, 401, "not authorized");
        }
        for (path, body) in CHANGES {
            let response = server.send("POST", path, &[("authorization", token), json], body).await;
            assert_problem(&response, 401, "not authorized");
            assert_eq!(response.headers[WWW_AUTHENTICATE], "Bearer");
        }
    }
    assert_eq!((server.limiter.blocks().len(), server.limiter.set_quotas().len()), (0, 0));
    assert!(server.audits.take().is_empty());
}

#[tokio::test]
async fn readers_can_read_but_their_attempts_to_make_changes_are_refused_and_audited() {
    let server = TestServer::start().await;
    let token = format!("bearer {READER}");
    let headers = [("authorization", &*token), ("content-type", "application/json")];
    for path in READS {
        assert_eq!(server.send("GET", path, &headers[..1], "").await.status, 200, "{path}");
    }
    assert_eq!(server.send("POST", "key", &headers, r#"{"key":"7"}"#).await.status, 200);
    assert!(server.audits.take().is_empty());
    for (path, body) in CHANGES {
        assert_problem(&server.send("POST", path, &headers, body).await, 403, "eve has read-only access");
        let failed =
            format!("eve {path} - - [] failed: eve has read-only access; sign in as an operator who can make changes");
        assert_eq!(server.audits.take(), [failed]);
    }
    for (method, path) in [("POST", "policies"), ("POST", "missing"), ("PUT", "quota"), ("DELETE", "blocks")] {
        assert_problem(&server.send(method, path, &headers, "{}").await, 403, "eve has read-only access");
    }
    assert_eq!((server.limiter.blocks().len(), server.limiter.set_quotas().len()), (0, 0));
}

#[tokio::test]
async fn requests_from_pages_of_other_origins_are_refused() {
    let server = TestServer::start().await;
    let (token, own) = (format!("Bearer {EDITOR}"), format!("http://{}", server.host()));
    let attempt = async |more: &[(&str, &str)]| {
        let mut headers = vec![("authorization", &*token), ("content-type", "application/json")];
        headers.extend(more);
        let read = server.send("GET", "policies", &headers, "").await;
        let response = server.send("POST", "block", &headers, r#"{"key":"7","lasts":"1h"}"#).await;
        assert_eq!(read.status, response.status);
        response
    };
    for foreign in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site"), ("origin", &own)],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://127.0.0.1:1")],
    ] {
        assert_problem(&attempt(foreign).await, 403, "another origin");
        assert!(server.audits.take().pop().unwrap().starts_with("ada block - - [] failed: this request comes"));
    }
    assert!(server.limiter.blocks().is_empty());
    for allowed in [
        &[][..],
        &[("sec-fetch-site", "same-origin"), ("origin", &own)],
        &[("sec-fetch-site", "none")],
        &[("origin", &own)],
        &[("origin", "https://Limits.Example"), ("host", "limits.example")],
    ] {
        assert_eq!(attempt(allowed).await.status, 200, "{allowed:?}");
    }
}

/// An HTML form on another page cannot send a body with the content type `application/json`.
#[tokio::test]
async fn bodies_must_be_json_and_small() {
    let server = TestServer::start().await;
    let token = format!("Bearer {EDITOR}");
    for (path, body) in CHANGES {
        for content_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
            let headers = [("authorization", &*token), ("content-type", content_type)];
            assert_problem(&server.send("POST", path, &headers, body).await, 415, "application/json");
        }
        assert_problem(&server.send("POST", path, &[("authorization", &token)], body).await, 415, "application/json");
        assert_problem(&server.post(path, "{").await, 400, "JSON");
        let unknown = format!(r#"{{"surprise":1,{}"#, &body[1..]);
        assert_problem(&server.post(path, &unknown).await, 422, "surprise");
        let large = format!(r#"{{"policy":"{}"}}"#, "x".repeat(20_000));
        assert_problem(&server.post(path, &large).await, 413, "");
    }
    let long = format!(r#"{{"policy":"api","key":"\"{}\""}}"#, "x".repeat(5_000));
    assert_problem(&server.post("reset", &long).await, 400, "at most 4096");
    assert!(server.limiter.blocks().is_empty());
}

#[tokio::test]
async fn wrong_methods_paths_and_queries_have_clear_errors() {
    let server = TestServer::start().await;
    for path in ["policies", "top", "limited", "blocks"] {
        let response = server.post(path, "{}").await;
        assert_problem(&response, 405, "a different method");
        assert_eq!(response.headers[ALLOW], "GET,HEAD");
        assert_eq!(server.get(&format!("{path}?max=0")).await.status, 400);
        assert_problem(&server.get(&format!("{path}?max=100000")).await, 400, "`max`: expected 1 to 1");
        assert_eq!(server.get(&format!("{path}?surprise=1")).await.status, 400);
    }
    for (path, _) in CHANGES {
        let response = server.get(path).await;
        assert_problem(&response, 405, "a different method");
        assert_eq!(response.headers[ALLOW], "POST");
    }
    assert_problem(&server.get("tpo").await, 404, "GET /page, /policies, /top");
    let missing = server.get("policies?policy=apy").await;
    assert_problem(&missing, 404, r#"there is no policy "apy" (did you mean "api"?); see `GET /policies`"#);
    assert_problem(&server.get("blocks?after=7").await, 400, "`after`: expected a digest");
    assert_problem(&server.get("key").await, 400, "key");
}

/// Servers and proxies log URLs, so a URL must not contain a credential.
#[tokio::test]
async fn credentials_are_rejected_in_urls_and_never_shown() {
    let server = TestServer::start().await;
    for key in ["bearer:sk_7f3a", "header(x-api-key):sk_7f3a", "cookie(session):sk_7f3a", "(7,bearer:sk_7f3a)"] {
        let in_url = server.get(&format!("key?key={key}")).await;
        assert_problem(&in_url, 400, "servers log URLs; send it with `POST /key`");
        let posted = server.change("key", &format!(r#"{{"key":"{key}"}}"#)).await;
        assert_eq!(posted["key"], server.digest(key.parse::<tollgate::Key>().unwrap()));
        for (path, body) in CHANGES.into_iter().filter(|(_, body)| body.contains("key")) {
            let body = body.replace(r#""7""#, &format!("{key:?}"));
            assert!(!server.change(path, &body).await.to_string().contains("sk_7f3a"));
        }
        assert!(!posted.to_string().contains("sk_7f3a"));
    }
    assert_problem(&server.post("reset", r#"{"policy":"api","key":"sk_7f3a"}"#).await, 400, "the text is not shown");
    let audits = server.audits.take().join("\n");
    assert!(!audits.contains("sk_7f3a") && audits.lines().count() == 17, "{audits}");
}

#[test]
#[should_panic(expected = "expected a token of at least 16 visible ASCII characters for \"ada\"")]
fn a_short_token_panics() {
    drop(bearer_tokens([("secret", Operator::editor("ada"))]));
}

/// Regression: clients do not send spaces around a token, so a token made only of spaces was effectively empty.
#[test]
#[should_panic(expected = "expected a token of at least 16 visible ASCII characters for \"ada\"")]
fn a_token_of_spaces_panics() {
    drop(bearer_tokens([(format!("{:16}", ""), Operator::editor("ada"))]));
}

#[test]
#[should_panic(expected = "two operators have the same token")]
fn a_token_shared_by_two_operators_panics() {
    drop(bearer_tokens([(EDITOR, Operator::editor("ada")), (EDITOR, Operator::reader("eve"))]));
}

#[test]
#[should_panic(expected = "the layer and the admin router use different limiters")]
fn a_layer_with_another_limiter_panics() {
    let layer = RateLimitLayer::new(Quota::per_minute(60), key::client_ip());
    drop(Admin::new(&RateLimiter::default(), |_| None).layer(&layer));
}
