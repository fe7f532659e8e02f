//! The user's words: quotas as text, policies and their tiers, keys, what else is known of callers, decisions.

mod decision;
mod decisions;
mod deny_rule;
mod digest;
mod duration;
mod key;
mod name;
mod named;
mod network;
mod pattern;
mod placement;
mod quota;
mod reason;
mod signals;
mod subject;

pub use decision::Decision;
pub use decisions::{Decisions, Denied};
pub(crate) use deny_rule::DenyKind;
pub use deny_rule::{DenyRule, DenyRuleError};
pub use digest::{Digest, Secret};
#[cfg(feature = "serde")]
pub(crate) use duration::parse as parse_duration;
pub use key::Key;
pub use name::PolicyName;
pub use named::{Policy, PolicyError};
pub use network::CidrError;
pub(crate) use network::parse_network;
pub(crate) use pattern::Pattern;
pub(crate) use placement::Placement;
pub use quota::ParseQuotaError;
#[cfg(feature = "serde")]
pub(crate) use quota::QuotaParts;
pub use reason::{DecidedBy, Reason};
pub(crate) use signals::SignalKind;
pub use signals::{Signal, Signals};
pub use subject::Subject;
