//! Requests to the admin router.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

/// How to reach the admin router.
#[derive(clap::Args, Debug)]
pub(super) struct Server {
    /// The address of the admin router, such as https://example.com/admin/limits
    #[arg(long, env = "TOLLGATE_ADMIN_URL", hide_env_values = true, value_parser = parse_url)]
    url: String,
    /// A file with your token; by default, the token is read from the environment variable TOLLGATE_ADMIN_TOKEN
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Print the router's response as JSON
    #[arg(long)]
    pub(super) json: bool,
}

fn parse_url(text: &str) -> Result<String, String> {
    let uri: ureq::http::Uri = text.parse().map_err(|error| format!("{error}"))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.query().is_none() => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("expected a URL that begins with http:// or https:// and has no query".to_owned()),
    }
}

pub(super) struct Client {
    agent: ureq::Agent,
    url: String,
    authorization: String,
}

impl Server {
    pub(super) fn connect(&self) -> Result<Client, String> {
        if self.url.contains('@') {
            return Err("--url: leave out the user name and the password, because errors show the URL".to_owned());
        }
        let token = match &self.token_file {
            Some(file) => std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?,
            None => std::env::var("TOLLGATE_ADMIN_TOKEN")
                .map_err(|_| "no token; set the variable TOLLGATE_ADMIN_TOKEN, or pass a file with --token-file")?,
        };
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(10)))
            .http_status_as_error(false)
            .max_redirects(0) // The token must not be sent to another server.
            .build()
            .new_agent();
        Ok(Client { agent, url: self.url.clone(), authorization: format!("Bearer {}", token.trim()) })
    }
}

impl Client {
    pub(super) fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, String> {
        let request = self.agent.get(format!("{}/{path}", self.url)).header("authorization", &self.authorization);
        let request = query.iter().fold(request, |request, (name, value)| request.query(name, value));
        self.read(request.call())
    }

    /// Sends JSON. Keys are sent only in bodies, because servers log URLs.
    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        let request = self.agent.post(format!("{}/{path}", self.url)).header("authorization", &self.authorization);
        self.read(request.header("content-type", "application/json").send(body.to_string()))
    }

    fn read(&self, response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Value, String> {
        let unreachable = |error| plain(&format!("cannot reach {}: {error}; is the service running?", self.url));
        let mut response = response.map_err(unreachable)?;
        let status = response.status();
        let body = response.body_mut().read_to_string().map_err(|error| format!("{}: {error}", self.url))?;
        let answer: Option<Value> = serde_json::from_str(&body).ok();
        match (status.is_success(), answer) {
            (true, Some(answer)) => Ok(answer),
            (false, Some(Value::Object(problem))) if problem.contains_key("detail") => Err(text(&problem["detail"])),
            _ => Err(format!(
                "expected an answer from the admin router at {}, found a response with status {status} from another \
                 server or route; check --url",
                self.url
            )),
        }
    }
}

/// Formats milliseconds in the largest unit that fits.
pub(super) fn duration(ms: &Value) -> String {
    let Some(ms) = ms.as_u64() else { return "never".to_owned() };
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")];
    let (size, unit) = units.into_iter().find(|(size, _)| ms >= *size).unwrap_or((1, "ms"));
    let tenths = u128::from(ms) * 10 / u128::from(size);
    if tenths % 10 == 0 { format!("{} {unit}", tenths / 10) } else { format!("{}.{} {unit}", tenths / 10, tenths % 10) }
}

/// Returns text from the router on one line, without characters that could affect the terminal.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| plain(&value.to_string()), plain)
}

fn plain(text: &str) -> String {
    text.chars().map(|c| if changes_terminal(c) { '\u{fffd}' } else { c }).collect()
}

/// Returns whether a character could control a terminal or reorder the text after it.
pub(super) fn changes_terminal(c: char) -> bool {
    let is_invisible =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_invisible
}

/// Returns the entries of a list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Names the processes to which an answer applies.
pub(super) fn scope(value: &Value) -> &'static str {
    if value == "all_processes" { "all processes" } else { "this process" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_have_the_largest_unit_and_at_most_one_decimal() {
        for (ms, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1500, "1.5 s"),
            (60_000, "1 min"),
            (5_400_000, "1.5 h"),
            (90_000_000, "1 d"),
            (u64::MAX, "213503982334.6 d"),
        ] {
            assert_eq!(duration(&json!(ms)), expected);
        }
        assert_eq!(duration(&Value::Null), "never");
    }

    #[test]
    fn control_characters_from_callers_do_not_reach_the_terminal() {
        assert_eq!(text(&json!("a\u{1b}[2Jb\n")), "a\u{fffd}[2Jb\u{fffd}");
        // U+202E reverses the text after it.
        assert_eq!(text(&json!("a\u{202e}b\u{9b}2J")), "a\u{fffd}b\u{fffd}2J");
    }
}
