//! What observers are told, how often and in which order.

use std::sync::{Arc, Mutex};

use tollgate::{
    Charge, FailureMode, HOUR, MINUTE, Policy, Quota,
    observe::{Blocked, Decided, Failed, Observer},
    protection::{AutoBlock, Signal},
};

use crate::backends::Moody;

static API: Policy = Policy::new("api", Quota::token_bucket(5, MINUTE).max_reserved(5));
static LOGIN: Policy = Policy::new("login", Quota::token_bucket(1, MINUTE));

/// Notes what it is told, beside what others with the same notes are.
#[derive(Clone, Default)]
struct Notes(&'static str, Arc<Mutex<Vec<String>>>);

impl Notes {
    fn note(&self, text: String) {
        self.1.lock().unwrap().push(format!("{}{text}", self.0));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.1.lock().unwrap())
    }
}

impl Observer for Notes {
    fn decided(&self, observed: &Decided<'_>) {
        let decision = observed.decision();
        let check = if observed.is_check() { "check " } else { "" };
        let (policy, outcome, cost) = (decision.policy(), observed.outcome().as_str(), decision.cost());
        self.note(format!("{check}{policy} {outcome} {} {cost}", decision.decided_by().as_str()));
    }

    fn failed(&self, failed: &Failed<'_>) {
        self.note(format!("{} failed {}", failed.policy(), failed.error().kind().as_str()));
    }

    fn blocked(&self, blocked: &Blocked<'_>) {
        self.note(format!("blocked {} {}", blocked.rule(), blocked.times()));
    }
}

#[tokio::test]
async fn each_charge_of_a_call_is_told_once_in_its_order_to_each_observer_in_theirs() {
    let one = Notes("1: ", Arc::default());
    let other = Notes("2: ", Arc::clone(&one.1));
    let limiter = Moody::new().limiter().observer(one.clone()).observer(other).build();
    let charges = || [Charge::new(&API, 7).cost(2), Charge::new(&LOGIN, 7)];
    drop(limiter.try_limit_all(charges()).await.unwrap());
    assert_eq!(
        one.take(),
        [
            "1: api allowed backend 2",
            "2: api allowed backend 2",
            "1: login allowed backend 1",
            "2: login allowed backend 1"
        ]
    );
    // Refused by the second: so is the first.
    drop(limiter.try_limit_all(charges()).await.unwrap());
    assert_eq!(
        one.take(),
        [
            "1: api denied backend 2",
            "2: api denied backend 2",
            "1: login denied backend 1",
            "2: login denied backend 1"
        ]
    );
}

#[tokio::test]
async fn who_only_asks_is_told_as_such() {
    let notes = Notes::default();
    let limiter = Moody::new().limiter().observer(notes.clone()).build();
    drop(limiter.try_check(&API, 7).await.unwrap());
    drop(limiter.try_acquire(&API, 7).cost(6).check().await.unwrap());
    drop(limiter.try_check_all([Charge::new(&API, 7), Charge::new(&LOGIN, 7)]).await.unwrap());
    limiter.remaining(&API, 7).await.unwrap();
    limiter.snapshot(&API, 7).await.unwrap();
    assert_eq!(
        notes.take(),
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
async fn a_call_is_told_when_it_is_made() {
    let notes = Notes::default();
    let limiter = Moody::new().limiter().observer(notes.clone()).build();
    let unheard = limiter.try_limit(&API, 7);
    assert_eq!(notes.take(), ["api allowed backend 1"], "not awaited");
    drop(unheard);
    let held = limiter.acquire(&API, 7).cost(4).hold().await.unwrap();
    let turn = limiter.acquire(&API, 7).reserve().await.unwrap();
    assert_eq!(notes.take(), ["api allowed backend 4", "api reserved backend 1"]);
    drop((held, turn));
}

#[tokio::test]
async fn a_failure_is_told_before_what_is_decided_instead() {
    let notes = Notes::default();
    let backend = Moody::new();
    let limiter = backend.limiter().observer(notes.clone()).on_failure(FailureMode::fallback(1.0));
    let limiter = limiter.on_failure_of(&LOGIN, FailureMode::Deny).build();
    backend.is_down(true);
    drop(limiter.try_limit(&API, 7).await.unwrap());
    assert_eq!(notes.take(), ["api failed unavailable", "api allowed fallback 1"]);
    // One that nobody decides is told as failed alone, under each of its policies.
    assert!(limiter.try_limit_all([Charge::new(&API, 7), Charge::new(&LOGIN, 7)]).await.is_err());
    assert_eq!(notes.take(), ["api failed unavailable", "login failed unavailable"]);
}

#[tokio::test]
async fn a_block_is_told_once_before_the_denial_that_earned_it() {
    let notes = Notes::default();
    let auto = AutoBlock::new([&LOGIN]).threshold(2);
    let limiter = Moody::new().limiter().auto_block(auto).observer(notes.clone()).build();
    for _ in 0..4 {
        drop(limiter.try_limit(&LOGIN, 7).await.unwrap());
    }
    assert_eq!(
        notes.take(),
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
    assert_eq!(notes.take(), ["blocked network 192.0.2.7/32 0"]);
}
