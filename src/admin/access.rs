//! Access control: authorizes requests, checks rights, and refuses cross-origin requests.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderName, Method, Uri};

use super::problem::Problem;
use super::{Admin, change};
use crate::limiter::observer::Audited;
use crate::policy::Secret;

/// A person or program that uses the router, and whether it may make changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    name: Arc<str>,
    changes: bool,
}

impl Operator {
    /// Creates an operator who may read but not make changes.
    pub fn reader(name: impl Into<String>) -> Operator {
        Operator { name: name.into().into(), changes: false }
    }

    /// Creates an operator who may read and make changes.
    pub fn editor(name: impl Into<String>) -> Operator {
        Operator { name: name.into().into(), changes: true }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// Returns an authorization function for [`Admin::new`] that accepts fixed bearer tokens. The time that a
/// comparison takes reveals nothing about the tokens.
///
/// # Panics
/// Panics if two tokens are equal, or if a token, once trimmed, is shorter than 16 bytes or contains anything but
/// visible ASCII characters and spaces.
#[track_caller]
pub fn bearer_tokens<T: AsRef<str>>(
    tokens: impl IntoIterator<Item = (T, Operator)>,
) -> impl Fn(&Parts) -> Option<Operator> + Send + Sync + 'static {
    // The map's keys are digests made with a random secret, so the time of a lookup reveals nothing about the tokens.
    let secret = Secret::random();
    let mut operators = HashMap::new();
    for (token, operator) in tokens {
        let token = token.as_ref().trim();
        let is_valid = token.len() >= MIN_TOKEN && token.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        assert!(
            is_valid,
            "tollgate: expected a token of at least {MIN_TOKEN} visible ASCII characters for {:?}",
            operator.name()
        );
        let other = operators.insert(secret.hash(token.as_bytes()), operator);
        assert!(other.is_none(), "tollgate: two operators have the same token; give each its own");
    }
    move |parts| {
        let value = parts.headers.get(AUTHORIZATION)?.as_bytes();
        let (scheme, token) = value.split_at_checked(BEARER.len())?;
        if !scheme.eq_ignore_ascii_case(BEARER) {
            return None;
        }
        operators.get(&secret.hash(token.trim_ascii())).cloned()
    }
}

const MIN_TOKEN: usize = 16;
const BEARER: &[u8] = b"Bearer ";

pub(super) async fn guard(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let mut response = match authorize(&admin, &parts) {
        Ok(operator) => {
            let mut request = Request::from_parts(parts, body);
            request.extensions_mut().insert(operator);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn authorize(admin: &Admin, parts: &Parts) -> Result<Operator, Problem> {
    let Some(operator) = (admin.authorize)(parts) else { return Err(Problem::unauthorized()) };
    let (method, path) = (&parts.method, parts.uri.path());
    // All requests except these need the right to make changes, even if their paths do not exist.
    let reads = *method == Method::GET || *method == Method::HEAD || *method == Method::POST && path == "/key";
    let problem = if is_cross_site(parts) {
        Problem::cross_site()
    } else if !reads && !operator.changes {
        Problem::forbidden(operator.name())
    } else if *method == Method::POST && !sends_json(parts) {
        Problem::not_json()
    } else {
        return Ok(operator);
    };
    let action = change::ACTIONS.iter().find(|action| path.strip_prefix('/') == Some(**action));
    if let Some(action) = action.filter(|_| !reads) {
        let error = Some(problem.detail());
        let audited = Audited { operator: operator.name(), action, policy: None, scope: None, change: "", error };
        admin.limiter.audit(&audited);
    }
    Err(problem)
}

/// Returns whether a browser sent the request from a page on another origin. As in Go's `http.CrossOriginProtection`,
/// the `Sec-Fetch-Site` header decides. If the browser does not send it, the `Origin` header decides.
fn is_cross_site(parts: &Parts) -> bool {
    match parts.headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        Some(b"same-origin" | b"none") => false,
        Some(_) => true,
        None => parts.headers.get(ORIGIN).is_some_and(|origin| !is_host(origin, parts)),
    }
}

fn is_host(origin: &HeaderValue, parts: &Parts) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    let origin = origin.as_ref().and_then(Uri::authority).map(|authority| authority.as_str());
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| parts.uri.authority().map(|authority| authority.as_str()));
    origin.zip(host).is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host))
}

fn sends_json(parts: &Parts) -> bool {
    let value = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media_type = value.split(';').next().unwrap_or("").trim();
    media_type.eq_ignore_ascii_case("application/json")
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
