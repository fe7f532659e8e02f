//! The endpoint that believes its client: for operators.

use axum::routing::MethodRouter;
use http::StatusCode;
use http::request::Parts;

use super::of;
use crate::limiter::RateLimiter;
use crate::middleware::key::{Found, percent_decoded};
use crate::policy::{KeyError, Policy};

/// How the limit of **anybody** stands, whom the client names: `GET /limits/chat?key=ada@example.com`. `subject` makes of
/// that text what the layer counts.
///
/// Whoever reaches this endpoint reads everybody's state, and learns by it who was active and when. It is for operators:
/// put it behind their authentication, never on a path that users reach. Theirs is [`of`](super::of).
///
/// ```
/// use axum::Router;
/// use tollgate::{status, Policy, Quota, RateLimiter, MINUTE};
///
/// static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10, MINUTE));
///
/// let limiter = RateLimiter::default();
/// let operators: Router = Router::new()
///     .route("/limits/chat", status::of_any_caller(&limiter, &CHAT, |name: &str| name.to_owned()));
/// // .layer(operators_only)
/// ```
///
/// A request without a `key`, or with two, is answered with 400.
///
/// # Panics
/// As [`of`](super::of).
#[track_caller]
pub fn of_any_caller<S, R, F>(limiter: &RateLimiter, policy: impl Into<Policy>, subject: F) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
    R: Into<Found>,
    F: Fn(&str) -> R + Send + Sync + 'static,
{
    of(limiter, policy, move |parts: &Parts| match named(parts.uri.query().unwrap_or("")) {
        Some(name) => subject(&name).into(),
        None => Found::Refuse(
            KeyError::new("whose limit? Name the key once, in the query: `?key=...`")
                .with_status(StatusCode::BAD_REQUEST),
        ),
    })
}

/// The value of the one `key` in a query.
fn named(query: &str) -> Option<String> {
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix("key="));
    let value = values.next().filter(|value| !value.is_empty())?;
    if values.next().is_some() {
        return None;
    }
    // As forms write it: a blank is a plus, a plus is `%2B`.
    String::from_utf8(percent_decoded(value.replace('+', " ").as_bytes()).into()).ok()
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn a_key_is_read_as_forms_write_it() {
        for (query, key) in [
            ("key=ada", Some("ada")),
            ("a=b&key=ada%2Bx%40example.com&c", Some("ada+x@example.com")),
            ("key=ada+lovelace", Some("ada lovelace")),
            ("key=caf%C3%A9", Some("caf\u{e9}")),
            ("key=%FF", None),
            ("key=", None),
            ("key=a&key=b", None),
            ("monkey=a", None),
            ("", None),
        ] {
            assert_eq!(named(query).as_deref(), key, "{query}");
        }
    }
}
