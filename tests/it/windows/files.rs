//! Several quotas in configuration files.

use tollgate::config::{Config, ConfigError};
use tollgate::{MemoryBackend, Subject};

use crate::support::now;

fn read(text: &str) -> Result<Config, ConfigError> {
    Config::parse("limits.toml", text, |text| toml::from_str(text))
}

#[test]
fn quotas_can_be_written_as_a_string_or_a_list() {
    for quota in [r#""10/s; 1000/d fixed""#, r#"["10/s", { algorithm = "fixed_window", rate = 1000, period = "1 d" }]"#]
    {
        let text = format!("[policies.api]\nquota = {quota}\ntiers = {{ pro = [\"50/s\", \"20000/d fixed\"] }}");
        let config = read(&text).unwrap();
        let api = config.policy("api").unwrap();
        assert_eq!(api.quotas().to_string(), "10/s; 1000/d fixed");
        assert_eq!(api.quotas_for(Some("pro")).to_string(), "50/s; 20000/d fixed");
        let json = serde_json::to_string(api.quotas()).unwrap();
        assert_eq!(serde_json::from_str::<tollgate::policy::Quotas>(&json).unwrap(), *api.quotas());
    }
}

#[test]
fn every_fault_is_listed_with_its_path() {
    let text = r#"
        [policies.a]
        quota = []
        [policies.b]
        quota = ["10/s", "20/1000ms", "ten/min"]
        [policies.c]
        quota = "1/s; 1/min; 1/h; 1/d; 1/w"
        [policies.d]
        quota = "1/s; 5/d"
        tiers = { pro = "2/s; 5/d sliding" }
        [policies."d;1s"]
        quota = "1/h"
    "#;
    let error = read(text).unwrap_err().to_string();
    for part in [
        "policies.a.quota: no quotas; add one such as \"10/s\"",
        "policies.b.quota[1]: two quotas have a period of 1 s",
        "policies.b.quota[2]: quota \"ten/min\": expected a rate",
        "policies.c.quota: quota \"1/s; 1/min; 1/h; 1/d; 1/w\": more than four quotas apply together",
        "policies.d.tiers.pro: policy \"d\": tier \"pro\" (2/s; 5/d sliding): two quotas with a period of 1 d have different algorithms",
        "policies: the policies \"d\" and \"d;1s\" both have a limit named \"d;1s\" in headers; rename one of them",
    ] {
        assert!(error.contains(part), "{part}\nis not in\n{error}");
    }
}

#[test]
fn a_reload_adds_a_quota() {
    let old = read("[policies.api]\nquota = \"1000/d\"").unwrap();
    let new = read("[policies.api]\nquota = \"10/s; 1000/d\"").unwrap();
    let limiter = old.limiter(MemoryBackend::new()).build();
    let api = old.policy("api").unwrap();
    now(limiter.acquire(api, "ada").cost(400));
    let reloaded = now(async { old.reload(&limiter, &new).await });
    assert_eq!(reloaded.to_string(), "policies.api.quota: 1000/d → 10/s; 1000/d");
    assert_eq!(limiter.quotas(api, Subject::new("ada")).to_string(), "10/s; 1000/d");
    assert!(!now(limiter.try_acquire(api, "ada").cost(11)).is_allowed());
    let spent: Vec<f64> = now(limiter.snapshot(api, "ada")).iter().map(|it| it.state().spent.ceil()).collect();
    assert_eq!(spent, [0.0, 400.0]);
}
