//! Keys from axum extractors.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;

use super::{Extraction, Found, KeyExtractor};

/// Derives the key from the value of an axum extractor, which may read `state`. If the extractor rejects a request, the
/// caller is anonymous. Extensions that the extractor inserts are discarded.
///
/// ```
/// use axum::extract::Query;
/// use std::collections::HashMap;
/// use tollgate::{key, Quota, RateLimitLayer, MINUTE};
///
/// let tenant = key::from_extractor((), |Query(query): Query<HashMap<String, String>>| query.get("tenant").cloned());
/// RateLimitLayer::new(Quota::token_bucket(50, MINUTE), tenant);
/// ```
pub fn from_extractor<E, S, R, F>(state: S, read: F) -> FromExtractor<E, S, F>
where
    E: FromRequestParts<S> + Send + 'static,
    S: Send + Sync + 'static,
    R: Into<Found>,
    F: Fn(E) -> R + Send + Sync + 'static,
{
    FromExtractor { shared: Arc::new((state, read)), of: PhantomData }
}

/// The extractor returned by [`from_extractor`]. See [`from_extractor`] for an example.
pub struct FromExtractor<E, S, F> {
    shared: Arc<(S, F)>,
    of: PhantomData<fn(E)>,
}

impl<E, S, R, F> KeyExtractor for FromExtractor<E, S, F>
where
    E: FromRequestParts<S> + Send + 'static,
    S: Send + Sync + 'static,
    R: Into<Found>,
    F: Fn(E) -> R + Send + Sync + 'static,
{
    fn extract(&self, parts: &Parts) -> Extraction {
        let shared = Arc::clone(&self.shared);
        let mut parts = parts.clone();
        Extraction::Later(Box::pin(async move {
            let (state, read) = &*shared;
            match E::from_request_parts(&mut parts, state).await {
                Ok(found) => read(found).into(),
                Err(_rejection) => None::<u64>.into(),
            }
        }))
    }
}

impl<E, S, F> Clone for FromExtractor<E, S, F> {
    fn clone(&self) -> Self {
        FromExtractor { shared: Arc::clone(&self.shared), of: PhantomData }
    }
}

impl<E, S, F> fmt::Debug for FromExtractor<E, S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FromExtractor({})", std::any::type_name::<E>())
    }
}
