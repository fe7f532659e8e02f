//! The answers of status endpoints.

use std::fmt::Write;

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};

use crate::algorithm::Micros;
use crate::middleware::Standing;

/// The one limit that there is; none, if the caller is not limited.
pub(super) fn limit(standing: Standing) -> Response {
    match &standing.limits[..] {
        [limit] => json(limit.to_json()),
        _ => limits(&standing),
    }
}

/// All limits, by `{"limits":[..],"now":..}`.
pub(super) fn limits(standing: &Standing) -> Response {
    let mut body = String::from(r#"{"limits":["#);
    for (i, limit) in standing.limits.iter().enumerate() {
        if i > 0 {
            body.push(',');
        }
        body.push_str(&limit.to_json());
    }
    let _ = write!(body, r#"],"now":{}}}"#, standing.now.get());
    json(body)
}

/// `{"now":..}`
pub(super) fn now(now: Micros) -> Response {
    json(format!(r#"{{"now":{}}}"#, now.get()))
}

fn json(body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // One caller's, as of this instant. What is not stored is not told to anybody else, so there is nothing to vary by.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}
