//! Addresses in `X-Forwarded-For` and `Forwarded` (RFC 7239), read from the right.
//!
//! Each proxy appends the address of its peer, so the nearest proxy wrote the rightmost entry, and the client might
//! have written the leftmost ones. Reading stops before the first entry whose author is not trusted. Text that a client
//! writes on the left (unclosed quotes, quoted commas, garbage) cannot change how the entries on the right are read.

use std::net::{IpAddr, SocketAddr};

use http::header::{HeaderMap, HeaderName};

/// Returns the entries of all lines of a header, from last to first, up to [`MAX_ENTRIES`] and [`MAX_BYTES`].
pub(super) fn entries<'a>(headers: &'a HeaderMap, name: &HeaderName, quoted: bool) -> impl Iterator<Item = &'a [u8]> {
    let mut bytes = 0;
    let lines = headers.get_all(name).iter().rev();
    lines.flat_map(move |line| from_the_right(line.as_bytes(), quoted)).take(MAX_ENTRIES).take_while(move |entry| {
        bytes += entry.len() + 1;
        bytes <= MAX_BYTES
    })
}

/// Proxy chains are short, so a header that exceeds these limits is probably an attempt to waste CPU time.
const MAX_ENTRIES: usize = 64;
const MAX_BYTES: usize = 8192;

/// Returns the comma-separated entries of a line, from last to first. If `quoted`, commas in quotes are not separators.
fn from_the_right(line: &[u8], quoted: bool) -> impl Iterator<Item = &[u8]> {
    let (mut i, mut within_quotes) = (line.len(), false);
    let entries = line.rsplit(move |byte| {
        i -= 1;
        if *byte == b'"' && quoted && !(within_quotes && is_escaped(line, i)) {
            within_quotes = !within_quotes;
        }
        *byte == b',' && !within_quotes
    });
    entries.map(<[u8]>::trim_ascii)
}

/// Returns whether an odd number of backslashes precedes `i`. An opening quote follows `=`, so it is never escaped.
fn is_escaped(text: &[u8], i: usize) -> bool {
    text[..i].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// Parses an entry of `X-Forwarded-For`: an address with an optional port. IPv6 addresses may be in brackets.
pub(super) fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?;
    let address =
        text.parse().or_else(|_| text.parse().map(|address: SocketAddr| address.ip())).ok().or_else(|| {
            text.strip_prefix('[')?.strip_suffix(']')?.parse::<std::net::Ipv6Addr>().ok().map(IpAddr::V6)
        })?;
    Some(address.to_canonical())
}

/// Parses an entry of `Forwarded` and returns the address in its only `for` parameter.
pub(super) fn node(entry: &[u8]) -> Option<IpAddr> {
    let mut node = None;
    for pair in pairs(entry) {
        let (name, value) = pair.split_at_checked(pair.iter().position(|byte| *byte == b'=')?)?;
        if !name.trim_ascii().eq_ignore_ascii_case(b"for") {
            continue;
        }
        if node.is_some() {
            return None; // A second `for` makes the entry ambiguous.
        }
        node = Some(unquoted(value[1..].trim_ascii())?);
    }
    address(&node?)
}

/// Returns the `;`-separated pairs of an entry. Semicolons within quotes do not separate pairs.
fn pairs(entry: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut within_quotes, mut escaped) = (false, false);
    entry.split(move |byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if within_quotes => escaped = true,
            b'"' => within_quotes = !within_quotes,
            _ => {}
        }
        *byte == b';' && !within_quotes
    })
}

fn unquoted(value: &[u8]) -> Option<Vec<u8>> {
    let Some(inner) = value.strip_prefix(b"\"") else {
        return (!value.contains(&b'"')).then(|| value.to_vec());
    };
    let inner = inner.strip_suffix(b"\"")?;
    let mut text = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => text.push(*bytes.next()?),
            b'"' => return None,
            byte => text.push(*byte),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str, quoted: bool) -> Vec<String> {
        from_the_right(line.as_bytes(), quoted).map(|entry| String::from_utf8(entry.to_vec()).expect("text")).collect()
    }

    #[test]
    fn entries_are_read_from_the_right() {
        assert_eq!(split("a, b ,c", false), ["c", "b", "a"]);
        assert_eq!(split("", false), [""]);
        assert_eq!(split("a,,b", false), ["b", "", "a"]);
        assert_eq!(
            split(r#"for=a, for="b,c";host="d\",e", for=f"#, true),
            ["for=f", r#"for="b,c";host="d\",e""#, "for=a"]
        );
        // The client opened a quote to the left of the proxy's entry and never closed it.
        assert_eq!(split(r#"for="x, for=1.2.3.4"#, true)[0], "for=1.2.3.4");
    }

    #[test]
    fn quotes_have_no_meaning_in_x_forwarded_for() {
        assert_eq!(split(r#"a, b", c""#, false), [r#"c""#, r#"b""#, "a"]);
    }

    #[test]
    fn an_escaped_backslash_does_not_escape_the_quote_after_it() {
        assert_eq!(split(r#"for=a, host="b,\\", for=c"#, true), ["for=c", r#"host="b,\\""#, "for=a"]);
        assert_eq!(split(r#"for=a, host="b,\\\"", for=c"#, true), ["for=c", r#"host="b,\\\"""#, "for=a"]);
    }

    #[test]
    fn a_backslash_outside_quotes_does_not_escape_a_quote() {
        let pairs: Vec<&[u8]> = pairs(br#"for=a;x=\";for=b""#).collect();
        assert_eq!(pairs, [&b"for=a"[..], br#"x=\";for=b""#]);
    }

    #[test]
    fn at_most_64_entries_and_8_kib_are_read() {
        let name = HeaderName::from_static("x-forwarded-for");
        let count = |lines: usize, entries: usize, length: usize| {
            let mut headers = HeaderMap::new();
            for _ in 0..lines {
                let line = vec!["x".repeat(length); entries].join(",");
                headers.append(&name, line.parse().expect("a value"));
            }
            super::entries(&headers, &name, false).count()
        };
        assert_eq!((count(0, 0, 0), count(1, 63, 1), count(1, 100, 1)), (0, 63, 64));
        assert_eq!((count(100, 1, 1), count(3, 30, 1)), (64, 64));
        // The comma after an entry counts too, so 64 entries of 127 bytes take 8 KiB.
        assert_eq!((count(1, 64, 127), count(1, 64, 128), count(2, 1, 5000), count(1, 1, 8192)), (64, 63, 1, 0));
    }

    #[test]
    fn only_valid_addresses_are_parsed() {
        let v4 = Some(IpAddr::from([1, 2, 3, 4]));
        let v6 = "2001:db8::1".parse().ok();
        for text in ["1.2.3.4", "1.2.3.4:80", "::ffff:1.2.3.4", "[::ffff:1.2.3.4]:80", "[::ffff:102:304]"] {
            assert_eq!(address(text.as_bytes()), v4, "{text}");
        }
        for text in ["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:443"] {
            assert_eq!(address(text.as_bytes()), v6, "{text}");
        }
        for text in
            ["", "unknown", "_hidden", "010.0.0.1", "fe80::1%eth0", "1.2.3.4:99999", "1.2.3", "[1.2.3.4]", "1.2.3.4 5"]
        {
            assert_eq!(address(text.as_bytes()), None, "{text}");
        }
        assert_eq!(address(b"\xff\xfe"), None);
    }

    #[test]
    fn the_for_parameter_must_occur_exactly_once_in_a_forwarded_element() {
        let v4 = Some(IpAddr::from([1, 2, 3, 4]));
        for text in [
            "for=1.2.3.4",
            "For=1.2.3.4;by=9.9.9.9",
            r#"proto=https;FOR="1.2.3.4:80""#,
            r#"host="a;for=6.6.6.6";for=1.2.3.4"#,
            // A backslash escapes only within quotes.
            r#"host="a\";for=6.6.6.6";for=1.2.3.4"#,
            r#"host=\;for=1.2.3.4"#,
            r#"for="1.2.3.\4""#,
        ] {
            assert_eq!(node(text.as_bytes()), v4, "{text}");
        }
        assert_eq!(node(br#"for="[2001:db8::1]:4711""#), "2001:db8::1".parse().ok());
        for text in [
            "for=unknown",
            "for=_x",
            "by=1.2.3.4",
            "for=1.2.3.4;for=6.6.6.6",
            r#"for="1.2.3.4"#,
            r#"for=1.2"3.4"#,
            "for",
            "",
        ] {
            assert_eq!(node(text.as_bytes()), None, "{text}");
        }
    }
}
