//! JSON lines, whose fields are found by name.

use serde_json::Value;

use super::time::{LastSecond, Stamp};
use super::{Entry, LineError, address, path_of};

/// The names of the fields in JSON lines. A name such as `request.uri` is looked up as a whole first, then by its parts.
#[derive(Clone, Debug, Default)]
pub struct JsonFields {
    time: String,
    address: String,
    user: String,
    method: String,
    path: String,
    user_agent: String,
    duration: String,
}

const KNOWN: &str = "time, address, user, method, path, user_agent, duration";

impl JsonFields {
    pub fn caddy() -> JsonFields {
        JsonFields {
            time: "ts".to_owned(),
            address: "request.client_ip".to_owned(),
            user: "user_id".to_owned(),
            method: "request.method".to_owned(),
            path: "request.uri".to_owned(),
            user_agent: "request.headers.User-Agent".to_owned(),
            duration: "duration".to_owned(),
        }
    }

    /// The fields of Traefik's logs. A line's time is the start of the request, so there is no duration to subtract.
    pub fn traefik() -> JsonFields {
        JsonFields {
            time: "StartUTC".to_owned(),
            address: "ClientHost".to_owned(),
            user: "ClientUsername".to_owned(),
            method: "RequestMethod".to_owned(),
            path: "RequestPath".to_owned(),
            user_agent: "request_User-Agent".to_owned(),
            duration: String::new(),
        }
    }

    /// Parses fields such as `time=ts`.
    pub fn new(fields: &[String]) -> Result<JsonFields, String> {
        let mut named = JsonFields::default();
        for field in fields {
            let (name, of) = field.split_once('=').unwrap_or((field, ""));
            let slot = match name {
                "time" => &mut named.time,
                "address" => &mut named.address,
                "user" => &mut named.user,
                "method" => &mut named.method,
                "path" => &mut named.path,
                "user_agent" => &mut named.user_agent,
                "duration" => &mut named.duration,
                _ => return Err(format!("--field {field}: expected one of {KNOWN}, then = and a field name")),
            };
            if of.is_empty() {
                return Err(format!("--field {field}: expected a field name after =, such as {name}=ts"));
            }
            of.clone_into(slot);
        }
        if named.time.is_empty() {
            return Err("--field: the time is missing; add it, for example --field time=ts".to_owned());
        }
        Ok(named)
    }

    /// Parses a line. The entry's strings are stored in `buffer`.
    pub fn parse<'a>(&self, line: &str, buffer: &'a mut String) -> Result<Entry<'a>, LineError> {
        let value: Value =
            serde_json::from_str(line).map_err(|error| LineError(format!("expected a JSON object: {error}")))?;
        let text = |name: &str| get(&value, name).map(as_text).unwrap_or_default();
        let stamp = text(&self.time);
        let time = [Stamp::Epoch, Stamp::Rfc3339, Stamp::Common]
            .into_iter()
            .find_map(|notation| notation.parse(&stamp, &mut LastSecond::default()));
        let (micros, whole_second) =
            time.ok_or_else(|| LineError::new(&format!("a time in the field {:?}", self.time), &stamp))?;
        // The log has durations in seconds.
        let duration = text(&self.duration).parse().map_or(0, |seconds: f64| (seconds.max(0.0) * 1e6) as u64);
        let target = text(&self.path);
        let texts = [text(&self.user), text(&self.method), path_of(&target).to_owned(), text(&self.user_agent)];
        buffer.clear();
        texts.iter().for_each(|text| buffer.push_str(text));
        let mut rest = buffer.as_str();
        let [user, method, path, user_agent] = texts.map(|text| {
            let (own, others) = rest.split_at(text.len());
            rest = others;
            own
        });
        let address = address(&text(&self.address));
        let micros = micros.saturating_sub(duration);
        Ok(Entry { micros, whole_second, address, user, method, path, user_agent })
    }
}

fn get<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    if name.is_empty() {
        return None;
    }
    value.get(name).or_else(|| name.split('.').try_fold(value, |value, part| value.get(part)))
}

/// Returns the text of a field. For a list, such as a header in Caddy's logs, returns the text of the first item.
fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.first().map(as_text).unwrap_or_default(),
        Value::Null | Value::Object(_) => String::new(),
        other => other.to_string(),
    }
}
