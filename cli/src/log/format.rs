//! The formats of log lines: common, combined, nginx's `log_format` and JSON lines.

use std::str::FromStr;

use super::json::JsonFields;
use super::time::{LastSecond, Stamp};
use super::{Entry, LineError, address, path_of, request_line};

/// The format of a log's lines.
#[derive(Clone, Debug)]
pub enum Format {
    /// Fields separated by literal text, as in nginx's `log_format`.
    Fields(FieldFormat),
    /// A JSON object in each line.
    Json(JsonFields),
}

const COMMON: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent"#;
const COMBINED: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;

/// A line format with fields that are separated by literal text.
#[derive(Clone, Debug)]
pub struct FieldFormat {
    prefix: String,
    /// The fields, each with the text after it.
    fields: Vec<(Field, String)>,
    /// Whether lines may continue after the last field, as combined lines do after the fields of the common format.
    is_open: bool,
    last: LastSecond,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Address,
    ForwardedFor,
    User,
    Time(Stamp),
    Request,
    Method,
    Target,
    UserAgent,
    /// The duration of the request in seconds. It is subtracted from the time stamp, because nginx writes a line when
    /// a request ends.
    Duration,
    Other,
}

impl Format {
    /// The names of the predefined formats.
    pub const NAMES: [&str; 4] = ["common", "combined", "caddy", "traefik"];

    pub fn combined() -> Format {
        Format::Fields(FieldFormat::new(COMBINED, true).unwrap_or_else(|error| unreachable!("{error}")))
    }

    /// Creates a format for JSON lines from field names such as `time=ts` or `address=request.remote_ip`.
    pub fn json(fields: &[String]) -> Result<Format, String> {
        JsonFields::new(fields).map(Format::Json)
    }

    pub fn parse<'a>(&mut self, line: &'a str, buffer: &'a mut String) -> Result<Entry<'a>, LineError> {
        match self {
            Format::Fields(format) => format.parse(line),
            Format::Json(fields) => fields.parse(line, buffer),
        }
    }
}

/// Parses the name of a format or a `log_format` string.
impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        match text {
            "common" => FieldFormat::new(COMMON, true).map(Format::Fields),
            "combined" => Ok(Format::combined()),
            "caddy" => Ok(Format::Json(JsonFields::caddy())),
            "traefik" => Ok(Format::Json(JsonFields::traefik())),
            _ if text.contains('$') => FieldFormat::new(text, false).map(Format::Fields),
            _ => Err(format!(
                "expected {}, or an nginx log_format string such as '$remote_addr [$time_local] \"$request\"'; for other \
                 JSON lines, name the fields with --field",
                Format::NAMES.join(", ")
            )),
        }
    }
}

impl FieldFormat {
    fn new(format: &str, is_open: bool) -> Result<FieldFormat, String> {
        let (prefix, rest) = format.split_at(format.find('$').unwrap_or(format.len()));
        let (mut fields, mut rest) = (Vec::new(), rest);
        while let Some(after) = rest.strip_prefix('$') {
            let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let (name, tail) = braced.unwrap_or_else(|| {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                after.split_at(end)
            });
            let (literal, next) = tail.split_at(tail.find('$').unwrap_or(tail.len()));
            if literal.is_empty() && !next.is_empty() {
                return Err(format!(
                    "there is no text between ${name} and the next field, so the end of ${name} cannot be found"
                ));
            }
            fields.push((Field::named(name), literal.to_owned()));
            rest = next;
        }
        let has = |wanted: fn(&Field) -> bool| fields.iter().any(|(field, _)| wanted(field));
        if !has(|field| matches!(field, Field::Time(_))) {
            return Err("the format has no time; add $time_local, $time_iso8601 or $msec".to_owned());
        }
        Ok(FieldFormat { prefix: prefix.to_owned(), fields, is_open, last: LastSecond::default() })
    }

    fn parse<'a>(&mut self, line: &'a str) -> Result<Entry<'a>, LineError> {
        let mut rest = line.strip_prefix(self.prefix.as_str()).ok_or_else(|| LineError::new(&self.prefix, line))?;
        let (mut entry, mut duration) = (Entry::default(), 0);
        for (i, (field, literal)) in self.fields.iter().enumerate() {
            let is_last = i + 1 == self.fields.len();
            let end = match (is_last, self.is_open) {
                (true, true) if literal.is_empty() => rest.find(' ').unwrap_or(rest.len()),
                (true, _) if literal.is_empty() => rest.len(),
                _ => find(rest, literal).ok_or_else(|| LineError::new(&format!("{literal:?}"), rest))?,
            };
            let (value, tail) = rest.split_at(end);
            rest = &tail[literal.len()..];
            field.read(value, &mut entry, &mut duration, &mut self.last)?;
        }
        if !self.is_open && !rest.is_empty() {
            return Err(LineError::new("the end of the line", rest));
        }
        entry.micros = entry.micros.saturating_sub(duration);
        Ok(entry)
    }
}

impl Field {
    fn read<'a>(
        self,
        value: &'a str,
        entry: &mut Entry<'a>,
        duration: &mut u64,
        last: &mut LastSecond,
    ) -> Result<(), LineError> {
        match self {
            Field::Time(stamp) => {
                let time = stamp.parse(value, last).ok_or_else(|| LineError::new("a time", value))?;
                (entry.micros, entry.whole_second) = time;
            }
            Field::Address => {
                entry.address = entry.address.or(address(value));
            }
            Field::ForwardedFor => {
                entry.address = address(value).or(entry.address);
            }
            Field::User => entry.user = value,
            Field::Request => match request_line(value) {
                Some((method, path)) => (entry.method, entry.path) = (method, path),
                // Servers also log input that is not a request line, such as the start of a TLS handshake.
                None => (entry.method, entry.path) = ("", ""),
            },
            Field::Method => entry.method = value,
            Field::Target => entry.path = path_of(value),
            Field::UserAgent => entry.user_agent = value,
            // nginx writes `-` if there was no duration.
            Field::Duration => *duration = value.parse().map_or(0, |seconds: f64| (seconds.max(0.0) * 1e6) as u64),
            Field::Other => {}
        }
        Ok(())
    }

    /// Returns the field of an nginx variable.
    fn named(name: &str) -> Field {
        match name {
            "remote_addr" | "realip_remote_addr" => Field::Address,
            "http_x_forwarded_for" => Field::ForwardedFor,
            "remote_user" => Field::User,
            "time_local" => Field::Time(Stamp::Common),
            "time_iso8601" => Field::Time(Stamp::Rfc3339),
            "msec" => Field::Time(Stamp::Epoch),
            "request" => Field::Request,
            "request_method" => Field::Method,
            "request_uri" | "uri" => Field::Target,
            "http_user_agent" => Field::UserAgent,
            "request_time" => Field::Duration,
            _ => Field::Other,
        }
    }
}

/// Finds the literal text that ends a value. In a quoted value, a quote after a backslash belongs to the value.
fn find(text: &str, literal: &str) -> Option<usize> {
    if !literal.starts_with('"') {
        return memchr::memmem::find(text.as_bytes(), literal.as_bytes());
    }
    let (bytes, mut at) = (text.as_bytes(), 0);
    loop {
        at += memchr::memchr2(b'"', b'\\', &bytes[at..])?;
        match bytes[at] {
            b'\\' => at = (at + 2).min(bytes.len()),
            _ if text[at..].starts_with(literal) => return Some(at),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<'a>(format: &str, line: &'a str) -> Result<Entry<'a>, String> {
        let format: Format = format.parse().unwrap();
        let Format::Fields(mut fields) = format else { panic!("not a field format") };
        fields.parse(line).map_err(|LineError(text)| text)
    }

    #[test]
    fn combined_lines_are_parsed() {
        let line = r#"2001:db8::7 - ada [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.1" 200 2326 "-" "x \"y\" z\\""#;
        let entry = parse("combined", line).unwrap();
        assert_eq!((entry.method, entry.path, entry.user), ("GET", "/a", "ada"));
        assert_eq!(entry.user_agent, r#"x \"y\" z\\"#);
        assert_eq!((entry.micros, entry.whole_second), (971_211_336_000_000, true));
        // A combined line also matches the common format, and a line may have more fields than its format.
        assert_eq!(parse("common", line).unwrap().path, "/a");
        assert!(parse("combined", &format!("{line} 0.5 more")).is_ok());
    }

    #[test]
    fn nginx_formats_are_parsed() {
        let format = r#"${remote_addr} [$time_iso8601] "$request" $request_time "$http_x_forwarded_for""#;
        let line = r#"10.0.0.1 [2026-01-01T00:00:10+00:00] "POST /x HTTP/2.0" 1.250 "192.0.2.4, 10.0.0.2""#;
        let entry = parse(format, line).unwrap();
        assert_eq!(entry.micros, 1_767_225_610_000_000 - 1_250_000);
        assert_eq!(entry.address, Some("192.0.2.4".parse().unwrap()));
        let error = parse(format, &line.replace("] ", "]")).unwrap_err();
        assert!(error.starts_with(r#"expected "] \"""#), "{error}");
    }

    #[test]
    fn invalid_formats_are_rejected() {
        let error = |format: &str| format.parse::<Format>().unwrap_err();
        assert!(error("$remote_addr $status").contains("no time"));
        assert!(error("$remote_addr$msec").contains("$remote_addr and the next field"));
        assert!(error("combinde").contains("common, combined"));
    }
}
