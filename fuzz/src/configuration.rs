//! Configurations: of any text there comes a message, or a configuration that a server can be built from.

use std::error::Error;

use tollgate::config::ConfigErrorKind;
use tollgate::{Config, MemoryBackend, config::ConfigError, key};

use crate::quotas::reads_back;

/// Reads `data` as JSON if it begins with a brace, else as TOML.
pub fn one(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match read(text) {
        Ok(config) => good(&config, text),
        Err(error) => bad(&error),
    }
}

fn read(text: &str) -> Result<Config, ConfigError> {
    if text.trim_start().starts_with('{') {
        Config::parse(NAME, text, |text| serde_json::from_str(text))
    } else {
        Config::parse(NAME, text, |text| toml::from_str(text))
    }
}

const NAME: &str = "limits";

/// Whatever is accepted can be served: nothing is left to panic when layers are made of it.
fn good(config: &Config, text: &str) {
    for policy in config.policies() {
        let name = policy.name().as_str();
        assert!(config.policy(name).is_some_and(|found| found.quota() == policy.quota()), "{name:?}");
        reads_back(policy.quota());
        for (tier, quota) in policy.tiers() {
            reads_back(quota);
            assert_eq!(policy.quota_for(Some(tier)), quota, "{name:?} {tier:?}");
        }
    }
    let limiter = config.limiter(MemoryBackend::new()).build();
    let _layer = config.layer(&limiter, key::global());
    let again = read(text).expect("it was good a moment ago");
    assert_eq!(format!("{config:?}"), format!("{again:?}"));
}

fn bad(error: &ConfigError) {
    let message = error.to_string();
    assert!(message.len() > NAME.len() + 2 && message.starts_with(NAME), "{message:?}");
    if error.kind() == ConfigErrorKind::Invalid {
        let (told, count) = (error.faults().len(), error.fault_count());
        assert!((1..=20).contains(&told) && told <= count, "{told} of {count}: {message:?}");
        assert_eq!(message.lines().count(), told + usize::from(told < count), "{message:?}");
        assert!(message.lines().all(|line| line.starts_with(NAME)), "{message:?}");
        assert!(message.len() < 100_000, "{} bytes", message.len());
    }
    let mut cause = error.source();
    for _ in 0..100 {
        let Some(inner) = cause else { return };
        cause = inner.source();
    }
    panic!("causes without end: {message:?}");
}
