//! The operators' page: one file, whose script and style carry a nonce.

use axum::response::{Html, IntoResponse, Response};
use http::HeaderName;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};

use crate::policy::random;

const PAGE: &str = include_str!("page.html");

const NONCE: &str = "NONCE";

/// `GET /page`. The page contains no data, so it needs no authorization, but the requests that it sends do.
pub(super) async fn page() -> Response {
    let nonce = format!("{:016x}{:016x}", random(), random());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    );
    let headers = [
        (CONTENT_SECURITY_POLICY, policy.as_str()),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CROSS_ORIGIN_OPENER_POLICY, "same-origin"),
    ];
    (headers, Html(PAGE.replace(NONCE, &nonce))).into_response()
}

const CROSS_ORIGIN_OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
