//! What the pages show of other crates.

#[cfg(feature = "actix")]
pub mod actix_extensible_rate_limit;
pub mod axum_gcra;
#[allow(clippy::new_without_default)] // as short as the page shows it
pub mod governor;
pub mod tower_governor;
pub mod tower_rate_limiter;
pub mod tower_rate_limiter_01;
