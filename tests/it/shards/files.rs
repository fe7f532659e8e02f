//! Shards in configuration files.

use tollgate::config::{Config, ConfigError};
use tollgate::{MINUTE, MemoryBackend, Quota};

use crate::support::now;

fn read(text: &str) -> Result<Config, ConfigError> {
    Config::parse("limits.toml", text, |text| toml::from_str(text))
}

#[test]
fn files_set_the_number_of_shards() {
    let config = read(
        r#"
        [policies.search]
        quota = "100/min shards 4"
        [policies.upload]
        quota = { rate = 100, period = "1 min", shards = 4 }
        [policies.upload.tiers]
        pro = "1000/min shards 8; 50000/d shards 8"
        "#,
    )
    .unwrap();
    for name in ["search", "upload"] {
        assert_eq!(config.policy(name).unwrap().quotas()[0], Quota::token_bucket(100, MINUTE).shards(4));
    }
    let pro = config.policy("upload").unwrap();
    assert!(pro.quotas_for(Some("pro")).iter().all(|quota| quota.get_shards() == 8));
}

#[test]
fn a_reload_changes_the_number_of_shards() {
    let old = read("[policies.api]\nquota = \"120/h\"").unwrap();
    let new = read("[policies.api]\nquota = \"120/h shards 4\"").unwrap();
    let limiter = old.limiter(MemoryBackend::new()).build();
    let api = old.policy("api").unwrap();
    now(limiter.acquire(api, "ada").cost(20));
    let reloaded = now(async { old.reload(&limiter, &new).await });
    assert_eq!(reloaded.to_string(), "policies.api.quota: 120/h → 120/h shards 4");
    // The row of the undivided quota is now the row of one of the four shards.
    assert_eq!(now(limiter.remaining(api, "ada")), 100);
    assert_eq!(now(limiter.try_check(api, "ada")).shards_read(), 4);
}

#[test]
fn all_errors_in_shard_settings_are_reported_together() {
    let error = read(
        r#"
        [policies]
        a = { quota = { rate = 100, period = "1 min", shards = 65 } }
        b = { quota = "3/s shards 4" }
        c = { quota = "100/s shards 4; 1000/d" }
        d = { quota = "100/s shard 4" }
        "#,
    )
    .unwrap_err()
    .to_string();
    for expected in [
        "policies.a.quota.shards: expected a whole number from 1 to 64, found the number 65",
        "rate is 3; every shard needs at least one token, so raise this value or use fewer shards",
        "shards is 1, which differs from the first quota's; quotas that apply together need the same number of shards",
        "unknown word \"shard\"",
    ] {
        assert!(error.contains(expected), "{expected}\n\n{error}");
    }
}
