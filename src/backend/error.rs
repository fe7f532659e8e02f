//! Why a backend could not decide.

use std::error::Error as StdError;
use std::fmt;

/// A backend could not decide. This is never a denial.
///
/// Its text begins with the [kind](ErrorKind) and says what to do. What caused it, such as the error of a store's
/// client, is its `source()` and not repeated in the text: log both.
///
/// With feature `axum` it is a response: 503 Service Unavailable.
///
/// ```
/// use std::error::Error as _;
/// use tollgate::backend::{Error, ErrorKind};
///
/// let cause = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
/// let error = Error::new(ErrorKind::Unavailable, "the store cannot be reached; check the address").with_source(cause);
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
/// assert_eq!(error.to_string(), "backend is unavailable: the store cannot be reached; check the address");
/// assert_eq!(error.source().map(|cause| cause.to_string()), Some("connection refused".into()));
/// ```
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`], for those who act on it.
///
/// ```
/// use tollgate::backend::ErrorKind;
///
/// assert_eq!(ErrorKind::Timeout.as_str(), "timeout");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store answered something that makes no sense, or refused the command: a mistake in set-up or in the code.
    Protocol,
    /// No answer in time. Whether the charge happened is unknown.
    Timeout,
    /// The store cannot be reached, or says that it cannot serve now.
    Unavailable,
    /// The backend does not do this.
    Unsupported,
}

impl ErrorKind {
    /// A name that stays the same, for logs and metrics: `protocol`, `timeout`, `unavailable`, `unsupported`.
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
    /// An error of `kind`; the message says what happened, with which value, and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    /// The same with the error that caused it, as its `source()`.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.source = Some(source.into());
        self
    }

    /// The same of a server with this address.
    #[cfg(feature = "redis")]
    pub(super) fn at(mut self, address: &str) -> Error {
        self.message = format!("{address}: {}", self.message);
        self
    }

    /// The kind of failure: whether another try may help, and whether the charge may have happened.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ErrorKind::Protocol => "backend does not work as it is set up",
            ErrorKind::Timeout => "backend did not answer in time",
            ErrorKind::Unavailable => "backend is unavailable",
            ErrorKind::Unsupported => "backend cannot do this",
        };
        write!(f, "{kind}: {}", self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
