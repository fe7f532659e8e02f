//! Deny lists and blocks deny callers regardless of their quotas.
//!
//! A [`DenyList`] denies by [rule](DenyRule): key, network, user agent, country or label. [`AutoBlock`] blocks callers
//! that were denied too often. [`RateLimiter::block`](crate::RateLimiter::block) blocks a caller manually. All of them
//! match a caller's key and its other [`Signals`].

pub use crate::limiter::deny::DenyList;
pub use crate::limiter::guard::AutoBlock;
pub use crate::limiter::listing::Block;
pub use crate::policy::deny_rule::{DenyRule, DenyRuleError};
pub use crate::policy::signals::{Signal, Signals};
