//! Limits in front of a service: a Tower layer.
//!
//! # The life of a request
//! 1. `poll_ready` asks the inner service. `call` takes the one that is ready and does not call it before the verdict.
//! 2. Each rule turns the request's parts into a charge: its policy, a subject from its [key extractor](KeyExtractor), the
//!    request's cost.
//! 3. The limiter decides all charges together. Allowed: the request goes on; on request with a [`RateLimitStatus`] among its
//!    extensions. Denied: it is answered with 429 here, the inner service is not touched and the body is not read.
//! 4. On the way back the response gets its headers.

#[cfg(feature = "axum")]
mod axum;
mod future;
mod headers;
pub mod key;
mod layer;
mod problem;
mod refusal;
mod service;
mod status;

pub use future::ResponseFuture;
pub use key::{KeyError, KeyExtractor};
pub use layer::RateLimitLayer;
pub use refusal::RefusalBody;
pub use service::RateLimit;
pub use status::RateLimitStatus;
