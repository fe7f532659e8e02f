//! Configuration files: policies, tiers, routes and deny lists (feature `serde`).
//!
//! [`Config::read`] reads a file in any serde format. If the file is invalid, the error lists up to twenty faults, each
//! with its path and advice on how to fix it. [`Config::reload`] applies a new version of the file while the program
//! runs. An invalid version changes nothing.
//!
//! ```
//! use axum::{routing::post, Router};
//! use tollgate::{key, Config, MemoryBackend, RateLimiter};
//! # #[derive(Clone)] struct User { id: u64 }
//!
//! let text = r#"
//!     [policies.default]
//!     quota = "60/min"
//!
//!     [policies.api]
//!     quota = "30/min"                          # for callers without a tier
//!     tiers = { free = "60/min", premium = "200/min burst 400" }
//!
//!     [routes]
//!     "POST /todos" = "api"
//!
//!     [deny]
//!     ips = ["192.0.2.0/24", "2001:db8::1"]
//!     user_agents = ["*GPTBot/*"]
//!     keys = [7]                                # a token: "bearer:sk_leaked", a string: '"mallory"'
//!     labels = { asn = ["64496"] }
//!
//!     [auto_block]
//!     policies = ["api"]
//!     escalate = { factor = 2, most = "30 d" }
//! "#;
//!
//! let config = Config::parse("limits.toml", text, |text| toml::from_str(text))?;
//! let limiter: RateLimiter = config.limiter(MemoryBackend::new()).build();
//! let layer = config.layer(&limiter, key::extension(|user: &User| user.id));
//! let layer = layer.client_ip(key::client_ip()).label_from_header("asn", "x-asn"); // for the deny list
//! let app: Router = Router::new().route("/todos", post(|| async {})).layer(layer);
//!
//! assert_eq!(config.policy("api").map(|api| api.quotas_for(Some("premium"))[0].get_capacity()), Some(400));
//! assert_eq!((config.policies().count(), config.routes().count(), config.deny_list().len()), (2, 1, 5));
//! # Ok::<(), tollgate::config::ConfigError>(())
//! ```
//!
//! # Fields of a file
//! Unknown fields are errors, and so are duplicate fields unless the format's parser drops them. A duration is a string
//! with a number and a unit (`us ms s min h d w`, or their long names). [`schema`] returns a JSON schema for editors.
//!
//! | field | value | default |
//! | --- | --- | --- |
//! | `policies.NAME.quota` | a [quota](crate::Quota): a string (`"10/s burst 50"`) or a table (see below) | required |
//! | `policies.NAME.tiers.TIER` | the tier's quota, which must use the policy's algorithm | the policy's quota |
//! | `policies.NAME.key` | the name of a key extractor: `"global"`, or one that is registered with [`ConfigReader::key`] | the extractor that is passed to [`Config::layer`] |
//! | `policies.NAME.cost` | the [cost](crate::Rule::fixed_cost) of a request | the route's cost or, if it has none, the layer's cost |
//! | `policies.NAME.wait` | how long requests may [wait](crate::RateLimitLayer#method.wait_up_to) for reserved tokens | requests do not wait |
//! | `policies.NAME.shadow` | whether the policy is in [shadow mode](crate::policy::Enforce) | false |
//! | `policies.NAME.enforce` | the [share](crate::policy::Enforce::Share) of keys, from 0.0 to 1.0, for which the policy is enforced | 1 |
//! | `policies.NAME.leases` | whether processes [lease](crate::Policy::leases) tokens from a remote backend | `false` |
//! | `routes."METHOD /route"`, `routes."/route"` | the policies for this route; see [`RouteLimits`](crate::RouteLimits) and below | none |
//! | `default` | the policies for routes without an entry in `routes` | the policy named `default`, if any |
//! | `all_routes` | policies that apply to all requests, in addition to the route's own | none |
//! | `deny.ips` | networks and addresses (see [`DenyRule`](crate::protection::DenyRule)) | none |
//! | `deny.user_agents` | user agents, in which `*` stands for any text | none |
//! | `deny.countries` | two-letter country codes, compared with the label `country` | none |
//! | `deny.keys` | keys, in their [text form](crate::Key#text-form) or as numbers; error messages never show them | none |
//! | `deny.labels.LABEL` | values of the label `LABEL` | none |
//! | `auto_block.policies` | the policies whose denials are counted (see [`AutoBlock`]) | required in `auto_block` |
//! | `auto_block.threshold`, `auto_block.within` | the number of denials that lead to a block, and the period over which they are counted | 30, 10 min |
//! | `auto_block.block_for` | the duration of a block | 1 d |
//! | `auto_block.escalate` | `factor` (2 or more), by which the duration of each subsequent block is multiplied, and `most`, the longest duration | off |
//! | `auto_block.reset_on_success` | whether an allowed charge resets the count of denials | false |
//! | `auto_block.keys`, `auto_block.ips` | whether to block keys and addresses | true |
//! | `auto_block.user_agents`, `auto_block.labels` | whether to block user agents; the labels to block | false, none |
//! | `auto_block.max_entries` | the number of offenders to remember, from 64 to 10,000,000 | 100,000 |
//!
//! A quota table has `rate` and `period`, and optionally `algorithm` (`"token_bucket"`, `"fixed_window"`,
//! `"sliding_window"`), `capacity`, `max_reserved` (a number or `"unlimited"`), `start` (a duration) and `shards`.
//!
//! A route's value is a policy (`"api"`), a list of policies (`["api", "tenant"]` or `[]`), or a table with a cost, as
//! in `{ policies = ["api"], cost = 10 }`. The cost applies to the route's policies that have no `cost` of their own,
//! but not to the policies in `all_routes`. For gRPC, a route is a path such as `"/package.Service/Method"`.
//!
//! A file may contain at most 16 MiB of text, 10,000 policies with 100 tiers each, 50,000 policies and tiers in total,
//! 10,000 routes with 16 policies each, and 100,000 deny rules.
//!
//! # Format
//! You choose the crate that parses the format, for example with `|text| toml::from_str(text)`. Syntax errors from that
//! crate are passed on, and may quote a line of the file.
//!
//! To change a file that a program reloads, write a new file and rename it over the old one. Otherwise, the program
//! might read a partially written file, which can be a valid configuration without the deny list.

mod auto_block;
mod deny;
mod error;
mod fields;
mod layer;
mod policies;
mod quota;
mod raw;
mod reader;
mod reload;
mod restart;
mod routes;
mod schema;
mod value;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use self::error::{Faults, Path};
use self::fields::FILE;
use self::policies::ConfiguredPolicy;
use self::raw::RawConfig;
use self::reader::Keys;
use self::routes::{Choice, Choices, PolicyNames};
use self::value::Value;
use crate::backend::Backend;
use crate::limiter::{AutoBlock, DenyList, RateLimiter, RateLimiterBuilder};
use crate::policy::Policy;

pub use error::{ConfigError, ConfigErrorKind, ConfigFault};
pub use reader::ConfigReader;
pub use reload::{EnforcementChange, QuotaChange, Reloaded};
pub use schema::schema;

/// A validated configuration. See the [module](self) for the fields and an example.
///
/// A [reload](Config::reload) does not change the policies in this value; [`RateLimiter::quotas`] and
/// [`RateLimiter::enforcement`] return what is in force. Clones of a configuration share one deny list.
#[derive(Clone, Debug)]
pub struct Config {
    name: String,
    policies: BTreeMap<String, ConfiguredPolicy>,
    keys: Keys,
    default: Option<Choice>,
    all_routes: Vec<String>,
    routes: BTreeMap<String, Choice>,
    deny: DenyList,
    auto_block: Option<AutoBlock>,
    is_reloading: Arc<AtomicBool>,
}

impl Config {
    /// The maximum size of the text: 16 MiB.
    pub const MAX_BYTES: usize = 16 << 20;

    /// Reads a file, parses it with `parse` and checks the result. Blocks the thread while reading. The parsed values
    /// may take at most 64 MiB of memory (with YAML aliases expanded) and may be nested at most 16 levels deep.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is larger than [`MAX_BYTES`](Config::MAX_BYTES) or is invalid.
    pub fn read<E: Into<Box<dyn Error + Send + Sync>>>(
        path: impl AsRef<FilePath>,
        parse: impl FnOnce(&str) -> Result<RawConfig, E>,
    ) -> Result<Config, ConfigError> {
        ConfigReader::new().read(path, parse)
    }

    /// Parses and checks `text`. Error messages begin with `name`. See [`read`](Config::read).
    ///
    /// # Errors
    /// Fails in the same cases as [`read`](Config::read), except that no file is read.
    pub fn parse<E: Into<Box<dyn Error + Send + Sync>>>(
        name: impl Into<String>,
        text: &str,
        parse: impl FnOnce(&str) -> Result<RawConfig, E>,
    ) -> Result<Config, ConfigError> {
        ConfigReader::new().parse(name, text, parse)
    }

    /// Returns a builder for a limiter on `backend` with this configuration's deny list and automatic blocking.
    ///
    /// On a shared backend, quotas and enforcement that are set at run time outlive the program. After a restart with
    /// an edited file, apply the file with `config.reload(&limiter, &config).await?`.
    pub fn limiter(&self, backend: impl Backend) -> RateLimiterBuilder {
        let builder = RateLimiter::builder(backend).deny_list(&self.deny);
        match &self.auto_block {
            Some(rules) => builder.auto_block(rules.clone()),
            None => builder,
        }
    }

    /// Returns the policy with this name.
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.get(name).map(|configured| &configured.policy)
    }

    /// Returns all policies, sorted by name.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.values().map(|configured| &configured.policy)
    }

    /// Returns the policies for routes that have no entry in `routes`.
    pub fn default_policies(&self) -> impl Iterator<Item = &Policy> {
        self.default.iter().flat_map(|choice| &choice.policies).filter_map(|name| self.policy(name))
    }

    /// Returns the policies that apply to all requests, in addition to the route's own.
    pub fn all_routes(&self) -> impl Iterator<Item = &Policy> {
        self.all_routes.iter().filter_map(|name| self.policy(name))
    }

    /// Returns the lines of `routes`, such as `"POST /todos"`, with their policies. A line with several policies is
    /// returned once per policy.
    pub fn routes(&self) -> impl Iterator<Item = (&str, &Policy)> {
        self.routes.iter().flat_map(move |(line, choice)| {
            choice.policies.iter().filter_map(move |name| Some((line.as_str(), self.policy(name)?)))
        })
    }

    /// Returns the deny list. A [`reload`](Config::reload) replaces its rules.
    pub const fn deny_list(&self) -> &DenyList {
        &self.deny
    }

    /// Returns the settings for automatic blocking, if it is configured.
    pub const fn auto_block(&self) -> Option<&AutoBlock> {
        self.auto_block.as_ref()
    }
}

/// Deserializes a configuration that is a field of your own settings. The error describes the faults only as text. To
/// get a [`ConfigError`], use [`Config::read`] or [`Config::parse`].
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Settings { limits: tollgate::Config }
///
/// let text = r#"{"limits": {"policies": {"api": {"quota": "30/min"}}}}"#;
/// assert!(serde_json::from_str::<Settings>(text)?.limits.policy("api").is_some());
/// # Ok::<(), serde_json::Error>(())
/// ```
impl<'de> serde::Deserialize<'de> for Config {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Config, D::Error> {
        RawConfig::deserialize(deserializer)?
            .check("the configuration", ConfigReader::new().keys())
            .map_err(serde::de::Error::custom)
    }
}

impl RawConfig {
    fn check(self, name: impl Into<String>, keys: &Keys) -> Result<Config, ConfigError> {
        let (name, faults) = (name.into(), Faults::default());
        match read(&self, &name, keys, &faults) {
            Some(config) if faults.is_empty() => Ok(config),
            _ => Err(faults.into_error(ConfigErrorKind::Invalid, &name)),
        }
    }
}

/// Builds a configuration and collects its faults. The result is valid only if there are no faults.
fn read(raw: &RawConfig, name: &str, keys: &Keys, faults: &Faults) -> Option<Config> {
    let mut file = Value::file(&raw.0, faults).fields(&FILE)?;
    let table = file.take("policies");
    let known = PolicyNames::of(table.as_ref());
    if table.is_none() {
        faults.add(&Path::FILE.field("policies"), "missing, so nothing would be limited; add a policy");
    }
    let policies = table.and_then(|value| policies::read(&value, keys)).unwrap_or_default();
    let all_routes = file.take("all_routes").and_then(|value| known.list(&value)).unwrap_or_default();
    let choices = Choices { known: &known, policies: &policies, all_routes: &all_routes };
    let default = routes::default(file.take("default"), &choices);
    let routes = file.take("routes").and_then(|value| routes::read(&value, &choices)).unwrap_or_default();
    let deny = DenyList::from_iter(file.take("deny").and_then(|value| deny::read(&value)).unwrap_or_default());
    let auto_block = file.take("auto_block").and_then(|value| auto_block::read(&value, &known));
    file.end();
    let (name, keys) = (name.to_owned(), keys.clone());
    Some(Config { name, policies, keys, default, all_routes, routes, deny, auto_block, is_reloading: Arc::default() })
}
