//! Access to the response headers for fuzz targets.

use http::HeaderMap;

use super::headers::{HeaderFamily, LimitHeaders, add_retry_after};
use super::items::PolicyItems;
use crate::policy::{Decision, Decisions, Policy};

/// Returns the response headers for a request that produced these decisions. There is one decision per policy.
pub fn sent(family: HeaderFamily, policies: &[Policy], decisions: &Decisions) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let items: Vec<PolicyItems> = policies.iter().map(PolicyItems::new).collect();
    let known = |decision: &Decision| {
        let index = policies.iter().position(|policy| policy.name() == decision.policy())?;
        items.get(index)
    };
    LimitHeaders::new(family, decisions, known).append_to(&mut headers);
    if !decisions.is_allowed() {
        add_retry_after(decisions.retry_after(), &mut headers);
    }
    headers
}
