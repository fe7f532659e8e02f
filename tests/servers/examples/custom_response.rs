use std::time::{SystemTime, UNIX_EPOCH};

use super::running::{Example, get};

#[tokio::test]
async fn programs_get_json_and_browsers_get_a_page() {
    let example = Example::start("custom_response", &[]);
    let server = example.address();
    let allowed = get(server, &[]).await;
    assert_eq!(allowed.status(), 200);
    assert!(allowed.has(example.promised("x-ratelimit-limit: 3")), "{allowed:?}");
    assert!(allowed.has(example.promised("x-ratelimit-remaining: 2")), "{allowed:?}");
    assert_eq!(get(server, &[]).await.status(), 200);
    assert_eq!(get(server, &[]).await.status(), 200);

    let json = get(server, &[]).await;
    assert_eq!(json.status_line(), example.promised("HTTP/1.1 429 Too Many Requests"));
    for line in
        ["content-type: application/json", "vary: accept", "x-ratelimit-remaining: 0", "cache-control: no-store"]
    {
        assert!(json.has(example.promised(line)), "{line}: {json:?}");
    }
    let promised = example.promised("{\"error\":\"too_many_requests\",\"policies\":[\"api\"],\"retry_after\":26}\n");
    assert_eq!(
        json.body,
        promised.replace("26", &json.number("retry-after").to_string()),
        "the body's `retry_after` must match the `Retry-After` header"
    );

    let page = get(server, &["accept: text/html"]).await;
    assert_eq!(page.status(), 429);
    assert!(page.has(example.promised("content-type: text/html; charset=utf-8")), "{page:?}");
    assert_eq!(page.body, example.promised(&page.body));
    assert!(page.body.starts_with("<!doctype html>"), "{page:?}");
}

#[tokio::test]
async fn the_reset_is_a_unix_time_and_retry_after_has_jitter() {
    let example = Example::start("custom_response", &[]);
    let server = example.address();
    example.promised("between 20 and 30");
    for _ in 0..3 {
        assert_eq!(get(server, &[]).await.status(), 200);
    }
    let mut waits = Vec::new();
    for _ in 0..8 {
        let response = get(server, &[]).await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let wait = response.number("retry-after");
        let reset = response.number("x-ratelimit-reset");
        // On a slow machine, the first request may have been sent several seconds ago.
        assert!((15..=30).contains(&wait), "retry-after: {wait}");
        assert!((now + 14..=now + 22).contains(&reset), "x-ratelimit-reset: {reset}, now: {now}");
        waits.push(wait);
    }
    assert!(waits.iter().any(|wait| wait != &waits[0]), "no jitter: {waits:?}");
}
