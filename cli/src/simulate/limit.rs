//! A limit under test: the crate's own layer in a router, on a clock that shows the times of the log.

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
use tollgate::algorithm::Micros;
use tollgate::clock::ManualClock;
use tollgate::config::ConfigReader;
use tollgate::key::{self, KeyExtractor, PeerAddr};
use tollgate::{Config, HeaderFamily, Key, MemoryBackend, Refusal};
use tower::util::BoxService;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::order::Target;

/// A limit that is applied to all requests of a log.
pub struct Limit {
    pub name: String,
    config: Config,
    /// Remarks for the report.
    pub notes: Vec<String>,
}

/// A limit with the rows of its callers. A limit can be applied twice, to earliest and latest possible times.
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
    /// A limit of one quota, or of several quotas that are separated by semicolons, for all requests.
    pub fn of_quota(quota: &str) -> Result<Limit, String> {
        let text = format!("policies.default.quota = {}", toml::Value::from(quota));
        let config = Config::parse("--quota", &text, |text| toml::from_str(text));
        let config = config.map_err(|error| error.to_string())?;
        Ok(Limit { name: quota.to_owned(), config, notes: Vec::new() })
    }

    /// The limits of a configuration file, in TOML or JSON.
    pub fn of_file(path: &Path) -> Result<Limit, String> {
        let (config, notes) = read_config(path)?;
        Ok(Limit { name: path.display().to_string(), config, notes })
    }

    /// Whether the limit depends on more than the caller of a request.
    pub fn needs_targets(&self) -> bool {
        self.config.routes().next().is_some() || !self.config.deny_list().is_empty()
    }

    pub fn gate(&self, max_rows: usize) -> Gate {
        let clock = ManualClock::at(Micros::EPOCH);
        let limiter = self.config.limiter(MemoryBackend::builder().clock(clock.clone()).max_rows(max_rows).build());
        let layer = self.config.layer(&limiter.build(), caller()).client_ip(key::client_ip());
        // A log needs no headers and no bodies, whose writing would take most of the time.
        let layer = layer.ignore_unmatched_deny_rules().headers(HeaderFamily::None).on_refusal(refused);
        let mut paths: Vec<&str> = self.config.routes().map(|(line, _)| path_of(line)).collect();
        paths.sort_unstable();
        paths.dedup();
        let service = match paths.is_empty() {
            // Without routes, the layer needs no router, which would take most of the time.
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
    /// Moves the clock. Times before the last one change nothing.
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
                // The request has reserved tokens. It is answered when the clock has reached its time.
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

/// The path of a line such as `POST /todos`.
fn path_of(line: &str) -> &str {
    line.split_once(' ').map_or(line, |(_, path)| path)
}

/// Reads a configuration file. Key extractors that it names are the caller's key, since a log has no others.
pub fn read_config(path: &Path) -> Result<(Config, Vec<String>), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    let names = key_names(&text, is_json);
    let reader = names.iter().fold(ConfigReader::new(), |reader, name| reader.key(name.clone(), caller()));
    let name = path.display().to_string();
    let config = match is_json {
        true => reader.parse(name, &text, |text| serde_json::from_str(text)),
        false => reader.parse(name, &text, |text| toml::from_str(text)),
    };
    let note = |name: &String| format!("the key {name:?} in the file is not in a log; --key is used for it");
    Ok((config.map_err(|error| error.to_string())?, names.iter().map(note).collect()))
}

/// The key extractors that a file names. An invalid file has none; its faults are found when it is read.
fn key_names(text: &str, is_json: bool) -> Vec<String> {
    let file: Option<serde_json::Value> =
        if is_json { serde_json::from_str(text).ok() } else { toml::from_str(text).ok() };
    let policies = file.as_ref().and_then(|file| file.get("policies")?.as_object());
    let mut names: Vec<String> = policies
        .into_iter()
        .flat_map(|policies| policies.values())
        .filter_map(|policy| policy.get("key")?.as_str().map(str::to_owned))
        .filter(|name| name != "global")
        .collect();
    names.sort();
    names.dedup();
    names
}
