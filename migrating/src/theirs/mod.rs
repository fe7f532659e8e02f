//! The code of the guides that uses other crates.

#[cfg(feature = "actix")]
pub mod actix_extensible_rate_limit;
pub mod axum_gcra;
#[allow(clippy::new_without_default)] // the guide shows no `Default`
pub mod governor;
pub mod tower_governor;
pub mod tower_rate_limiter;
pub mod tower_rate_limiter_01;
