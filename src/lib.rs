//! tollgate
pub mod algorithm;
pub mod backend;
mod clock;
mod limiter;
mod policy;
pub use algorithm::{Quota, QuotaError, DAY, HOUR, MINUTE, SECOND, WEEK};
pub use backend::*;
pub use clock::{Clock, ManualClock, SystemClock};
pub use limiter::*;
pub use policy::*;
