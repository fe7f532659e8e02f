//! The headers of a policy with several quotas.

use axum::http::Request;
use tollgate::{DAY, HeaderFamily, Policy, Quota, RateLimitLayer, RateLimiter, key, middleware::ResetUnit};

use crate::support::client::{hello, limiter, oneshot, serve};

const API: Policy = Policy::new("api", Quota::per_second(2)).and(Quota::fixed_window(3, DAY));

fn layer(limiter: &RateLimiter) -> RateLimitLayer {
    RateLimitLayer::new(API, key::global()).limiter(limiter)
}

#[tokio::test]
async fn each_quota_has_an_item_named_after_its_period() {
    let (limiter, clock) = limiter();
    let client = serve(hello().layer(layer(&limiter))).await;
    let answer = client.get().await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.policies(), [("api;1s".to_owned(), 2, 1), ("api;1d".to_owned(), 3, 86_400)]);
    let limits = answer.limits();
    assert_eq!((&limits[0], &limits[1].0, limits[1].1), (&("api;1s".to_owned(), 1, Some(1)), &"api;1d".to_owned(), 2));
    // On a denial, `RateLimit` lists only the violated quotas. `Retry-After` is the longest of their waits.
    client.get().await;
    let denied = client.get().await;
    assert_eq!((denied.status, denied.retry_after()), (429, Some(1)));
    assert_eq!(denied.limits(), [("api;1s".to_owned(), 0, Some(1))]);
    assert_eq!(denied.policies().len(), 2);
    clock.advance(tollgate::SECOND);
    client.get().await;
    clock.advance(tollgate::SECOND);
    let denied = client.get().await;
    let [(name, 0, Some(wait))] = &denied.limits()[..] else { panic!("expected exactly one limit") };
    assert_eq!((name.as_str(), denied.retry_after()), ("api;1d", Some(*wait)));
    assert!(*wait > 1);
    assert!(String::from_utf8(denied.body).unwrap().contains("\"api;1d\""));
}

#[tokio::test]
async fn older_header_families_show_the_quota_with_the_smallest_share_left() {
    let (limiter, _clock) = limiter();
    let app = hello().layer(layer(&limiter).headers(HeaderFamily::XRateLimit(ResetUnit::Seconds)));
    let answer = oneshot(&app, Request::get("/").body(axum::body::Body::empty()).unwrap()).await;
    assert_eq!(
        (&answer.headers["x-ratelimit-limit"], &answer.headers["x-ratelimit-remaining"]),
        (&2.into(), &1.into())
    );
}

#[test]
#[should_panic = "the policies \"api\" and \"api;1d\" both have a limit named \"api;1d\" in headers; rename one of them"]
fn two_limits_with_the_same_name_cause_a_startup_error() {
    let layer = RateLimitLayer::new(API, key::global()).and(Policy::new("api;1d", Quota::per_hour(1)), key::global());
    drop(hello().layer(layer));
}
