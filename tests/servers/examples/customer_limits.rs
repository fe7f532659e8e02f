use std::time::Duration;

use super::running::{Example, LOCALHOST, get, send, statuses};

const ADA: &[&str] = &["authorization: Bearer ada"];

#[tokio::test]
async fn customers_have_their_own_limits_or_the_policys_default() {
    let example = Example::start("customer_limits", &[]);
    let server = example.address();
    let bert = get(server, &["authorization: Bearer bert"]).await;
    for line in [
        r#"ratelimit-policy: "api;1s";q=10;w=1"#,
        r#"ratelimit-policy: "api;1d";q=1000;w=86400"#,
        r#"ratelimit: "api;1s";r=9;t=1"#,
        r#"ratelimit: "api;1d";r=999;t=86314"#,
    ] {
        assert!(bert.has(example.promised(line)), "{bert:?}");
    }
    let ada = get(server, ADA).await;
    for line in [r#"ratelimit-policy: "api;1s";q=50;w=1"#, r#"ratelimit-policy: "api;1d";q=20000;w=86400"#] {
        assert!(ada.has(example.promised(line)), "{ada:?}");
    }
    assert_eq!(get(server, &["authorization: Bearer invented"]).await.status(), 401);

    let changed = send(LOCALHOST, server, "POST /customers/ada", &[], "2/s; 3/d").await;
    assert_eq!(changed.body, example.promised("ada: 2/s; 3/d\n"));
    let mut results = String::new();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        results += &statuses(1, server, "GET /", ADA).await;
        results.push(' ');
    }
    assert_eq!(results.trim(), example.promised("200 200 429"));

    let refused = send(LOCALHOST, server, "POST /customers/ada", &[], "2/s; 3/fortnight").await;
    let message = "quota \"3/fortnight\": expected a period such as \"min\" or \"30s\", found \"fortnight\"; units: us ms s min \
                   h d w\n";
    assert_eq!((refused.status(), &*refused.body), (400, example.promised(message)));
}
