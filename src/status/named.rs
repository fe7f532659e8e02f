//! The endpoint for operators. The client names the key in the query.

use axum::routing::MethodRouter;
use http::StatusCode;
use http::request::Parts;

use super::of;
use crate::limiter::RateLimiter;
use crate::middleware::key::{Found, percent_decoded};
use crate::policy::{KeyError, Policy};

/// Creates an endpoint that reports the limit for any key. The client passes the key in the query, as in
/// `/limits/chat?key=ada@example.com`. `subject` converts this text to the key that the layer uses. A request without a
/// `key` parameter, or with more than one, gets a 400 response.
///
/// **Anyone who can reach this endpoint can read the state of every key**, and learn which callers were active and
/// when. Make the endpoint available only to authenticated operators. For users, use [`of`](super::of).
///
/// ```
/// use axum::Router;
/// use tollgate::{status, Policy, Quota, RateLimiter, MINUTE};
/// static CHAT: Policy = Policy::new("chat", Quota::token_bucket(10, MINUTE));
///
/// let limiter = RateLimiter::default();
/// let chat = status::of_any_caller(&limiter, &CHAT, |name: &str| name.to_owned());
/// let operators: Router = Router::new().route("/limits/chat", chat); // .layer(operators_only)
/// ```
///
/// # Panics
/// Panics if `policy` is a bare quota that denies everything (capacity 0 and no reservations).
#[track_caller]
pub fn of_any_caller<S, R, F>(limiter: &RateLimiter, policy: impl Into<Policy>, subject: F) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
    R: Into<Found>,
    F: Fn(&str) -> R + Send + Sync + 'static,
{
    of(limiter, policy, move |parts: &Parts| match key_in(parts.uri.query().unwrap_or("")) {
        Some(name) => subject(&name).into(),
        None => Found::Refuse(
            KeyError::new("expected the key in the query exactly once: `?key=...`")
                .with_status(StatusCode::BAD_REQUEST),
        ),
    })
}

/// Returns the value of `key` in a query, or `None` if it is missing, empty or repeated.
fn key_in(query: &str) -> Option<String> {
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix("key="));
    let value = values.next().filter(|value| !value.is_empty())?;
    if values.next().is_some() {
        return None;
    }
    // In form encoding, a space is written as `+`, and a plus sign as `%2B`.
    String::from_utf8(percent_decoded(value.replace('+', " ").as_bytes()).into()).ok()
}

#[cfg(test)]
mod tests {
    use super::key_in;

    #[test]
    fn the_key_in_a_query_is_form_decoded() {
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
            assert_eq!(key_in(query).as_deref(), key, "{query}");
        }
    }
}
