//! The error of a key extractor.

use std::fmt;

use http::StatusCode;

/// The key could not be found, and going on without it would be wrong: the request is answered with this.
///
/// ```
/// let error = tollgate::key::KeyError::new("no tenant: put the tenant layer outside the limiter");
/// assert!(error.to_string().contains("tenant layer"));
/// ```
#[derive(Clone, Debug)]
pub struct KeyError {
    status: StatusCode,
    message: String,
    fault: KeyFault,
}

/// The faults that a layer tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyFault {
    Other,
    /// The server does not pass the peer's address on.
    NoPeerAddress,
    /// The request does not say who sent it.
    Anonymous,
}

impl KeyError {
    /// The service is not set up as the extractor needs it: 500. The message says what is missing and what to do. It is
    /// shown to the client: no secrets.
    pub fn new(message: impl Into<String>) -> KeyError {
        KeyError { status: StatusCode::INTERNAL_SERVER_ERROR, message: message.into(), fault: KeyFault::Other }
    }

    /// The same with another status: 400 or 401 where the request lacks what it should bring.
    ///
    /// ```
    /// use http::{request::Parts, StatusCode};
    /// use tollgate::{key::KeyError, Quota, RateLimitLayer, MINUTE};
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

    pub(crate) fn with_fault(mut self, fault: KeyFault) -> KeyError {
        self.fault = fault;
        self
    }

    pub(crate) const fn fault(&self) -> KeyFault {
        self.fault
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
