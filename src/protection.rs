//! Deny lists and blocks, which deny callers regardless of their quotas.
//!
//! A [`DenyList`] denies callers by [rules](DenyRule), [`AutoBlock`] blocks callers that are denied too often, and
//! [`RateLimiter::block`](crate::RateLimiter::block) blocks a caller manually. All three apply to a caller's key and to
//! the caller's other [`Signals`].

pub use crate::limiter::deny::DenyList;
pub use crate::limiter::guard::AutoBlock;
pub use crate::limiter::listing::Block;
pub use crate::policy::deny_rule::{DenyRule, DenyRuleError};
pub use crate::policy::signals::{Signal, Signals};
