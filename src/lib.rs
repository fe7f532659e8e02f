//! Rate limiting for [Tower] and [axum]: exact, bounded in memory, with headers that clients can rely on.
//!
//! ```
//! use axum::{routing::get, Router};
//! use tollgate::{key, Quota, RateLimitLayer, MINUTE};
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(Quota::token_bucket(10, MINUTE).capacity(20), key::client_ip()));
//! // axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())
//! # let ask = async || {
//! #     let peer = key::PeerAddr(([192, 0, 2, 1], 1234).into());
//! #     let request = http::Request::get("/").extension(peer).body(axum::body::Body::empty()).unwrap();
//! #     tower::ServiceExt::oneshot(app.clone(), request).await.unwrap().status().as_u16()
//! # };
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! #     for _ in 0..20 {
//! #         assert_eq!(ask().await, 200);
//! #     }
//! #     assert_eq!(ask().await, 429);
//! # });
//! ```
//!
//! Each client address may send 20 requests at once, and 10 a minute on the whole. Whoever sends more gets 429 with a
//! `Retry-After` that is right to the second, and never reaches the handler. From a handler the same engine is a call,
//! by any key, for any number of limits at once:
//!
//! ```
//! use tollgate::{Charge, Policy, Quota, RateLimiter, DAY, HOUR, MINUTE};
//!
//! static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
//! static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10_000, MINUTE));
//! static DAILY: Policy = Policy::new("daily", Quota::fixed_window(500, DAY));
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = RateLimiter::default();
//! limiter.limit(&LOGIN, "ada@example.com").await?;
//! // Both are charged, or neither.
//! limiter.limit_all([Charge::new(&CHAT, 7).cost(1200), Charge::new(&DAILY, 7)]).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Why a limiter is not a counter
//! Five things go wrong with a counter and a timer. What the crate does instead, and where it is said:
//!
//! - **Check, then act.** Two requests see the same count, and both pass. Here, all charges of a request are decided
//!   against one instant, and made all together or not at all: [`RateLimiter::limit_all`]. Attempts are charged before
//!   they are made, and settled afterwards: [`OnResponse`], [`Receipt`].
//! - **Memory.** A row for each key is what an attacker with many keys wants. Here, a key that was paid back has no
//!   row, there is a [cap](MemoryBackendBuilder::max_rows), and under a flood a denied key stays denied.
//! - **Whose address?** A header that clients write is no name. Here, the socket's address counts, until you say
//!   [which proxies](docs::proxies) are believed.
//! - **When to come back.** A time that is too early is a second refusal. Here, waiting exactly `Retry-After` succeeds
//!   if nobody else spends meanwhile: [what it promises](docs::choosing#what-retry-after-promises).
//! - **An outage.** A limiter that cannot ask its server must not take the service with it, nor stand open by
//!   accident. Here, that is [a choice for each policy](FailureMode), and 503 is never told as 429.
//!
//! What that costs and what is still not there is in [limitations](docs::limitations); why it is done so in
//! [design](docs::design).
//!
//! # What is where, in reading order
//! 1. [`Quota`], [`Policy`]: how much how fast, and what it is called; quotas by tier. [`docs::choosing`] finds the
//!    numbers.
//! 2. [`Key`], [`Subject`], [`key`]: whom a policy counts, and how a request tells.
//! 3. [`RateLimitLayer`]: limits in front of a service, of one or several [`Rule`]s; [`RouteLimits`]: by route;
//!    [`RateLimitStatus`] tells the handler.
//! 4. [`RateLimiter`]: the engine, for calls from handlers; [`Charge`], [`Decision`], [`Denied`].
//! 5. [`ManualClock`], [`Clock`]: time, and how to test your own limits without waiting.
//! 6. [`Reservation`], [`Receipt`], [`OnResponse`]: waiting for a turn, giving back, telling the true cost.
//! 7. [`HeaderFamily`], [`Refusal`]: what clients are told, and refusals in your own words.
//! 8. [`backend`]: where the numbers live. [`MemoryBackend`] here; `backend::RedisBackend` across machines (feature
//!    `redis`); [`FailureMode`] for when it is away; and the contract for others.
//! 9. [`DenyList`], [`AutoBlock`]: whom to deny whatever the limits say. [`RateLimiter::set_quota`]: limits changed
//!    while they hold.
//! 10. `config`: all of these from a TOML, YAML or JSON file, read again while the program runs (feature `serde`).
//! 11. `status`: endpoints that tell clients how their limits stand, for a countdown instead of an error (feature
//!     `axum`).
//! 12. [`Observer`]: who is told of every decision; `observe` has two, for logs (feature `tracing`) and for metrics
//!     (feature `metrics`).
//! 13. [`algorithm`]: the arithmetic by itself, pure functions of numbers.
//!
//! # Pages
//! | page | says |
//! | --- | --- |
//! | [`docs::choosing`] | which algorithm and which numbers; the worst window, and how to get a strict limit |
//! | [`docs::tiers_and_routes`] | plans, routes, several rules at once, limits changed while they hold, a file |
//! | [`docs::cookbook`] | ten limits that services need: failed logins, sign-ups, model tokens, plans, ... |
//! | [`docs::outgoing`] | a client that keeps to another server's limit: its quota, its keys, what a 429 does |
//! | `docs::axum` | where axum users stumble: layer order, 404s, shared state (feature `axum`) |
//! | `docs::grpc` | methods, statuses, streams, limits by message (feature `tonic`) |
//! | [`docs::hyper`] | servers without axum |
//! | [`docs::testing`] | tests of your own limits |
//! | [`docs::proxies`] | whose address it is behind nginx, Envoy, a CDN; limits at the edge and here |
//! | `docs::redis` | what a server needs, and what an outage does (feature `redis`) |
//! | [`docs::observing`] | logs, metrics for Prometheus, what to alert on |
//! | [`docs::migrating`] | from other crates and services: their code, ours, what changes |
//! | [`docs::mistakes`] | limits that are written wrongly, and what you see then |
//! | [`docs::limitations`] | what is not there; what a restart, an eviction, a stepping clock cost |
//! | [`docs::design`] | how it is built, and why not otherwise |
//!
//! # Which algorithm
//! A [token bucket](Quota::token_bucket), unless you know why not: smooth, with a burst that you choose. Over any time
//! it admits at most `capacity + rate * time / period`. A [sliding window](Quota::sliding_window) admits at most its
//! limit in each window of the clock, and lets no burst through on both sides of a boundary. A
//! [fixed window](Quota::fixed_window) is for budgets that people read: so many a day, unused ones rolling over if you
//! like.
//! What each admits in the worst window, and how to get less, is in [`docs::choosing`].
//!
#![doc = include_str!("docs/plots/algorithms.svg")]
//!
//! # Features
//! | feature | default | adds | brings |
//! | --- | --- | --- | --- |
//! | `axum` | yes | denials and errors as responses, [`RateLimitStatus`] and [`Receipt`] as extractors, the peer address from `ConnectInfo`, `key::path`, `status` | axum 0.8 |
//! | `wait` | yes | waiting for a turn instead of being refused: `wait_up_to` | tokio's timer |
//! | `redis` | | `backend::RedisBackend`: the same limits across machines; Rust 1.88 | redis 1.8, tokio |
//! | `redis-tls` | | `redis`, and `rediss://` | rustls |
//! | `serde` | | [`Quota`] as text or table in any format, and `config`: policies, routes, deny lists from a file | serde |
//! | `tonic` | | the peer address from tonic's connection info, denials and errors as `tonic::Status` | tonic 0.14 |
//! | `uuid` | | `Uuid` as a key | uuid 1 |
//! | `tracing` | | `observe::Tracing`: decisions as events, denials sampled | tracing |
//! | `metrics` | | `observe::Metrics`: counters, latencies and gauges, with a dashboard | metrics 0.24 |
//! | `conformance` | | the suite that every backend must pass; outside semver | |
//!
//! Features only add. Without any there is no axum and no runtime in the tree. Rust 1.85 or newer.
//!
//! [Tower]: https://docs.rs/tower
//! [axum]: https://docs.rs/axum

#![cfg_attr(docsrs, feature(doc_cfg))]
// Of the library only: a test says what is wrong by panicking.
#![warn(clippy::unwrap_used, clippy::expect_used)]

/// Implements `Debug` for a type by the fields that are named here: the others cannot be shown, or must not be.
macro_rules! debug_fields {
    ($type:ident, |$value:ident| $($name:ident: $field:expr),+) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $value = self;
                f.debug_struct(stringify!($type))$(.field(stringify!($name), &$field))+.finish_non_exhaustive()
            }
        }
    };
}

pub mod algorithm;
pub mod backend;
pub mod clock;
#[cfg(feature = "serde")]
pub mod config;
pub mod docs;
#[cfg(all(tollgate_fuzzing, feature = "redis", feature = "serde"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod key;
pub mod limiter;
pub mod middleware;
pub mod observe;
pub mod policy;
pub mod protection;
#[cfg(feature = "axum")]
pub mod status;
mod sync;

#[doc(inline)]
pub use algorithm::{DAY, HOUR, MINUTE, Quota, SECOND, WEEK};
#[doc(inline)]
pub use backend::MemoryBackend;
#[cfg(feature = "serde")]
#[doc(inline)]
pub use config::Config;
#[doc(inline)]
pub use key::Key;
#[doc(inline)]
pub use limiter::{Charge, FailureMode, LimitError, RateLimiter, Receipt, Reservation};
#[doc(inline)]
pub use middleware::{HeaderFamily, OnResponse, RateLimitLayer, RateLimitStatus, Refusal, RouteLimits, Rule};
#[doc(inline)]
pub use policy::{Decision, Decisions, Denied, Policy, Reason, Subject};

/// The README's code, compiled and run with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
