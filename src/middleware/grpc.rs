//! Refusals of gRPC requests.
//!
//! gRPC clients map HTTP 429 to `UNAVAILABLE`, and most clients then retry immediately. Therefore, a denial is sent as
//! HTTP 200 with `grpc-status: 8` (RESOURCE_EXHAUSTED) in its only header block ("trailers-only"). The time to wait is
//! sent in `grpc-retry-pushback-ms` (gRFC A6) and, as `google.rpc.RetryInfo`, in `grpc-status-details-bin`. OTLP
//! clients use `RetryInfo` to distinguish a rate limit from a message that is too large.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};

use super::refusal::Refusal;

/// Returns the content type of the response if the request uses gRPC or grpc-web. Suffixes other than `+proto` are
/// dropped, so that the response never echoes arbitrary text from the client.
pub(super) fn content_type(parts: &Parts) -> Option<HeaderValue> {
    let value = parts.headers.get(CONTENT_TYPE)?;
    let media_type = value.as_bytes().split(|byte| *byte == b';').next()?.trim_ascii();
    CONTENT_TYPES.into_iter().find_map(|(known, with_proto)| match media_type.strip_prefix(known.as_bytes())? {
        b"+proto" => Some(HeaderValue::from_static(with_proto)),
        b"" | [b'+', ..] => Some(HeaderValue::from_static(known)),
        _ => None,
    })
}

const CONTENT_TYPES: [(&str, &str); 3] = [
    ("application/grpc", "application/grpc+proto"),
    ("application/grpc-web", "application/grpc-web+proto"),
    ("application/grpc-web-text", "application/grpc-web-text+proto"),
];

pub(super) fn response(refusal: &Refusal<'_>, content_type: HeaderValue) -> Response<Bytes> {
    let code = match refusal.status() {
        StatusCode::TOO_MANY_REQUESTS => RESOURCE_EXHAUSTED,
        StatusCode::SERVICE_UNAVAILABLE => UNAVAILABLE,
        StatusCode::UNAUTHORIZED => UNAUTHENTICATED,
        StatusCode::FORBIDDEN => PERMISSION_DENIED,
        StatusCode::BAD_REQUEST if refusal.is_anonymous() => UNAUTHENTICATED,
        status if status.is_client_error() => INVALID_ARGUMENT,
        _ => INTERNAL,
    };
    let message = refusal.message();
    let retry = refusal.retry_after();
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert("grpc-status", HeaderValue::from(code));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&message)) {
        headers.insert("grpc-message", message);
    }
    if code == RESOURCE_EXHAUSTED || code == UNAVAILABLE {
        headers.insert("grpc-retry-pushback-ms", HeaderValue::from(pushback(retry)));
    }
    let details = retry.map(|retry| base64(&status_with_retry_info(code, &message, retry)));
    if let Some(details) = details.and_then(|details| HeaderValue::try_from(details).ok()) {
        headers.insert("grpc-status-details-bin", details);
    }
    response
}

const INVALID_ARGUMENT: u16 = 3;
const PERMISSION_DENIED: u16 = 7;
const RESOURCE_EXHAUSTED: u16 = 8;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;
const UNAUTHENTICATED: u16 = 16;

/// Returns the wait in milliseconds, rounded up, or -1 ("do not retry") if waiting would not help.
fn pushback(retry: Option<Duration>) -> i32 {
    retry.map_or(-1, |retry| i32::try_from(retry.as_micros().div_ceil(1000)).unwrap_or(i32::MAX))
}

/// Percent-encodes `%` and all bytes that are not printable ASCII, as gRPC requires.
fn percent_encoded(text: &str) -> String {
    let encoded = |byte| match byte {
        b'%' | 0..=0x1f | 0x7f.. => format!("%{byte:02X}"),
        byte => char::from(byte).to_string(),
    };
    text.bytes().map(encoded).collect()
}

/// Encodes a `google.rpc.Status` whose details contain a `google.rpc.RetryInfo`, in the protobuf wire format.
fn status_with_retry_info(code: u16, message: &str, retry: Duration) -> Vec<u8> {
    let delay = [number_field(1, retry.as_secs()), number_field(2, u64::from(retry.subsec_nanos()))].concat();
    let info = bytes_field(1, &delay);
    let any = [bytes_field(1, b"type.googleapis.com/google.rpc.RetryInfo"), bytes_field(2, &info)].concat();
    [number_field(1, u64::from(code)), bytes_field(2, message.as_bytes()), bytes_field(3, &any)].concat()
}

fn number_field(field: u8, value: u64) -> Vec<u8> {
    // proto3 omits fields with the value 0.
    if value > 0 { [vec![field << 3], varint(value)].concat() } else { Vec::new() }
}

fn bytes_field(field: u8, bytes: &[u8]) -> Vec<u8> {
    [&[field << 3 | 2], &varint(bytes.len() as u64)[..], bytes].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len() * 4 / 3 + 3);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            out.push(char::from(DIGITS[(word >> (18 - 6 * digit)) as usize & 63]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_requests_are_detected_by_content_type() {
        let response_type = |value: &str| {
            let request = http::Request::builder().header("content-type", value).body(()).unwrap();
            content_type(&request.into_parts().0).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(response_type("application/grpc").as_deref(), Some("application/grpc"));
        assert_eq!(response_type("application/grpc+proto; x=y").as_deref(), Some("application/grpc+proto"));
        assert_eq!(response_type("application/grpc-web").as_deref(), Some("application/grpc-web"));
        assert_eq!(
            response_type("application/grpc-web-text+proto").as_deref(),
            Some("application/grpc-web-text+proto")
        );
        for other in ["application/json", "application/grpcish", "application/grpc-websocket", "text/plain"] {
            assert_eq!(response_type(other), None, "{other}");
        }
    }

    #[test]
    fn pushback_is_rounded_up_and_fits_in_an_i32() {
        assert_eq!(pushback(Some(Duration::from_micros(1))), 1);
        assert_eq!(pushback(Some(Duration::from_millis(6000))), 6000);
        assert_eq!(pushback(Some(Duration::MAX)), i32::MAX);
        assert_eq!(pushback(None), -1);
    }

    #[test]
    fn base64_has_no_padding() {
        for (bytes, text) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent_encoded("a \"b\" 100%\n\u{e9}"), "a \"b\" 100%25%0A%C3%A9");
    }
}
