//! Configurations: any text results in an error message or in a configuration from which layers can be built.

use std::error::Error;

use tollgate::config::ConfigErrorKind;
use tollgate::{Config, MemoryBackend, config::ConfigError, key};

use crate::quotas::reads_back;

/// Reads `data` as JSON if it begins with a brace, and as TOML otherwise.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match read(text) {
        Ok(config) => check_config(&config, text),
        Err(error) => check_error(&error),
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

/// Checks that building a limiter and a layer from an accepted configuration does not panic.
fn check_config(config: &Config, text: &str) {
    for policy in config.policies() {
        let name = policy.name().as_str();
        assert!(config.policy(name).is_some_and(|found| found.quotas() == policy.quotas()), "{name:?}");
        policy.quotas().iter().for_each(reads_back);
        for (tier, quotas) in policy.tiers() {
            quotas.iter().for_each(reads_back);
            assert_eq!(policy.quotas_for(Some(tier)), quotas, "{name:?} {tier:?}");
        }
    }
    let limiter = config.limiter(MemoryBackend::new()).build();
    let _limits = config.route_limits(&limiter, key::global());
    let again = read(text).expect("the same text, which parsed before");
    assert_eq!(format!("{config:?}"), format!("{again:?}"));
}

fn check_error(error: &ConfigError) {
    let message = error.to_string();
    assert!(message.len() > NAME.len() + 2 && message.starts_with(NAME), "{message:?}");
    if error.kind() == ConfigErrorKind::Invalid {
        let (listed, count) = (error.faults().len(), error.fault_count());
        assert!((1..=20).contains(&listed) && listed <= count, "{listed} of {count}: {message:?}");
        assert_eq!(message.lines().count(), listed + usize::from(listed < count), "{message:?}");
        assert!(message.lines().all(|line| line.starts_with(NAME)), "{message:?}");
        assert!(message.len() < 100_000, "{} bytes", message.len());
    }
    let mut cause = error.source();
    for _ in 0..100 {
        let Some(inner) = cause else { return };
        cause = inner.source();
    }
    panic!("an endless chain of causes: {message:?}");
}
