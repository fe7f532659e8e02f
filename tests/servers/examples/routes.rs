use super::running::{Example, LOCALHOST, send, statuses};

const VARIANTS: [&[&str]; 2] = [&[], &["table"]];

#[tokio::test]
async fn each_route_and_tier_has_the_limit_in_the_table() {
    for arguments in VARIANTS {
        let example = Example::start("routes", arguments);
        let server = example.address();
        let tiers = ["", "authorization: Bearer ada-is-free", "authorization: Bearer eve-is-premium"];
        for (request, policy, row) in [
            ("GET /todos", "default", "default                        30     60       200\n"),
            ("POST /todos", "todo/create", "todo/create                     5     10        40\n"),
        ] {
            let limits = example.promised(row).split_whitespace().skip(1);
            for (tier, limit) in tiers.iter().zip(limits) {
                let headers: &[&str] = if tier.is_empty() { &[] } else { &[tier] };
                let response = send(LOCALHOST, server, request, headers, "").await;
                assert!(
                    response.has(&format!("ratelimit-policy: {policy:?};q={limit};w=60")),
                    "{request}: {response:?}"
                );
            }
        }
        for line in [
            r#"ratelimit-policy: "default";q=30;w=60"#,
            r#"ratelimit-policy: "default";q=60;w=60"#,
            r#"ratelimit-policy: "todo/create";q=40;w=60"#,
        ] {
            example.promised(line);
        }
    }
}

#[tokio::test]
async fn the_sixth_todo_is_refused_and_listing_still_works() {
    for arguments in VARIANTS {
        let example = Example::start("routes", arguments);
        let server = example.address();
        let created = statuses(6, server, "POST /todos", &[]).await;
        assert_eq!(created, example.promised("201 201 201 201 201 429"), "{arguments:?}");
        assert_eq!(statuses(1, server, "GET /todos", &[]).await, "200", "{arguments:?}");
    }
}

#[tokio::test]
async fn requests_that_match_no_route_use_the_default_policy_of_the_table() {
    let example = Example::start("routes", &["table"]);
    let response = send(LOCALHOST, example.address(), "GET /nowhere", &[], "").await;
    assert_eq!(response.status(), 404);
    assert!(response.has(r#"ratelimit-policy: "default";q=30;w=60"#), "{response:?}");
}
