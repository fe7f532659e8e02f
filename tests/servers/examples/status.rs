use super::running::{Example, LOCALHOST, get, send};

#[tokio::test]
async fn the_status_endpoint_predicts_the_next_response() {
    let example = Example::start("status", &[]);
    let server = example.address();
    let ada: &[&str] = &["x-user: ada"];
    for _ in 0..3 {
        assert_eq!(send(LOCALHOST, server, "POST /chat", ada, "").await.status(), 200);
    }
    let limit = send(LOCALHOST, server, "GET /limits/chat", ada, "").await;
    let start = example.promised(
        r#"{"policy":"chat","algorithm":"token_bucket","rate":1,"period":3000000,"capacity":3,"start":0,"max_reserved":0,"#,
    );
    assert!(limit.body.starts_with(start), "{limit:?}");
    let denied = send(LOCALHOST, server, "POST /chat", ada, "").await;
    assert_eq!((denied.status(), denied.value("retry-after")), (429, Some("3")), "{denied:?}");
    let other = send(LOCALHOST, server, "GET /limits/chat", &["x-user: eve"], "").await;
    assert!(other.body.contains(r#""spent":0,"#), "{other:?}");
    assert_eq!(get(server, ada).await.status(), 404);
}
