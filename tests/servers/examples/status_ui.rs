use std::net::SocketAddr;

use serde_json::Value;

use super::running::{Example, LOCALHOST, TestResponse, get, send, statuses};

const LIMITS: [&str; 3] = ["bucket", "fixed", "sliding"];

async fn get_path(server: SocketAddr, path: &str) -> TestResponse {
    send(LOCALHOST, server, &format!("GET {path}"), &[], "").await
}

async fn status(server: SocketAddr, limit: &str) -> Value {
    let response = get_path(server, &format!("/limits/{limit}")).await;
    assert_eq!((response.status(), response.value("cache-control")), (200, Some("private, no-store")));
    serde_json::from_str(&response.body).unwrap()
}

#[tokio::test]
async fn the_page_loads_files_only_from_its_own_origin() {
    let example = Example::start("status_ui", &[]);
    let line = example.line();
    assert!(
        line.starts_with(example.promised("status_ui: 6 messages in 30 seconds, under three algorithms, on http://"))
    );
    let server = line.rsplit("http://").next().unwrap().parse().unwrap();

    let page = get(server, &[]).await;
    assert_eq!((page.status(), page.value("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.value("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"));
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    // The page must not need exceptions to its content security policy, and all of its files must exist.
    for inline in ["<style", " style=", "<script>", " onclick=", "http://", "https://"] {
        assert!(!page.body.contains(inline), "{inline}");
    }
    let quoted: Vec<&str> = page.body.split('"').filter(|part| part.starts_with('/')).collect();
    assert_eq!(quoted, ["/page.css", "/page.js"]);
    for part in ["/page.css", "/page.js", "/plot.js", "/tollgate-client.js"] {
        let response = get_path(server, part).await;
        assert_eq!((response.status(), response.value("x-content-type-options")), (200, Some("nosniff")), "{part}");
        assert_eq!(response.value("content-security-policy"), Some(policy));
        for import in response.body.lines().filter_map(|line| line.split_once(" from '")) {
            assert_eq!(get_path(server, import.1.trim_end_matches("';")).await.status(), 200, "{import:?}");
        }
    }
}

#[tokio::test]
async fn the_seventh_message_is_refused_until_the_time_in_the_status() {
    let example = Example::start("status_ui", &[]);
    let server = example.address();
    for limit in LIMITS {
        let line = format!("POST /send/{limit}");
        let seen = statuses(7, server, &line, &[]).await;
        let snapshot = status(server, limit).await;
        let now = snapshot["now"].as_u64().unwrap();
        // A window can end between the first and the seventh message, so only the bucket's statuses are predictable.
        if limit == "bucket" {
            assert_eq!(seen, example.promised("200 200 200 200 200 200 429"));
            assert_eq!((snapshot["spent"].as_u64(), snapshot["capacity"].as_u64()), (Some(6), Some(6)));
            // The bucket regains its first token five seconds after it was spent. The header rounds the wait up.
            let due = snapshot["ts"].as_u64().unwrap() + 5_000_000;
            let refused = send(LOCALHOST, server, &line, &[], "").await;
            assert_eq!(refused.status(), 429);
            assert_eq!(refused.number("retry-after"), (due - now).div_ceil(1_000_000), "{snapshot}");
            tokio::time::sleep(std::time::Duration::from_micros(due - now)).await;
            assert_eq!(statuses(2, server, &line, &[]).await, "200 429");
        }
        assert_eq!(snapshot["policy"], limit);
    }
    assert!(status(server, "bucket").await.get("not_before").is_none());
}

#[tokio::test]
async fn the_status_and_time_endpoints_respond_as_documented() {
    let example = Example::start("status_ui", &[]);
    let server = example.address();
    let begin = example.promised(
        r#"{"policy":"bucket","algorithm":"token_bucket","rate":6,"period":30000000,"capacity":6,"start":0,"max_reserved":0,"spent":0,"#,
    );
    let response = get_path(server, "/limits/bucket").await;
    assert!(response.body.starts_with(begin), "{response:?}");
    let time: Value = serde_json::from_str(&get_path(server, "/time").await.body).unwrap();
    assert!(time["now"].as_u64().unwrap() > 1_767_225_600_000_000);
    // The status endpoint has a separate limit.
    assert_eq!(response.value("ratelimit-policy"), Some(r#""status";q=300;w=60"#));
    assert_eq!(statuses(2, server, "POST /send/bucket", &[]).await, "200 200");
    assert_eq!(status(server, "bucket").await["spent"], 2);
    assert_eq!(status(server, "fixed").await["spent"], 0);
}
