//! Log events have stable names, levels and fields. Keys appear only as digests.

use std::sync::Arc;

use http::{Request, Response};
use metrics::set_default_local_recorder;
use tollgate::observe::{Metrics, Tracing, names};
use tollgate::policy::Enforce;
use tollgate::{
    FailureMode, HOUR, MINUTE, Policy, Quota, RateLimitLayer, SECOND, Subject, key,
    protection::{AutoBlock, DenyList, DenyRule, Signal},
};
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

use super::backends::FlakyBackend;
use super::log::Log;
use crate::support::exporter::{Page, builder};

static TWO: Policy = Policy::new("two", Quota::token_bucket(2, MINUTE));

fn texts(log: &Log) -> Vec<String> {
    log.take().iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_decision_event_has_the_documented_fields() {
    let backend = FlakyBackend::new();
    let limiter = backend.limiter().observer(Tracing::new()).build();
    let log = Log::new(Level::TRACE);
    let _subscribed = log.subscribe();
    let key = limiter.digest(Subject::new("ada").key());
    drop(limiter.try_acquire(&TWO, "ada").cost(2).await.unwrap());
    drop(limiter.try_check(&TWO, "ada").await.unwrap());
    backend.clock().advance(SECOND / 3);
    drop(limiter.try_limit(&TWO, "ada").await.unwrap());
    let fields = |cost, left, retry: &str, end: &str| {
        format!(
            "decided_by=\"backend\" cost={cost} remaining={left} limit=2{retry} latency_us=_ key={key:?} enforced=true{end}"
        )
    };
    assert_eq!(
        texts(&log),
        [
            format!(
                "TRACE tollgate allowed message=allowed policy=\"two\" outcome=\"allowed\" reason=\"within_quota\" {}",
                fields(2, 0, "", "")
            ),
            format!(
                "TRACE tollgate checked message=checked policy=\"two\" outcome=\"denied\" reason=\"quota_exceeded\" {}",
                fields(1, 0, " retry_after_ms=30000", "")
            ),
            format!(
                "INFO tollgate denied message=denied policy=\"two\" outcome=\"denied\" reason=\"quota_exceeded\" {}",
                // The exact time is 29.666667 s, which is rounded up.
                fields(1, 0, " retry_after_ms=29667", " suppressed=0")
            ),
        ]
    );
}

#[tokio::test]
async fn denials_are_logged_at_the_configured_level() {
    for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
        let limiter = FlakyBackend::new().limiter().observer(Tracing::new().level(level)).build();
        let log = Log::new(level);
        let _subscribed = log.subscribe();
        drop(limiter.try_acquire(&TWO, "ada").cost(3).await.unwrap());
        assert_eq!(log.named("denied")[0].to_string().split(' ').next(), Some(level.as_str()));
    }
}

#[tokio::test]
async fn denials_in_shadow_mode_are_not_enforced() {
    let limiter = FlakyBackend::new().limiter().observer(Tracing::new()).build();
    let log = Log::new(Level::INFO);
    let _subscribed = log.subscribe();
    for (enforce, passed, enforced) in [(Enforce::Never, true, "false"), (Enforce::Always, false, "true")] {
        let none = Policy::new("none", Quota::token_bucket(1, HOUR)).enforce(enforce);
        let layer = RateLimitLayer::new(none, |_: &_| 7).limiter(&limiter);
        let inner = service_fn(async |_: Request<()>| Ok::<_, std::convert::Infallible>(Response::new(())));
        let service = layer.cost(|_| 2).layer(inner);
        assert_eq!(service.oneshot(Request::new(())).await.unwrap().status() == 200, passed);
        assert_eq!(log.named("denied")[0].field("enforced"), Some(enforced));
    }
}

#[tokio::test]
async fn a_waiting_call_is_logged_as_reserved() {
    static RESERVABLE: Policy = Policy::new("reservable", Quota::token_bucket(1, MINUTE).max_reserved(5));
    let limiter = FlakyBackend::new().limiter().observer(Tracing::new()).build();
    let log = Log::new(Level::TRACE);
    let _subscribed = log.subscribe();
    drop(limiter.try_limit(&RESERVABLE, "ada").await.unwrap());
    let waiting = limiter.acquire(&RESERVABLE, "ada").wait_up_to(HOUR);
    let lines = log.take();
    let last = lines.last().unwrap();
    assert_eq!(
        (lines.len(), last.field("outcome"), last.field("reason")),
        (2, Some("\"reserved\""), Some("\"reserved\""))
    );
    drop(waiting);
}

#[tokio::test]
async fn an_outage_is_logged_with_its_error_before_any_fallback_decision() {
    static FALLBACK: Policy = Policy::new("fallback", Quota::token_bucket(4, MINUTE));
    static FAIL_OPEN: Policy = Policy::new("fail-open", Quota::token_bucket(4, MINUTE));
    let backend = FlakyBackend::new();
    let limiter = backend.limiter().on_failure_of(&FALLBACK, FailureMode::fallback(0.5));
    let limiter = limiter.on_failure_of(&FAIL_OPEN, FailureMode::Allow).observer(Tracing::new()).build();
    let key = limiter.digest(Subject::new("ada").key());
    let log = Log::new(Level::TRACE);
    let _subscribed = log.subscribe();
    backend.set_down(true);
    for (policy, decided) in [
        (&TWO, None),
        (&FALLBACK, Some(("\"fallback\"", "\"within_quota\""))),
        (&FAIL_OPEN, Some(("\"fail_open\"", "\"fail_open\""))),
    ] {
        assert_eq!(limiter.try_limit(policy, "ada").await.is_ok(), decided.is_some());
        let lines = log.take();
        let name = policy.name().as_str();
        assert_eq!(
            lines[0].to_string(),
            format!(
                "ERROR tollgate failed message=failed policy={name:?} key={key:?} kind=\"unavailable\" error=backend is \
                 unavailable: the server is down latency_us=_ suppressed=0"
            )
        );
        let after: Vec<_> = lines[1..].iter().map(|line| (line.field("decided_by"), line.field("reason"))).collect();
        assert_eq!(after, Vec::from_iter(decided.map(|(by, reason)| (Some(by), Some(reason)))));
    }
}

#[tokio::test]
async fn denials_by_deny_lists_and_blocks_are_logged_with_the_rule() {
    let list = DenyList::from_iter([DenyRule::network("192.0.2.0/24").unwrap(), DenyRule::key("mallory")]);
    let auto = AutoBlock::new([&TWO]).threshold(2).within(MINUTE).block_for(HOUR).escalate(2, 8 * HOUR).without_keys();
    let backend = FlakyBackend::new();
    let limiter = backend.limiter().deny_list(&list).auto_block(auto).observer(Tracing::new()).build();
    let log = Log::new(Level::INFO);
    let _subscribed = log.subscribe();
    let ask = async |key: &'static str, ip: &str| {
        drop(limiter.try_acquire(&TWO, key).cost(3).ip(ip.parse().unwrap()).await.unwrap());
        // The cost of 3 deliberately exceeds the capacity. Ignore the mistakes that are reported for this.
        log.take().into_iter().filter(|line| line.field("mistake").is_none()).collect::<Vec<_>>()
    };
    let fields = |line: &super::log::Line| {
        ["reason", "decided_by", "rule", "retry_after_ms"].map(|name| line.field(name).unwrap_or("-").to_owned())
    };
    assert_eq!(
        fields(&ask("ada", "192.0.2.7").await[0]),
        ["\"deny_list\"", "\"limiter\"", "network 192.0.2.0/24", "-"]
    );
    assert_eq!(fields(&ask("mallory", "198.51.100.1").await[0]), ["\"deny_list\"", "\"limiter\"", "key", "-"]);
    assert_eq!(fields(&ask("ada", "198.51.100.9").await[0]), ["\"cost_too_large\"", "\"backend\"", "-", "-"]);
    // The second denial causes a block. The block event comes before the denial event.
    let lines = ask("ada", "198.51.100.9").await;
    let blocked = "blocked message=blocked rule=network 198.51.100.9/32 lasts_ms=3600000 times=1 suppressed=0";
    assert_eq!(lines[0].to_string(), format!("WARN tollgate {blocked}"));
    assert_eq!(fields(&lines[1])[0], "\"cost_too_large\"");
    assert_eq!(
        fields(&ask("ada", "198.51.100.9").await[0]),
        ["\"blocked\"", "\"limiter\"", "network 198.51.100.9/32", "3600000"]
    );
    limiter.block(Signal::key("eve"), SECOND).await.unwrap();
    let blocked = "blocked message=blocked rule=key lasts_ms=1000 times=0 suppressed=0";
    assert_eq!(texts(&log), [format!("WARN tollgate {blocked}")]);
    assert_eq!(fields(&ask("eve", "198.51.100.10").await[0])[..3], ["\"blocked\"", "\"limiter\"", "key"]);
}

#[tokio::test]
async fn a_deny_rule_that_can_never_match_is_logged_once_and_counted() {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    let list = DenyList::new();
    let metrics = Arc::new(Metrics::new());
    let limiter =
        FlakyBackend::new().limiter().deny_list(&list).observer(Tracing::new()).observer(Arc::clone(&metrics)).build();
    let hello = service_fn(async |_: Request<()>| Ok::<_, std::convert::Infallible>(Response::new(String::new())));
    let service = RateLimitLayer::new(&TWO, key::bearer()).limiter(&limiter).layer(hello);
    let log = Log::new(Level::WARN);
    let _subscribed = log.subscribe();
    for _ in 0..2 {
        list.insert(DenyRule::key(format!("hunter2 {}", list.len())));
        service.clone().oneshot(Request::new(())).await.unwrap();
    }
    let texts = texts(&log);
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(
        texts[0]
            .starts_with("WARN tollgate mistake message=mistake kind=\"unmatched_deny_rule\" mistake=a key that is "),
        "{texts:?}"
    );
    assert!(!texts[0].contains("hunter2"));
    metrics.sample(&limiter);
    let page = Page::read(&recorder.handle().render());
    assert_eq!(page.sum(names::MISTAKES, &[("kind", "unmatched_deny_rule")]), Some(2.0));
}

#[tokio::test]
async fn no_event_field_contains_a_key() {
    let backend = FlakyBackend::new();
    let list = DenyList::from_iter([DenyRule::key("hunter2-denied")]);
    let auto = AutoBlock::new([&TWO]).threshold(1);
    let limiter = backend.limiter().deny_list(&list).auto_block(auto).observer(Tracing::new()).build();
    let log = Log::new(Level::TRACE);
    let _subscribed = log.subscribe();
    for key in ["hunter2", "hunter2-denied", "hunter2-blocked"] {
        for cost in [1, 3, 1] {
            let _ = limiter.try_acquire(&TWO, key).cost(cost).await;
            let _ = limiter.try_check(&TWO, key).await;
        }
    }
    limiter.block(Signal::key("hunter2-blocked"), HOUR).await.unwrap();
    backend.set_down(true);
    let _ = limiter.try_limit(&TWO, "hunter2-down").await;
    let texts = texts(&log);
    for name in ["allowed", "denied", "checked", "blocked", "failed"] {
        assert!(texts.iter().any(|text| text.contains(&format!("message={name}"))), "{name}");
    }
    let digest = format!("{:?}", limiter.digest(Subject::new("hunter2").key()));
    assert!(texts.iter().any(|text| text.contains(&digest)));
    assert!(texts.iter().all(|text| !text.contains("hunter2")), "{texts:#?}");
}
