use super::running::{Example, LOCALHOST, get, send};

const TOKEN: &str = "correct-horse-battery";

#[tokio::test]
async fn an_operator_can_list_limited_callers_and_reset_their_limits() {
    let example = Example::start_with("admin", &[], &[("ADMIN_TOKEN", TOKEN)]);
    let server = example.address();
    let hello = async || send(LOCALHOST, server, "GET /hello/ada", &[], "").await.status();
    for _ in 0..5 {
        assert_eq!(hello().await, 200);
    }
    assert_eq!((hello().await, hello().await), (429, 429));

    let authorization = format!("authorization: Bearer {TOKEN}");
    let headers = [authorization.as_str(), "content-type: application/json"];
    let limited = send(LOCALHOST, server, "GET /admin/limits/limited", &headers, "").await;
    assert!(limited.body.contains(r#""text":"path(name):ada","refused":2"#), "{limited:?}");
    let body = example.promised(r#"{"policy":"hello","key":"path(name):ada"}"#);
    let reset = send(LOCALHOST, server, "POST /admin/limits/reset", &headers, body).await;
    assert_eq!(reset.body, example.promised(r#"{"scope":"this_process","found":true}"#));
    assert_eq!(hello().await, 200);
    assert_eq!(get(server, &[]).await.status(), 404);
    assert_eq!(send(LOCALHOST, server, "GET /admin/limits/limited", &[], "").await.status(), 401);
    assert!(
        send(LOCALHOST, server, "GET /admin/limits/page", &[], "").await.body.contains("<title>Rate limits</title>")
    );
}
