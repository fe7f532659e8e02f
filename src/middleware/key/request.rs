//! Keys from what a request carries: extensions, headers, credentials, cookies.

use std::marker::PhantomData;

use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName};
use http::request::Parts;

use super::super::headers::field_name;
use super::{Extraction, Found, KeyExtractor};
use crate::policy::Key;

/// Counts by what an outer layer put among the request's extensions: a user, a session, a tenant. Without it the caller
/// is anonymous.
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
}

/// Counts by the value of a header, an API key say. The value is hashed and kept nowhere.
///
/// The key is `("header", value)`, and so on with the other sources, so that a token is not mistaken for a user of the
/// same name. So a handler that means the same caller asks [`KeyExtractor::subject`](super::KeyExtractor::subject), or
/// names the pair: under the bare value it would find another row.
///
/// A header that is missing, empty, or there more than once is nobody's: of two values, whoever checks the credential
/// might read the other one.
///
/// ```
/// use http::Request;
/// use tollgate::{key, Key, KeyExtractor};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (parts, ()) = Request::builder().header("x-api-key", "s3cr3t").body(())?.into_parts();
/// let caller = key::header("x-api-key").subject(&parts).await?.expect("it does not skip");
/// assert_eq!(caller.key(), Some(&Key::from(("header", b"s3cr3t"))));
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

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Extraction {
        from_source("header", only(&parts.headers, &self.name))
    }
}

/// Counts by the token of `Authorization: Bearer` (RFC 6750, section 2.1). It is hashed and kept nowhere; whether it is
/// valid, others decide.
///
/// Put whatever checks it outside the limiter, or combine with [`client_ip`](super::client_ip): else each invented
/// token is a caller of its own.
///
/// ```
/// use http::Request;
/// use tollgate::{key, Key, KeyExtractor};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (parts, ()) = Request::builder().header("authorization", "Bearer s3cr3t").body(())?.into_parts();
/// let caller = key::bearer().subject(&parts).await?.expect("it does not skip");
/// assert_eq!(caller.key(), Some(&Key::from(("bearer", b"s3cr3t"))));
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

impl KeyExtractor for Bearer {
    fn extract(&self, parts: &Parts) -> Extraction {
        from_source("bearer", token(&parts.headers))
    }
}

fn token(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = only(headers, &AUTHORIZATION)?.split_at_checked("Bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty()).then_some(token)
}

/// Counts by the value of a cookie, a session say. It is hashed and kept nowhere. A cookie that is there more than
/// once, with different values, is nobody's.
///
/// Whether the session exists, others decide: put them outside the limiter and key by what they put into the request
/// ([`extension`]), else each invented cookie is a caller of its own.
///
/// ```
/// use http::Request;
/// use tollgate::{key, Key, KeyExtractor};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (parts, ()) = Request::builder().header("cookie", "theme=dark; session=s3cr3t").body(())?.into_parts();
/// let caller = key::cookie("session").subject(&parts).await?.expect("it does not skip");
/// assert_eq!(caller.key(), Some(&Key::from(("cookie", b"s3cr3t"))));
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

impl KeyExtractor for Cookie {
    fn extract(&self, parts: &Parts) -> Extraction {
        let lines = parts.headers.get_all(COOKIE).iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        let mut values = pairs.filter_map(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=')?;
            (pair[..equals].trim_ascii() == self.name.as_bytes()).then(|| pair[equals + 1..].trim_ascii())
        });
        let value = values.next().filter(|value| !value.is_empty() && values.all(|other| other == *value));
        from_source("cookie", value)
    }
}

/// A value with where it came from, so that `header("x-user").or(bearer())` does not take a token for a user of that
/// name.
///
/// It is the pair of the source's name (`"header"`, `"bearer"`, `"cookie"`, `"path"`) and the bytes: who asks a limiter
/// about such a key from elsewhere makes it as `Key::from(("bearer", token.as_bytes()))`.
pub(super) fn from_source(source: &'static str, value: Option<&[u8]>) -> Extraction {
    value.map(|value| Key::from((source, value))).into()
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
        assert_eq!(key(api_key(), &[("x-api-key", "k1")]), Some(Key::from(("header", b"k1"))));
        assert_eq!(key(api_key(), &[("x-api-key", " k1 ")]), Some(Key::from(("header", b"k1"))));
        assert_eq!(key(api_key(), &[]), None);
        assert_eq!(key(api_key(), &[("x-api-key", "")]), None);
        assert_eq!(key(api_key(), &[("x-api-key", "k1"), ("x-api-key", "k2")]), None);
    }

    #[test]
    fn a_bearer_token_is_read_whatever_the_case_of_its_scheme() {
        for value in ["Bearer t0", "bearer t0", "BEARER   t0"] {
            assert_eq!(key(bearer(), &[("authorization", value)]), Some(Key::from(("bearer", b"t0"))), "{value}");
        }
        for value in ["Basic t0", "Bearer", "Bearer ", "Bearert0", ""] {
            assert_eq!(key(bearer(), &[("authorization", value)]), None, "{value}");
        }
        assert_eq!(key(bearer(), &[("authorization", "Bearer a"), ("authorization", "Bearer b")]), None);
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let session = || cookie("sid");
        let one = Some(Key::from(("cookie", b"1")));
        assert_eq!(key(session(), &[("cookie", "a=b; sid=1; c=d")]), one);
        assert_eq!(key(session(), &[("cookie", "a=b"), ("cookie", "sid=1")]), one);
        assert_eq!(key(session(), &[("cookie", "sid=1; sid=1")]), one);
        assert_eq!(key(session(), &[("cookie", "sid=1; sid=2")]), None);
        assert_eq!(key(session(), &[("cookie", "xsid=1; sid; sid=")]), None);
        assert_eq!(key(session(), &[]), None);
    }
}
