//! Services and policies that several tests share.

use std::convert::Infallible;
use std::future::Future;

use axum::http::request::Parts;
use axum::http::{Request, Response, StatusCode};
use tollgate::{HOUR, MINUTE, Policy, Quota, RateLimitLayer, RateLimiter, Receipt, middleware::RateLimit};
use tower::{Layer, Service, ServiceExt, service_fn};

pub(crate) const TEN: Policy = Policy::new("ten", Quota::token_bucket(10, MINUTE));
pub(crate) const TOKENS: Policy = Policy::new("tokens", Quota::token_bucket(10_000, HOUR));
pub(crate) const CALLS: Policy = Policy::new("calls", Quota::fixed_window(500, tollgate::DAY));

pub(crate) const ANOTHER: Policy = Policy::new("another", Quota::token_bucket(100, MINUTE));

/// A key extractor that returns the same key for all requests.
pub(crate) fn team(_req: &Parts) -> &'static str {
    "team"
}

pub(crate) async fn left(limiter: &RateLimiter, policy: &Policy) -> u64 {
    limiter.remaining(policy, "team").await.unwrap()
}

/// Creates a service that passes the `Receipt` from `layer` to `handle`.
pub(crate) fn with_receipt_handler<F, H>(
    layer: &RateLimitLayer,
    handle: H,
) -> RateLimit<impl Service<Request<()>, Response = Response<()>, Error = Infallible> + Clone + use<F, H>>
where
    F: Future<Output = StatusCode>,
    H: Fn(Receipt) -> F + Clone,
{
    layer.layer(service_fn(move |request: Request<()>| {
        let receipt = request.extensions().get::<Receipt>().cloned().expect("expected a receipt");
        let answer = handle(receipt);
        async move { Ok(status(answer.await)) }
    }))
}

/// Creates a service that responds with the status in the request's path, for example `/404`.
pub(crate) fn status_from_path(
    layer: &RateLimitLayer,
) -> RateLimit<impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send> + Clone + use<>> {
    layer.layer(service_fn(|request: Request<()>| async move {
        Ok(status(StatusCode::from_bytes(&request.uri().path().as_bytes()[1..]).unwrap()))
    }))
}

pub(crate) async fn ask<S, R>(service: &S, path: &str) -> u16
where
    S: Service<Request<()>, Response = Response<R>, Error = Infallible> + Clone,
{
    let request = Request::builder().uri(path).body(()).unwrap();
    let Ok(response) = service.clone().oneshot(request).await;
    response.status().as_u16()
}

fn status(status: StatusCode) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    response
}
