//! The tiers of callers in decisions, metrics and events.

use metrics::set_default_local_recorder;
use tollgate::observe::{Metrics, Tracing, names};
use tollgate::{
    HOUR, Policy, Quota, Subject,
    protection::{DenyList, DenyRule},
};
use tracing::Level;

use super::backends::FlakyBackend;
use super::log::Log;
use crate::support::exporter::{Page, builder};

fn api() -> Policy {
    Policy::new("api", Quota::token_bucket(1, HOUR)).tier("pro", Quota::token_bucket(10, HOUR))
}

#[tokio::test]
async fn decisions_are_counted_by_tier() {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    let list = DenyList::from_iter([DenyRule::key("mallory")]);
    let backend = FlakyBackend::new();
    let limiter =
        backend.limiter().deny_list(&list).on_failure(tollgate::FailureMode::Allow).observer(Metrics::new()).build();
    for (key, tier) in [("ada", "pro"), ("ada", "pro"), ("mallory", "pro"), ("bob", "no-such-tier")] {
        drop(limiter.try_limit(&api(), Subject::new(key).tier(tier)).await.unwrap());
    }
    drop(limiter.try_limit(&api(), "eve").await.unwrap());
    drop(limiter.try_check(&api(), Subject::new("ada").tier("pro")).await.unwrap());
    backend.set_down(true);
    drop(limiter.try_limit(&api(), Subject::new("ada").tier("pro")).await.unwrap());

    let page = Page::read(&recorder.handle().render());
    let sum = |labels: &[(&str, &str)]| page.sum(names::DECISIONS, labels);
    assert_eq!(sum(&[("tier", "pro"), ("outcome", "allowed")]), Some(3.0));
    assert_eq!(sum(&[("tier", "pro"), ("reason", "fail_open")]), Some(1.0));
    assert_eq!(sum(&[("tier", "pro"), ("outcome", "denied")]), Some(1.0));
    assert_eq!(sum(&[]), Some(6.0));
    assert_eq!(page.sum(names::CHECKS, &[("tier", "pro")]), Some(1.0));
    assert!(!recorder.handle().render().contains("no-such-tier"));
}

#[tokio::test]
async fn tiers_after_the_first_64_share_a_label() {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    let limiter = FlakyBackend::new().limiter().observer(Metrics::new()).build();
    for number in 0..200 {
        let tier = format!("tier-{number}");
        let policy = Policy::new("api", Quota::token_bucket(1, HOUR)).tier(tier.clone(), Quota::token_bucket(9, HOUR));
        drop(limiter.try_limit(&policy, Subject::new(number).tier(tier)).await.unwrap());
    }
    let page = Page::read(&recorder.handle().render());
    assert_eq!(page.0.iter().filter(|series| series.name == names::DECISIONS).count(), 64 + 1);
    assert_eq!(page.sum(names::DECISIONS, &[("tier", "(others)")]), Some(200.0 - 64.0));
}

#[tokio::test]
async fn an_event_contains_the_tier_of_the_caller() {
    let limiter = FlakyBackend::new().limiter().observer(Tracing::new()).build();
    let log = Log::new(Level::TRACE);
    let _subscribed = log.subscribe();
    drop(limiter.try_limit(&api(), Subject::new("ada").tier("pro")).await.unwrap());
    drop(limiter.try_limit(&api(), "ada").await.unwrap());
    let tiers: Vec<_> = log.named("allowed").iter().map(|line| line.field("tier").map(str::to_owned)).collect();
    assert_eq!(tiers.len(), 1, "the second call must be denied: {tiers:?}");
    assert!(tiers[0].as_deref().is_some_and(|tier| tier.contains("pro")), "{tiers:?}");
}
