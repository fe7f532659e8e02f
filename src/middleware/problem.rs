//! Refusals as `application/problem+json` (RFC 9457), with the draft's problem types.

use std::fmt::Write;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use super::headers;
use super::key::KeyError;
use crate::backend::Error;
use crate::policy::{Decisions, PolicyName};

/// 429: some quota is exceeded (draft-ietf-httpapi-ratelimit-headers-11, section 5).
pub(super) fn denied(decisions: &Decisions, limits: bool) -> Response<Bytes> {
    let violated = decisions.violated().map(|decision| decision.policy());
    let mut response = problem(StatusCode::TOO_MANY_REQUESTS, Some("quota-exceeded"), violated, None);
    headers::denied(decisions, limits, response.headers_mut());
    response
}

/// 503: the backend cannot decide. The client did nothing wrong and learns nothing of what did.
pub(super) fn unavailable<'a>(policies: impl Iterator<Item = &'a PolicyName>, _error: &Error) -> Response<Bytes> {
    let kind = Some("temporary-reduced-capacity");
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, kind, policies, None);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// 500: the service is not set up as its key extractor needs it.
pub(super) fn no_key(error: &KeyError) -> Response<Bytes> {
    let detail = error.to_string();
    problem(StatusCode::INTERNAL_SERVER_ERROR, None, std::iter::empty(), Some(&detail))
}

fn problem<'a>(
    status: StatusCode,
    kind: Option<&str>,
    policies: impl Iterator<Item = &'a PolicyName>,
    detail: Option<&str>,
) -> Response<Bytes> {
    let mut body = String::with_capacity(192);
    body.push('{');
    if let Some(kind) = kind {
        let _ = write!(body, r#""type":"https://iana.org/assignments/http-problem-types#{kind}","#);
    }
    let _ = write!(body, r#""title":"{}","status":{}"#, status.canonical_reason().unwrap_or(""), status.as_u16());
    if let Some(detail) = detail {
        body.push_str(r#","detail":"#);
        json_string(&mut body, detail);
    }
    if kind.is_some() {
        body.push_str(r#","violated-policies":["#);
        for (i, policy) in policies.enumerate() {
            if i > 0 {
                body.push(',');
            }
            json_string(&mut body, policy.as_str());
        }
        body.push(']');
    }
    body.push('}');
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

fn json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_a_json_string() {
        for text in ["plain", "a\"b\\c", "line\nbreak\0", "caf\u{e9} \u{1f980}", ""] {
            let mut out = String::new();
            json_string(&mut out, text);
            assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }

    #[test]
    fn a_missing_key_says_what_to_do() {
        let response = no_key(&KeyError::new("put \"it\" in"));
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(
            body,
            serde_json::json!({"title": "Internal Server Error", "status": 500, "detail": "put \"it\" in"})
        );
    }
}
