//! Deny lists and blocks: callers that are refused whatever their limits say.
//!
//! A [`DenyList`] refuses callers by [rules](DenyRule): a key, a network, a user agent, a country, a label. [`AutoBlock`]
//! refuses callers for a time that were denied too often. [`RateLimiter::block`](crate::RateLimiter::block) does so by hand.
//! Each of them looks at a caller's key and its other [`Signals`].

pub use crate::limiter::deny::DenyList;
pub use crate::limiter::guard::AutoBlock;
pub use crate::limiter::listing::Block;
pub use crate::policy::deny_rule::{DenyRule, DenyRuleError};
pub use crate::policy::signals::{Signal, Signals};
