//! The error returned when saving or loading fails.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;

use crate::backend::{Error, ErrorKind};

/// An error that occurred while the state of a limiter was [saved](crate::RateLimiter::save) or
/// [loaded](crate::RateLimiter::load). The message does not include the underlying error, so log the `source()` too.
#[derive(Debug)]
pub struct StateError {
    kind: StateErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of a [`StateError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateErrorKind {
    /// Reading or writing failed. `source()` returns the [`io::Error`].
    Io,
    /// The backend has no secret, its secret differs from the limiter's, or the state was saved with a different
    /// secret.
    Secret,
    /// The backend does not support saving and loading.
    Unsupported,
    /// The state was saved in a different version of the format.
    Version,
    /// The bytes are not a saved state, are incomplete, or have been changed.
    Damaged,
}

impl StateError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> StateErrorKind {
        self.kind
    }

    pub(super) fn no_secret() -> StateError {
        let message = "saving or loading the state requires a secret that stays the same across restarts; set \
                       `MemoryBackendBuilder::secret`";
        StateError::new(StateErrorKind::Secret, message)
    }

    pub(super) fn two_secrets() -> StateError {
        let message = "the limiter and its backend have different secrets; set only `MemoryBackendBuilder::secret`, \
                       not `RateLimiterBuilder::secret`";
        StateError::new(StateErrorKind::Secret, message)
    }

    pub(super) fn other_secret() -> StateError {
        let message = "the state was saved with a different secret; use the original secret, or delete the state \
                       to start with full quotas";
        StateError::new(StateErrorKind::Secret, message)
    }

    pub(super) fn unsupported() -> StateError {
        let message = "the backend does not support saving and loading; use a `MemoryBackend`, or rely on the Redis \
                       server's own persistence";
        StateError::new(StateErrorKind::Unsupported, message)
    }

    pub(super) fn version(expected: u32, found: u32) -> StateError {
        let message = format!(
            "expected version {expected} of the format, found {found}; load the state with the version of the crate \
             that saved it, or delete the state to start with full quotas"
        );
        StateError::new(StateErrorKind::Version, message)
    }

    pub(super) fn not_a_state(bytes: usize) -> StateError {
        let found = if bytes == 0 { "no bytes" } else { "other data" };
        StateError::damaged(format!("expected the saved state of a limiter, found {found}"))
    }

    pub(super) fn ends_early(bytes: u64) -> StateError {
        StateError::damaged(format!("the state is incomplete: it ends after {bytes} bytes"))
    }

    pub(super) fn damaged(what: impl fmt::Display) -> StateError {
        let message = format!("{what}; load another copy, or delete the state to start with full quotas");
        StateError::new(StateErrorKind::Damaged, message)
    }

    pub(super) fn read(error: io::Error) -> StateError {
        StateError::io("cannot read the state", error)
    }

    pub(super) fn write(error: io::Error) -> StateError {
        StateError::io("cannot write the state", error)
    }

    pub(super) fn io(message: &str, error: io::Error) -> StateError {
        StateError { source: Some(Box::new(error)), ..StateError::new(StateErrorKind::Io, message) }
    }

    pub(super) fn backend(error: Error) -> StateError {
        let kind = match error.kind() {
            ErrorKind::Unsupported => StateErrorKind::Unsupported,
            _ => StateErrorKind::Damaged,
        };
        StateError { source: Some(Box::new(error)), ..StateError::new(kind, "the backend cannot load the rows") }
    }

    pub(super) fn in_file(self, path: &Path) -> StateError {
        StateError { message: format!("{}: {}", path.display(), self.message), ..self }
    }

    fn new(kind: StateErrorKind, message: impl Into<String>) -> StateError {
        StateError { kind, message: message.into(), source: None }
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for StateError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
