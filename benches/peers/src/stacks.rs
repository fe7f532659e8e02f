//! The compared layers: around a bare service, and around a served router.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroU64};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::ServiceExt;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::IntoResponse;
use axum_gcra::RateLimitLayer as Gcra;
use axum_gcra::real_ip::RealIp;
use axum_governor::extractor::PeerIp;
use axum07::body::Body as Body07;
use axum07::extract::ConnectInfo as ConnectInfo07;
use governor::middleware::{NoOpMiddleware, StateInformationMiddleware};
use http::{Request, Response};
use tokio::net::TcpListener;
use tollgate::{HOUR, HeaderFamily, MemoryBackend, Quota, RateLimitLayer, RateLimiter, SECOND, key};
use tower::layer::util::Identity;
use tower::util::MapResponseLayer;
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::governor::{GovernorConfig, GovernorConfigBuilder};
use tower_governor::key_extractor::PeerIpKeyExtractor;

use crate::contestants::{Kind, ready as poll};

/// A layer around a service, called from many addresses.
pub struct Stack {
    pub name: &'static str,
    /// The name of the same stack without a layer, whose cost is subtracted.
    pub without: &'static str,
    requests: Box<Requests>,
}

/// Sends requests from these addresses in order, and returns how many of them were allowed.
type Requests = dyn FnMut(&[IpAddr]) -> usize;

impl Stack {
    pub fn requests(&mut self, callers: &[IpAddr]) -> usize {
        (self.requests)(callers)
    }

    pub fn callers() -> Vec<IpAddr> {
        (0..10_000).map(|i| Ipv4Addr::from(0x0a00_0000 + i * 1_009).into()).collect()
    }

    fn new<S, B>(name: &'static str, service: S) -> Stack
    where
        S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + 'static,
        B: 'static,
    {
        Stack { name, without: NONE, requests: through(service, ConnectInfo) }
    }

    fn new07<S>(name: &'static str, service: S) -> Stack
    where
        S: Service<Request<Body07>, Response = Response<Body07>, Error = Infallible> + 'static,
    {
        Stack { name, without: NONE_07, requests: through(service, ConnectInfo07) }
    }
}

const NONE: &str = "no layer";
const NOTHING: &str = "a layer that does nothing";
const AROUND: &str = "tollgate around the router, no headers";
const AROUND_HEADERS: &str = "tollgate around the router, headers";
const NONE_07: &str = "no layer, axum 0.7's body";

/// `info` creates the extension in which this version of axum stores the peer address.
fn through<S, A, B, I>(mut service: S, info: fn(SocketAddr) -> I) -> Box<Requests>
where
    S: Service<Request<A>, Response = Response<B>, Error = Infallible> + 'static,
    A: Default,
    I: Clone + Send + Sync + 'static,
{
    Box::new(move |callers| {
        let mut passed = 0;
        for caller in callers {
            let mut request = Request::new(A::default());
            request.extensions_mut().insert(info(SocketAddr::new(*caller, 1)));
            let Ok(()) = poll(std::future::poll_fn(|cx| service.poll_ready(cx)));
            let Ok(response) = poll(service.call(black_box(request)));
            passed += usize::from(black_box(&response).status().is_success());
        }
        passed
    })
}

/// A service that immediately returns an empty response.
pub struct Bare<B>(PhantomData<fn() -> B>);

impl<B> Default for Bare<B> {
    fn default() -> Self {
        Bare(PhantomData)
    }
}

impl<B> Clone for Bare<B> {
    fn clone(&self) -> Self {
        Bare(PhantomData)
    }
}

impl<A, B: Default> Service<Request<A>> for Bare<B> {
    type Response = Response<B>;
    type Error = Infallible;
    type Future = Ready<Result<Response<B>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        drop(request);
        ready(Ok(Response::new(B::default())))
    }
}

/// Returns the bare service without a layer, and then with every layer, beginning with tollgate.
pub fn layers(kind: Kind) -> Vec<Stack> {
    let bare = Bare::<Body>::default();
    let mut all = vec![Stack::new(NONE, bare.clone()), Stack::new07(NONE_07, Bare::<Body07>::default())];
    all.extend([
        Stack::new("tollgate, no headers", tollgate(kind, HeaderFamily::None).layer(bare.clone())),
        Stack::new("tollgate, headers", tollgate(kind, HeaderFamily::Draft11).layer(bare.clone())),
        Stack::new("tower_governor, no headers", tower_governor(kind).layer(bare.clone())),
        Stack::new("tower_governor, headers", tower_governor_headers(kind).layer(bare.clone())),
        Stack::new("axum-governor, headers", axum_governor(kind).layer(bare.clone())),
        Stack::new07("axum_gcra, no headers", axum_gcra(kind).default_handle_error().layer(Bare::<Body07>::default())),
    ]);
    #[cfg(feature = "tower-rate-limiter")]
    all.extend([
        Stack::new("tower-rate-limiter GCRA, headers", tower_rate_limiter_gcra(kind).layer(bare.clone())),
        Stack::new("tower-rate-limiter default, headers", tower_rate_limiter(kind).layer(bare)),
    ]);
    all
}

/// Returns all stacks that are served. They include a layer that does nothing, as the baseline for axum's cost per
/// layer, and tollgate around the whole router, where axum adds no such cost.
pub fn served(kind: Kind) -> Vec<Stack> {
    let mut all = layers(kind);
    let first = all.iter().position(|it| it.name != it.without).unwrap_or_default();
    let more = [NOTHING, AROUND, AROUND_HEADERS].map(|name| Stack::new(name, Bare::<Body>::default()));
    all.splice(first..first, more);
    all
}

/// Serves the stack with this name in [`served`].
pub async fn serve(stack: &str, kind: Kind, listener: TcpListener) -> std::io::Result<()> {
    let app = axum::Router::new().route("/", axum::routing::get(|| async { "ok" }));
    let app = match stack {
        NONE => app,
        NOTHING => app.layer(Identity::new()),
        NONE_07 | "axum_gcra, no headers" => {
            let app = axum07::Router::new().route("/", axum07::routing::get(|| async { "ok" }));
            let app = if stack == NONE_07 { app } else { app.layer(axum_gcra(kind).default_handle_error()) };
            return axum07::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await;
        }
        AROUND | AROUND_HEADERS => {
            let headers = if stack == AROUND { HeaderFamily::None } else { HeaderFamily::Draft11 };
            let app = MapResponseLayer::new(IntoResponse::into_response).layer(tollgate(kind, headers).layer(app));
            let app = ServiceExt::<Request<Body>>::into_make_service_with_connect_info::<SocketAddr>(app);
            return axum::serve(listener, app).await;
        }
        "tollgate, no headers" => app.layer(tollgate(kind, HeaderFamily::None)),
        "tollgate, headers" => app.layer(tollgate(kind, HeaderFamily::Draft11)),
        "tower_governor, no headers" => app.layer(tower_governor(kind)),
        "tower_governor, headers" => app.layer(tower_governor_headers(kind)),
        "axum-governor, headers" => app.layer(axum_governor(kind)),
        #[cfg(feature = "tower-rate-limiter")]
        "tower-rate-limiter GCRA, headers" => app.layer(tower_rate_limiter_gcra(kind)),
        #[cfg(feature = "tower-rate-limiter")]
        "tower-rate-limiter default, headers" => app.layer(tower_rate_limiter(kind)),
        other => panic!("no stack is named {other:?}"),
    };
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}

/// Returns the time in which one token is refilled, and the burst. Both are chosen for a few keys that are used often.
fn quota(kind: Kind) -> (Duration, u32) {
    if kind == Kind::Allowed { (SECOND, 4_000_000_000) } else { (HOUR, 1) }
}

fn tollgate(kind: Kind, headers: HeaderFamily) -> RateLimitLayer {
    let (period, burst) = quota(kind);
    let limiter = RateLimiter::new(MemoryBackend::new());
    RateLimitLayer::new(Quota::token_bucket(1, period).capacity(burst.into()), key::client_ip())
        .limiter(&limiter)
        .headers(headers)
}

fn tower_governor(kind: Kind) -> GovernorLayer<PeerIpKeyExtractor, NoOpMiddleware, Body> {
    let (period, burst) = quota(kind);
    let mut config = GovernorConfigBuilder::default();
    let config: GovernorConfig<_, _> = config.period(period).burst_size(burst).finish().expect("a quota");
    GovernorLayer::new(config)
}

fn tower_governor_headers(kind: Kind) -> GovernorLayer<PeerIpKeyExtractor, StateInformationMiddleware, Body> {
    let (period, burst) = quota(kind);
    let mut config = GovernorConfigBuilder::default();
    let config = config.period(period).burst_size(burst).use_headers().finish().expect("a quota");
    GovernorLayer::new(config)
}

/// This layer's headers cannot be disabled.
fn axum_governor(kind: Kind) -> axum_governor::GovernorLayer<IpAddr> {
    let quota = match quota(kind) {
        (SECOND, burst) => axum_governor::Quota::requests_per_second(NonZeroU32::MIN).burst(some(burst)),
        (_, burst) => axum_governor::Quota::requests_per_hour(NonZeroU32::MIN).burst(some(burst)),
    };
    let config = axum_governor::GovernorConfigBuilder::default().with_extractor(PeerIp::default());
    let config = config.expect_connect_info().quota_default(quota).finish().expect("a configuration");
    axum_governor::GovernorLayer::new(config)
}

fn some(burst: u32) -> NonZeroU32 {
    NonZeroU32::new(burst).expect("a burst")
}

/// Configures the layer to send no headers.
fn axum_gcra(kind: Kind) -> axum_gcra::RateLimitLayerBuilder<RealIp> {
    let (period, burst) = quota(kind);
    let burst = NonZeroU64::from(some(burst));
    Gcra::builder().with_default_quota(axum_gcra::gcra::Quota::new(period, burst))
}

#[cfg(feature = "tower-rate-limiter")]
fn tower_rate_limiter_gcra(kind: Kind) -> RateLimit<tower_rate_limiter::MemoryGcra> {
    use tower_rate_limiter::{GcraQuota, MemoryGcra};
    // A full refill must take less than a year.
    let (period, burst) = if kind == Kind::Allowed { (SECOND / 1000, 4_000_000_000) } else { (HOUR, 1) };
    let policy = MemoryGcra::new(GcraQuota::new(1, period, burst).expect("a quota"));
    RateLimit::builder(tower_rate_limiter::IpKeyExtractor::new()).with_policy(policy).build().expect("a layer")
}

#[cfg(feature = "tower-rate-limiter")]
fn tower_rate_limiter(kind: Kind) -> RateLimit<tower_rate_limiter::FixedWindow<tower_rate_limiter::MemoryStore>> {
    use tower_rate_limiter::{FixedWindow, MemoryStore};
    let policy = FixedWindow::new(MemoryStore::new(), quota(kind).1.into(), HOUR).expect("a quota");
    RateLimit::builder(tower_rate_limiter::IpKeyExtractor::new()).with_policy(policy).build().expect("a layer")
}

#[cfg(feature = "tower-rate-limiter")]
type RateLimit<P> = tower_rate_limiter::RateLimitLayer<
    tower_rate_limiter::IpKeyExtractor,
    P,
    tower_rate_limiter::DefaultResponseFactory,
>;
