//! tollgate
pub mod algorithm;
pub use algorithm::{Quota, QuotaError, DAY, HOUR, MINUTE, SECOND, WEEK};
