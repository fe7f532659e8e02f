//! Parsers for each format, and an application limited by a configuration.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::routing::get;
use tollgate::config::{ConfigError, ConfigReader};
use tollgate::key::KeyExtractor;
use tollgate::{Config, MemoryBackend, RateLimiter, Subject, clock::ManualClock};
use tower::ServiceExt;

use crate::support::answer::Answer;

/// Parses `text` in the format indicated by the extension of `name`. Panics if the JSON schema rejects a valid file.
pub(crate) fn parse(name: &str, text: &str) -> Result<Config, ConfigError> {
    let reader = reader();
    let config = match name.rsplit_once('.').expect("expected a file extension").1 {
        "toml" => reader.parse(name, text, |text| toml::from_str(text)),
        "yaml" => reader.parse(name, text, |text| yaml_serde::from_str(text)),
        "json" => reader.parse(name, text, |text| serde_json::from_str(text)),
        other => panic!("unknown format {other:?}"),
    }?;
    super::schema::check(&super::schema::json(name, text)).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
    Ok(config)
}

/// Returns a reader with the keys `user` and `tenant`, which are taken from the headers `x-user` and `x-tenant`.
pub(crate) fn reader() -> ConfigReader {
    let header =
        |name: &'static str| move |req: &Parts| req.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    ConfigReader::new().key("user", header("x-user")).key("tenant", header("x-tenant").or_reject())
}

pub(crate) fn toml(text: &str) -> Config {
    parse("limits.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn limiter(config: &Config) -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    (config.limiter(MemoryBackend::builder().clock(clock.clone()).build()).build(), clock)
}

/// Returns an application limited by `config`. The headers `x-user`, `x-tier` and `x-country` describe the caller.
pub(crate) fn app(config: &Config, limiter: &RateLimiter) -> Router {
    let header = |req: &Parts, name: &str| req.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let user = move |req: &Parts| {
        let subject = Subject::new(header(req, "x-user").unwrap_or_default());
        match header(req, "x-tier") {
            Some(tier) => subject.tier(tier),
            None => subject,
        }
    };
    Router::new()
        .route("/todos", get(|| async {}).post(|| async {}))
        .route("/search", get(|| async {}))
        .route("/users/{id}", get(|| async {}))
        .layer(config.layer(limiter, user).label("country", move |req: &Parts| header(req, "x-country")))
}

/// Sends a request such as `"GET /todos"` with header lines such as `"x-user: ada"`.
pub(crate) async fn call(app: &Router, line: &str, lines: &[&str]) -> Answer {
    let (method, target) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(target);
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    let Ok(response) = app.clone().oneshot(request.body(Body::empty()).unwrap()).await;
    Answer::read(response).await
}

/// Returns the status and, from the headers, the policy name, the limit and the remaining tokens.
pub(crate) async fn quota_headers(app: &Router, line: &str, lines: &[&str]) -> (u16, String, u64, u64) {
    let answer = call(app, line, lines).await;
    let (policies, limits) = (answer.policies(), answer.limits());
    assert_eq!((policies.len(), limits.len()), (1, 1), "{line}");
    (answer.status, policies[0].0.clone(), policies[0].1, limits[0].1)
}
