//! Keys from a request's extensions, headers, credentials and cookies.

use std::borrow::Cow;
use std::marker::PhantomData;

use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName};
use http::request::Parts;

use super::super::headers::field_name;
use super::{Extraction, Found, KeyExtractor, finds_at};
use crate::policy::{Key, KeySource};

/// Derives the key from an extension that an outer layer inserted, such as a user, a session or a tenant.
///
/// If the extension is missing, the caller is anonymous. Unless `or`, `or_reject` or `or_skip` handles this case, it is
/// counted as a [mistake](crate::observe::Mistake).
///
/// ```
/// use tollgate::{key, Key, Quota, RateLimitLayer, Subject, MINUTE};
/// #[derive(Clone)]
/// struct User { id: u64, plan: &'static str, team: String }
///
/// let quota = Quota::token_bucket(50, MINUTE);
/// RateLimitLayer::new(quota, key::extension(|user: &User| Subject::new(user.id).tier(user.plan)));
/// // The closure returns an owned key, since a `&str` would borrow from the extension.
/// RateLimitLayer::new(quota, key::extension(|user: &User| Key::from(user.team.as_str())));
/// ```
pub fn extension<T, R, F>(read: F) -> Extension<T, F>
where
    T: Send + Sync + 'static,
    R: Into<Found>,
    F: Fn(&T) -> R + Send + Sync + 'static,
{
    Extension { read, of: PhantomData }
}

/// The extractor returned by [`extension`]. See [`extension`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct Extension<T, F> {
    read: F,
    of: PhantomData<fn(&T)>,
}

impl<T, R, F> KeyExtractor for Extension<T, F>
where
    T: Send + Sync + 'static,
    R: Into<Found>,
    F: Fn(&T) -> R + Send + Sync + 'static,
{
    fn extract(&self, parts: &Parts) -> Extraction {
        match parts.extensions.get::<T>() {
            Some(value) => Extraction::Now((self.read)(value).into()),
            None => None::<u64>.into(),
        }
    }

    fn missing_extension(&self, parts: &Parts) -> Option<&'static str> {
        parts.extensions.get::<T>().is_none().then(std::any::type_name::<T>)
    }

    fn can_find(&self, key: &Key) -> bool {
        // An extension identifies a user but does not contain the credential that the user sent.
        key.source().is_none()
    }
}

/// Uses the value of a header as the key, for example an API key. Only a hash of the value is stored. Handlers that
/// limit the same caller must create the key with [`Header::key`], since the bare value is a different key.
///
/// If the header is missing, empty or repeated, the caller is anonymous. Unless a layer outside the limiter checks the
/// values, clients can [invent](crate::key#which-keys-a-client-can-invent) values and get a new row for each one.
///
/// ```
/// # use tollgate::key::{self, KeyExtractor};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (parts, ()) = http::Request::builder().header("x-api-key", "k7").body(())?.into_parts();
/// assert_eq!(key::header("x-api-key").subject(&parts).await?, Some(key::header("x-api-key").key("k7").into()));
/// # Ok(()) }
/// ```
///
/// # Panics
/// Panics if `name` is not a lower-case header name.
#[track_caller]
pub fn header(name: &'static str) -> Header {
    Header { name: field_name(name) }
}

/// The extractor returned by [`header`]. See [`header`] for an example.
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
}

impl Header {
    /// Returns the key for requests with this header value, so that you can inspect, reset or deny the key.
    pub fn key(&self, value: impl AsRef<[u8]>) -> Key {
        Key::found(KeySource::Header, self.name.as_str(), value.as_ref())
    }
}

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Extraction {
        only(&parts.headers, &self.name).map(|value| self.key(value)).into()
    }

    fn can_find(&self, key: &Key) -> bool {
        finds_at(KeySource::Header, self.name.as_str(), key)
    }
}

/// Uses the token in the `Authorization: Bearer` header (RFC 6750, section 2.1) as the key. Only a hash of the token is
/// stored. Unless a layer outside the limiter checks the token, clients can
/// [invent](crate::key#which-keys-a-client-can-invent) tokens, so add a rule with a per-address limit. See [`header`]
/// for an example.
pub fn bearer() -> Bearer {
    Bearer
}

/// The extractor returned by [`bearer`]. See [`bearer`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct Bearer;

impl Bearer {
    /// Returns the key for requests with this token, so that you can inspect, reset or deny the key.
    pub fn key(&self, token: impl AsRef<[u8]>) -> Key {
        Key::found(KeySource::Bearer, "", token.as_ref())
    }
}

impl KeyExtractor for Bearer {
    fn extract(&self, parts: &Parts) -> Extraction {
        token(&parts.headers).map(|token| self.key(token)).into()
    }

    fn can_find(&self, key: &Key) -> bool {
        finds_at(KeySource::Bearer, "", key)
    }
}

fn token(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = only(headers, &AUTHORIZATION)?.split_at_checked("Bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty()).then_some(token)
}

/// Uses the value of a cookie, such as a session ID, as the key. Only a hash of the value is stored.
///
/// All spellings that the `cookie` crate reads as the same value yield the same key: percent escapes in the name and
/// the value are decoded, and surrounding quotes are removed. A cookie may be repeated with the same value. If the
/// values differ, the caller is anonymous, since the service might read either value.
///
/// Clients can [invent](crate::key#which-keys-a-client-can-invent) cookies. If a layer outside the limiter checks the
/// session, use the result of that check as the key (see [`extension`]). See [`header`] for an example.
pub fn cookie(name: impl Into<String>) -> Cookie {
    Cookie { name: name.into() }
}

/// The extractor returned by [`cookie`]. See [`cookie`] for an example.
#[derive(Clone, Debug)]
pub struct Cookie {
    name: String,
}

impl Cookie {
    /// Returns the key for requests with this cookie value, so that you can inspect, reset or deny the key.
    pub fn key(&self, value: impl AsRef<[u8]>) -> Key {
        Key::found(KeySource::Cookie, &self.name, without_quotes(value.as_ref()))
    }
}

impl KeyExtractor for Cookie {
    fn extract(&self, parts: &Parts) -> Extraction {
        let lines = parts.headers.get_all(COOKIE).iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        let mut values = pairs.filter_map(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=')?;
            let is_named = *percent_decoded(pair[..equals].trim_ascii()) == *self.name.as_bytes();
            is_named.then(|| cookie_value(pair[equals + 1..].trim_ascii()))
        });
        let value = values.next().filter(|value| !value.is_empty() && values.all(|other| other == *value));
        value.map(|value| self.key(&*value)).into()
    }

    fn can_find(&self, key: &Key) -> bool {
        finds_at(KeySource::Cookie, &self.name, key)
    }
}

/// Returns the decoded value of a cookie, without surrounding quotes. Some parsers remove quotes before decoding and
/// others after decoding. Values that either kind of parser considers equal must yield the same key.
fn cookie_value(text: &[u8]) -> Cow<'_, [u8]> {
    let decoded = percent_decoded(text);
    let value = without_quotes(&decoded);
    if value.len() == decoded.len() { decoded } else { value.to_vec().into() }
}

fn without_quotes(mut value: &[u8]) -> &[u8] {
    while let Some(inner) = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")) {
        value = inner;
    }
    value
}

pub(crate) fn percent_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    percent_encoding::percent_decode(text).into()
}

/// Returns the header's value if the header occurs exactly once and is not empty.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.as_bytes().trim_ascii();
    (values.next().is_none() && !value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(extractor: impl KeyExtractor, headers: &[(&'static str, &str)]) -> Option<Key> {
        let mut request = http::Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).expect("a request").into_parts().0;
        match extractor.extract(&parts) {
            Extraction::Now(Found::Subject(subject)) => subject.key().cloned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_header_is_a_key_only_if_it_occurs_once() {
        let api_key = || header("x-api-key");
        assert_eq!(key(api_key(), &[("x-api-key", "k1")]), Some(api_key().key("k1")));
        assert_eq!(key(api_key(), &[("x-api-key", " k1 ")]), Some(api_key().key("k1")));
        assert_eq!(key(api_key(), &[]), None);
        assert_eq!(key(api_key(), &[("x-api-key", "")]), None);
        assert_eq!(key(api_key(), &[("x-api-key", "k1"), ("x-api-key", "k2")]), None);
    }

    #[test]
    fn the_bearer_scheme_is_case_insensitive() {
        for value in ["Bearer t0", "bearer t0", "BEARER   t0"] {
            assert_eq!(key(bearer(), &[("authorization", value)]), Some(bearer().key("t0")), "{value}");
        }
        for value in ["Basic t0", "Bearer", "Bearer ", "Bearert0", ""] {
            assert_eq!(key(bearer(), &[("authorization", value)]), None, "{value}");
        }
        assert_eq!(key(bearer(), &[("authorization", "Bearer a"), ("authorization", "Bearer b")]), None);
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let session = || cookie("sid");
        let one = Some(session().key("1"));
        assert_eq!(key(session(), &[("cookie", "a=b; sid=1; c=d")]), one);
        assert_eq!(key(session(), &[("cookie", "a=b"), ("cookie", "sid=1")]), one);
        assert_eq!(key(session(), &[("cookie", "sid=1; sid=1")]), one);
        assert_eq!(key(session(), &[("cookie", "sid=1; sid=2")]), None);
        assert_eq!(key(session(), &[("cookie", "xsid=1; sid; sid=")]), None);
        assert_eq!(key(session(), &[]), None);
    }
}
