//! The user's words: quotas as text, policies and their tiers, keys, what else is known of callers, decisions.

mod allowed;
mod decision;
mod decisions;
mod deny_rule;
mod digest;
mod duration;
mod key;
mod key_error;
mod key_text;
mod name;
mod named;
mod nat64;
mod nearest;
mod network;
mod pattern;
mod placement;
mod quota;
mod reason;
mod signals;
mod status;
mod subject;

pub use allowed::Allowed;
pub use decision::Decision;
pub use decisions::{Decisions, Denied};
pub(crate) use deny_rule::DenyKind;
pub use deny_rule::{DenyRule, DenyRuleError};
pub use digest::{Digest, Secret};
#[cfg(feature = "serde")]
pub(crate) use duration::parse as parse_duration;
pub use key::Key;
pub(crate) use key::Source;
pub use key_error::KeyError;
pub(crate) use key_error::KeyFault;
pub use key_text::ParseKeyError;
pub use name::PolicyName;
pub use named::{Policy, PolicyError};
pub(crate) use nat64::{canonical, embedded, parse_prefix};
pub(crate) use nearest::nearest;
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
pub use status::Status;
pub(crate) use status::seconds_up;
pub use subject::Subject;
