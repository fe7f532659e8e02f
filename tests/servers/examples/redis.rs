use super::running::{Example, get};
use crate::support::server::Server;

#[tokio::test]
async fn two_processes_share_one_limit() {
    let server = Server::start();
    let example = Example::start_with("redis", &[], &[("REDIS_URL", &server.url())]);
    assert_eq!(example.line(), example.promised("two processes, one limit of 10 per minute for each user:"));
    let (one, two) = (example.address(), example.address());
    assert_eq!(
        example.line(),
        example.promised("6 requests to each, alternating: 200 200 200 200 200 200 200 200 200 200 429 429")
    );
    assert_eq!(example.line(), example.promised("process 1: 0 remaining. process 2: 0 remaining."));

    for (i, process) in [one, two, one, two].into_iter().enumerate() {
        let response = get(process, &["x-user: ada"]).await;
        assert_eq!(response.status(), 200);
        assert!(response.value("ratelimit").unwrap().contains(&format!("r={}", 9 - i)), "{response:?}");
        assert!(response.has("x-decided-by: Backend"));
    }

    // Without the Redis server, each process allows half of the limit.
    drop(server);
    let mut allowed = 0;
    for _ in 0..8 {
        let response = get(one, &["x-user: grace"]).await;
        if response.status() == 200 {
            assert!(response.has("x-decided-by: Fallback"), "{response:?}");
            allowed += 1;
        }
    }
    assert_eq!(allowed, 5);
}
