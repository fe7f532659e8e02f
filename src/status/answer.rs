//! The answers of status endpoints.

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::algorithm::Micros;
use crate::limiter::Snapshot;
use crate::middleware::Standing;

/// The one limit of a layer with `one_policy`; else all, as `{"limits":[..],"now":..}`: none, if the caller is not
/// limited.
pub(super) fn limits(standing: &Standing, one_policy: bool) -> Response {
    if let ([limit], true) = (&standing.limits[..], one_policy) {
        return json(limit.to_json());
    }
    let limits: Vec<String> = standing.limits.iter().map(Snapshot::to_json).collect();
    json(format!(r#"{{"limits":[{}],"now":{}}}"#, limits.join(","), standing.now.get()))
}

/// `{"now":..}`
pub(super) fn now(now: Micros) -> Response {
    json(format!(r#"{{"now":{}}}"#, now.get()))
}

fn json(body: String) -> Response {
    // One caller's, as of this instant. What is not stored is not told to anybody else, so there is nothing to vary by.
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "private, no-store")], body).into_response()
}
