//! The code of the guides that uses tollgate.

pub mod actix_extensible_rate_limit;
pub mod axum_gcra;
pub mod convex;
pub mod express_rate_limit;
pub mod governor;
pub mod tower_governor;
pub mod tower_rate_limiter;
pub mod upstash;
