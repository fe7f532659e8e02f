//! The reader of configuration files, with the key extractors that files can name.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path as FilePath;
use std::sync::Arc;

use super::raw::{RawConfig, shortened};
use super::value::{Value, listed};
use super::{Config, ConfigError, ConfigErrorKind};
use crate::middleware::key::{self, KeyExtractor};
use crate::policy::suggestion;

/// Reads configuration files that name key extractors, as in `key = "tenant"`. A file that names no extractor other
/// than `"global"` can be read with [`Config::read`].
///
/// ```
/// use tollgate::{config::ConfigReader, key};
/// # #[derive(Clone)] struct User { tenant: u64 }
///
/// let reader = ConfigReader::new().key("tenant", key::extension(|user: &User| user.tenant));
/// let text = r#"
///     default = ["api", "tenant"]
///     [policies.api]
///     quota = "60/min"
///     [policies.tenant]
///     quota = "1000/min"
///     key = "tenant"
/// "#;
/// let config = reader.parse("limits.toml", text, |text| toml::from_str(text))?;
/// assert_eq!(config.default_policies().count(), 2);
/// # Ok::<(), tollgate::config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConfigReader {
    keys: Keys,
}

impl ConfigReader {
    /// Creates a reader whose only key extractor is `"global"`, which is [`key::global`](crate::key::global).
    pub fn new() -> ConfigReader {
        let global: Arc<dyn KeyExtractor> = Arc::new(key::global());
        ConfigReader { keys: Keys(Arc::new(BTreeMap::from([(GLOBAL.to_owned(), global)]))) }
    }

    /// Registers a key extractor under a name that files can use in `policies.NAME.key`.
    ///
    /// # Panics
    /// Panics if there is already an extractor with this name.
    #[track_caller]
    #[must_use]
    pub fn key(mut self, name: impl Into<String>, key: impl KeyExtractor) -> ConfigReader {
        let name = name.into();
        assert!(
            !self.keys.0.contains_key(&name),
            "tollgate: two key extractors are named {name:?}, but files refer to extractors by name; rename one of them"
        );
        Arc::make_mut(&mut self.keys.0).insert(name, Arc::new(key));
        self
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// Fails in the same cases as [`Config::read`], and if the file names an extractor that is not registered.
    pub fn read<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        path: impl AsRef<FilePath>,
        parse: impl FnOnce(&str) -> Result<RawConfig, E>,
    ) -> Result<Config, ConfigError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let mut text = String::new();
        // The file may grow while it is being read, so its size is not checked in advance.
        let read = File::open(path).and_then(|file| file.take(Config::MAX_BYTES as u64 + 1).read_to_string(&mut text));
        match read {
            Ok(_) => self.parse(name, &text, parse),
            Err(error) => {
                let what = format!("cannot read the file: {error}");
                Err(ConfigError::new(ConfigErrorKind::Read, &name, what).caused_by(error.into()))
            }
        }
    }

    /// Parses and checks `text`. Error messages begin with `name`.
    ///
    /// # Errors
    /// Fails in the same cases as [`read`](ConfigReader::read), except that no file is read.
    pub fn parse<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        name: impl Into<String>,
        text: &str,
        parse: impl FnOnce(&str) -> Result<RawConfig, E>,
    ) -> Result<Config, ConfigError> {
        let name = name.into();
        if text.len() > Config::MAX_BYTES {
            let what = format!("larger than {} MiB; make it smaller", Config::MAX_BYTES >> 20);
            return Err(ConfigError::new(ConfigErrorKind::TooLarge, &name, what));
        }
        // Some editors write a byte order mark, which some formats reject.
        match parse(text.strip_prefix('\u{feff}').unwrap_or(text)) {
            Ok(raw) => raw.check(name, &self.keys),
            Err(error) => {
                let error = error.into();
                let what = error.to_string();
                Err(ConfigError::new(ConfigErrorKind::Syntax, &name, what.trim_end()).caused_by(error))
            }
        }
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }
}

impl Default for ConfigReader {
    fn default() -> ConfigReader {
        ConfigReader::new()
    }
}

/// The registered key extractors, by name.
#[derive(Clone)]
pub(super) struct Keys(Arc<BTreeMap<String, Arc<dyn KeyExtractor>>>);

impl Keys {
    pub(super) fn get(&self, name: &str) -> Option<Arc<dyn KeyExtractor>> {
        self.0.get(name).cloned()
    }

    /// Returns the extractor name in `value`. Adds a fault if no extractor has this name.
    pub(super) fn name<'n>(&self, value: &Value<'n>) -> Option<&'n str> {
        let name = value.text()?;
        if self.0.contains_key(name) {
            return Some(name);
        }
        let known = || self.0.keys().map(String::as_str);
        let (near, known) = (suggestion(name, known()), listed(known()));
        let name = shortened(name);
        value.refuse(format_args!(
            "unknown key {name:?}{near}; known keys: {known}. Programs register keys with `ConfigReader::key`"
        ))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

const GLOBAL: &str = "global";
