//! The commands for operators, which send requests to the admin router of a running service.

mod change;
mod client;
mod show;
mod top;

pub use change::{Block, Credit, Enforce, Quota, Reset, Unblock};
pub use show::{Limited, Policies, Why};
pub use top::Top;

/// The exit code if there was nothing to change, or if the key is limited.
const NOTHING_OR_LIMITED: u8 = 3;
