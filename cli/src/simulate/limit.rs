//! A limit under test: the crate's own layer in a router, with a clock that is set to the times in the log.

use std::convert::Infallible;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use serde_json::Value;
use tollgate::algorithm::Micros;
use tollgate::clock::ManualClock;
use tollgate::config::ConfigReader;
use tollgate::key::{self, KeyExtractor, PeerAddr};
use tollgate::{Config, HeaderFamily, Key, MemoryBackend, Refusal};
use tower::util::BoxService;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::order::Target;

/// A limit that is applied to all requests in a log.
pub struct Limit {
    pub name: String,
    config: Config,
    /// Remarks for the report.
    pub notes: Vec<String>,
}

/// A limit and the rows of its callers. If the time stamps in the log are whole seconds, a limit has two gates: one for
/// each assumption about the times within a second.
pub struct Gate {
    clock: ManualClock,
    service: BoxService<Request, StatusCode, Infallible>,
    waiting: Vec<Answer>,
}

type Request = axum::http::Request<Body>;
type Answer = Pin<Box<dyn Future<Output = Result<StatusCode, Infallible>> + Send>>;

/// What a limit does with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    Allowed,
    /// Allowed after a wait for tokens.
    Delayed,
    Refused,
}

impl Limit {
    /// Creates a limit for all requests from one quota, or from several quotas separated by semicolons.
    pub fn of_quota(quota: &str) -> Result<Limit, String> {
        let text = format!("policies.default.quota = {}", toml::Value::from(quota));
        let config = Config::parse("--quota", &text, |text| toml::from_str(text));
        let config = config.map_err(|error| error.to_string())?;
        Ok(Limit { name: quota.to_owned(), config, notes: Vec::new() })
    }

    /// Creates a limit from a configuration file in TOML or JSON.
    pub fn of_file(path: &Path) -> Result<Limit, String> {
        let (config, notes) = read_config(path)?;
        Ok(Limit { name: path.display().to_string(), config, notes })
    }

    /// Returns whether the limit depends on more than the caller of a request.
    pub fn needs_targets(&self) -> bool {
        self.config.routes().next().is_some() || !self.config.deny_list().is_empty()
    }

    pub fn gate(&self, max_rows: usize) -> Gate {
        let clock = ManualClock::at(Micros::EPOCH);
        let limiter = self.config.limiter(MemoryBackend::builder().clock(clock.clone()).max_rows(max_rows).build());
        let layer = self.config.layer(&limiter.build(), caller()).client_ip(key::client_ip());
        // A simulation needs no headers or bodies, and writing them would take most of the time.
        let layer = layer.headers(HeaderFamily::None).on_refusal(refused);
        let mut paths: Vec<&str> = self.config.routes().map(|(line, _)| path_of(line)).collect();
        paths.sort_unstable();
        paths.dedup();
        let service = match paths.is_empty() {
            // Without routes, no router is needed, and a router would take most of the time.
            true => BoxService::new(layer.layer(service_fn(no_content)).map_response(|response| response.status())),
            false => {
                let router =
                    paths.into_iter().fold(Router::new(), |router, path| router.route(path, any(ok))).fallback(ok);
                BoxService::new(ServiceExt::<Request>::map_response(router.layer(layer), |response| response.status()))
            }
        };
        Gate { clock, service, waiting: Vec::new() }
    }
}

impl Gate {
    /// Sets the clock, and completes the waiting requests that are due.
    pub fn at(&mut self, micros: u64) {
        let now = Micros::new(micros);
        let is_any_due = self.clock.next_wake().is_some_and(|due| due <= now);
        self.clock.set(now);
        if is_any_due {
            let mut context = Context::from_waker(Waker::noop());
            self.waiting.retain_mut(|answer| answer.as_mut().poll(&mut context).is_pending());
        }
    }

    pub fn decide(&mut self, caller: Key, target: Option<&Target>) -> Fate {
        let mut request = axum::http::Request::new(Body::empty());
        if let Some(target) = target {
            *request.method_mut() = Method::from_bytes(target.method.as_bytes()).unwrap_or_default();
            *request.uri_mut() = target.path.parse().unwrap_or_default();
            if let Ok(agent) = HeaderValue::from_bytes(target.user_agent.as_bytes()) {
                request.headers_mut().insert("user-agent", agent);
            }
            if let Some(address) = target.address {
                request.extensions_mut().insert(PeerAddr((address, 0).into()));
            }
        }
        request.extensions_mut().insert(caller);
        let mut answer = self.service.call(request);
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(StatusCode::TOO_MANY_REQUESTS)) => Fate::Refused,
            Poll::Ready(_) => Fate::Allowed,
            Poll::Pending => {
                // The request has reserved tokens, and is answered when it is due.
                self.waiting.push(answer);
                Fate::Delayed
            }
        }
    }
}

async fn ok() {}

async fn no_content(_: Request) -> Result<Response, Infallible> {
    Ok(Response::new(Body::empty()))
}

fn refused(refusal: &Refusal<'_>) -> axum::http::Response<Bytes> {
    let mut response = axum::http::Response::new(Bytes::new());
    *response.status_mut() = refusal.status();
    response
}

fn caller() -> impl KeyExtractor {
    key::extension(|caller: &Key| caller.clone())
}

/// Returns the path of a route such as `POST /todos`.
fn path_of(line: &str) -> &str {
    line.split_once(' ').map_or(line, |(_, path)| path)
}

/// Reads a configuration file. All key extractors that the file names return the caller's key, because a log contains
/// no other keys.
pub fn read_config(path: &Path) -> Result<(Config, Vec<String>), String> {
    let (text, is_json) = text_of(path)?;
    // If the file is invalid, reading the configuration below reports the errors.
    let file = parse(&text, is_json).unwrap_or_default();
    let names = key_names(&file);
    let reader = names.iter().fold(ConfigReader::new(), |reader, name| reader.key(name.clone(), caller()));
    let name = path.display().to_string();
    let config = match is_json {
        true => reader.parse(name, &text, |text| serde_json::from_str(text)),
        false => reader.parse(name, &text, |text| toml::from_str(text)),
    };
    let note = |name: &String| format!("the file has the key {name:?}, but a log does not; --key is used instead");
    let mut notes: Vec<String> = names.iter().map(note).collect();
    if policies(&file).any(|policy| policy.get("tiers").is_some()) {
        notes.push("a log does not contain tiers, so all callers count as callers without a tier".to_owned());
    }
    Ok((config.map_err(|error| error.to_string())?, notes))
}

/// Reads the fields of a configuration file.
pub fn read_file(path: &Path) -> Result<Value, String> {
    let (text, is_json) = text_of(path)?;
    parse(&text, is_json).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a file. Also returns whether it contains JSON instead of TOML.
fn text_of(path: &Path) -> Result<(String, bool), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok((text, path.extension().is_some_and(|extension| extension == "json")))
}

fn parse(text: &str, is_json: bool) -> Result<Value, String> {
    match is_json {
        true => serde_json::from_str(text).map_err(|error| error.to_string()),
        false => toml::from_str(text).map_err(|error| error.to_string()),
    }
}

fn policies(file: &Value) -> impl Iterator<Item = &Value> {
    file.get("policies").and_then(Value::as_object).into_iter().flat_map(|policies| policies.values())
}

/// Returns the names of the key extractors in a file.
fn key_names(file: &Value) -> Vec<String> {
    let mut names: Vec<String> = policies(file)
        .filter_map(|policy| policy.get("key")?.as_str().map(str::to_owned))
        .filter(|name| name != "global")
        .collect();
    names.sort();
    names.dedup();
    names
}
