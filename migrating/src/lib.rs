//! The code in the guides of `tollgate::docs::migrating`: `theirs` uses the other crates, and `ours` uses tollgate.
//!
//! A test checks that each code block of the guides occurs verbatim in `theirs` or `ours`. The other tests run this code.

pub mod ours;
pub mod theirs;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::{Service, ServiceExt};

/// The response of a service.
#[derive(Debug)]
pub struct TestResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl TestResponse {
    /// The value of a header; empty if the header is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// `Retry-After` in seconds. Panics if it is missing.
    pub fn retry_after(&self) -> u64 {
        self.header("retry-after").parse().expect("whole seconds")
    }
}

/// A `GET` request with the peer address, as both versions of axum provide it.
pub fn get(path: &str, peer: &str) -> Request<Full<Bytes>> {
    let peer = SocketAddr::new(peer.parse::<IpAddr>().expect("an address"), 40_000);
    let mut request = get_without_peer(path);
    request.extensions_mut().insert(axum::extract::ConnectInfo(peer));
    request.extensions_mut().insert(axum07::extract::ConnectInfo(peer));
    request
}

/// A `GET` request without a peer address.
pub fn get_without_peer(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).body(Full::default()).expect("a request")
}

/// Adds a header to the request.
pub fn with(mut request: Request<Full<Bytes>>, name: &'static str, value: &str) -> Request<Full<Bytes>> {
    request.headers_mut().append(name, value.parse().expect("a header's value"));
    request
}

/// Sends a request to a clone of the service, as a server would, and reads the whole response.
pub async fn send<S, B>(service: &S, request: Request<Full<Bytes>>) -> TestResponse
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone,
    S::Error: std::fmt::Debug,
    B: Body,
    B::Error: std::fmt::Debug,
{
    let response = service.clone().oneshot(request).await.expect("a response");
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    TestResponse { status: parts.status, headers: parts.headers, body: String::from_utf8(body.into()).expect("text") }
}

/// A service with a body that is not axum's. tower_governor's layer cannot wrap it, even with an error handler:
///
/// ```compile_fail,E0277
/// # use tollgate_migrating::{assert_http_service, inner};
/// # use tower::Layer;
/// # use tower_governor::{governor::GovernorConfigBuilder, GovernorLayer};
/// let config = GovernorConfigBuilder::default().finish().expect("neither is 0");
/// assert_http_service(GovernorLayer::new(config).error_handler(|_| Default::default()).layer(inner()));
/// ```
///
/// tollgate's layer can:
///
/// ```
/// # use tollgate_migrating::{assert_http_service, inner};
/// # use tollgate::{key, Quota, RateLimitLayer, MINUTE};
/// # use tower::Layer;
/// assert_http_service(RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip()).layer(inner()));
/// ```
pub fn inner() -> impl Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send> + Clone
{
    tower::service_fn(|_: Request<()>| async { Ok(Response::default()) })
}

/// Compiles only if the argument is an HTTP service.
pub fn assert_http_service<S: Service<Request<()>>>(_: S) {}

/// With a layer of tower_governor and one of tollgate on the same route, the compiler cannot infer the error type between
/// them:
///
/// ```compile_fail,E0283
/// # use axum::routing::{MethodRouter, get};
/// # use tollgate::{key, MINUTE, Quota, RateLimitLayer};
/// # use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};
/// # let theirs = GovernorLayer::new(GovernorConfigBuilder::default().finish().expect("neither is 0"));
/// # let ours = RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip());
/// let route: MethodRouter = get(|| async {}).layer(theirs).layer(ours);
/// ```
///
/// Specify the error type:
///
/// ```
/// # use axum::routing::{MethodRouter, get};
/// # use tollgate::{key, MINUTE, Quota, RateLimitLayer};
/// # use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};
/// # let theirs = GovernorLayer::new(GovernorConfigBuilder::default().finish().expect("neither is 0"));
/// # let ours = RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip());
/// let route: MethodRouter = get(|| async {}).layer::<_, std::convert::Infallible>(theirs).layer(ours);
/// ```
#[cfg(doctest)]
struct TwoLayersOnARoute;
