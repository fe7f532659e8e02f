//! What fuzz targets see of this room.

use http::HeaderMap;

use super::headers::{HeaderFamily, Report, retry_later};
use super::items::PolicyItems;
use crate::policy::{Decision, Decisions, Policy};

/// The headers that a response to a request with these decisions has, one policy each.
pub fn sent(family: HeaderFamily, policies: &[Policy], decisions: &Decisions) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let rendered: Vec<PolicyItems> = policies.iter().map(PolicyItems::new).collect();
    if decisions.is_allowed() {
        Report::allowed(family, decisions.as_slice(), rendered.iter()).append_to(&mut headers);
    } else {
        let of = |decision: &Decision| {
            let index = policies.iter().position(|policy| policy.name() == decision.policy())?;
            rendered.get(index)
        };
        Report::denied(family, decisions, of).append_to(&mut headers);
        retry_later(decisions.retry_after(), &mut headers);
    }
    headers
}
