//! Broken lines in all formats. `TOLLGATE_LINES=10000000 cargo test --release hostile` tries ten million of them.

use super::Format;

const LINES: [&str; 6] = [
    r#"2001:db8::7 - ada [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.1" 200 2326 "-" "x \"y\" z\\""#,
    r#"10.0.0.1 [2026-01-01T00:00:10+00:00] "POST /x HTTP/2.0" 1.250 "192.0.2.4, 10.0.0.2""#,
    r#"10.0.0.1 1767225600.250 0.200 GET /slow"#,
    r#"{"ts":1646861401.5241024,"request":{"client_ip":"127.0.0.1","method":"GET","uri":"/a?b=c","headers":{"User-Agent":["c"]}},"duration":0.1}"#,
    r#"{"ClientHost":"2001:db8::1","RequestMethod":"GET","RequestPath":"/","StartUTC":"2026-01-01T00:00:00.9Z"}"#,
    r#"192.0.2.9 - - [31/Dec/9999:23:59:60 +2359] "\x16\x03" 400 226"#,
];

const FORMATS: [&str; 6] = [
    "combined",
    r#"${remote_addr} [$time_iso8601] "$request" $request_time "$http_x_forwarded_for""#,
    "$remote_addr $msec $request_time $request_method $request_uri",
    "caddy",
    "traefik",
    "common",
];

/// Strings that are likely to confuse parsers.
const PIECES: [&str; 20] = [
    "\"",
    "\\",
    " ",
    "-",
    "[",
    "]",
    "ü",
    "日",
    "\0",
    "\u{1b}",
    "9999999999999999999",
    "0",
    ".",
    ":",
    "%",
    "://",
    "{",
    "}",
    "null",
    "\\u0000",
];

#[test]
fn hostile_lines_are_parsed_or_rejected() {
    let lines: u64 = std::env::var("TOLLGATE_LINES").map_or(60_000, |lines| lines.parse().unwrap());
    let mut formats: Vec<Format> = FORMATS.iter().map(|format| format.parse().unwrap()).collect();
    let (mut seed, mut buffer, mut read) = (1u64, String::new(), 0u64);
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    for _ in 0..lines {
        let mut line = LINES[below(LINES.len())].to_owned();
        for _ in 0..below(4) {
            let mut at = |line: &str| {
                let at = below(line.len() + 1);
                (at..=line.len()).find(|at| line.is_char_boundary(*at)).unwrap()
            };
            let (one, other) = (at(&line), at(&line));
            let (from, to) = (one.min(other), one.max(other));
            if to - from <= 12 {
                line.replace_range(from..to, "");
            }
            let place = (0..=one.min(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap();
            line.insert_str(place, PIECES[below(PIECES.len())]);
        }
        for format in &mut formats {
            if let Ok(entry) = format.parse(&line, &mut buffer) {
                assert!(entry.path.len() <= line.len() && !entry.path.contains('?'), "{line:?}");
                read += 1;
            }
        }
    }
    assert!(read > lines / 4, "only {read} lines were parsed");
}
