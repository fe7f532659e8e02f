//! Tests of the events for settlements, refunds, cancellations, credits and resets.

use std::sync::{Arc, Mutex};

use metrics::set_default_local_recorder;
use tollgate::observe::{Metrics, Tracing, names};
use tollgate::{
    Charge, FailureMode, LimitError, MINUTE, Policy, Quota, RateLimiter, Subject,
    observe::{Credited, Decided, Observer, Reset, Settled},
};
use tracing::Level;

use super::backends::FlakyBackend;
use super::log::Log;
use crate::support::exporter::{Page, builder};

static API: Policy = Policy::new("api", Quota::token_bucket(10, MINUTE).max_reserved(10));
static CALLS: Policy = Policy::new("calls", Quota::token_bucket(10, MINUTE));

#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for EventLog {
    fn decided(&self, _: &Decided<'_>) {}

    fn settled(&self, settled: &Settled<'_>) {
        let (decision, actual) = (settled.decision(), settled.actual());
        let (policy, by, cost) = (decision.policy(), decision.decided_by().as_str(), decision.cost());
        self.0.lock().unwrap().push(format!("{policy} settled {by} {cost} -> {actual} {:?}", decision.key()));
    }

    fn reset(&self, reset: &Reset<'_>) {
        let key = reset.key().map_or("all".to_owned(), |key| format!("{key:?}"));
        self.0.lock().unwrap().push(format!("{} reset {key}", reset.policy()));
    }

    fn credited(&self, credited: &Credited<'_>) {
        let (policy, tokens, key) = (credited.policy(), credited.tokens(), credited.key());
        self.0.lock().unwrap().push(format!("{policy} credited {tokens} {key:?}"));
    }
}

async fn settle_and_reset(limiter: &RateLimiter) -> Result<(), LimitError> {
    let hold = |cost| limiter.acquire(&API, "ada").cost(cost).hold();
    let usage = hold(1).await?.into_receipt();
    usage.settle(3).await?;
    usage.settle(2).await?; // This has no effect because the charge is already settled.
    hold(2).await?.into_receipt().settle(1).await?;
    hold(1).await?.into_receipt().settle(1).await?;
    hold(1).await?.into_receipt().refund().await?;
    hold(1).await?.cancel().await?;
    drop(hold(1).await?);
    limiter.acquire(&API, "ada").cost(9).reserve().await?.cancel().await?;
    drop(hold(1).await?.into_receipt()); // The charge is kept.
    hold(1).await?.into_receipt().reset().await?;
    limiter.reset(&API, "ada").await?;
    Ok(())
}

#[tokio::test]
async fn observers_receive_settlements_refunds_cancellations_and_resets() {
    let events = EventLog::default();
    let limiter = FlakyBackend::new().limiter().observer(events.clone()).build();
    settle_and_reset(&limiter).await.unwrap();
    let key = limiter.digest(Subject::new("ada").key());
    let settled = ["1 -> 3", "2 -> 1", "1 -> 1", "1 -> 0", "1 -> 0", "1 -> 0", "9 -> 0"];
    let settled = settled.map(|change| format!("api settled backend {change} {key:?}"));
    let resets = [(); 2].map(|()| format!("api reset {key:?}"));
    assert_eq!(events.take(), [&settled[..], &resets[..]].concat());
}

#[tokio::test]
async fn credits_and_policy_resets_are_reported_once() {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    let (events, log) = (EventLog::default(), Log::new(Level::DEBUG));
    let _subscribed = log.subscribe();
    let limiter = FlakyBackend::new().limiter().observer(events.clone()).observer(Metrics::new());
    let limiter = limiter.observer(Tracing::new()).build();
    limiter.acquire(&API, "ada").cost(5).await.unwrap();
    limiter.credit(&API, "ada", 3).await.unwrap();
    limiter.credit(&API, "ada", 0).await.unwrap();
    limiter.reset_policy(&API).await.unwrap();
    let key = limiter.digest(Subject::new("ada").key());
    assert_eq!(events.take(), [format!("api credited 3 {key:?}"), "api reset all".to_owned()]);
    let lines: Vec<String> = log.take().iter().map(ToString::to_string).collect();
    let expected = [
        format!("DEBUG tollgate credited message=credited policy=\"api\" tokens=3 key={key:?}"),
        "DEBUG tollgate reset message=reset policy=\"api\"".to_owned(),
    ];
    assert_eq!(lines, expected);
    let page = Page::read(&recorder.handle().render());
    let counted = [names::CREDITS, names::RESETS].map(|name| page.sum(name, &[("policy", "api")]));
    assert_eq!(counted, [Some(1.0), Some(1.0)]);
}

/// Observers are notified of each settlement, even during an outage.
#[tokio::test]
async fn each_charge_of_a_call_has_its_own_settlement() {
    let events = EventLog::default();
    let backend = FlakyBackend::new();
    let limiter = backend.limiter().observer(events.clone()).on_failure_of(&API, FailureMode::Allow);
    let limiter = limiter.on_failure_of(&CALLS, FailureMode::fallback(1.0)).build();
    let key = limiter.digest(Subject::new("ada").key());
    let charges = || [Charge::new(&API, "ada"), Charge::new(&CALLS, "ada")];
    let usage = limiter.hold_all(charges()).await.unwrap().into_receipt();
    usage.of(CALLS.name()).unwrap().settle(2).await.unwrap();
    usage.refund().await.unwrap();
    let expected = ["calls settled backend 1 -> 2", "api settled backend 1 -> 0"];
    assert_eq!(events.take(), expected.map(|text| format!("{text} {key:?}")));

    backend.set_down(true);
    drop(limiter.hold_all(charges()).await.unwrap());
    let mut settled = events.take();
    settled.sort();
    let expected = ["api settled fail_open 1 -> 0", "calls settled fallback 1 -> 0"];
    assert_eq!(settled, expected.map(|text| format!("{text} {key:?}")));
}

#[tokio::test]
async fn settlements_and_resets_are_logged() {
    let limiter = FlakyBackend::new().limiter().observer(Tracing::new()).build();
    let key = limiter.digest(Subject::new("ada").key());
    let log = Log::new(Level::TRACE);
    let _subscribed = log.subscribe();
    let usage = limiter.acquire(&API, "ada").cost(4).hold().await.unwrap().into_receipt();
    usage.settle(1).await.unwrap();
    limiter.reset(&API, "ada").await.unwrap();
    let lines: Vec<String> = log.take()[1..].iter().map(ToString::to_string).collect();
    let settled = "settled message=settled policy=\"api\" decided_by=\"backend\" cost=4 actual=1";
    assert_eq!(
        lines,
        [
            format!("TRACE tollgate {settled} key={key:?}"),
            format!("DEBUG tollgate reset message=reset policy=\"api\" key={key:?}")
        ]
    );
}

#[tokio::test]
async fn settlements_and_resets_are_counted() {
    let recorder = builder().build_recorder();
    let _installed = set_default_local_recorder(&recorder);
    let limiter = FlakyBackend::new().limiter().observer(Metrics::new()).build();
    settle_and_reset(&limiter).await.unwrap();
    let page = Page::read(&recorder.handle().render());
    let settled = |change| page.sum(names::SETTLEMENTS, &[("policy", "api"), ("change", change)]);
    assert_eq!(["more", "less", "same", "refund"].map(settled), [Some(1.0), Some(1.0), Some(1.0), Some(4.0)]);
    assert_eq!(page.sum(names::SETTLEMENTS, &[]), Some(7.0));
    assert_eq!(page.sum(names::RESETS, &[("policy", "api")]), Some(2.0));
}
