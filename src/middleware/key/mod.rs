//! Key extractors. See [`key`](crate::key).

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

/// Identifies the caller of a request by a key and, optionally, a tier.
///
/// A closure that takes the request's parts is an extractor if it returns a [`Subject`], a value that converts to a
/// key, or an `Option` of either. `None` stands for the anonymous caller. The closure can also return any of these in a
/// `Result` with a [`KeyError`], or an [`Extraction`].
///
/// ```
/// use http::request::Parts;
/// use tollgate::{key::{self, KeyExtractor}, Quota, RateLimitLayer, MINUTE};
/// #[derive(Clone)]
/// struct User { id: u64 } // an extension that an outer authentication layer inserts
///
/// let quota = Quota::token_bucket(50, MINUTE);
/// RateLimitLayer::new(quota, |req: &Parts| req.extensions.get::<User>().map(|user| user.id));
///
/// // Limit by user ID. Requests without a user are limited by address and get a tier for visitors.
/// let by_user = || key::extension(|user: &User| user.id);
/// RateLimitLayer::new(quota, by_user().or(key::client_ip().map(|subject| subject.tier("visitor"))));
/// // Limit each pair of user and address separately.
/// RateLimitLayer::new(quota, by_user().and(key::client_ip()));
/// // Refuse requests without a user.
/// RateLimitLayer::new(quota, by_user().or_reject()); // `or_skip` exempts them instead
/// ```
///
/// Annotate the type of the closure's argument: `|req: &Parts|`. A closure that returns borrowed data fails to compile
/// (`lifetime may not live long enough`). Convert the data to a key: `|req: &Parts| req.uri.query().map(Key::from)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key extractor",
    note = "use a closure `|req: &http::request::Parts| ...` that returns a key, an `Option` of one, or a `Subject`",
    note = "annotate the closure's argument: `|req: &Parts|`, not `|req|`",
    note = "for `async` code, return `tollgate::key::Extraction::later(future)`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Identifies the caller of a request. Slow work belongs in [`Extraction::later`].
    fn extract(&self, parts: &Parts) -> Extraction;

    /// Returns the client's address if this extractor reads it. [Deny lists](crate::protection::DenyList) and
    /// [blocks](crate::protection::AutoBlock) use this address unless the layer is
    /// [configured](crate::RateLimitLayer::client_ip) otherwise. The default returns `None`. An extractor that wraps
    /// another one should forward this method, `can_find` and `missing_extension`.
    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        let _ = parts;
        None
    }

    /// Returns whether this extractor can find keys of the same kind as `key`. [`Key::anonymous`] stands for a caller
    /// without a key. Layers report deny rules whose keys they can never find. The default returns `true`.
    fn can_find(&self, key: &Key) -> bool {
        let _ = key;
        true
    }

    /// Returns the type name of the extension that this extractor needs, if the request lacks it. If the caller is
    /// anonymous for this reason, the layer counts a [mistake](crate::observe::Mistake). The default returns `None`.
    fn missing_extension(&self, parts: &Parts) -> Option<&'static str> {
        let _ = parts;
        None
    }

    /// Returns the caller's key and tier, for handlers that limit the same callers as the layer. Returns `None` if a
    /// rule with this extractor would not limit the request. In that case, do not call the limiter, which would treat
    /// `None` as the anonymous caller.
    ///
    /// ```
    /// use axum::{extract::State, http::request::Parts};
    /// use tollgate::{key::{self, KeyExtractor}, Policy, Quota, RateLimiter, HOUR};
    ///
    /// static SIGNUP: Policy = Policy::new("signup", Quota::token_bucket(3, HOUR));
    ///
    /// async fn sign_up(State(limiter): State<RateLimiter>, parts: Parts) -> axum::response::Result<&'static str> {
    ///     let caller = key::client_ip().trust(["10.0.0.0/8"]); // the same extractor as in the layer
    ///     if let Some(client) = caller.subject(&parts).await? {
    ///         limiter.limit(&SIGNUP, client).await?;
    ///     }
    ///     Ok("welcome")
    /// }
    /// ```
    ///
    /// # Errors
    /// Fails if a layer with this extractor would refuse the request before checking any limit.
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

    /// Tries `other` if this extractor finds no key. The first key must be verified: if clients can
    /// [invent](crate::key#which-keys-a-client-can-invent) it, they can bypass the limit on the second key.
    fn or<O: KeyExtractor>(self, other: O) -> Or<Self, O>
    where
        Self: Sized,
    {
        Or(self, Arc::new(other))
    }

    /// Combines the keys of both extractors into a pair. A caller that lacks either key is anonymous. The pair has the
    /// tier of the first subject or, if the first has none, the tier of the second. Its [quotas](Subject::quota) are
    /// chosen in the same way. If clients can [invent](crate::key#which-keys-a-client-can-invent) one of the keys, they
    /// can invent pairs. To limit each key separately, add a [rule](crate::RateLimitLayer::and) instead.
    fn and<O: KeyExtractor>(self, other: O) -> And<Self, O>
    where
        Self: Sized,
    {
        And(self, other)
    }

    /// Changes the subject that was found, for example to set a tier.
    fn map<F>(self, change: F) -> Map<Self, F>
    where
        Self: Sized,
        F: Fn(Subject) -> Subject + Send + Sync + 'static,
    {
        Map(self, Arc::new(change))
    }

    /// Refuses requests without a key. The status is 400 or, for [gRPC](crate::RateLimitLayer::grpc), UNAUTHENTICATED.
    fn or_reject(self) -> OrReject<Self>
    where
        Self: Sized,
    {
        OrReject(self)
    }

    /// Exempts requests without a key from this rule.
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

/// The result of a [`KeyExtractor`], either known immediately or computed by a future.
///
/// ```
/// use http::request::Parts;
/// use tollgate::{key::{Extraction, KeyExtractor}, Key};
/// # async fn user_of(_session: String) -> Option<u64> { None }
///
/// /// Limits by tenant or, if there is none, by the session's user. Health checks are not limited.
/// struct Caller;
///
/// impl KeyExtractor for Caller {
///     fn extract(&self, parts: &Parts) -> Extraction {
///         let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(String::from);
///         match (parts.uri.path(), header("x-tenant"), header("x-session")) {
///             ("/health", ..) => Extraction::skip(),
///             (_, None, Some(session)) => Extraction::later(async move { user_of(session).await }),
///             (_, tenant, _) => tenant.map(Key::from).into(),
///         }
///     }
/// }
/// ```
pub enum Extraction {
    /// The result is known.
    Now(Found),
    /// The result is computed by a future.
    Later(Pin<Box<dyn Future<Output = Found> + Send>>),
}

/// The outcome of an extraction: a caller, an exemption, or an error.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums)] // These are the only ways to handle a request.
pub enum Found {
    /// A caller, possibly anonymous.
    Subject(Subject),
    /// The rule does not limit this request.
    Skip,
    /// The request cannot be limited and is therefore refused.
    Refuse(KeyError),
}

impl Extraction {
    /// Creates an extraction from a future, which must own the data that it needs from the request.
    pub fn later<A: Into<Found>>(future: impl Future<Output = A> + Send + 'static) -> Extraction {
        Extraction::Later(Box::pin(async move { future.await.into() }))
    }

    /// Creates an extraction that exempts the request from the rule.
    pub const fn skip() -> Extraction {
        Extraction::Now(Found::Skip)
    }

    pub(super) async fn found(self) -> Found {
        match self {
            Extraction::Now(found) => found,
            Extraction::Later(found) => found.await,
        }
    }

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

/// Uses the same key, [`Key::global`], for all requests, so that one limit applies to all of them together.
pub fn global() -> Global {
    Global
}

/// The extractor returned by [`global`].
#[derive(Clone, Copy, Debug)]
pub struct Global;

impl KeyExtractor for Global {
    fn extract(&self, _parts: &Parts) -> Extraction {
        Key::global().into()
    }

    fn can_find(&self, key: &Key) -> bool {
        *key == Key::global()
    }
}

/// Implements [`can_find`](KeyExtractor::can_find) for extractors that read a single part of the request.
fn finds_at(source: KeySource, name: &str, key: &Key) -> bool {
    *key == Key::anonymous() || key.source() == Some((source, name.as_bytes()))
}
