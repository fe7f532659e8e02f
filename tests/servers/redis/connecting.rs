//! Errors while connecting, and lazy connections.

use tollgate::backend::RedisBackend;
use tollgate::{Charge, FailureMode, HOUR, Policy, Quota, RateLimiter, backend::ErrorKind};

use crate::support::ports::free_port;
use crate::support::server::{PATIENCE, Server};

static SLOW: Policy = Policy::new("slow", Quota::token_bucket(4, HOUR));

#[tokio::test]
async fn connecting_fails_without_permission_to_run_scripts() {
    let server = Server::start();
    let mut admin = server.admin();
    let made: Result<(), _> = redis::cmd("ACL")
        .arg(&["SETUSER", "reader", "on", ">secret", "~*", "-@all", "+get", "+time"])
        .query(&mut admin);
    made.unwrap();
    let url = format!("redis://reader:secret@127.0.0.1:{}", server.port());
    let error = RedisBackend::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.to_string().contains("lacks a permission"), "{error}");
}

#[tokio::test]
async fn the_failure_mode_applies_if_a_lazy_connection_finds_no_server() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    assert_eq!(RedisBackend::connect(&url).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let backend = RedisBackend::builder().lazy().connect(&url).await.unwrap();
    let limiter = RateLimiter::builder(backend).on_failure(FailureMode::fallback(0.5)).build();
    let mut admitted = 0;
    for _ in 0..8 {
        admitted += u32::from(limiter.try_limit(&SLOW, "ada").await.unwrap().is_allowed());
    }
    assert_eq!(admitted, 2);
}

/// Regression: the calls were batched even though their rows did not all fit on the script's stack.
#[tokio::test]
async fn concurrent_calls_with_a_thousand_charges_each_succeed() {
    let server = Server::start();
    let limiter = RateLimiter::new(RedisBackend::builder().deadline(PATIENCE).connect(&server.url()).await.unwrap());
    let calls: Vec<_> = (0..20u64)
        .map(|call| limiter.try_limit_all((0..1000u64).map(|key| Charge::new(&SLOW, (call, key))).collect::<Vec<_>>()))
        .collect();
    for call in calls {
        assert!(call.await.unwrap().is_allowed());
    }
}
