//! The code that the pages of `tollgate::docs::migrating` show, theirs and ours, and what the tests need to run both.
//!
//! A test compares each block of the pages with `theirs` and `ours`, word for word: what is shown is compiled, and is
//! what the other tests run.

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

/// What a service answered.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    /// A header's text; empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// `Retry-After`, which has to be there, in seconds.
    pub fn retry_after(&self) -> u64 {
        self.header("retry-after").parse().expect("whole seconds")
    }
}

/// `GET path` from the address at the other end of the connection, as either axum tells it.
pub fn get(path: &str, peer: &str) -> Request<Full<Bytes>> {
    let peer = SocketAddr::new(peer.parse::<IpAddr>().expect("an address"), 40_000);
    let mut request = nobody(path);
    request.extensions_mut().insert(axum::extract::ConnectInfo(peer));
    request.extensions_mut().insert(axum07::extract::ConnectInfo(peer));
    request
}

/// `GET path` of which the server did not tell who sent it.
pub fn nobody(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).body(Full::default()).expect("a request")
}

/// The request with one more header.
pub fn with(mut request: Request<Full<Bytes>>, name: &'static str, value: &str) -> Request<Full<Bytes>> {
    request.headers_mut().append(name, value.parse().expect("a header's value"));
    request
}

/// Sends a request to a clone of the service, as a server would, and reads the answer whole.
pub async fn ask<S, B>(service: &S, request: Request<Full<Bytes>>) -> Answer
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone,
    S::Error: std::fmt::Debug,
    B: Body,
    B::Error: std::fmt::Debug,
{
    let response = service.clone().oneshot(request).await.expect("an answer");
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    Answer { status: parts.status, headers: parts.headers, body: String::from_utf8(body.into()).expect("text") }
}

/// A service with a body that is not axum's. tower_governor's layer cannot be called around it, error handler or not:
///
/// ```compile_fail,E0277
/// # use tollgate_migrating::{called, inner};
/// # use tower::Layer;
/// # use tower_governor::{governor::GovernorConfigBuilder, GovernorLayer};
/// let config = GovernorConfigBuilder::default().finish().expect("neither is 0");
/// called(GovernorLayer::new(config).error_handler(|_| Default::default()).layer(inner()));
/// ```
///
/// Ours can:
///
/// ```
/// # use tollgate_migrating::{called, inner};
/// # use tollgate::{key, Quota, RateLimitLayer, MINUTE};
/// # use tower::Layer;
/// called(RateLimitLayer::new(Quota::token_bucket(10, MINUTE), key::client_ip()).layer(inner()));
/// ```
pub fn inner() -> impl Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send> + Clone
{
    tower::service_fn(|_: Request<()>| async { Ok(Response::default()) })
}

/// Compiles if it is a service of HTTP.
pub fn called<S: Service<Request<()>>>(_: S) {}

/// Two layers on one route, theirs and ours: between them the compiler does not know the error type.
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
/// So it is told:
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
