//! Limits in front of a service: a Tower layer.
//!
//! # The life of a request
//! 1. `poll_ready` asks the inner service. `call` takes the one that is ready and does not call it before the verdict.
//! 2. Unless it is [skipped](RateLimitLayer::skip), each rule turns the request's parts into a charge: its policy, a
//!    subject from its [key extractor](KeyExtractor), the request's cost.
//! 3. The limiter decides all charges together. Allowed: the request goes on; on request with a [`RateLimitStatus`]
//!    among its extensions. Reserved: it waits for its turn without holding the inner service's readiness, and goes on
//!    by a clone of it that is made ready then; if its client leaves, the turn is given back. Denied: it is answered
//!    with 429 here (of a gRPC service with RESOURCE_EXHAUSTED), the inner service is not touched and the body is not
//!    read.
//! 4. On the way back [`settle`](RateLimitLayer::on_response) says what becomes of each charge, and the response gets its
//!    headers.

#[cfg(feature = "axum")]
mod axum;
mod body;
mod decide;
mod future;
#[cfg(all(tollgate_fuzzing, feature = "redis", feature = "serde"))]
mod fuzzing;
mod grpc;
mod headers;
mod items;
pub(crate) mod key;
mod layer;
mod on_response;
mod problem;
mod refusal;
mod retry_after;
mod routes;
mod rule;
mod service;
mod shared;
mod soon;
#[cfg(feature = "axum")]
mod standing;
mod status;
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
pub use refusal::Refusal;
pub use routes::{RouteLimits, is_cors_preflight};
pub use rule::Rule;
pub use service::RateLimit;
pub use status::RateLimitStatus;
#[cfg(feature = "serde")]
pub(crate) use table::parse_line;
