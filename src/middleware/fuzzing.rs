//! What fuzz targets see of this room.

use http::HeaderMap;

use super::headers::{HeaderFamily, PolicyHeader, Report, retry_later};
use crate::policy::{Decisions, Policy};

/// The headers that a response to a request with these decisions has, one policy each.
pub fn sent(family: HeaderFamily, policies: &[Policy], decisions: &Decisions) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if decisions.is_allowed() {
        let rendered: Vec<PolicyHeader> = policies.iter().map(PolicyHeader::new).collect();
        Report::allowed(family, decisions, rendered.iter()).append_to(&mut headers);
    } else {
        Report::denied(family, decisions).append_to(&mut headers);
        retry_later(decisions.retry_after(), &mut headers);
    }
    headers
}
