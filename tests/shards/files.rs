//! Shards in configuration files.

use tollgate::config::{Config, ConfigError};
use tollgate::{MINUTE, Quota};

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
fn faults_of_shards_are_reported_together() {
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
        "rate is 3; every shard needs at least one token, so raise it or use fewer shards",
        "shards is 1, which differs from the first quota; a charge uses the same shard of all quotas",
        "unknown word \"shard\"",
    ] {
        assert!(error.contains(expected), "{expected}\n\n{error}");
    }
}
