//! Keys from what a request carries: extensions, headers, credentials, cookies.

use std::borrow::Cow;
use std::marker::PhantomData;

use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName};
use http::request::Parts;

use super::super::headers::field_name;
use super::{Extraction, Found, KeyExtractor, finds_at};
use crate::policy::{Key, KeySource};

/// Counts by what an outer layer put among the request's extensions: a user, a session, a tenant. Without it the caller
/// is anonymous, and the layer reports that once as a [mistake](crate::observe::Mistake), unless `or`, `or_reject` or `or_skip` says
/// what becomes of such callers.
///
/// ```
/// use tollgate::{key, Quota, RateLimitLayer, Subject, MINUTE};
///
/// #[derive(Clone)]
/// struct User { id: u64, plan: &'static str }
///
/// let quota = Quota::token_bucket(50, MINUTE);
/// RateLimitLayer::new(quota, key::extension(|user: &User| user.id));
/// RateLimitLayer::new(quota, key::extension(|user: &User| Subject::new(user.id).tier(user.plan)));
/// ```
pub fn extension<T, R, F>(read: F) -> Extension<T, F>
where
    T: Send + Sync + 'static,
    R: Into<Found>,
    F: Fn(&T) -> R + Send + Sync + 'static,
{
    Extension { read, of: PhantomData }
}

/// What [`extension`] makes.
///
/// ```
/// use tollgate::key::{self, Extension};
///
/// let by_name: Extension<String, fn(&String) -> String> = key::extension(String::clone);
/// ```
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
        // Users, not the credentials that they sent.
        key.source().is_none()
    }
}

/// Counts by the value of a header, an API key say. The value is hashed and kept nowhere.
///
/// The key is of a type of its own that contains the header's name, so that a token is not mistaken for a user of the same
/// name. A handler that means the same caller makes the key by [`Header::key`]: under the bare value it would find another row.
///
/// A header that is missing, empty, or there more than once is nobody's: of two values, whoever checks the credential
/// might read the other one.
///
/// A client can [invent](crate::key#which-keys-a-client-can-invent) a value: each one is a caller of its own, unless a layer
/// outside of the limiter checks it.
///
/// ```
/// use http::Request;
/// use tollgate::key::{self, KeyExtractor};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (parts, ()) = Request::builder().header("x-api-key", "s3cr3t").body(())?.into_parts();
/// let caller = key::header("x-api-key").subject(&parts).await?.expect("it does not skip");
/// assert_eq!(caller.key(), Some(&key::header("x-api-key").key("s3cr3t")));
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// If `name` is no header name in lower case; the message says what to write.
#[track_caller]
pub fn header(name: &'static str) -> Header {
    Header { name: field_name(name) }
}

/// What [`header`] makes.
///
/// ```
/// let by_key: tollgate::key::Header = tollgate::key::header("x-api-key");
/// ```
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
}

impl Header {
    /// The key of requests with this value in the header: for resetting it, looking at it, or denying it.
    ///
    /// ```
    /// use tollgate::{key, protection::DenyRule};
    ///
    /// let by_key = key::header("x-api-key");
    /// let revoked = DenyRule::key(by_key.key("k7"));
    /// assert_eq!(by_key.key("k7").to_text(), "header(x-api-key):k7");
    /// ```
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

/// Counts by the token of `Authorization: Bearer` (RFC 6750, section 2.1). It is hashed and kept nowhere; whether it is
/// valid, others decide.
///
/// A client can [invent](crate::key#which-keys-a-client-can-invent) a token: each one is a caller of its own, unless a layer
/// outside of the limiter checks it. A limit by address is then a second rule; in one key with the token
/// ([`and`](super::KeyExtractor::and)) it limits nothing.
///
/// ```
/// use http::Request;
/// use tollgate::key::{self, KeyExtractor};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (parts, ()) = Request::builder().header("authorization", "Bearer s3cr3t").body(())?.into_parts();
/// let caller = key::bearer().subject(&parts).await?.expect("it does not skip");
/// assert_eq!(caller.key(), Some(&key::bearer().key("s3cr3t")));
/// # Ok(())
/// # }
/// ```
pub fn bearer() -> Bearer {
    Bearer
}

/// What [`bearer`] makes.
///
/// ```
/// let by_token: tollgate::key::Bearer = tollgate::key::bearer();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Bearer;

impl Bearer {
    /// The key of requests with this token: for resetting it, looking at it, or denying it.
    ///
    /// ```
    /// use tollgate::{Policy, Quota, RateLimiter, MINUTE, key};
    ///
    /// static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE));
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::backend::Error> {
    /// # let limiter = RateLimiter::default();
    /// assert_eq!(limiter.remaining(&API, key::bearer().key("sk_7f3a")).await?, 10);
    /// # Ok(())
    /// # }
    /// ```
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

/// Counts by the value of a cookie, such as a session. The value is hashed and not kept.
///
/// All spellings that the `cookie` crate reads as one value are one key: percent escapes are decoded, in the name too,
/// and surrounding quotes are removed. A cookie that is sent twice with one value counts once. With two different
/// values the caller is anonymous, since the service might read either of them.
///
/// A client can [invent](crate::key#which-keys-a-client-can-invent) a cookie: each one is a caller of its own, unless a layer
/// outside of the limiter checks the session. Then count by what that layer found ([`extension`]).
///
/// ```
/// use http::Request;
/// use tollgate::key::{self, KeyExtractor};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (parts, ()) = Request::builder().header("cookie", "theme=dark; session=s3cr3t").body(())?.into_parts();
/// let caller = key::cookie("session").subject(&parts).await?.expect("it does not skip");
/// assert_eq!(caller.key(), Some(&key::cookie("session").key("s3cr3t")));
/// # Ok(())
/// # }
/// ```
pub fn cookie(name: impl Into<String>) -> Cookie {
    Cookie { name: name.into() }
}

/// What [`cookie`] makes.
///
/// ```
/// let by_session: tollgate::key::Cookie = tollgate::key::cookie("session");
/// ```
#[derive(Clone, Debug)]
pub struct Cookie {
    name: String,
}

impl Cookie {
    /// The key of requests with this value in the cookie: for resetting it, looking at it, or denying it.
    ///
    /// ```
    /// assert_eq!(tollgate::key::cookie("session").key("s7").to_text(), "cookie(session):s7");
    /// ```
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

/// The value that a cookie's text stands for. The quotes are removed after decoding: some readers remove them before,
/// others after, and what is one value to either of them must be one key.
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

/// One spelling for all: `%61` is `a`.
pub(crate) fn percent_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    percent_encoding::percent_decode(text).into()
}

/// The header's value if it is there once and not empty.
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
    fn a_header_counts_if_it_is_there_once() {
        let api_key = || header("x-api-key");
        assert_eq!(key(api_key(), &[("x-api-key", "k1")]), Some(api_key().key("k1")));
        assert_eq!(key(api_key(), &[("x-api-key", " k1 ")]), Some(api_key().key("k1")));
        assert_eq!(key(api_key(), &[]), None);
        assert_eq!(key(api_key(), &[("x-api-key", "")]), None);
        assert_eq!(key(api_key(), &[("x-api-key", "k1"), ("x-api-key", "k2")]), None);
    }

    #[test]
    fn a_bearer_token_is_read_whatever_the_case_of_its_scheme() {
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
