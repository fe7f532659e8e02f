//! The errors that backends return.

use std::error::Error as StdError;
use std::fmt;

/// The error of a failed backend operation. A denial is not an error.
///
/// The message omits the cause, so log `source()` too. With the `axum` feature, the error converts to a 503 response.
///
/// ```
/// use tollgate::backend::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Unavailable, "cannot reach the server; check the address");
/// assert_eq!(error.to_string(), "backend is unavailable: cannot reach the server; check the address");
/// ```
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An invalid reply from the server, invalid saved rows, a misconfiguration, or a bug.
    Protocol,
    /// The server did not reply before the deadline. The charge may have been made.
    Timeout,
    /// The server cannot be reached, or cannot serve requests at the moment.
    Unavailable,
    /// The backend does not support the operation.
    Unsupported,
}

impl ErrorKind {
    /// Returns a stable name for logs and metrics: `protocol`, `timeout`, `unavailable` or `unsupported`.
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Protocol => "protocol",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Unsupported => "unsupported",
        }
    }
}

impl Error {
    /// Creates an error of `kind`. The message should state what happened, which value caused it, and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    /// Sets the cause, which `source()` returns.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.source = Some(source.into());
        self
    }

    /// Prefixes the message with the server's address.
    #[cfg(feature = "redis")]
    pub(super) fn at(mut self, address: &str) -> Error {
        self.message = format!("{address}: {}", self.message);
        self
    }

    /// Returns the kind of the error, which shows whether a retry might help and whether the charge may have been made.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ErrorKind::Protocol => "backend protocol error",
            ErrorKind::Timeout => "backend did not answer in time",
            ErrorKind::Unavailable => "backend is unavailable",
            ErrorKind::Unsupported => "backend does not support this",
        };
        write!(f, "{kind}: {}", self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
