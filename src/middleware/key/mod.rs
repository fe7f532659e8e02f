//! Key extractors: the trait, and those that come with the crate. See [`key`](crate::key).

#[cfg(feature = "axum")]
mod axum;
mod client_ip;
mod combine;
mod forwarded;
mod host;
#[cfg(feature = "axum")]
mod path;
mod request;

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::request::Parts;

use crate::policy::{Key, KeyError, KeySource, Subject};

#[cfg(feature = "axum")]
pub(crate) use self::request::percent_decoded;
#[cfg(feature = "axum")]
pub use self::{
    axum::{FromExtractor, from_extractor},
    path::{PathParam, path},
};
pub use client_ip::{ClientIp, PeerAddr, client_ip};
pub use combine::{And, Map, Or, OrReject, OrSkip};
pub use host::{Host, host};
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
/// A closure returns what it owns; what it borrows from the request it makes a key of first:
/// `|req: &Parts| req.uri.query().map(Key::from)`. Without the `map` the compiler reports `lifetime may not live long
/// enough`. Its argument needs its type, `|req: &Parts|`. An `async` answer is an [`Extraction::later`].
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

    /// The client's address, if this extractor looks at it: what [deny lists](crate::protection::DenyList) and
    /// [blocks](crate::protection::AutoBlock) go by unless the layer is [told](crate::RateLimitLayer::client_ip) another. `None`,
    /// the default, means that it does not.
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use http::request::Parts;
    /// use tollgate::key::{self, ClientIp, Extraction};
    /// use tollgate::{key::KeyExtractor, Key};
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

    /// Whether this extractor can find keys of this kind, with one content or another, where [`Key::anonymous`] stands for
    /// callers without a key. A layer reports rules of a [deny list](crate::protection::DenyList) with keys that none of its extractors
    /// can find. `true`, the default, is right for an extractor that can find any key.
    ///
    /// ```
    /// use tollgate::{key::{self, KeyExtractor}, Key};
    ///
    /// assert!(key::bearer().can_find(&key::bearer().key("sk_7f3a")));
    /// assert!(!key::bearer().can_find(&Key::from("sk_7f3a"))); // a text is no token
    /// ```
    fn can_find(&self, key: &Key) -> bool {
        let _ = key;
        true
    }

    /// The type of the extension that this extractor counts by and the request lacks, if that is so: a layer reports it
    /// once as a [mistake](crate::observe::Mistake) if the caller is anonymous for want of it. An extractor around another one
    /// passes its answer on. `None`, the default, means that no extension is missing.
    ///
    /// ```
    /// use tollgate::key::{self, KeyExtractor};
    ///
    /// #[derive(Clone)]
    /// struct User { id: u64 }
    ///
    /// let by_user = key::extension(|user: &User| user.id);
    /// let (mut parts, ()) = http::Request::new(()).into_parts();
    /// assert!(by_user.missing_extension(&parts).is_some_and(|wanted| wanted.ends_with("User")));
    /// parts.extensions.insert(User { id: 7 });
    /// assert_eq!(by_user.missing_extension(&parts), None);
    /// ```
    fn missing_extension(&self, parts: &Parts) -> Option<&'static str> {
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
    ///         limiter.limit(&SIGNUP, client).await?;
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
    /// #[derive(Clone)]
    /// struct User { id: u64 } // put among the extensions by authentication, outside of this layer
    ///
    /// // Users by their id, all others by address.
    /// let caller = key::extension(|user: &User| user.id).or(key::client_ip());
    /// RateLimitLayer::new(Quota::token_bucket(50, MINUTE), caller);
    /// ```
    ///
    /// The first one must be a key that was verified. If a client can [invent](crate::key#which-keys-a-client-can-invent)
    /// it, as an unchecked API key, it gets past the second.
    fn or<O: KeyExtractor>(self, other: O) -> Or<Self, O>
    where
        Self: Sized,
    {
        Or(self, Arc::new(other))
    }

    /// Both together: the pair is the key. Whoever lacks one of them has none. The tier is the first one's, else the
    /// other's. If a client can [invent](crate::key#which-keys-a-client-can-invent) one of them, it can invent the pair: to
    /// apply two limits, add a [rule](crate::RateLimitLayer::and).
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
    /// RateLimitLayer::new(Quota::token_bucket(50, MINUTE), key::client_ip().map(|subject| subject.tier("visitor")));
    /// ```
    fn map<F>(self, change: F) -> Map<Self, F>
    where
        Self: Sized,
        F: Fn(Subject) -> Subject + Send + Sync + 'static,
    {
        Map(self, Arc::new(change))
    }

    /// Requests without a key are answered with 400, by a [gRPC](crate::RateLimitLayer::grpc) layer with UNAUTHENTICATED, and
    /// never reach the service. Without this they share the anonymous bucket.
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

    fn can_find(&self, key: &Key) -> bool {
        (**self).can_find(key)
    }

    fn missing_extension(&self, parts: &Parts) -> Option<&'static str> {
        (**self).missing_extension(parts)
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
/// use tollgate::{key::{Extraction, KeyExtractor}, Key, Quota, RateLimitLayer, MINUTE};
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
/// use tollgate::{key::{Found, KeyError}, Subject};
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

/// Counts everybody under one key, [`Key::everybody`]: a limit on all requests together.
///
/// ```
/// use tollgate::{key, Policy, Quota, RateLimitLayer, RateLimiter, Key, SECOND};
///
/// static ALL: Policy = Policy::new("all", Quota::token_bucket(1000, SECOND));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::backend::Error> {
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

    fn can_find(&self, key: &Key) -> bool {
        *key == Key::everybody()
    }
}

/// [`can_find`](KeyExtractor::can_find) of extractors that look at one place of a request, and may find nothing there.
fn finds_at(source: KeySource, name: &str, key: &Key) -> bool {
    *key == Key::anonymous() || key.source() == Some((source, name.as_bytes()))
}
