//! Parses the requests in access logs of several formats.

pub mod format;
pub mod input;
mod json;
mod time;

use std::net::IpAddr;

pub use self::format::Format;

/// A request, as described by a line of a log. A string is empty if the line does not have that field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry<'a> {
    /// The beginning of the request, in microseconds since 1970-01-01 UTC.
    pub micros: u64,
    /// Whether the time stamp has no fraction of a second. The request may have begun at any time in that second.
    pub whole_second: bool,
    pub address: Option<IpAddr>,
    pub user: &'a str,
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    pub user_agent: &'a str,
}

/// Describes what is missing or wrong in a line.
#[derive(Clone, Debug, PartialEq)]
pub struct LineError(pub String);

impl LineError {
    fn new(expected: &str, found: &str) -> LineError {
        let found: String = found.chars().take(60).collect();
        LineError(format!("expected {expected}, found {found:?}"))
    }
}

/// Returns the path of a request target, without the query and without the scheme and host of an absolute target.
fn path_of(target: &str) -> &str {
    let target = match target.find("://") {
        Some(scheme) if !target.starts_with('/') => {
            let rest = &target[scheme + 3..];
            rest.find('/').map_or("/", |slash| &rest[slash..])
        }
        _ => target,
    };
    target.split(['?', '#']).next().unwrap_or(target)
}

/// Splits `GET /path HTTP/1.1` into the method and the path.
fn request_line(line: &str) -> Option<(&str, &str)> {
    let (method, rest) = line.split_once(' ')?;
    let target = rest.rsplit_once(' ').map_or(rest, |(target, version)| match version.starts_with("HTTP/") {
        true => target,
        false => rest,
    });
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    is_method.then(|| (method, path_of(target)))
}

/// Parses the address of a client: an IP address, optionally in brackets, with a port, or with a zone.
fn address(text: &str) -> Option<IpAddr> {
    let first = text.split(',').next().unwrap_or(text).trim();
    let without_zone = first.split('%').next().unwrap_or(first);
    if let Ok(address) = without_zone.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let socket: std::net::SocketAddr = first.parse().ok()?;
    Some(socket.ip().to_canonical())
}

#[cfg(test)]
mod hostile;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_has_a_method_and_a_path() {
        assert_eq!(request_line("GET /a?b=c HTTP/1.1"), Some(("GET", "/a")));
        assert_eq!(request_line("GET /a b HTTP/1.1"), Some(("GET", "/a b")));
        assert_eq!(request_line("GET /"), Some(("GET", "/")));
        assert_eq!(request_line("GET http://example.com/x?y HTTP/1.1"), Some(("GET", "/x")));
        assert_eq!(request_line("GET http://example.com HTTP/1.1"), Some(("GET", "/")));
        assert_eq!(request_line("\\x16\\x03\\x01"), None);
        assert_eq!(request_line("-"), None);
    }

    #[test]
    fn addresses_may_have_ports_brackets_and_zones() {
        let is = |text, expected: &str| assert_eq!(address(text), Some(expected.parse().unwrap()), "{text}");
        is("192.0.2.1", "192.0.2.1");
        is("192.0.2.1:443", "192.0.2.1");
        is("[2001:db8::1]:443", "2001:db8::1");
        is("fe80::1%eth0", "fe80::1");
        is("::ffff:192.0.2.1", "192.0.2.1");
        is("192.0.2.7, 10.0.0.1", "192.0.2.7");
        assert_eq!(address("unix:"), None);
        assert_eq!(address("-"), None);
    }
}
