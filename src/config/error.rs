//! What is wrong with a configuration: where, which value, what would do.

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
///     r#"limits.json: policies.api.tiers.premium: quota "200/mim": "mim" is no period; write a unit (us ms s min h d w) with or without a number
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
    name: String,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Read(std::io::Error),
    TooLarge,
    Syntax(Box<dyn Error + Send + Sync>),
    Faults { kind: ConfigErrorKind, told: Vec<ConfigFault>, count: usize },
    Busy,
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
    pub(super) fn read(name: String, error: std::io::Error) -> ConfigError {
        ConfigError { name, problem: Problem::Read(error) }
    }

    pub(super) fn too_large(name: String) -> ConfigError {
        ConfigError { name, problem: Problem::TooLarge }
    }

    pub(super) fn syntax(name: String, error: Box<dyn Error + Send + Sync>) -> ConfigError {
        ConfigError { name, problem: Problem::Syntax(error) }
    }

    pub(super) fn busy(name: String) -> ConfigError {
        ConfigError { name, problem: Problem::Busy }
    }

    /// What kind of thing is wrong.
    pub fn kind(&self) -> ConfigErrorKind {
        match &self.problem {
            Problem::Read(_) => ConfigErrorKind::Read,
            Problem::TooLarge => ConfigErrorKind::TooLarge,
            Problem::Syntax(_) => ConfigErrorKind::Syntax,
            Problem::Faults { kind, .. } => *kind,
            Problem::Busy => ConfigErrorKind::Busy,
        }
    }

    /// The faults that the message tells: the first twenty of those in the values.
    pub fn faults(&self) -> &[ConfigFault] {
        match &self.problem {
            Problem::Faults { told, .. } => told,
            _ => &[],
        }
    }

    /// How many faults there are in the values.
    pub fn fault_count(&self) -> usize {
        match &self.problem {
            Problem::Faults { count, .. } => *count,
            _ => 0,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.problem {
            Problem::Read(error) => write!(f, "{name}: it cannot be read: {error}"),
            Problem::TooLarge => {
                write!(f, "{name}: it is larger than {} MiB; make it smaller", super::Config::MAX_BYTES >> 20)
            }
            Problem::Syntax(error) => write!(f, "{name}: {}", error.to_string().trim_end()),
            Problem::Faults { told, count, .. } => {
                for (i, fault) in told.iter().enumerate() {
                    write!(f, "{}{name}: {fault}", if i > 0 { "\n" } else { "" })?;
                }
                match count - told.len() {
                    0 => Ok(()),
                    more => write!(f, "\n{name}: and {more} more"),
                }
            }
            Problem::Busy => write!(f, "{name}: another reload is under way; reload again when it is done"),
        }
    }
}

impl Error for ConfigError {
    /// The first fault, or why the text cannot be read.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.problem {
            Problem::Read(error) => Some(error),
            Problem::Syntax(error) => Some(&**error),
            Problem::Faults { told, .. } => told.first().map(|fault| fault as _),
            Problem::TooLarge | Problem::Busy => None,
        }
    }
}

/// One thing that is wrong: where, and what.
///
/// ```
/// use std::error::Error;
/// use tollgate::{Config, ParseQuotaError};
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

/// All that is wrong, as it is found.
#[derive(Default)]
pub(super) struct Faults {
    told: Vec<ConfigFault>,
    count: usize,
}

impl Faults {
    /// Something is wrong there.
    pub(super) fn add(&mut self, path: &Path<'_>, message: impl fmt::Display) {
        self.push(path, || (message.to_string(), None));
    }

    /// Something is wrong there, and `cause` says what.
    pub(super) fn add_cause(&mut self, path: &Path<'_>, cause: impl Error + Send + Sync + 'static) {
        self.push(path, || (cause.to_string(), Some(Box::new(cause))));
    }

    /// [`add_cause`](Faults::add_cause), where there is more to say.
    pub(super) fn add_both(
        &mut self,
        path: &Path<'_>,
        message: impl fmt::Display,
        cause: impl Error + Send + Sync + 'static,
    ) {
        self.push(path, || (message.to_string(), Some(Box::new(cause))));
    }

    fn push(&mut self, path: &Path<'_>, what: impl FnOnce() -> (String, Option<Box<dyn Error + Send + Sync>>)) {
        self.count += 1;
        if self.told.len() < MOST_TOLD {
            let (message, cause) = what();
            self.told.push(ConfigFault { path: path.to_string(), message, cause });
        }
    }

    /// `value`, if nothing was found.
    pub(super) fn or<T>(self, value: T, kind: ConfigErrorKind, name: &str) -> Result<T, ConfigError> {
        let Faults { told, count } = self;
        if count == 0 {
            return Ok(value);
        }
        Err(ConfigError { name: name.to_owned(), problem: Problem::Faults { kind, told, count } })
    }
}

/// Where a value is.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    File,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(super) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    pub(super) fn item(&'a self, index: usize) -> Path<'a> {
        Path::Item(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::File => Ok(()),
            Path::Field(parent, name) => {
                parent.fmt(f)?;
                if !matches!(parent, Path::File) {
                    f.write_str(".")?;
                }
                let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                if !name.is_empty() && name.len() <= 80 && name.chars().all(is_bare) {
                    f.write_str(name)
                } else {
                    write!(f, "{:?}", shortened(name))
                }
            }
            Path::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Faults that a message tells: more than anybody mends before trying again.
const MOST_TOLD: usize = 20;
