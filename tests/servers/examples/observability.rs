use super::running::{Example, LOCALHOST, get, send, statuses};

#[tokio::test]
async fn denials_are_counted_and_logged_without_the_key() {
    let example = Example::start("observability", &[]);
    let server = example.address();
    let printed: String = (0..3).map(|_| example.line() + "\n").collect();
    let printed = printed.replace(&server.to_string(), "127.0.0.1:3000");
    example.promised(&printed.lines().collect::<Vec<_>>().join("\n"));

    let key = "x-api-key: k1";
    assert_eq!(statuses(5, server, "GET /", &[key]).await, "200 200 200 429 429");
    let promised = "INFO tollgate: denied policy=\"api\" outcome=\"denied\" reason=\"quota_exceeded\" \
                    decided_by=\"backend\" cost=1 remaining=0";
    for _ in 0..2 {
        let line = example.line();
        assert!(line.contains(example.promised(promised)) && !line.contains("k1"), "{line}");
    }

    let page = send(LOCALHOST, server, "GET /metrics", &[], "").await;
    assert!(page.has("content-type: text/plain; version=0.0.4"), "{page:?}");
    let denied = "tollgate_decisions_total{policy=\"api\",outcome=\"denied\",reason=\"quota_exceeded\",\
                  decided_by=\"backend\",enforced=\"true\"} 2";
    assert!(page.body.lines().any(|line| line == example.promised(denied)), "{}", page.body);
    assert!(page.body.lines().any(|line| line == "tollgate_rows 1"), "{}", page.body);
    assert_eq!(get(server, &[key]).await.status(), 429);
    assert_eq!(statuses(5, server, "GET /metrics", &[key]).await, "200 200 200 200 200");
}
