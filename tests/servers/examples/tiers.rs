use super::running::{Example, LOCALHOST, get, send, statuses};

const ADA: &[&str] = &["authorization: Bearer ada"];

#[tokio::test]
async fn an_upgrade_takes_effect_immediately_and_refills_nothing() {
    let example = Example::start("tiers", &[]);
    let server = example.address();
    assert_eq!(statuses(6, server, "GET /", ADA).await, example.promised("200 200 200 200 200 429"));

    let upgrade = send(LOCALHOST, server, "POST /upgrade", ADA, "").await;
    assert_eq!(upgrade.body, example.promised("ada is premium now\n"));

    let response = get(server, ADA).await;
    assert_eq!(response.status(), 200);
    assert!(response.has(example.promised(r#"ratelimit-policy: "api";q=20;w=3600"#)), "{response:?}");
    assert!(response.has(example.promised(r#"ratelimit: "api";r=14;t=2520"#)), "{response:?}");
}

#[tokio::test]
async fn callers_without_a_valid_token_share_one_bucket() {
    let example = Example::start("tiers", &[]);
    let server = example.address();
    let first = get(server, &[]).await;
    assert!(first.has(example.promised(r#"ratelimit-policy: "api";q=3;w=3600"#)), "{first:?}");
    assert!(first.has(example.promised(r#"ratelimit: "api";r=2;t=2400"#)), "{first:?}");

    let invented = get(server, &["authorization: Bearer invented"]).await;
    assert!(invented.value("ratelimit").unwrap().starts_with(r#""api";r=1;"#), "{invented:?}");
}
