//! What fuzz targets see of the middleware.

use http::HeaderMap;

use super::headers::{HeaderFamily, Report, retry_later};
use super::items::PolicyItems;
use crate::policy::{Decision, Decisions, Policy};

/// The headers that a response to a request with these decisions has, one policy each.
pub fn sent(family: HeaderFamily, policies: &[Policy], decisions: &Decisions) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let items: Vec<PolicyItems> = policies.iter().map(PolicyItems::new).collect();
    let known = |decision: &Decision| {
        let index = policies.iter().position(|policy| policy.name() == decision.policy())?;
        items.get(index)
    };
    Report::new(family, decisions, known).append_to(&mut headers);
    if !decisions.is_allowed() {
        retry_later(decisions.retry_after(), &mut headers);
    }
    headers
}
