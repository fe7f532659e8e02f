//! The same work by governor and tower_governor.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::ConnectInfo;
use governor::middleware::{NoOpMiddleware, StateInformationMiddleware};
use governor::{Quota, RateLimiter};
use http::{Request, Response};
use tollgate::{HOUR, SECOND};
use tower_governor::GovernorLayer;
use tower_governor::governor::{GovernorConfig, GovernorConfigBuilder};
use tower_governor::key_extractor::PeerIpKeyExtractor;
use tower_layer::Layer;
use tower_service::Service;

use super::{MANY, NAME, requests};

pub(super) fn decision(burst: u64, times: u64) {
    let (period, burst) = quota(burst);
    let limiter = RateLimiter::keyed(Quota::with_period(period).expect("a period").allow_burst(burst));
    let key = String::from(NAME);
    for _ in 0..times {
        let _ = black_box(limiter.check_key(black_box(&key)));
    }
}

pub(super) fn layer(burst: u64, times: u64) {
    let (period, burst) = quota(burst);
    let mut config = GovernorConfigBuilder::default();
    let config: GovernorConfig<_, _> = config.period(period).burst_size(burst.get()).finish().expect("a quota");
    let layer: GovernorLayer<PeerIpKeyExtractor, NoOpMiddleware, Body> = GovernorLayer::new(config);
    requests(layer.layer(Bare), ConnectInfo::<SocketAddr>, times);
}

pub(super) fn layer_with_headers(burst: u64, times: u64) {
    let (period, burst) = quota(burst);
    let mut config = GovernorConfigBuilder::default();
    let config = config.period(period).burst_size(burst.get()).use_headers().finish().expect("a quota");
    let layer: GovernorLayer<PeerIpKeyExtractor, StateInformationMiddleware, Body> = GovernorLayer::new(config);
    requests(layer.layer(Bare), ConnectInfo::<SocketAddr>, times);
}

pub(super) fn no_layer(times: u64) {
    requests(Bare, ConnectInfo::<SocketAddr>, times);
}

/// Returns the time in which one token is refilled, and the burst: those of `LARGE` and `SMALL`.
fn quota(burst: u64) -> (std::time::Duration, NonZeroU32) {
    let period = if burst == MANY { SECOND } else { HOUR };
    (period, u32::try_from(burst).ok().and_then(NonZeroU32::new).expect("a burst"))
}

/// Responds immediately with an empty body of the type that tower_governor requires.
#[derive(Clone)]
struct Bare;

impl Service<Request<()>> for Bare {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Body::empty())))
    }
}
