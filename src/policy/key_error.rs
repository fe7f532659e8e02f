//! The error returned by key extractors.

use std::fmt;

use http::StatusCode;

/// The error returned by a key extractor that finds no valid key. The request is refused.
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
/// ```
#[derive(Clone, Debug)]
pub struct KeyError {
    status: StatusCode,
    message: String,
    fault: KeyFault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyFault {
    Other,
    NoPeerAddress,
    Anonymous,
}

impl KeyError {
    /// Creates an error with status 500. The message should state what is missing and how to fix it. Clients see the
    /// message, so do not include secrets.
    pub fn new(message: impl Into<String>) -> KeyError {
        KeyError { status: StatusCode::INTERNAL_SERVER_ERROR, message: message.into(), fault: KeyFault::Other }
    }

    /// Sets the status, for example 400 or 401 if something is missing from the request.
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

    /// The status of the response, which is 500 by default.
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
