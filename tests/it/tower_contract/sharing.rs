//! Clones of the service and of the layer share a limiter. The types of the service and the layer can be named.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tollgate::{
    MINUTE, Policy, Quota, RateLimitLayer, key,
    middleware::{RateLimit, RefusalBody},
};
use tower::{Layer, ServiceExt};

use super::backends::limiters;
use super::contract_service::ContractService;

const HUNDRED: Policy = Policy::new("hundred", Quota::token_bucket(100, MINUTE));

/// Compiles only if the types of the layer and the service can be named, so they contain no closures or `impl Trait`.
struct Site {
    layer: RateLimitLayer,
    service: RateLimit<ContractService>,
}

fn site(layer: RateLimitLayer) -> Site {
    Site { service: layer.layer(ContractService::default()), layer }
}

const _: () = {
    const fn assert_shareable<T: Clone + Send + Sync + 'static>() {}
    assert_shareable::<RateLimit<ContractService>>();
    assert_shareable::<RateLimitLayer>();
    const fn assert_send<T: Send + 'static>() {}
    assert_send::<tollgate::middleware::ResponseFuture<ContractService, ()>>();
    assert_send::<RefusalBody<Full<Bytes>>>();
};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_clones_admit_exactly_the_limit() {
    for limiter in limiters() {
        let site = site(RateLimitLayer::new(HUNDRED, key::global()).limiter(&limiter));
        let tasks: Vec<_> = (0..32)
            .map(|i| {
                let service =
                    if i % 2 == 0 { site.service.clone() } else { site.layer.layer(ContractService::default()) };
                tokio::spawn(async move {
                    let mut allowed = 0;
                    for _ in 0..50 {
                        let response = service.clone().oneshot(Request::new(())).await.unwrap();
                        allowed += usize::from(response.status() == 200);
                        assert!(response.status() == 200 || response.status() == 429);
                    }
                    allowed
                })
            })
            .collect();
        let mut allowed = 0;
        for task in tasks {
            allowed += task.await.unwrap();
        }
        assert_eq!(allowed, 100);
    }
}

#[tokio::test]
async fn clones_of_a_layer_without_a_limiter_share_its_default_limiter() {
    let layer = RateLimitLayer::new(Policy::new("one", Quota::token_bucket(1, MINUTE)), key::global());
    let other = RateLimitLayer::new(Policy::new("one", Quota::token_bucket(1, MINUTE)), key::global());
    for (layer, status) in [(&layer, 200), (&layer.clone(), 429), (&other, 200)] {
        let service = layer.layer(ContractService::default());
        assert_eq!(service.oneshot(Request::new(())).await.unwrap().status(), status);
    }
}
