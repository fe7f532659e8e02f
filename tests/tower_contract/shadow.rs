//! Shadow mode refuses nobody, also where the limit cannot be told.

use http::Request;
use tollgate::{MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, key};
use tower::{Layer, ServiceExt};

use crate::backends::Broken;
use crate::strict::Strict;

const ONE: Policy = Policy::new("one", Quota::token_bucket(10, MINUTE));

#[tokio::test]
async fn a_backend_that_cannot_decide_refuses_nobody_in_shadow_mode() {
    for at_once in [true, false] {
        let limiter = RateLimiter::new(Broken { at_once });
        let layer = RateLimitLayer::new(ONE, key::global()).limiter(&limiter);
        assert_eq!(status(&layer).await, 503);
        assert_eq!(status(&layer.clone().shadow()).await, 200);
        // So small a share that the one key is not in it.
        assert_eq!(status(&layer.enforce_share(f64::MIN_POSITIVE)).await, 200);
    }
}

#[tokio::test]
async fn a_key_that_cannot_be_found_refuses_nobody_in_shadow_mode() {
    let layer = RateLimitLayer::new(ONE, key::client_ip());
    assert_eq!(status(&layer).await, 500);
    assert_eq!(status(&layer.shadow()).await, 200);
}

async fn status(layer: &RateLimitLayer) -> u16 {
    layer.layer(Strict::default()).oneshot(Request::new(())).await.unwrap().status().as_u16()
}
