//! The user's words: quotas as text, policies and their tiers, keys, decisions.

mod decision;
mod duration;
mod key;
mod name;
mod named;
mod quota;
#[cfg(feature = "serde")]
mod quota_serde;
mod subject;

pub use decision::{DecidedBy, Decision, Decisions, Denied, Reason};
pub use key::{Digest, Key, Secret};
pub use name::PolicyName;
pub use named::{Policy, PolicyError};
pub use quota::ParseQuotaError;
pub use subject::Subject;
