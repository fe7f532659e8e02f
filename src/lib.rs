//! Rate limiting for [Tower] and [axum]: limits per user, IP address or tenant, in one process or, with Redis, across
//! many.
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
//! Each client address can send 20 requests in a burst, and then 10 requests per minute. Further requests get 429 with
//! a `Retry-After` header and never reach the handler.
//!
//! Handlers can call a limiter directly. A call can use any key and several limits:
//!
//! ```
//! use tollgate::{Charge, Policy, Quota, RateLimiter, DAY, HOUR, MINUTE};
//!
//! static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
//! static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10_000, MINUTE));
//! static DAILY: Policy = Policy::new("daily", Quota::fixed_window(500, DAY));
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = RateLimiter::default();
//! limiter.limit(&LOGIN, "ada@example.com").await?; // returns an error if the call is denied
//! // Both limits are charged, or neither.
//! limiter.limit_all([Charge::new(&CHAT, 7).cost(1200), Charge::new(&DAILY, 7)]).await?;
//! # Ok(()) }
//! ```
//!
//! # Where to start
//!
//! | you want to | see |
//! | --- | --- |
//! | limit requests to a service | [`RateLimitLayer`]; [`RouteLimits`] to limit each route separately, [`Rule`] for several limits |
//! | find the caller in a request | [`key`]: addresses, users, tokens, headers, your own closure |
//! | choose an algorithm and its parameters | [`Quota`], [`docs::choosing`] |
//! | give plans different limits | [`Policy::tier`](policy::Policy::tier), [`Subject::tier`](policy::Subject::tier), [`docs::tiers_and_routes`] |
//! | combine quotas, such as 10 per second and 1000 per day | [`Policy::and`](policy::Policy::and), [`docs::several_quotas`] |
//! | call a limiter from a handler | [`RateLimiter`], [`Charge`], [`LimitError`] |
//! | charge a request by its cost, and correct the charge afterwards | [`RateLimitLayer::cost`], [`Receipt`], [`OnResponse`] |
//! | delay calls instead of denying them | [`Reservation`], `wait_up_to` (feature `wait`) |
//! | share limits between processes | `backend::RedisBackend` (feature `redis`), [`FailureMode`] |
//! | change the response to refused requests | [`Refusal`], [`HeaderFamily`] |
//! | deny or block callers | [`protection`] |
//! | log and measure decisions | [`observe`] |
//! | read limits from a file, change them at run time | `config` (feature `serde`), [`RateLimiter::set_quota`] |
//! | show clients a countdown | `status` (feature `axum`) |
//! | see which callers are limited and why, and help them | `admin` (feature `admin`), [`docs::operate`] |
//! | test your limits | [`clock::ManualClock`], [`docs::testing`] |
//!
//! # Guides
//! | page | topic |
//! | --- | --- |
//! | [`docs::choosing`] | algorithms and their parameters, the worst window, strict limits |
//! | [`docs::tiers_and_routes`] | plans, routes, several rules, limits that change at run time, files |
//! | [`docs::several_quotas`] | policies with several quotas, and individual quotas for callers, from a database |
//! | [`docs::shards`] | one busy key whose quota is divided among several nodes of a cluster |
//! | [`docs::leases`] | decisions on busy keys in Redis, without asking the server each time |
//! | [`docs::restarts`] | limits in memory that survive a restart |
//! | [`docs::cookbook`] | ten limits that most services need, including failed logins, sign-ups, model tokens and plans |
//! | [`docs::outgoing`] | a client that stays within another server's limit |
//! | `docs::axum` | layer order, 404s, shared state (feature `axum`) |
//! | `docs::grpc` | limits on gRPC methods and streams, and statuses (feature `tonic`) |
//! | [`docs::hyper`] | servers without axum |
//! | [`docs::testing`] | testing your own limits |
//! | [`docs::proxies`] | client addresses behind nginx, Envoy or a CDN |
//! | `docs::redis` | how to set up a Redis server, and what happens in an outage (feature `redis`) |
//! | [`docs::observing`] | logs, metrics, alerts |
//! | [`docs::operate`] | who is limited and why, and how operators help: router, page, command |
//! | [`docs::migrating`] | how to move from other libraries and services |
//! | [`docs::mistakes`] | mistakes in writing limits, and how to notice them |
//! | [`docs::limitations`] | what the crate cannot do, and what is lost in a restart or an eviction |
//! | [`docs::glossary`] | the terms that these pages use |
//! | [`docs::design`] | the crate's structure, and the reasons for it |
//!
//! # Algorithms
//! Use a [token bucket](Quota::token_bucket) unless you have a reason not to. A token bucket refills smoothly and
//! allows a burst of `capacity`. In any interval, at most `capacity + rate * time / period` requests pass. A [sliding
//! window](Quota::sliding_window) admits at most its limit in each clock-aligned window. A [fixed
//! window](Quota::fixed_window) suits budgets that users know about, for example 500 per day. Its unspent tokens can
//! roll over.
//!
#![doc = include_str!("docs/plots/algorithms.svg")]
//!
//! # Features
//! | feature | default | what it adds | dependencies |
//! | --- | --- | --- | --- |
//! | `axum` | yes | conversion of denials and errors to responses, [`RateLimitStatus`] and [`Receipt`] as extractors, peer addresses from `ConnectInfo`, `key::path`, `status` | axum 0.8 |
//! | `wait` | yes | waiting until a reservation is due: `wait_up_to` | tokio's timer |
//! | `redis` | | `backend::RedisBackend`: limits shared by many processes; Rust 1.88 | redis 1.8, tokio |
//! | `redis-tls` | | the `redis` feature with TLS (`rediss://`) | rustls |
//! | `serde` | | quotas as text or tables in any serde format, and the `config` module | serde |
//! | `tonic` | | peer addresses from tonic, conversion of denials and errors to `tonic::Status` | tonic 0.14 |
//! | `uuid` | | `Uuid` as a key | uuid 1 |
//! | `tracing` | | `observe::Tracing`: decisions as events; denials are sampled | tracing |
//! | `metrics` | | `observe::Metrics`: counters, latencies and gauges, with a dashboard | metrics 0.24 |
//! | `admin` | | the `admin` module: a router and a page for operators | axum, serde, serde_json |
//! | `conformance` | | the tests that every backend must pass; exempt from semver | |
//!
//! Features are additive. Without any features, the crate depends on neither axum nor an async runtime. It requires
//! Rust 1.85 or newer.
//!
//! [Tower]: https://docs.rs/tower
//! [axum]: https://docs.rs/axum

#![cfg_attr(docsrs, feature(doc_cfg))]
// These lints apply only to the library, because tests may panic.
#![warn(clippy::unwrap_used, clippy::expect_used)]

/// Implements `Debug` with only the named fields. The other fields cannot or must not be shown.
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

#[cfg(feature = "admin")]
pub mod admin;
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
pub use policy::{Decision, Denied, Policy, Reason, Subject};

/// Compiles and runs the README's code with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
