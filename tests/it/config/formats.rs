//! TOML, YAML and JSON files that contain the same configuration.

use tollgate::{Config, DAY, HOUR, MINUTE, Policy, Quota, protection::DenyRule};

use super::app::parse;

const TOML: &str = r#"
default = "web"

[policies.web]
quota = "60/min"

[policies.404]
quota = { algorithm = "fixed_window", rate = 1000, period = "1 d", capacity = 3000, start = "8 h", max_reserved = "unlimited" }

[policies."a policy: \"x\""]
quota = "100/min sliding"
tiers = { free = "60/min sliding", "team/premium" = "200/min sliding" }

[routes]
"POST /todos" = "404"
"/users/{id}" = "web"

[deny]
ips = ["192.0.2.0/24", "2001:db8::/32", "::ffff:10.0.0.1"]
user_agents = ["*GPTBot/*"]
countries = ["NO", "kp"]
keys = ['"mallory"', "bearer:NO", -7]
labels = { asn = ["64496", "64497"], plan = ["trial"] }

[auto_block]
policies = ["web"]
threshold = 5
within = "10 min"
block_for = "1 d"
escalate = { factor = 2, most = "30 d" }
reset_on_success = true
keys = true
ips = false
user_agents = true
labels = ["asn"]
max_entries = 1000
"#;

// One policy name is written as a number, 404. YAML 1.1 would read the country `NO` as a boolean.
const YAML: &str = r#"
auto_block:
  policies: [web]
  threshold: 5
  within: 10 min
  block_for: 24h
  escalate: {factor: 2, most: 30 d}
  reset_on_success: true
  ips: false
  user_agents: true
  labels: [asn]
  max_entries: 1000
deny:
  labels:
    plan: [trial]
    asn: ["64497", "64496"]
  keys: [ '"mallory"', 'bearer:NO', -7]
  countries: [NO, KP]
  user_agents: ["*gptbot/*"]
  ips: ["10.0.0.1", 2001:db8::/32, 192.0.2.0/24]
routes:
  /users/{id}: web
  POST /todos: 404x
policies:
  404: {quota: {rate: 1000, period: day, algorithm: fixed_window, start: 8h, capacity: 3000, max_reserved: unlimited}}
  'a policy: "x"':
    tiers:
      team/premium: 200/min sliding
      free: 60/min sliding
    quota: 100 per 60 s sliding
  web:
    quota: 60/min
default: web
"#;

const JSON: &str = r#"{
    "policies": {
        "a policy: \"x\"": {
            "quota": "100/min sliding",
            "tiers": {"free": {"algorithm": "sliding_window", "rate": 60, "period": "1min"}, "team/premium": "200/min sliding"}
        },
        "web": {"quota": {"rate": 60, "period": "1 minute"}},
        "404": {"quota": "1000/d fixed burst 3000 reserve unlimited start 8h"}
    },
    "default": "web",
    "deny": {
        "keys": ["bearer:NO", -7, "\"mallory\""],
        "countries": ["KP", "no"],
        "ips": ["2001:db8::0/32", "192.0.2.0/24", "10.0.0.1/32"],
        "user_agents": ["*GPTBOT/*"],
        "labels": {"asn": ["64496", "64497"], "plan": ["TRIAL"]}
    },
    "routes": {"POST /todos": "404", "/users/{id}": "web"},
    "auto_block": {
        "policies": ["web"], "threshold": 5, "within": "600s", "block_for": "1 day", "max_entries": 1000,
        "escalate": {"factor": 2, "most": "720h"}, "reset_on_success": true, "ips": false, "user_agents": true, "labels": ["asn"]
    }
}"#;

fn all() -> [Config; 3] {
    let yaml = YAML.replace("404x", "'404'");
    [("limits.toml", TOML), ("limits.yaml", &yaml), ("limits.json", JSON)]
        .map(|(name, text)| parse(name, text).unwrap_or_else(|error| panic!("{error}")))
}

fn parts(policy: &Policy) -> (String, Quota, Vec<(String, Quota)>) {
    let tiers = policy.tiers().map(|(tier, quota)| (tier.to_owned(), quota[0])).collect();
    (policy.name().to_string(), policy.quotas()[0], tiers)
}

#[test]
fn toml_yaml_and_json_parse_to_equal_configurations() {
    for config in all() {
        let policies: Vec<_> = config.policies().map(parts).collect();
        let named = |name: &str, quota, tiers: &[(&str, Quota)]| {
            (name.to_owned(), quota, tiers.iter().map(|(tier, quota)| ((*tier).to_owned(), *quota)).collect())
        };
        let sliding = |limit| Quota::sliding_window(limit, MINUTE);
        assert_eq!(
            policies,
            [
                named(
                    "404",
                    Quota::fixed_window(1000, DAY).capacity(3000).unlimited_reservations().start(8 * HOUR),
                    &[]
                ),
                named("a policy: \"x\"", sliding(100), &[("free", sliding(60)), ("team/premium", sliding(200))]),
                named("web", Quota::token_bucket(60, MINUTE), &[]),
            ]
        );
        assert_eq!(config.default_policies().next().map(parts), config.policy("web").map(parts));
        let routes: Vec<_> = config.routes().map(|(line, policy)| (line, policy.name().as_str())).collect();
        assert_eq!(routes, [("/users/{id}", "web"), ("POST /todos", "404")]);

        let rules = [
            DenyRule::network("192.0.2.0/24"),
            DenyRule::network("2001:db8::/32"),
            DenyRule::network("10.0.0.1"),
            DenyRule::user_agent("*GPTBot/*"),
            DenyRule::country("NO"),
            DenyRule::country("KP"),
            Ok(DenyRule::key("mallory")),
            Ok(DenyRule::key(tollgate::key::bearer().key("NO"))),
            Ok(DenyRule::key(-7)),
            DenyRule::label("asn", "64496"),
            DenyRule::label("asn", "64497"),
            DenyRule::label("plan", "trial"),
        ];
        assert_eq!(config.deny_list().len(), rules.len());
        for rule in rules {
            assert!(config.deny_list().contains(rule.as_ref().unwrap()), "{rule:?}");
        }

        let web = config.policy("web").unwrap();
        let blocks = tollgate::protection::AutoBlock::new([web])
            .threshold(5)
            .within(10 * MINUTE)
            .block_for(DAY)
            .escalate(2, 30 * DAY)
            .reset_on_success()
            .without_ips()
            .user_agents()
            .label("asn")
            .max_entries(1000);
        assert_eq!(config.auto_block(), Some(&blocks));
    }
}

#[tokio::test]
async fn a_reload_from_one_format_to_another_changes_nothing() {
    for old in all() {
        for new in all() {
            let (limiter, _clock) = super::app::limiter(&old);
            assert!(old.reload(&limiter, &new).await.unwrap().is_empty());
            assert_eq!(limiter.stats().changed_quotas, 0);
        }
    }
}

#[test]
fn omitted_fields_have_the_documented_defaults() {
    let config = parse("limits.yaml", "policies: {default: {quota: 1/s}, api: {quota: 2/s}}").unwrap();
    assert_eq!(config.default_policies().next().unwrap().name().as_str(), "default");
    assert_eq!((config.routes().count(), config.deny_list().len(), config.auto_block()), (0, 0, None));
    let config = parse("limits.yaml", "policies: {api: {quota: 2/s}}\nauto_block: {policies: [api]}").unwrap();
    assert!(config.default_policies().next().is_none());
    let api = config.policy("api").unwrap();
    assert_eq!(config.auto_block(), Some(&tollgate::protection::AutoBlock::new([api])));
    let defaults = tollgate::protection::AutoBlock::new([api])
        .threshold(30)
        .within(10 * MINUTE)
        .block_for(DAY)
        .max_entries(100_000);
    assert_eq!(config.auto_block(), Some(&defaults));
}

#[test]
fn a_config_can_be_a_field_of_another_struct() {
    #[derive(serde::Deserialize)]
    struct Settings {
        port: u16,
        limits: Config,
        others: Option<Config>,
    }
    let text = "port = 3000\n[limits.policies.api]\nquota = \"60/min\"\n";
    let settings: Settings = toml::from_str(text).unwrap();
    assert_eq!((settings.port, settings.limits.policies().count(), settings.others.is_none()), (3000, 1, true));
    let text = "port = 3000\n[limits.policies.api]\nquota = \"60/mim\"\n[limits.policies.login]\nquota = \"5/hm\"\n";
    let error = toml::from_str::<Settings>(text).err().expect("expected two faults").to_string();
    assert!(error.contains("policies.api.quota: quota \"60/mim\""), "{error}");
    assert!(error.contains("policies.login.quota: quota \"5/hm\""), "{error}");
}

#[test]
fn a_byte_order_mark_is_ignored() {
    for (name, text) in [
        ("limits.toml", "\u{feff}policies.api.quota = \"60/min\""),
        ("limits.json", "\u{feff}{\"policies\": {\"api\": {\"quota\": \"60/min\"}}}"),
        ("limits.yaml", "\u{feff}policies: {api: {quota: 60/min}}"),
    ] {
        assert_eq!(parse(name, text).unwrap().policies().count(), 1, "{name}");
    }
}
