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
//! ```
//!
//! The eleventh request of a burst too many gets 429, a `Retry-After` that is right to the second, and never reaches
//! the handler. From a handler the same engine is a call:
//!
//! ```
//! use tollgate::{Policy, Quota, RateLimiter, HOUR};
//!
//! static LOGIN: Policy = Policy::new("login", Quota::token_bucket(5, HOUR));
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = RateLimiter::default();
//! limiter.limit(&LOGIN, "ada@example.com").await?.into_result()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is where, in reading order
//! - [`Quota`], [`Policy`]: how much how fast, and what it is called; quotas by tier.
//! - [`Key`], [`Subject`], [`key`]: whom a policy counts, and how a request tells.
//! - [`RateLimitLayer`]: limits in front of a service; [`RouteLimits`]: by route; [`RateLimitStatus`] tells the
//!   handler.
//! - [`RateLimiter`]: the engine, for calls from handlers; [`Charge`], [`Decision`], [`Denied`].
//! - `status` (feature `axum`): endpoints that tell clients how their limits stand, for a countdown instead of an error.
//! - [`backend`]: where the numbers live; [`MemoryBackend`], and the contract for others.
//! - [`algorithm`]: the arithmetic by itself, pure functions of numbers.
//! - [`Clock`], [`ManualClock`]: time, and how to test your own limits without waiting.
//! - `config`: all of these from a TOML, YAML or JSON file, read again while the program runs (feature `serde`).
//! - [`Reservation`], [`Settlement`], [`Settle`]: waiting for a turn, giving back, telling the true cost.
//! - [`DenyList`], [`AutoBlock`]: whom to deny whatever the limits say; [`RateLimiter::set_quota`]: limits changed while
//!   they hold.
//! - [`Observer`]: who is told of every decision; `observe` has two, for logs and for metrics.
//! - [`docs`]: whose address it is behind [proxies](docs::proxies), how the crate is [built](docs::design) and why,
//!   what it [does not do](docs::limitations).
//!
//! # Which algorithm
//! A [token bucket](Quota::token_bucket) is the right default: smooth, with a burst you choose; over any interval it
//! admits at most `capacity + rate * interval / period`, so up to `capacity + rate` in one `period` that follows an
//! idle time. A [sliding window](Quota::sliding_window) admits at most its limit in any window, as nearly as two
//! counters can tell. A [fixed window](Quota::fixed_window) is for budgets that people read: so many a day, unused ones
//! rolling over if you like.
//!
#![doc = include_str!("docs/plots/algorithms.svg")]
//!
//! # Features
//! | feature | default | adds |
//! | --- | --- | --- |
//! | `axum` | yes | denials and errors as responses, [`RateLimitStatus`] as an extractor, the peer address from `ConnectInfo`, `status` endpoints |
//! | `wait` | yes | waiting for a turn instead of being refused: `wait_up_to`, on tokio's timer |
//! | `redis` | | `backend::RedisBackend`: the same limits across machines; `redis-tls` for `rediss://` |
//! | `serde` | | [`Quota`] as text or table in any format, and `config`: policies, routes, deny lists from a file |
//! | `tonic` | | the peer address from tonic's connection info |
//! | `uuid` | | `Uuid` as a key |
//! | `tracing` | | `observe::Tracing`: decisions as events, denials sampled |
//! | `metrics` | | `observe::Metrics`: counters, latencies and gauges, with a dashboard |
//! | `conformance` | | the suite that every backend must pass |
//!
//! Features only add. Without any there is no axum and no runtime in the tree.
//!
//! [Tower]: https://docs.rs/tower
//! [axum]: https://docs.rs/axum

#![cfg_attr(docsrs, feature(doc_cfg))]
// Of the library only: a test says what is wrong by panicking.
#![warn(clippy::unwrap_used, clippy::expect_used)]

pub mod algorithm;
pub mod backend;
mod clock;
#[cfg(feature = "serde")]
pub mod config;
pub mod docs;
#[cfg(all(tollgate_fuzzing, feature = "redis", feature = "serde"))]
#[doc(hidden)]
pub mod fuzzing;
mod limiter;
mod middleware;
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub mod observe;
mod policy;
#[cfg(feature = "axum")]
pub mod status;
mod sync;

#[doc(inline)]
pub use algorithm::{DAY, HOUR, MINUTE, Quota, QuotaError, SECOND, WEEK};
#[doc(inline)]
pub use backend::{Error, ErrorKind, MemoryBackend, MemoryBackendBuilder};
pub use clock::{Clock, ManualClock, Sleep, SystemClock};
#[cfg(feature = "serde")]
#[doc(inline)]
pub use config::{Config, ConfigError};
#[cfg(feature = "wait")]
pub use limiter::WaitFuture;
pub use limiter::{
    Acquire, AutoBlock, Blocked, Charge, DecisionFuture, DecisionsFuture, DenyList, Failed, FailureMode, HoldFuture,
    LimitError, Observed, Observer, Outcome, RateLimiter, RateLimiterBuilder, Reservation, SetQuotaError, Settlement,
    Snapshot, Stats,
};
pub use middleware::{
    HeaderFamily, KeyError, KeyExtractor, RateLimit, RateLimitLayer, RateLimitStatus, Refusal, RefusalBody, ResetUnit,
    ResponseFuture, RouteLimits, Rule, Settle, is_cors_preflight, key,
};
pub use policy::{
    DecidedBy, Decision, Decisions, Denied, DenyRule, DenyRuleError, Digest, Key, ParseQuotaError, Policy, PolicyError,
    PolicyName, Reason, Secret, Signal, Signals, Subject,
};

/// The README's code, compiled and run with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
