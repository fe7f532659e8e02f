//! The effects of a reload on decisions and HTTP responses.

use tollgate::{
    Config, Key, MINUTE, Quota, RateLimiter, Subject,
    protection::{DenyRule, Signals},
};

use super::app::{app, call, limiter, parse, quota_headers, toml};

const FILE: &str = r#"
    [policies.default]
    quota = "60/min"

    [policies.api]
    quota = "30/min"
    tiers = { free = "60/min", premium = "200/min" }

    [routes]
    "/todos" = "api"

    [deny]
    keys = ['"mallory"']
    countries = ["KP"]
"#;

fn changed(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(FILE.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "{old}");
        text.replace(old, new)
    })
}

#[tokio::test]
async fn new_quotas_apply_immediately_and_spent_tokens_stay_spent() {
    let config = toml(FILE);
    let (limiter, _clock) = limiter(&config);
    let app = app(&config, &limiter);
    for _ in 0..10 {
        call(&app, "GET /todos", &["x-user: ada"]).await;
        call(&app, "GET /todos", &["x-user: eve", "x-tier: premium"]).await;
    }
    let new = toml(&changed(&[("\"30/min\"", "\"20/min\""), ("200/min", "500/min")]));
    let reloaded = config.reload(&limiter, &new).await.unwrap();
    assert_eq!(
        reloaded.to_string(),
        "policies.api.tiers.premium: 200/min → 500/min\npolicies.api.quota: 30/min → 20/min"
    );
    assert_eq!(quota_headers(&app, "GET /todos", &["x-user: ada"]).await, (200, "api".into(), 20, 9));
    assert_eq!(
        quota_headers(&app, "GET /todos", &["x-user: eve", "x-tier: premium"]).await,
        (200, "api".into(), 500, 489)
    );
    assert_eq!(quota_headers(&app, "GET /todos", &["x-user: kim", "x-tier: free"]).await, (200, "api".into(), 60, 59));
    assert_eq!(quota_headers(&app, "GET /search", &["x-user: ada"]).await, (200, "default".into(), 60, 59));
}

#[tokio::test]
async fn a_change_to_the_policys_own_quota_does_not_affect_its_tiers() {
    let config = toml(FILE);
    let (limiter, _clock) = limiter(&config);
    let api = config.policy("api").unwrap();
    let rates = |limiter: &RateLimiter| {
        [None, Some("free"), Some("premium"), Some("other")].map(|tier| {
            let subject = Subject::anonymous();
            limiter.quotas(api, tier.map_or(subject.clone(), |tier| subject.tier(tier)))[0].rate()
        })
    };
    assert_eq!(rates(&limiter), [30, 60, 200, 30]);
    config.reload(&limiter, &toml(&changed(&[("\"30/min\"", "\"20/min\"")]))).await.unwrap();
    assert_eq!(rates(&limiter), [20, 60, 200, 20]);
    config.reload(&limiter, &toml(&changed(&[("200/min", "300/min")]))).await.unwrap();
    assert_eq!(rates(&limiter), [30, 60, 300, 30]);
    let back = config.reload(&limiter, &toml(FILE)).await.unwrap();
    assert_eq!((rates(&limiter), back.quotas().len()), ([30, 60, 200, 30], 1));
    assert!(config.reload(&limiter, &toml(FILE)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_reload_replaces_the_deny_list() {
    let config = toml(FILE);
    let (limiter, _clock) = limiter(&config);
    let app = app(&config, &limiter);
    config.deny_list().insert(DenyRule::key("added by hand"));
    let new = toml(&changed(&[("['\"mallory\"']", "['\"trudy\"', '\"eve\"']")]));
    let reloaded = config.reload(&limiter, &new).await.unwrap();
    assert_eq!((reloaded.rules_added().len(), reloaded.rules_removed().len(), reloaded.quotas().len()), (2, 2, 0));
    assert_eq!(reloaded.to_string(), "deny: added key (2 rules)\ndeny: removed key (2 rules)");
    for (lines, status) in [
        (["x-user: mallory"], 200),
        (["x-user: added by hand"], 200),
        (["x-user: trudy"], 429),
        (["x-user: eve"], 429),
        (["x-country: KP"], 429),
    ] {
        assert_eq!(call(&app, "GET /todos", &lines).await.status, status, "{lines:?}");
    }
}

#[tokio::test]
async fn a_broken_configuration_changes_nothing() {
    let config = toml(FILE);
    let (limiter, clock) = limiter(&config);
    let app = app(&config, &limiter);
    for _ in 0..25 {
        call(&app, "GET /todos", &["x-user: ada"]).await;
    }
    // Each case combines the valid changes in `good` with changes that must not be applied.
    let good = [("\"60/min\"\n\n    [policies.api]", "\"6/min\"\n\n    [policies.api]"), ("\"mallory\"", "\"ada\"")];
    for broken in [
        [("\"30/min\"", "\"30/mim\"")].as_slice(),
        &[("[deny]", "[dney]")],
        &[("\"/todos\" = \"api\"", "\"/todos\" = \"ap1\"")],
        &[("[\"KP\"]", "[\"KPX\"]")],
        &[("[routes]", "[routes")],
        // These files are valid, but their changes need a restart.
        &[("\"/todos\" = \"api\"", "\"/todos\" = \"default\"")],
        &[("\"30/min\"", "\"30/min fixed\""), ("\"60/min\", premium = \"200/min\"", "\"60/min fixed\"")],
        &[("[policies.api]", "[policies.more]\nquota = \"1/s\"\n[policies.api]")],
        &[("free =", "trial =")],
    ] {
        let text = changed(&[&good[..], broken].concat());
        let error = match parse("limits.toml", &text) {
            Ok(new) => config.reload(&limiter, &new).await.expect_err(&text),
            Err(error) => error,
        };
        assert!(error.to_string().starts_with("limits.toml: "), "{error}");
        assert_eq!(limiter.stats().changed_quotas, 0);
        assert_eq!(config.deny_list().len(), 2);
        assert_eq!(limiter.remaining(config.policy("api").unwrap(), "ada").await.unwrap(), 5);
        assert_eq!(limiter.quotas(config.policy("default").unwrap(), "ada"), Quota::token_bucket(60, MINUTE).into());
    }
    for (lines, expected) in [
        (["x-user: ada"], (200, "api".to_owned(), 30, 4)),
        (["x-user: kim"], (200, "api".to_owned(), 30, 29)),
        (["x-user: mallory"], (429, "api".to_owned(), 30, 30)),
    ] {
        let (status, name, limit, _) = expected;
        let answer = quota_headers(&app, "GET /todos", &lines).await;
        assert_eq!((answer.0, &answer.1, answer.2), (status, &name, limit), "{lines:?}");
    }
    clock.advance(MINUTE);
    assert_eq!(quota_headers(&app, "GET /todos", &["x-user: ada"]).await.3, 29);
    assert_eq!(quota_headers(&app, "GET /search", &["x-user: ada"]).await, (200, "default".into(), 60, 59));
}

#[tokio::test]
async fn a_reload_replaces_manual_quotas_except_those_of_individual_keys() {
    let config = toml(FILE);
    let (limiter, _clock) = limiter(&config);
    let api = config.policy("api").unwrap();
    let quota = |rate| Quota::token_bucket(rate, MINUTE);
    limiter.set_quota(api, quota(1)).await.unwrap();
    limiter.set_tier_quota(api, "free", quota(2)).await.unwrap();
    limiter.set_key_quota(api, "ada", quota(3)).await.unwrap();
    limiter.set_key_quota(api, Subject::anonymous(), quota(4)).await.unwrap();
    let reloaded = config.reload(&limiter, &config).await.unwrap();
    let changes: Vec<_> = reloaded
        .quotas()
        .iter()
        .map(|change| (change.tier(), change.old()[0].rate(), change.new()[0].rate()))
        .collect();
    assert_eq!(changes, [(Some("free"), 2, 60), (Some("premium"), 1, 200), (None, 1, 30)]);
    let rate = |subject: Subject| limiter.quotas(api, subject)[0].rate();
    assert_eq!((rate(Subject::new("kim")), rate(Subject::new("kim").tier("free"))), (30, 60));
    assert_eq!((rate(Subject::new("ada")), rate(Subject::anonymous())), (3, 4));
}

#[tokio::test]
async fn reloads_in_spawned_tasks_all_succeed() {
    let config = toml(FILE);
    let (limiter, _clock) = limiter(&config);
    let tasks: Vec<_> = (0..8)
        .map(|i| {
            let (config, limiter) = (config.clone(), limiter.clone());
            let new = toml(&changed(&[("\"30/min\"", &format!("\"{}/min\"", 40 + i))]));
            tokio::spawn(async move { config.reload(&limiter, &new).await.map(|_| ()) })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let found = config.deny_list().find(Some(&Key::from("mallory")), &Signals::new());
    assert!(found.is_some());
}

#[tokio::test]
async fn a_reload_report_shows_the_first_twenty_changes() {
    let file = |rate: u32| (0..30).map(|i| format!("policies.p{i:02}.quota = \"{rate}/min\"\n")).collect::<String>();
    let config = toml(&file(1));
    let (limiter, _clock) = limiter(&config);
    let reloaded = config.reload(&limiter, &toml(&file(2))).await.unwrap();
    let lines: Vec<_> = reloaded.to_string().lines().map(str::to_owned).collect();
    assert_eq!((reloaded.quotas().len(), lines.len()), (30, 21));
    assert_eq!(lines[0], "policies.p00.quota: 1/min → 2/min");
    assert_eq!(lines[20], "policies: quota changes not shown: 10");
}

#[tokio::test]
async fn a_reload_report_lists_added_and_removed_rules_but_hides_keys() {
    let config = toml(FILE);
    let (limiter, _clock) = limiter(&config);
    let new = toml(&changed(&[("[\"KP\"]", "[\"SY\"]\nips = [\"192.0.2.0/24\"]"), ("\"mallory\"", "\"trudy\"")]));
    let reloaded = config.reload(&limiter, &new).await.unwrap();
    assert_eq!(
        reloaded.to_string(),
        "deny: added country \"SY\"\ndeny: added key\ndeny: added network 192.0.2.0/24\ndeny: removed country \"KP\"\n\
         deny: removed key"
    );
    let names =
        |rules: &mut dyn Iterator<Item = &DenyRule>| rules.filter(|rule| **rule == DenyRule::key("trudy")).count();
    assert_eq!((names(&mut reloaded.rules_added()), names(&mut reloaded.rules_removed())), (1, 0));

    let many = (0..30).map(|i| format!("\"192.0.2.{i}\"")).collect::<Vec<_>>().join(", ");
    let many = toml(&changed(&[("[\"KP\"]", &format!("[\"KP\"]\nips = [{many}]"))]));
    let lines = config.reload(&limiter, &many).await.unwrap().to_string();
    assert_eq!((lines.lines().count(), lines.lines().last()), (21, Some("deny: changes not shown: 15")));
}

#[tokio::test]
async fn reloading_a_file_does_not_count_as_a_policy_conflict() {
    let config = toml(FILE);
    let (limiter, _clock) = limiter(&config);
    let _app = app(&config, &limiter);
    let new = toml(&changed(&[("\"30/min\"", "\"20/min\"")]));
    config.reload(&limiter, &new).await.unwrap();
    limiter.limit(config.policy("api").unwrap(), "ada").await.unwrap();
    limiter.limit(new.policy("api").unwrap(), "ada").await.unwrap();
    limiter.set_quota(config.policy("api").unwrap(), Quota::per_minute(5)).await.unwrap();
    limiter.limit(config.policy("api").unwrap(), "ada").await.unwrap();
    assert_eq!(limiter.stats().mistakes.policy_conflicts, 0);
    let other = toml(&changed(&[("\"30/min\"", "\"10/min\"")]));
    limiter.limit(other.policy("api").unwrap(), "ada").await.unwrap();
    assert_eq!(limiter.stats().mistakes.policy_conflicts, 1);
}

#[tokio::test]
async fn reload_and_layer_reject_a_limiter_with_a_different_deny_list() {
    let config = toml(FILE);
    let new = toml(&changed(&[("[\"KP\"]", "[\"KP\", \"XX\"]")]));
    let foreign = RateLimiter::default();
    let error = config.reload(&foreign, &new).await.unwrap_err();
    assert!(error.to_string().contains("deny: the limiter does not have this deny list"), "{error}");
    assert_eq!(config.deny_list().len(), 2, "the rejected reload must not change the deny list");
    let panic_of = |config: &Config| {
        let build = std::panic::AssertUnwindSafe(|| config.layer(&foreign, tollgate::key::global()));
        *std::panic::catch_unwind(build)
            .expect_err("expected a panic")
            .downcast::<String>()
            .expect("expected a `String`")
    };
    let text = panic_of(&config);
    assert!(text.contains("build it with `config.limiter(backend)`"), "{text}");
    let blocking = toml("policies.api.quota = '1/min'\nauto_block.policies = ['api']");
    assert!(panic_of(&blocking).contains("does not block callers automatically"));
    // A limiter with the configuration's deny list is accepted.
    let own = RateLimiter::builder(tollgate::MemoryBackend::new()).deny_list(config.deny_list()).build();
    assert_eq!(config.reload(&own, &new).await.unwrap().rules_added().len(), 1);
}
