//! Refusals as `application/problem+json` (RFC 9457).

use std::fmt::Write;

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};

use super::refusal::Refusal;

/// Returns a problem with a type from draft-ietf-httpapi-ratelimit-headers-11, section 5, or without a type if no key
/// was found. A problem includes the message as `detail` if it has no type or if waiting would not help.
pub(super) fn response(refusal: &Refusal<'_>) -> Response<Bytes> {
    let mut response = Response::new(body(refusal));
    *response.status_mut() = refusal.status();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

fn body(refusal: &Refusal<'_>) -> Bytes {
    let status = refusal.status();
    let problem_type = match (refusal.decisions(), refusal.error()) {
        (Some(_), _) => Some("quota-exceeded"),
        (None, Some(_)) => Some("temporary-reduced-capacity"),
        (None, None) => None,
    };
    let mut body = String::with_capacity(192);
    body.push('{');
    if let Some(problem_type) = problem_type {
        let _ = write!(body, r#""type":"https://iana.org/assignments/http-problem-types#{problem_type}","#);
    }
    let _ = write!(body, r#""title":"{}","status":{}"#, status.canonical_reason().unwrap_or("Error"), status.as_u16());
    if let Some(decisions) = refusal.decisions() {
        body.push_str(r#","violated-policies":["#);
        for (i, decision) in decisions.violated().enumerate() {
            if i > 0 {
                body.push(',');
            }
            json_string(&mut body, &decision.name());
        }
        body.push(']');
    }
    // If waiting helps, the headers of a denial already state how long to wait.
    if problem_type.is_none() || refusal.decisions().is_some_and(|decisions| decisions.retry_after().is_none()) {
        body.push_str(r#","detail":"#);
        json_string(&mut body, &refusal.message());
    }
    body.push('}');
    body.into()
}

fn json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
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
    fn any_text_is_escaped_as_a_json_string() {
        for text in ["plain", "a\"b\\c", "line\nbreak\0", "caf\u{e9} \u{1f980}", ""] {
            let mut out = String::new();
            json_string(&mut out, text);
            assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}
