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
//! ```
//!
//! Each client, identified by its IP address, can send 20 requests in a burst, and then 10 requests per minute. Further
//! requests get 429 with a `Retry-After` header and never reach the handler.
//!
//! Handlers can also call a limiter directly, with any key, and charge several limits together:
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
//! | identify the caller of a request | [`key`]: addresses, users, tokens, headers, your own closure |
//! | choose an algorithm and its parameters | [`Quota`], [`docs::choosing`] |
//! | give plans different limits | [`Policy::tier`](policy::Policy::tier), [`Subject::tier`](policy::Subject::tier), [`docs::tiers_and_routes`] |
//! | combine quotas, such as 10 per second and 1000 per day | [`Policy::and`](policy::Policy::and), [`docs::several_quotas`] |
//! | call a limiter from a handler | [`RateLimiter`], [`Charge`], [`LimitError`] |
//! | charge a request by its cost, and correct the charge afterwards | [`RateLimitLayer::cost`], [`Receipt`], [`OnResponse`] |
//! | delay calls instead of denying them | [`Reservation`], `wait_up_to` (feature `wait`) |
//! | share limits between processes | `backend::RedisBackend` and `docs::redis` (feature `redis`), [`FailureMode`] |
//! | change the response to refused requests | [`Refusal`], [`HeaderFamily`] |
//! | deny or block callers | [`protection`] |
//! | log and measure decisions | [`observe`], [`docs::observing`] |
//! | read limits from a file, or change them at run time | `config` (feature `serde`), [`RateLimiter::set_quota`] |
//! | show clients a countdown | `status` (feature `axum`) |
//! | see which callers are limited and why, and reset or raise their limits | `admin` (feature `admin`), [`docs::operate`] |
//! | test your limits | [`clock::ManualClock`], [`docs::testing`] |
//!
//! # Guides
//! The [`docs`] module contains the guides. Besides the pages above, it has recipes for [ten common
//! limits](docs::cookbook), and pages about [proxies](docs::proxies), axum, gRPC, [hyper](docs::hyper), [outgoing
//! calls](docs::outgoing), [restarts](docs::restarts), [busy keys](docs::leases), [sharded quotas](docs::shards),
//! [migrating from other libraries](docs::migrating), common [mistakes](docs::mistakes), the
//! [limitations](docs::limitations), the [terms](docs::glossary) and the [design](docs::design) of the crate.
//!
//! # Algorithms
//! Use a [token bucket](Quota::token_bucket) unless you have a reason not to. It refills smoothly and allows a burst of
//! `capacity`. In any interval of length `time`, at most `capacity + rate * time / period` requests pass. A [sliding
//! window](Quota::sliding_window) never admits more than its limit within one clock-aligned period. A [fixed
//! window](Quota::fixed_window) suits budgets that users know about, such as 500 per day, and can carry unspent tokens
//! over to later windows.
//!
#![doc = include_str!("docs/plots/algorithms.svg")]
//!
//! # Features
//! | feature | default | what it adds | dependencies |
//! | --- | --- | --- | --- |
//! | `axum` | yes | conversion of denials and errors to responses, [`RateLimitStatus`] and [`Receipt`] as extractors, peer addresses from `ConnectInfo`, `key::path`, `status` | axum 0.8 |
//! | `wait` | yes | waiting until a reservation is due: `wait_up_to` | tokio's timer |
//! | `redis` | | `backend::RedisBackend`: limits shared by many processes; needs Rust 1.88 | redis 1.8, tokio |
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

/// Compiles and runs the README's code as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
