//! Keys from requests: the extractor trait, and the extractors that come with the crate.

mod client_ip;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use http::request::Parts;

use crate::policy::{Key, Subject};

pub use client_ip::{ClientIp, PeerAddr, client_ip};

/// Finds out who is asking.
///
/// Any closure over the request's parts is one, if it returns what a key can be made of, an `Option` of that (`None` = the
/// anonymous caller), a [`Subject`] with a tier, a `Result` of these with a [`KeyError`], or an [`Extraction`]:
///
/// ```
/// use http::request::Parts;
/// use tollgate::{key, Quota, RateLimitLayer, Subject, MINUTE};
/// # #[derive(Clone)] struct User { id: u64, plan: &'static str }
///
/// let quota = Quota::token_bucket(50, MINUTE);
/// RateLimitLayer::new(quota, |req: &Parts| req.extensions.get::<User>().map(|user| user.id));
/// RateLimitLayer::new(quota, |req: &Parts| match req.extensions.get::<User>() {
///     Some(user) => Subject::new(user.id).tier(user.plan),
///     None => Subject::anonymous(),
/// });
/// RateLimitLayer::new(quota, key::client_ip());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find the key of a request",
    note = "use a closure `|req: &http::request::Parts| ...` that returns a key, an `Option` of one, or a `Subject`",
    note = "annotate the closure's argument: `|req: &Parts|`, not `|req|`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Finds out who sent the request with these parts.
    fn extract(&self, parts: &Parts) -> Extraction;
}

impl<F, E> KeyExtractor for F
where
    F: Fn(&Parts) -> E + Send + Sync + 'static,
    E: Into<Extraction>,
{
    fn extract(&self, parts: &Parts) -> Extraction {
        self(parts).into()
    }
}

/// What a [`KeyExtractor`] answers: who it is, at once or later.
pub enum Extraction {
    /// It is known.
    Now(Result<Subject, KeyError>),
    /// It will be.
    Later(Pin<Box<dyn Future<Output = Result<Subject, KeyError>> + Send>>),
}

impl Extraction {
    /// An answer that takes time: a look-up of a session, say. The future owns what it needs of the request.
    ///
    /// ```
    /// use http::request::Parts;
    /// use tollgate::{key::Extraction, Quota, RateLimitLayer, MINUTE};
    /// # async fn user_of(_session: Option<String>) -> Option<u64> { None }
    ///
    /// RateLimitLayer::new(Quota::token_bucket(50, MINUTE), |req: &Parts| {
    ///     let session = req.headers.get("x-session").and_then(|value| value.to_str().ok()).map(String::from);
    ///     Extraction::later(async move { Ok(user_of(session).await) })
    /// });
    /// ```
    pub fn later<S: Into<Subject>>(future: impl Future<Output = Result<S, KeyError>> + Send + 'static) -> Extraction {
        Extraction::Later(Box::pin(async move { future.await.map(Into::into) }))
    }
}

impl fmt::Debug for Extraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extraction::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Extraction::Later(_) => f.write_str("Later(..)"),
        }
    }
}

impl<S: Into<Subject>> From<S> for Extraction {
    fn from(subject: S) -> Extraction {
        Extraction::Now(Ok(subject.into()))
    }
}

impl<S: Into<Subject>> From<Result<S, KeyError>> for Extraction {
    fn from(answer: Result<S, KeyError>) -> Extraction {
        Extraction::Now(answer.map(Into::into))
    }
}

/// The key could not be found, and going on without it would be wrong: the request is answered with 500 and this text.
///
/// ```
/// let error = tollgate::KeyError::new("no tenant: put the tenant layer outside the limiter");
/// assert!(error.to_string().contains("tenant layer"));
/// ```
#[derive(Clone, Debug)]
pub struct KeyError(String);

impl KeyError {
    /// The message says what is missing and what to do. It is shown to the client: no secrets.
    pub fn new(message: impl Into<String>) -> KeyError {
        KeyError(message.into())
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KeyError {}

/// One key for everybody: a limit on all requests together.
pub fn global() -> Global {
    Global
}

/// See [`global`].
#[derive(Clone, Copy, Debug)]
pub struct Global;

impl KeyExtractor for Global {
    fn extract(&self, _parts: &Parts) -> Extraction {
        Key::from("global").into()
    }
}
