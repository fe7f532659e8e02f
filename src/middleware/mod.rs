//! Rate limits as a Tower layer.
//!
//! # How a request is processed
//! 1. `poll_ready` polls the inner service. `call` keeps the ready instance for the request.
//! 2. Unless the request is [skipped](RateLimitLayer::skip), the layer creates a charge for each rule: a policy, a
//!    subject from the [key extractor](crate::key), and a cost.
//! 3. The limiter decides on all charges together:
//!    - Allowed: the request goes to the inner service.
//!    - Reserved: the request waits until its reservation is due and then goes to a clone of the inner service. No
//!      ready instance is held during the wait. If the client disconnects, the reservation is canceled.
//!    - Denied: the layer responds with 429 (RESOURCE_EXHAUSTED for gRPC), without calling the inner service or reading
//!      the body.
//! 4. [`on_response`](RateLimitLayer::on_response) settles each charge, and the layer adds its headers to the response.

#[cfg(feature = "axum")]
mod axum;
mod body;
mod choice;
mod cost;
mod decide;
mod future;
#[cfg(all(tollgate_fuzzing, feature = "redis", feature = "serde"))]
mod fuzzing;
mod grpc;
mod headers;
mod items;
pub(crate) mod key;
mod layer;
mod maybe_ready;
mod on_response;
mod options;
mod problem;
mod refusal;
mod retry_after;
mod routes;
mod rule;
mod service;
mod status;
#[cfg(feature = "axum")]
mod status_report;
mod table;
#[cfg(feature = "tonic")]
mod tonic;
mod unmatched;

pub use body::RefusalBody;
pub use future::ResponseFuture;
#[cfg(all(tollgate_fuzzing, feature = "redis", feature = "serde"))]
pub use fuzzing::sent;
pub use headers::{HeaderFamily, ResetUnit};
pub use layer::RateLimitLayer;
pub use on_response::OnResponse;
#[cfg(all(feature = "serde", feature = "wait"))]
pub(crate) use options::allows_reservations;
#[cfg(feature = "serde")]
pub(crate) use options::impossible_cost;
pub use refusal::Refusal;
pub use routes::{RouteLimits, is_cors_preflight};
pub use rule::Rule;
pub use service::RateLimit;
pub use status::RateLimitStatus;
#[cfg(feature = "serde")]
pub(crate) use table::parse_line;
