//! Helpers that call status endpoints and parse their responses.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use tollgate::algorithm::{Algorithm, Micros, State};
use tollgate::{MemoryBackend, Quota, RateLimiter, clock::ManualClock};
use tower::ServiceExt;

use crate::support::answer::Answer;

pub(crate) fn limiter() -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    (RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build()), clock)
}

/// Returns the user named in the `x-user` header, which stands in for authentication in these tests.
pub(crate) fn user(req: &Parts) -> Option<String> {
    Some(req.headers.get("x-user")?.to_str().ok()?.to_owned())
}

/// Sends a request without a body. `line` is its method and path, such as `"GET /rate-limit"`; `lines` are its headers.
pub(crate) async fn call(app: &Router, line: &str, lines: &[&str]) -> Answer {
    let (method, target) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(target);
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    send(app, request.body(Body::empty()).unwrap()).await
}

pub(crate) async fn send(app: &Router, request: Request) -> Answer {
    let Ok(response) = app.clone().oneshot(request).await;
    Answer::read(response).await
}

/// Returns the limit that `/rate-limit` reports to this user.
pub(crate) async fn status(app: &Router, user: &str) -> ReportedLimit {
    let answer = call(app, "GET /rate-limit", &[&format!("x-user: {user}")]).await;
    assert_eq!(answer.status, 200, "{}", text(&answer));
    ReportedLimit::read(&text(&answer))
}

pub(crate) async fn statuses(app: &Router, user: &str) -> Vec<ReportedLimit> {
    let answer = call(app, "GET /rate-limit", &[&format!("x-user: {user}")]).await;
    assert_eq!(answer.status, 200, "{}", text(&answer));
    limits(&text(&answer))
}

/// Returns the limits in `{"limits":[..],"now":..}`.
pub(crate) fn limits(body: &str) -> Vec<ReportedLimit> {
    let value: serde_json::Value = serde_json::from_str(body).unwrap();
    assert!(value["now"].is_u64(), "{body}");
    // The limits are parsed from the text, because serde_json reads some fractions with an error in the last bit.
    let list = body.strip_prefix(r#"{"limits":["#).unwrap().split_once(r#"],"now""#).unwrap().0;
    let found: Vec<_> = list.split("},{").filter(|part| !part.is_empty()).map(ReportedLimit::read).collect();
    assert_eq!(found.len(), value["limits"].as_array().unwrap().len(), "{body}");
    found
}

pub(crate) fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).unwrap()
}

/// A snapshot as a client parses it. All numbers are doubles.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReportedLimit {
    pub(crate) policy: String,
    pub(crate) algorithm: String,
    pub(crate) rate: f64,
    pub(crate) period: f64,
    pub(crate) capacity: f64,
    pub(crate) start: f64,
    pub(crate) max_reserved: Option<f64>,
    pub(crate) spent: f64,
    pub(crate) previous: f64,
    pub(crate) ts: f64,
    pub(crate) now: f64,
    pub(crate) not_before: Option<f64>,
    /// `Some` if the row was written under another quota.
    pub(crate) clear: Option<f64>,
    pub(crate) written_by: Option<String>,
}

impl ReportedLimit {
    pub(crate) fn read(json: &str) -> ReportedLimit {
        let field = |name: &str| {
            let rest = json.split_once(&format!("\"{name}\":"))?.1;
            // The policy names that are read here contain neither `,` nor `}`.
            Some(rest.split([',', '}']).next().unwrap().to_owned())
        };
        let number = |name: &str| field(name).unwrap_or_else(|| panic!("no {name} in {json}")).parse::<f64>().unwrap();
        let string = |name: &str| serde_json::from_str::<String>(&field(name).unwrap()).unwrap();
        ReportedLimit {
            policy: string("policy"),
            algorithm: string("algorithm"),
            rate: number("rate"),
            period: number("period"),
            capacity: number("capacity"),
            start: number("start"),
            max_reserved: (field("max_reserved").unwrap() != "null").then(|| number("max_reserved")),
            spent: number("spent"),
            previous: number("previous"),
            ts: number("ts"),
            now: number("now"),
            not_before: field("not_before").map(|text| text.parse().unwrap()),
            clear: field("clear").map(|text| text.parse().unwrap()),
            written_by: field("written_by").map(|text| serde_json::from_str(&text).unwrap()),
        }
    }

    /// Rebuilds the quota from the reported fields.
    pub(crate) fn quota(&self) -> Quota {
        let (rate, period) = (self.rate as u64, Duration::from_micros(self.period as u64));
        let start = Duration::from_micros(self.start as u64);
        let quota = match self.algorithm.as_str() {
            "token_bucket" => Quota::token_bucket(rate, period).capacity(self.capacity as u64),
            "fixed_window" => Quota::fixed_window(rate, period).capacity(self.capacity as u64).start(start),
            "sliding_window" => Quota::sliding_window(rate, period).start(start),
            other => panic!("{other}"),
        };
        match (quota.algorithm(), self.max_reserved) {
            (Algorithm::SlidingWindow, reserved) => {
                assert_eq!(reserved, Some(0.0));
                quota
            }
            (_, Some(tokens)) => quota.max_reserved(tokens as u64),
            (_, None) => quota.unlimited_reservations(),
        }
    }

    /// Rebuilds the row from the reported fields.
    pub(crate) fn state(&self) -> State {
        let (at, own) = (Micros::new(self.ts as u64), tollgate::algorithm::stamp(&self.quota()));
        // Only the low three bits of another quota's stamp matter. They contain its algorithm.
        let stamp = self.written_by.as_ref().map_or(own, |writer| {
            let tag = ["token_bucket", "fixed_window", "sliding_window"].iter().position(|name| name == writer);
            (!own & !7) | (1 + tag.unwrap() as u32)
        });
        assert_eq!(self.clear.is_some(), self.written_by.is_some());
        let clear = self.clear.map_or(Micros::EPOCH, |clear| Micros::new(clear as u64));
        State { spent: self.spent, at, carry: self.previous, stamp, clear }
    }
}
