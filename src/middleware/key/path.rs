//! Keys from the path parameters of axum routes.

use std::borrow::Cow;

use axum::extract::{MatchedPath, OriginalUri};
use http::request::Parts;

use super::request::percent_decoded;
use super::{Extraction, KeyExtractor, finds_at};
use crate::policy::{Key, KeySource};

/// Uses a percent-decoded path parameter, such as `"id"` in `/users/{id}`, as the key. If the route has no such
/// parameter, the caller is anonymous. The layer must run after routing: use `Router::layer`, `route_layer` or
/// `MethodRouter::layer`.
///
/// ```
/// # use axum::{routing::get, Router};
/// # use tollgate::{key, Quota, RateLimitLayer, MINUTE};
/// let per_team = RateLimitLayer::new(Quota::token_bucket(1, MINUTE), key::path("team"));
/// let app: Router = Router::new().route("/teams/{team}/report", get(|| async {})).layer(per_team);
/// ```
pub fn path(name: impl Into<String>) -> PathParam {
    PathParam { name: name.into() }
}

/// The extractor returned by [`path`]. See [`path`] for an example.
#[derive(Clone, Debug)]
pub struct PathParam {
    name: String,
}

impl PathParam {
    /// Returns the key for requests whose parameter decodes to `value`, so that you can inspect, reset or deny the key.
    pub fn key(&self, value: impl AsRef<[u8]>) -> Key {
        Key::found(KeySource::Path, &self.name, value.as_ref())
    }
}

impl KeyExtractor for PathParam {
    fn extract(&self, parts: &Parts) -> Extraction {
        let Some(route) = parts.extensions.get::<MatchedPath>() else { return None::<u64>.into() };
        // A nested router sees only its own part of the path, but the matched route covers the whole path.
        let path = parts.extensions.get::<OriginalUri>().map_or(parts.uri.path(), |uri| uri.path());
        parameter(route.as_str(), path, &self.name).map(|value| self.key(value)).into()
    }

    fn can_find(&self, key: &Key) -> bool {
        finds_at(KeySource::Path, &self.name, key)
    }
}

/// Returns the part of `path` that matches `{name}` or `{*name}` in `route`.
fn parameter<'a>(route: &str, path: &'a str, name: &str) -> Option<Cow<'a, [u8]>> {
    let mut rest = path;
    for pattern in route.split('/') {
        let segment = rest.split('/').next().unwrap_or("");
        match pattern.strip_prefix('{').and_then(|pattern| pattern.strip_suffix('}')) {
            Some(wildcard) if wildcard.strip_prefix('*') == Some(name) => {
                return Some(percent_decoded(rest.as_bytes()));
            }
            Some(parameter) if parameter == name => return Some(percent_decoded(segment.as_bytes())),
            _ => {}
        }
        rest = rest.get(segment.len() + 1..).unwrap_or("");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_parameter_is_read_from_its_position_in_the_route() {
        let found = |route, path, name| {
            parameter(route, path, name).map(|value| String::from_utf8(value.into()).expect("text"))
        };
        assert_eq!(found("/users/{id}", "/users/7", "id").as_deref(), Some("7"));
        assert_eq!(found("/users/{id}/x/{no}", "/users/7/x/8", "no").as_deref(), Some("8"));
        assert_eq!(found("/files/{*rest}", "/files/a/b", "rest").as_deref(), Some("a/b"));
        assert_eq!(found("/users/{id}", "/users/%61%2F%4", "id").as_deref(), Some("a/%4"));
        assert_eq!(found("/users/{id}", "/users/7", "other"), None);
        assert_eq!(found("/users/{id}", "/", "id").as_deref(), Some(""));
    }
}
