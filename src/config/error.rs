//! Configuration errors. Each fault states its path, the invalid value and how to fix it.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;

use super::raw::shortened;

/// The error returned if a configuration cannot be read or reloaded. The message shows the first twenty faults,
/// each with the messages of its underlying errors. If there are more faults, the last line states how many. Each line
/// begins with the file's name.
///
/// ```
/// use tollgate::{config::ConfigErrorKind, Config};
///
/// let text = r#"{"policies": {"api": {"quota": "30/mim"}}, "routes": {"POST /todos": "ap1"}}"#;
/// let error = Config::parse("limits.json", text, |text| serde_json::from_str(text)).unwrap_err();
/// assert!(error.to_string().contains(r#"routes."POST /todos": unknown policy "ap1" (did you mean "api"?)"#));
/// assert_eq!((error.kind(), error.fault_count()), (ConfigErrorKind::Invalid, 2));
/// assert_eq!(error.faults()[0].path(), "policies.api.quota");
/// ```
pub struct ConfigError {
    kind: ConfigErrorKind,
    message: String,
    faults: Vec<ConfigFault>,
    fault_count: usize,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

/// The kind of a [`ConfigError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// The file cannot be read.
    Read,
    /// The text is larger than [`Config::MAX_BYTES`](super::Config::MAX_BYTES).
    TooLarge,
    /// The format's parser rejects the text.
    Syntax,
    /// The values are not a valid configuration.
    Invalid,
    /// The configuration is valid, but requires a restart to take effect.
    Restart,
    /// The limiter does not have the configuration's deny list, or could not change a quota or an enforcement mode.
    Limiter,
    /// Another reload is in progress.
    Busy,
}

impl ConfigError {
    pub(super) fn new(kind: ConfigErrorKind, name: &str, what: impl fmt::Display) -> ConfigError {
        ConfigError { kind, message: format!("{name}: {what}"), faults: Vec::new(), fault_count: 0, cause: None }
    }

    pub(super) fn caused_by(self, cause: Box<dyn Error + Send + Sync>) -> ConfigError {
        ConfigError { cause: Some(cause), ..self }
    }

    /// Returns the kind of this error.
    pub fn kind(&self) -> ConfigErrorKind {
        self.kind
    }

    /// Returns the faults that the message lists, at most twenty.
    pub fn faults(&self) -> &[ConfigFault] {
        &self.faults
    }

    /// Returns the total number of faults, including those that are not listed.
    pub fn fault_count(&self) -> usize {
        self.fault_count
    }
}

/// Writes only the message, because an error returned from `main` is printed with `Debug`.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Some(cause) => Some(&**cause),
            None => self.faults.first().map(|fault| fault as _),
        }
    }
}

/// An invalid or missing value, with its path.
#[derive(Debug)]
pub struct ConfigFault {
    path: String,
    message: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl ConfigFault {
    /// Returns the path of the field, such as `policies.api.tiers.premium`. Empty if the fault concerns the whole file.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.path.is_empty() { "" } else { ": " };
        write!(f, "{}{colon}{}", self.path, self.message)
    }
}

impl Error for ConfigFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(|cause| &**cause as _)
    }
}

#[derive(Default)]
pub(super) struct Faults(RefCell<(Vec<ConfigFault>, usize)>);

impl Faults {
    pub(super) fn add(&self, path: &Path, message: impl fmt::Display) {
        self.push(path, message, None);
    }

    pub(super) fn add_cause(&self, path: &Path, message: impl fmt::Display, cause: impl Error + Send + Sync + 'static) {
        self.push(path, message, Some(Box::new(cause)));
    }

    fn push(&self, path: &Path, message: impl fmt::Display, cause: Option<Box<dyn Error + Send + Sync>>) {
        let (shown, count) = &mut *self.0.borrow_mut();
        *count += 1;
        if shown.len() < MAX_SHOWN {
            shown.push(ConfigFault { path: path.0.clone(), message: message.to_string(), cause });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().1 == 0
    }

    pub(super) fn into_error(self, kind: ConfigErrorKind, name: &str) -> ConfigError {
        let (faults, fault_count) = self.0.into_inner();
        let mut lines: Vec<String> = faults.iter().map(|fault| format!("{name}: {fault}")).collect();
        if fault_count > faults.len() {
            lines.push(format!("{name}: and {} more", fault_count - faults.len()));
        }
        ConfigError { kind, message: lines.join("\n"), faults, fault_count, cause: None }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.borrow().0.iter().map(ConfigFault::to_string).collect();
        f.write_str(&lines.join("; "))
    }
}

/// The path of a value, such as `policies.api.quota` or `deny.ips[2]`.
#[derive(Clone)]
pub(super) struct Path(String);

impl Path {
    pub(super) const FILE: Path = Path(String::new());

    pub(super) fn field(&self, name: &str) -> Path {
        let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let dot = if self.0.is_empty() { "" } else { "." };
        if !name.is_empty() && name.len() <= 80 && name.chars().all(is_bare) {
            Path(format!("{}{dot}{name}", self.0))
        } else {
            Path(format!("{}{dot}{:?}", self.0, shortened(name)))
        }
    }

    pub(super) fn item(&self, index: usize) -> Path {
        Path(format!("{}[{index}]", self.0))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const MAX_SHOWN: usize = 20;
