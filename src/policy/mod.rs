//! The user-facing types: policies, tiers, keys, signals and decisions, and the text form of quotas.

mod allowed;
mod decision;
mod decisions;
pub(crate) mod deny_rule;
pub(crate) mod digest;
mod duration;
mod enforce;
pub(crate) mod key;
pub(crate) mod key_error;
pub(crate) mod key_text;
mod name;
mod named;
mod nat64;
mod nearest;
pub(crate) mod network;
mod pattern;
mod placement;
mod quota;
mod quotas;
mod reason;
pub(crate) mod signals;
mod subject;
mod windows;

pub use crate::algorithm::{Quota, QuotaError};
pub use allowed::Allowed;
pub use decision::Decision;
pub(crate) use decision::{ChargedQuota, limit_name};
pub(crate) use decisions::seconds_up;
pub use decisions::{Decisions, Denied};
pub(crate) use deny_rule::DenyKind;
pub(crate) use deny_rule::DenyRule;
pub(crate) use digest::{Digest, Secret, random};
#[cfg(feature = "serde")]
pub(crate) use duration::parse as parse_duration;
pub(crate) use key::Key;
pub(crate) use key::KeySource;
pub(crate) use key_error::KeyError;
pub(crate) use key_error::KeyFault;

pub use enforce::Enforce;
pub use name::PolicyName;
pub(crate) use named::limit_conflict;
pub use named::{Policy, PolicyError};
pub(crate) use nat64::{canonical, embedded, parse_prefix};
pub(crate) use nearest::{nearest, suggestion};
pub(crate) use network::CidrError;
pub(crate) use network::parse_network;
pub(crate) use pattern::Pattern;
pub(crate) use placement::Placement;
pub use quota::ParseQuotaError;
#[cfg(feature = "serde")]
pub(crate) use quota::QuotaParts;
pub use quotas::Quotas;
pub use reason::{DecidedBy, Reason};
pub(crate) use signals::SignalKind;
pub(crate) use signals::{Signal, Signals};
pub use subject::Subject;
pub(crate) use windows::{MAX_WINDOWS, Part};
