//! Tests of how often and in what order observers are notified.

use std::sync::{Arc, Mutex};

use tollgate::{
    Charge, FailureMode, HOUR, MINUTE, Policy, Quota,
    observe::{Blocked, Decided, Failed, Observer},
    protection::{AutoBlock, Signal},
};

use super::backends::FlakyBackend;

static API: Policy = Policy::new("api", Quota::token_bucket(5, MINUTE).max_reserved(5));
static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, MINUTE));

/// An observer that records its notifications, each with a prefix, in a list that several observers can share.
#[derive(Clone, Default)]
struct EventLog(&'static str, Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn push(&self, text: String) {
        self.1.lock().unwrap().push(format!("{}{text}", self.0));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.1.lock().unwrap())
    }
}

impl Observer for EventLog {
    fn decided(&self, observed: &Decided<'_>) {
        let decision = observed.decision();
        let check = if observed.is_check() { "check " } else { "" };
        let (policy, outcome, cost) = (decision.policy(), observed.outcome().as_str(), decision.cost());
        self.push(format!("{check}{policy} {outcome} {} {cost}", decision.decided_by().as_str()));
    }

    fn failed(&self, failed: &Failed<'_>) {
        self.push(format!("{} failed {}", failed.policy(), failed.error().kind().as_str()));
    }

    fn blocked(&self, blocked: &Blocked<'_>) {
        self.push(format!("blocked {} {}", blocked.rule(), blocked.times()));
    }
}

#[tokio::test]
async fn observers_are_notified_of_each_charge_once_and_in_order() {
    let first = EventLog("1: ", Arc::default());
    let second = EventLog("2: ", Arc::clone(&first.1));
    let limiter = FlakyBackend::new().limiter().observer(first.clone()).observer(second).build();
    let charges = || [Charge::new(&API, 7).cost(2), Charge::new(&LOGIN, 7)];
    drop(limiter.try_limit_all(charges()).await.unwrap());
    assert_eq!(
        first.take(),
        [
            "1: api allowed backend 2",
            "2: api allowed backend 2",
            "1: login allowed backend 1",
            "2: login allowed backend 1"
        ]
    );
    drop(limiter.try_limit_all(charges()).await.unwrap());
    assert_eq!(
        first.take(),
        [
            "1: api denied backend 2",
            "2: api denied backend 2",
            "1: login denied backend 1",
            "2: login denied backend 1"
        ]
    );
}

#[tokio::test]
async fn checks_are_reported_as_checks() {
    let events = EventLog::default();
    let limiter = FlakyBackend::new().limiter().observer(events.clone()).build();
    drop(limiter.try_check(&API, 7).await.unwrap());
    drop(limiter.try_acquire(&API, 7).cost(6).check().await.unwrap());
    drop(limiter.try_check_all([Charge::new(&API, 7), Charge::new(&LOGIN, 7)]).await.unwrap());
    limiter.remaining(&API, 7).await.unwrap();
    limiter.snapshot(&API, 7).await.unwrap();
    assert_eq!(
        events.take(),
        [
            "check api allowed backend 1",
            "check api denied backend 6",
            "check api allowed backend 1",
            "check login allowed backend 1",
            "check api allowed backend 0",
            "check api allowed backend 0",
        ]
    );
}

#[tokio::test]
async fn observers_are_notified_before_the_future_is_awaited() {
    let events = EventLog::default();
    let limiter = FlakyBackend::new().limiter().observer(events.clone()).build();
    let future = limiter.try_limit(&API, 7);
    assert_eq!(
        events.take(),
        ["api allowed backend 1"],
        "the observer must be notified even if the call is not awaited"
    );
    drop(future);
    let held = limiter.acquire(&API, 7).cost(4).hold().await.unwrap();
    let reservation = limiter.acquire(&API, 7).reserve().await.unwrap();
    assert_eq!(events.take(), ["api allowed backend 4", "api reserved backend 1"]);
    drop((held, reservation));
}

#[tokio::test]
async fn a_failure_is_reported_before_the_fallback_decision() {
    let events = EventLog::default();
    let backend = FlakyBackend::new();
    let limiter = backend.limiter().observer(events.clone()).on_failure(FailureMode::fallback(1.0));
    let limiter = limiter.on_failure_of(&LOGIN, FailureMode::Deny).build();
    backend.set_down(true);
    drop(limiter.try_limit(&API, 7).await.unwrap());
    assert_eq!(events.take(), ["api failed unavailable", "api allowed fallback 1"]);
    // If the backend cannot decide a call, a failure is reported for each charge.
    assert!(limiter.try_limit_all([Charge::new(&API, 7), Charge::new(&LOGIN, 7)]).await.is_err());
    assert_eq!(events.take(), ["api failed unavailable", "login failed unavailable"]);
}

#[tokio::test]
async fn a_block_is_reported_once_before_the_denial_that_caused_it() {
    let events = EventLog::default();
    let auto = AutoBlock::new([&LOGIN]).threshold(2);
    let limiter = FlakyBackend::new().limiter().auto_block(auto).observer(events.clone()).build();
    for _ in 0..4 {
        drop(limiter.try_limit(&LOGIN, 7).await.unwrap());
    }
    assert_eq!(
        events.take(),
        [
            "login allowed backend 1",
            "login denied backend 1",
            "blocked key 1",
            "login denied backend 1",
            "login denied limiter 1"
        ]
    );
    limiter.block(Signal::ip("192.0.2.7".parse().unwrap()), HOUR).await.unwrap();
    limiter.unblock(Signal::ip("192.0.2.7".parse().unwrap())).await.unwrap();
    assert_eq!(events.take(), ["blocked network 192.0.2.7/32 0"]);
}
