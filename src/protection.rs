//! Deny lists and blocks, which deny callers regardless of their quotas.
//!
//! A [`DenyList`] contains [rules](DenyRule), which match callers by key, network, user agent, country or label.
//! [`AutoBlock`] blocks callers that were denied too often. [`RateLimiter::block`](crate::RateLimiter::block) blocks a
//! caller manually. Deny lists and blocks apply to a caller's key and to its other [`Signals`].

pub use crate::limiter::deny::DenyList;
pub use crate::limiter::guard::AutoBlock;
pub use crate::limiter::listing::Block;
pub use crate::policy::deny_rule::{DenyRule, DenyRuleError};
pub use crate::policy::signals::{Signal, Signals};
