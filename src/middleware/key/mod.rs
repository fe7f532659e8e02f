//! Keys from requests: the extractor trait, and the extractors that come with the crate.
//!
//! | who | extractor |
//! | --- | --- |
//! | whatever your own code knows | a closure over the request's parts |
//! | a user or session put there by authentication | [`extension`] |
//! | the address at the other end | [`client_ip`], behind proxies [`ClientIp::trust`] |
//! | a credential | [`bearer`], [`header`], [`cookie`] |
//! | a part of the route | `path` (feature `axum`) |
//! | everybody together | [`global`] |
//! | anything that axum can extract | `from_extractor` (feature `axum`) |
//!
//! They combine: [`or`](KeyExtractor::or) the next if this one finds nobody, [`and`](KeyExtractor::and) both as one
//! key, [`map`](KeyExtractor::map) what was found. A caller without a key is anonymous, and all of those share one
//! bucket, unless the extractor says [`or_reject`](KeyExtractor::or_reject) or [`or_skip`](KeyExtractor::or_skip).

#[cfg(feature = "axum")]
mod axum;
mod client_ip;
mod combine;
mod forwarded;
#[cfg(feature = "axum")]
mod path;
mod request;

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;

use crate::policy::{Key, Subject};

#[cfg(feature = "axum")]
pub(crate) use self::path::percent_decoded;
#[cfg(feature = "axum")]
pub use self::{
    axum::{FromExtractor, from_extractor},
    path::{PathParam, path},
};
pub use crate::policy::CidrError;
pub use client_ip::{ClientIp, PeerAddr, client_ip};
pub use combine::{And, Map, Or, OrReject, OrSkip};
pub use request::{Bearer, Cookie, Extension, Header, bearer, cookie, extension, header};

/// Finds out who is asking.
///
/// Any closure over the request's parts is one, if it returns what a key can be made of, an `Option` of that (`None` =
/// the anonymous caller), a [`Subject`] with a tier, a `Result` of these with a [`KeyError`], or an [`Extraction`]:
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
///
/// A closure returns what it owns; what it borrows from the request it makes a key of first: `.map(Key::from)`. Its
/// argument needs its type, `|req: &Parts|`. An `async` answer is an [`Extraction::later`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find the key of a request",
    note = "use a closure `|req: &http::request::Parts| ...` that returns a key, an `Option` of one, or a `Subject`",
    note = "annotate the closure's argument: `|req: &Parts|`, not `|req|`",
    note = "an `async` answer is `tollgate::key::Extraction::later(future)`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Finds out who sent the request with these parts. It is called for every request, before any limit is asked: what
    /// takes time is an [`Extraction::later`]. See [`Extraction`] for an example.
    fn extract(&self, parts: &Parts) -> Extraction;

    /// The client's address, if this extractor looks at it: what [deny lists](crate::DenyList) and
    /// [blocks](crate::AutoBlock) go by unless the layer is [told](crate::RateLimitLayer::client_ip) another. `None`,
    /// the default, means that it does not.
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use http::request::Parts;
    /// use tollgate::key::{self, ClientIp, Extraction};
    /// use tollgate::{Key, KeyExtractor};
    ///
    /// /// Each application of a customer by itself, on each of its addresses.
    /// struct Application(ClientIp);
    ///
    /// impl KeyExtractor for Application {
    ///     fn extract(&self, parts: &Parts) -> Extraction {
    ///         let name = parts.headers.get("x-application").map(|name| name.as_bytes());
    ///         self.0.resolve(parts).map(|address| Key::from((address, name.unwrap_or_default()))).into()
    ///     }
    ///
    ///     fn address(&self, parts: &Parts) -> Option<IpAddr> {
    ///         self.0.address(parts)
    ///     }
    /// }
    ///
    /// let (mut parts, ()) = http::Request::new(()).into_parts();
    /// parts.extensions.insert(key::PeerAddr(([192, 0, 2, 7], 50_000).into()));
    /// assert_eq!(Application(key::client_ip()).address(&parts), Some([192, 0, 2, 7].into()));
    /// ```
    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        let _ = parts;
        None
    }

    /// Who sent the request with these parts, key and tier, for a handler that limits, or looks, by itself and means
    /// the same callers as the layer. `None`: a rule with this extractor would not limit the request. (Handed on to a
    /// limiter, `None` would be the anonymous caller, which is somebody else.)
    ///
    /// ```
    /// use axum::{extract::State, http::request::Parts};
    /// use tollgate::{key, key::KeyExtractor, Policy, Quota, RateLimiter, HOUR};
    ///
    /// static SIGNUP: Policy = Policy::new("signup", Quota::token_bucket(3, HOUR));
    ///
    /// // One function for the layer and the handlers.
    /// fn caller() -> impl KeyExtractor {
    ///     key::client_ip().trust(["10.0.0.0/8"])
    /// }
    ///
    /// async fn sign_up(State(limiter): State<RateLimiter>, parts: Parts) -> axum::response::Result<&'static str> {
    ///     if let Some(client) = caller().subject(&parts).await? {
    ///         limiter.limit(&SIGNUP, client).await?.into_result()?;
    ///     }
    ///     Ok("welcome")
    /// }
    ///
    /// async fn me(State(limiter): State<RateLimiter>, parts: Parts) -> axum::response::Result<String> {
    ///     let Some(client) = caller().subject(&parts).await? else { return Ok("not limited".into()) };
    ///     Ok(format!("{} left", limiter.remaining(&SIGNUP, client).await?))
    /// }
    /// # let _: axum::Router = axum::Router::new()
    /// #     .route("/", axum::routing::post(sign_up).get(me)).with_state(RateLimiter::default());
    /// ```
    ///
    /// # Errors
    /// What the layer would answer with before it asks any limit.
    fn subject(&self, parts: &Parts) -> impl Future<Output = Result<Option<Subject>, KeyError>> + Send
    where
        Self: Sized,
    {
        let extraction = self.extract(parts);
        async move {
            match extraction.found().await {
                Found::Subject(subject) => Ok(Some(subject)),
                Found::Skip => Ok(None),
                Found::Refuse(error) => Err(error),
            }
        }
    }

    /// Asks `other` if this one finds nobody.
    ///
    /// ```
    /// use tollgate::{key, key::KeyExtractor, Quota, RateLimitLayer, MINUTE};
    ///
    /// // By API key where there is one, else by address.
    /// RateLimitLayer::new(Quota::token_bucket(50, MINUTE), key::header("x-api-key").or(key::client_ip()));
    /// ```
    fn or<O: KeyExtractor>(self, other: O) -> Or<Self, O>
    where
        Self: Sized,
    {
        Or(self, Arc::new(other))
    }

    /// Both together: the pair is the key. Whoever lacks one of them has none. The tier is the first one's, else the
    /// other's.
    ///
    /// ```
    /// use tollgate::{key, key::KeyExtractor, Quota, RateLimitLayer, MINUTE};
    ///
    /// // A user on each of their addresses.
    /// # #[derive(Clone)] struct User { id: u64 }
    /// RateLimitLayer::new(Quota::token_bucket(50, MINUTE), key::extension(|user: &User| user.id).and(key::client_ip()));
    /// ```
    fn and<O: KeyExtractor>(self, other: O) -> And<Self, O>
    where
        Self: Sized,
    {
        And(self, other)
    }

    /// Changes what was found: gives it a tier, say.
    ///
    /// ```
    /// use tollgate::{key, key::KeyExtractor, Quota, RateLimitLayer, MINUTE};
    ///
    /// RateLimitLayer::new(Quota::token_bucket(50, MINUTE), key::bearer().map(|subject| subject.tier("api")));
    /// ```
    fn map<F>(self, change: F) -> Map<Self, F>
    where
        Self: Sized,
        F: Fn(Subject) -> Subject + Send + Sync + 'static,
    {
        Map(self, Arc::new(change))
    }

    /// Requests without a key are answered with 400 and never reach the service. Without this they share the anonymous
    /// bucket.
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::{key, key::KeyExtractor};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let (parts, ()) = Request::new(()).into_parts();
    /// let by_key = || key::header("x-api-key");
    /// assert!(by_key().subject(&parts).await.is_ok_and(|found| found.is_some_and(|caller| caller.key().is_none())));
    /// let error = by_key().or_reject().subject(&parts).await.unwrap_err();
    /// assert_eq!(error.status(), 400);
    /// # }
    /// ```
    fn or_reject(self) -> OrReject<Self>
    where
        Self: Sized,
    {
        OrReject(self)
    }

    /// Requests without a key are not limited by this rule. Without this they share the anonymous bucket.
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::{key, key::KeyExtractor};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let (parts, ()) = Request::new(()).into_parts();
    /// assert!(key::header("x-api-key").or_skip().subject(&parts).await.is_ok_and(|found| found.is_none()));
    /// # }
    /// ```
    fn or_skip(self) -> OrSkip<Self>
    where
        Self: Sized,
    {
        OrSkip(self)
    }
}

impl KeyExtractor for Box<dyn KeyExtractor> {
    fn extract(&self, parts: &Parts) -> Extraction {
        (**self).extract(parts)
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        (**self).address(parts)
    }
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
///
/// ```
/// use http::request::Parts;
/// use tollgate::{key::Extraction, Key, KeyExtractor, Quota, RateLimitLayer, MINUTE};
///
/// /// By tenant; the health check is nobody's.
/// struct Tenant;
///
/// impl KeyExtractor for Tenant {
///     fn extract(&self, parts: &Parts) -> Extraction {
///         if parts.uri.path() == "/health" {
///             return Extraction::skip();
///         }
///         parts.headers.get("x-tenant").map(Key::from).into()
///     }
/// }
///
/// RateLimitLayer::new(Quota::token_bucket(50, MINUTE), Tenant);
/// ```
pub enum Extraction {
    /// It is known.
    Now(Found),
    /// It will be.
    Later(Pin<Box<dyn Future<Output = Found> + Send>>),
}

/// Who was found to be asking: a caller, nobody whom the rule is about, or a reason not to go on.
///
/// ```
/// use tollgate::{key::Found, KeyError, Subject};
///
/// assert!(matches!(Found::from(42), Found::Subject(_)));
/// assert!(matches!(Found::from(Subject::new(42).tier("free")), Found::Subject(_)));
/// assert!(matches!(Found::from(Err::<u64, _>(KeyError::new("no tenant"))), Found::Refuse(_)));
/// ```
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums)] // There is nothing else to do with a request.
pub enum Found {
    /// A caller, perhaps the anonymous one.
    Subject(Subject),
    /// Nobody that the rule is about: it does not limit this request.
    Skip,
    /// Going on without knowing would be wrong.
    Refuse(KeyError),
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
    ///     Extraction::later(async move { user_of(session).await })
    /// });
    /// ```
    pub fn later<A: Into<Found>>(future: impl Future<Output = A> + Send + 'static) -> Extraction {
        Extraction::Later(Box::pin(async move { future.await.into() }))
    }

    /// The rule does not limit this request.
    pub const fn skip() -> Extraction {
        Extraction::Now(Found::Skip)
    }

    /// What is found, once it is.
    pub(super) async fn found(self) -> Found {
        match self {
            Extraction::Now(found) => found,
            Extraction::Later(found) => found.await,
        }
    }

    /// What is found, changed when it is.
    fn then(self, change: impl FnOnce(Found) -> Found + Send + 'static) -> Extraction {
        match self {
            Extraction::Now(found) => Extraction::Now(change(found)),
            Extraction::Later(future) => Extraction::later(async move { change(future.await) }),
        }
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

impl<A: Into<Found>> From<A> for Extraction {
    fn from(answer: A) -> Extraction {
        Extraction::Now(answer.into())
    }
}

impl<S: Into<Subject>> From<S> for Found {
    fn from(subject: S) -> Found {
        Found::Subject(subject.into())
    }
}

impl<A: Into<Found>> From<Result<A, KeyError>> for Found {
    fn from(answer: Result<A, KeyError>) -> Found {
        answer.map_or_else(Found::Refuse, Into::into)
    }
}

/// The key could not be found, and going on without it would be wrong: the request is answered with this.
///
/// ```
/// let error = tollgate::KeyError::new("no tenant: put the tenant layer outside the limiter");
/// assert!(error.to_string().contains("tenant layer"));
/// ```
#[derive(Clone, Debug)]
pub struct KeyError {
    status: StatusCode,
    message: String,
}

impl KeyError {
    /// The service is not set up as the extractor needs it: 500. The message says what is missing and what to do. It is
    /// shown to the client: no secrets.
    pub fn new(message: impl Into<String>) -> KeyError {
        KeyError { status: StatusCode::INTERNAL_SERVER_ERROR, message: message.into() }
    }

    /// The same with another status: 400 or 401 where the request lacks what it should bring.
    ///
    /// ```
    /// use http::{request::Parts, StatusCode};
    /// use tollgate::{KeyError, Quota, RateLimitLayer, MINUTE};
    ///
    /// fn tenant(req: &Parts) -> Result<String, KeyError> {
    ///     let tenant = req.headers.get("x-tenant").and_then(|value| value.to_str().ok()).map(String::from);
    ///     tenant.ok_or_else(|| KeyError::new("no tenant; send x-tenant").with_status(StatusCode::BAD_REQUEST))
    /// }
    /// RateLimitLayer::new(Quota::token_bucket(50, MINUTE), tenant);
    ///
    /// let (parts, ()) = http::Request::new(()).into_parts();
    /// assert_eq!(tenant(&parts).unwrap_err().status(), 400);
    /// ```
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> KeyError {
        self.status = status;
        self
    }

    /// The status of the answer: 500 unless [said otherwise](KeyError::with_status).
    pub const fn status(&self) -> StatusCode {
        self.status
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KeyError {}

/// Counts everybody under one key, [`Key::everybody`]: a limit on all requests together.
///
/// ```
/// use tollgate::{key, Policy, Quota, RateLimitLayer, RateLimiter, Key, SECOND};
///
/// static ALL: Policy = Policy::new("all", Quota::token_bucket(1000, SECOND));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limiter = RateLimiter::default();
/// let layer = RateLimitLayer::new(&ALL, key::global()).limiter(&limiter);
/// assert_eq!(limiter.remaining(&ALL, Key::everybody()).await?, 1000); // the bucket of that layer
/// # Ok(())
/// # }
/// ```
pub fn global() -> Global {
    Global
}

/// What [`global`] makes.
///
/// ```
/// let everybody: tollgate::key::Global = tollgate::key::global();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Global;

impl KeyExtractor for Global {
    fn extract(&self, _parts: &Parts) -> Extraction {
        Key::everybody().into()
    }
}
