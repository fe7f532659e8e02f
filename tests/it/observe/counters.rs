//! The metrics, their labels and their values.

use std::sync::Arc;
use std::time::Duration;

use metrics::set_default_local_recorder;
use metrics_exporter_prometheus::PrometheusRecorder;
use tollgate::observe::{Metrics, names};
use tollgate::policy::Enforce;
use tollgate::{
    Charge, FailureMode, HOUR, MINUTE, Policy, Quota, RateLimiter, Reservation,
    protection::{AutoBlock, DenyList, DenyRule, Signal},
};

use super::backends::FlakyBackend;
use crate::support::exporter::{Page, builder};

static TWO: Policy = Policy::new("two", Quota::token_bucket(2, MINUTE).max_reserved(1));
static ONE: Policy = Policy::new("one", Quota::token_bucket(1, MINUTE));

fn page(recorder: &PrometheusRecorder) -> Page {
    Page::read(&recorder.handle().render())
}

/// Formats each series of a metric as its label values followed by its value.
fn series(page: &Page, name: &str, labels: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    for series in page.0.iter().filter(|series| series.name == name) {
        assert_eq!(series.labels.len(), labels.len(), "{series:?}");
        let values: String = labels.iter().map(|label| format!("{} ", series.labels[*label])).collect();
        all.push(format!("{values}{}", series.value));
    }
    all.sort();
    all
}

const DECISION: [&str; 5] = ["policy", "outcome", "reason", "decided_by", "enforced"];

#[tokio::test]
async fn each_charge_is_counted_once_under_its_outcome() {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    let list = DenyList::from_iter([DenyRule::key("mallory")]);
    let limiter = FlakyBackend::new().limiter().deny_list(&list).observer(Metrics::new()).build();
    for _ in 0..4 {
        drop(limiter.acquire(&TWO, "ada").reserve().await.map(Reservation::into_receipt));
    }
    drop(limiter.try_limit(&TWO, "mallory").await.unwrap());
    drop(limiter.try_acquire(&TWO, "ada").cost(9).await.unwrap());
    for _ in 0..2 {
        drop(limiter.try_limit_all([Charge::new(&TWO, "eve"), Charge::new(&ONE, "eve")]).await.unwrap());
    }
    for _ in 0..3 {
        drop(limiter.try_check(&TWO, "ada").await.unwrap());
        limiter.remaining(&ONE, "bob").await.unwrap();
    }
    let page = page(&recorder);
    assert_eq!(
        series(&page, names::DECISIONS, &DECISION),
        [
            "one allowed within_quota backend true 1",
            "one denied quota_exceeded backend true 1",
            "two allowed within_quota backend true 3",
            "two denied cost_too_large backend true 1",
            "two denied deny_list limiter true 1",
            "two denied quota_exceeded backend true 1",
            "two denied refused_elsewhere backend true 1",
            "two reserved reserved backend true 1",
        ]
    );
    assert_eq!(series(&page, names::CHECKS, &["policy", "outcome"]), ["one allowed 3", "two denied 3"]);
    let counted = format!("{}_count", names::DECISION_DURATION);
    assert_eq!(series(&page, &counted, &["policy"]), ["one 2", "two 7"]);
}

#[tokio::test]
async fn fallback_decisions_and_backend_errors_are_counted_during_an_outage() {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    let backend = FlakyBackend::new();
    let limiter = backend.limiter().on_failure_of(&TWO, FailureMode::fallback(1.0)).observer(Metrics::new()).build();
    drop(limiter.try_limit(&TWO, 7).await.unwrap());
    backend.set_down(true);
    drop(limiter.try_limit(&TWO, 7).await.unwrap());
    assert!(limiter.try_limit(&ONE, 7).await.is_err());
    let page = page(&recorder);
    assert_eq!(
        series(&page, names::DECISIONS, &DECISION),
        ["two allowed within_quota backend true 1", "two allowed within_quota fallback true 1"]
    );
    assert_eq!(series(&page, names::BACKEND_ERRORS, &["policy", "kind"]), ["one unavailable 1", "two unavailable 1"]);
}

#[tokio::test]
async fn shadow_mode_is_reported_as_a_label() {
    use http::{Request, Response};
    use tower::{Layer, ServiceExt, service_fn};

    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    let limiter = FlakyBackend::new().limiter().observer(Metrics::new()).build();
    for enforce in [Enforce::Never, Enforce::Always] {
        let layer = tollgate::RateLimitLayer::new(ONE.clone().enforce(enforce), |_: &_| 7).limiter(&limiter);
        let inner = service_fn(async |_: Request<()>| Ok::<_, std::convert::Infallible>(Response::new(())));
        for _ in 0..3 {
            layer.layer(inner).oneshot(Request::new(())).await.unwrap();
        }
    }
    assert_eq!(
        series(&page(&recorder), names::DECISIONS, &DECISION),
        [
            "one allowed within_quota backend false 1",
            "one denied quota_exceeded backend false 2",
            "one denied quota_exceeded backend true 3",
        ]
    );
}

#[tokio::test]
async fn gauges_show_the_state_of_the_limiter_at_each_sample() {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    let backend = FlakyBackend::new();
    let metrics = Arc::new(Metrics::new());
    let auto = AutoBlock::new([&ONE]).threshold(2);
    let limiter = backend.limiter().auto_block(auto).observer(Arc::clone(&metrics)).build();
    let gauges = || {
        metrics.sample(&limiter);
        let page = page(&recorder);
        let all = [names::ROWS, names::WAITING, names::BLOCKED, names::CHANGED_QUOTAS, names::CIRCUIT_OPEN];
        all.map(|name| page.sum(name, &[]).unwrap())
    };
    assert_eq!(gauges(), [0.0; 5]);
    for _ in 0..3 {
        drop(limiter.try_limit(&ONE, "ada").await.unwrap());
    }
    limiter.block(Signal::key("eve"), HOUR).await.unwrap();
    drop(limiter.try_acquire(&TWO, "bob").cost(2).await.unwrap());
    let waiting = limiter.acquire(&TWO, "bob").wait_up_to(HOUR);
    limiter.set_quota(&ONE, Quota::token_bucket(2, MINUTE)).await.unwrap();
    backend.set_down(true);
    assert_eq!(gauges(), [2.0, 1.0, 2.0, 1.0, 1.0]);
    assert_eq!(page(&recorder).sum(names::BLOCKS, &[]), Some(2.0));
    backend.set_down(false);
    drop(waiting);
    limiter.unblock(Signal::key("ada")).await.unwrap();
    limiter.set_quota(&ONE, None).await.unwrap();
    assert_eq!(gauges(), [2.0, 0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn a_memory_backend_has_no_circuit_breaker_gauge() {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    Metrics::new().sample(&RateLimiter::default());
    assert_eq!(page(&recorder).sum(names::CIRCUIT_OPEN, &[]), None);
    assert_eq!(page(&recorder).sum(names::ROWS, &[]), Some(0.0));
}

#[tokio::test]
async fn named_limiters_have_separate_series() {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    for (name, blocks) in [("edge", 1), ("jobs", 3)] {
        let metrics = Arc::new(Metrics::named(name));
        let limiter = FlakyBackend::new().limiter().observer(Arc::clone(&metrics)).build();
        for number in 0..blocks {
            limiter.block(Signal::key(number), HOUR).await.unwrap();
            drop(limiter.try_limit(&TWO, number).await.unwrap());
        }
        metrics.sample(&limiter);
        let page = page(&recorder);
        let labels = [("limiter", name)];
        for metric in [names::BLOCKS, names::BLOCKED, names::DECISIONS] {
            assert_eq!(page.sum(metric, &labels), Some(f64::from(blocks)), "{metric}");
        }
        let has_label = |series: &&crate::support::exporter::Series| series.labels.contains_key("limiter");
        assert_eq!(page.0.iter().filter(has_label).count(), page.0.len(), "every series must have a `limiter` label");
    }
}

#[tokio::test]
async fn the_number_of_series_is_bounded_and_no_label_contains_a_key() {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    let limiter = FlakyBackend::new().limiter().observer(Metrics::new()).build();
    for number in 0..2000 {
        let policy = Policy::try_new(format!("customer-{number}"), Quota::token_bucket(1, HOUR)).unwrap();
        drop(limiter.try_limit(&policy, "hunter2").await.unwrap());
    }
    let page = page(&recorder);
    let counted: Vec<_> = page.0.iter().filter(|series| series.name == names::DECISIONS).collect();
    assert_eq!(counted.len(), 512 + 1);
    assert_eq!(page.sum(names::DECISIONS, &[("policy", "(others)")]), Some(2000.0 - 512.0));
    assert_eq!(page.sum(names::DECISIONS, &[]), Some(2000.0));
    let key = limiter.digest(Some(&"hunter2".into()));
    let text = recorder.handle().render();
    assert!(!text.contains("hunter2") && !text.contains(&format!("{key:?}")));
}

#[tokio::test]
async fn policy_names_with_special_characters_are_exported_unchanged() {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    let name = (' '..='~').collect::<String>();
    let policy = Policy::try_new(name.clone(), Quota::token_bucket(1, HOUR)).unwrap();
    let limiter = FlakyBackend::new().limiter().observer(Metrics::new()).build();
    drop(limiter.try_limit(&policy, 7).await.unwrap());
    assert_eq!(page(&recorder).sum(names::DECISIONS, &[("policy", &name)]), Some(1.0));
}

#[test]
fn each_metric_is_described_under_its_name_and_durations_are_in_seconds() {
    // The exporter adds no suffix, because the names already follow the recommended naming.
    for recorder in [builder().build_recorder(), builder().with_recommended_naming(true).build_recorder()] {
        let _installed = set_default_local_recorder(&recorder);
        super::dashboard::exercise();
        let text = recorder.handle().render();
        for name in names::ALL {
            assert_eq!(text.matches(&format!("# HELP {name} ")).count(), 1, "{name}: {text}");
            let kind = match name {
                names::DECISION_DURATION => "histogram",
                _ if name.ends_with("_total") => "counter",
                _ => "gauge",
            };
            assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name}");
        }
        let sum = page(&recorder).sum(&format!("{}_sum", names::DECISION_DURATION), &[]).unwrap();
        assert!(sum > 0.0 && Duration::from_secs_f64(sum) < MINUTE, "{sum} seconds");
    }
}
