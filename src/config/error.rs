//! What is wrong with a configuration: where, which value, what would do.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;

use super::raw::shortened;

/// Why a configuration cannot be used, or not while the program runs. Each line of its message begins with the file's
/// name; of many faults the first twenty are told, and how many more there are.
///
/// ```
/// use tollgate::Config;
///
/// let text = r#"{
///     "policies": {"api": {"quota": "30/min", "tiers": {"premium": "200/mim"}}},
///     "routes": {"POST /todos": "ap1"}
/// }"#;
/// let error = Config::parse("limits.json", text, |text| serde_json::from_str(text)).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"limits.json: policies.api.tiers.premium: quota "200/mim": expected a period such as "min" or "30s", found "mim"; units: us ms s min h d w
/// limits.json: routes."POST /todos": there is no policy "ap1"; there is "api""#
/// );
/// ```
///
/// What a program may do with it besides printing it:
///
/// ```
/// use tollgate::config::ConfigErrorKind;
/// use tollgate::Config;
///
/// let text = r#"{"policies": {"api": {"quota": "0/min"}}, "default": "web"}"#;
/// let error = Config::parse("limits.json", text, |text| serde_json::from_str(text)).unwrap_err();
/// assert_eq!((error.kind(), error.fault_count()), (ConfigErrorKind::Invalid, 2));
/// let places: Vec<_> = error.faults().iter().map(|fault| fault.path()).collect();
/// assert_eq!(places, ["policies.api.quota", "default"]);
/// ```
///
/// Its text is whole by itself. `source()` is the first fault, or why the text could not be read.
#[derive(Debug)]
pub struct ConfigError {
    kind: ConfigErrorKind,
    message: String,
    /// The first ones of those in the values.
    faults: Vec<ConfigFault>,
    fault_count: usize,
    /// Why the text could not be read.
    cause: Option<Box<dyn Error + Send + Sync>>,
}

/// What kind of thing is wrong.
///
/// ```
/// use tollgate::config::{Config, ConfigErrorKind};
///
/// let error = Config::read("there-is-none.json", |text| serde_json::from_str(text)).unwrap_err();
/// assert_eq!(error.kind(), ConfigErrorKind::Read);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// The file cannot be read.
    Read,
    /// The text is larger than [`Config::MAX_BYTES`](super::Config::MAX_BYTES).
    TooLarge,
    /// The format does not take the text.
    Syntax,
    /// The values do not make a configuration.
    Invalid,
    /// It is a good configuration, but takes a restart of the program.
    Restart,
    /// The limiter could not be told a quota.
    Limiter,
    /// Another reload is under way.
    Busy,
}

impl ConfigError {
    /// Something is wrong with the whole file of this name.
    pub(super) fn new(kind: ConfigErrorKind, name: &str, what: impl fmt::Display) -> ConfigError {
        ConfigError { kind, message: format!("{name}: {what}"), faults: Vec::new(), fault_count: 0, cause: None }
    }

    pub(super) fn caused_by(self, cause: Box<dyn Error + Send + Sync>) -> ConfigError {
        ConfigError { cause: Some(cause), ..self }
    }

    /// What kind of thing is wrong.
    pub fn kind(&self) -> ConfigErrorKind {
        self.kind
    }

    /// The faults that the message tells: the first twenty of those in the values.
    pub fn faults(&self) -> &[ConfigFault] {
        &self.faults
    }

    /// How many faults there are in the values.
    pub fn fault_count(&self) -> usize {
        self.fault_count
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ConfigError {
    /// The first fault, or why the text cannot be read.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Some(cause) => Some(&**cause),
            None => self.faults.first().map(|fault| fault as _),
        }
    }
}

/// One thing that is wrong: where, and what.
///
/// ```
/// use std::error::Error;
/// use tollgate::{policy::ParseQuotaError, Config};
///
/// let text = r#"{"policies": {"api": {"quota": "0/min"}}}"#;
/// let error = Config::parse("limits.json", text, |text| serde_json::from_str(text)).unwrap_err();
/// let fault = &error.faults()[0];
/// assert_eq!(fault.path(), "policies.api.quota");
/// assert!(fault.to_string().starts_with("policies.api.quota: quota \"0/min\": rate is 0"));
/// assert!(fault.source().is_some_and(|cause| cause.is::<ParseQuotaError>()));
/// ```
#[derive(Debug)]
pub struct ConfigFault {
    path: String,
    message: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl ConfigFault {
    /// The field, from the top of the file: `policies.api.tiers.premium`. Empty if it is the whole file.
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

/// All that is wrong, as it is found: the first ones, and how many there are.
#[derive(Default)]
pub(super) struct Faults(RefCell<(Vec<ConfigFault>, usize)>);

impl Faults {
    /// Something is wrong there.
    pub(super) fn add(&self, path: &Path, message: impl fmt::Display) {
        self.push(path, message, None);
    }

    /// Something is wrong there because of `cause`.
    pub(super) fn add_cause(&self, path: &Path, message: impl fmt::Display, cause: impl Error + Send + Sync + 'static) {
        self.push(path, message, Some(Box::new(cause)));
    }

    fn push(&self, path: &Path, message: impl fmt::Display, cause: Option<Box<dyn Error + Send + Sync>>) {
        let (told, count) = &mut *self.0.borrow_mut();
        *count += 1;
        if told.len() < MOST_TOLD {
            told.push(ConfigFault { path: path.0.clone(), message: message.to_string(), cause });
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

/// In one line.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.borrow().0.iter().map(ConfigFault::to_string).collect();
        f.write_str(&lines.join("; "))
    }
}

/// Where a value is: `policies.api.quota`, `deny.ips[2]`.
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

/// Faults that a message tells: more than anybody mends before trying again.
const MOST_TOLD: usize = 20;
