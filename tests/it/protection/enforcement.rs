//! Policies in shadow mode: calls to the limiter, observer events, blocks, and backend failures.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::observe::{Decided, Observer};
use tollgate::policy::{DecidedBy, Enforce};
use tollgate::{
    Charge, FailureMode, HOUR, LimitError, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, Reason,
    clock::ManualClock, protection::Signal,
};

use crate::support::now;
use crate::support::test_backend::TestBackend;

static REAL: Policy = Policy::new("real", Quota::token_bucket(3, HOUR));
static TRIAL: Policy = Policy::new("trial", Quota::token_bucket(1, HOUR)).enforce(Enforce::Never);
static OTHER: Policy = Policy::new("other", Quota::token_bucket(2, HOUR).max_reserved(5)).enforce(Enforce::Never);

/// Records the policy and the outcome of each charge, and whether the charge is enforced.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Observer for Log {
    fn decided(&self, observed: &Decided<'_>) {
        let (policy, outcome) = (observed.decision().policy(), observed.outcome().as_str());
        let enforced = if observed.is_enforced() { "enforced" } else { "shadow" };
        self.0.lock().unwrap().push(format!("{policy} {outcome} {enforced}"));
    }
}

impl Log {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn limiter() -> (RateLimiter, Arc<Log>) {
    let (log, backend) = (Arc::new(Log::default()), MemoryBackend::builder().clock(ManualClock::new()).build());
    (RateLimiter::builder(backend).observer(Arc::clone(&log)).build(), log)
}

fn charges() -> [Charge<'static>; 3] {
    [Charge::new(&REAL, "ada"), Charge::new(&TRIAL, "ada"), Charge::new(&OTHER, "ada")]
}

#[test]
fn a_call_denied_in_shadow_mode_is_let_through_and_spends_nothing() {
    let (limiter, log) = limiter();
    assert!(!now(limiter.limit(&TRIAL, "ada")).is_shadowed());
    for _ in 0..3 {
        let shadowed = now(limiter.limit(&TRIAL, "ada"));
        assert!(shadowed.is_allowed() && shadowed.is_shadowed() && shadowed.is_violated());
        assert_eq!((shadowed.reason(), shadowed.retry_after()), (Reason::QuotaExceeded, Some(HOUR)));
    }
    assert!(now(limiter.try_limit(&TRIAL, "ada")).is_shadowed());
    assert!(now(limiter.check(&TRIAL, "ada")).is_shadowed());
    assert!(limiter.limit_now(&TRIAL, "ada").is_ok());
    assert!(now(limiter.acquire(&TRIAL, "ada").cost(9)).is_shadowed());
    let log = log.take();
    assert_eq!(log[0], "trial allowed shadow");
    assert!(log[1..].iter().all(|line| line == "trial denied shadow"), "{log:?}");
}

#[test]
fn when_a_policy_in_shadow_mode_denies_a_call_only_enforced_charges_are_made() {
    let (limiter, log) = limiter();
    let left = || {
        let left = |policy| now(limiter.remaining(policy, "ada"));
        let left = (left(&REAL), left(&TRIAL), left(&OTHER));
        log.take();
        left
    };
    let allowed = now(limiter.limit_all(charges()));
    assert_eq!((allowed.is_shadowed(), log.take().len(), left()), (false, 3, (2, 0, 1)));

    // Because `TRIAL` would deny the call, the call charges neither `TRIAL` nor `OTHER`.
    let shadowed = now(limiter.limit_all(charges()));
    let decided: Vec<_> = shadowed.iter().map(|decision| (decision.is_shadowed(), decision.reason())).collect();
    let expected = [(false, Reason::WithinQuota), (true, Reason::QuotaExceeded), (true, Reason::RefusedElsewhere)];
    assert_eq!(decided, expected);
    assert_eq!(log.take(), ["real allowed enforced", "trial denied shadow", "other denied shadow"]);
    assert_eq!(left(), (1, 0, 1));

    // A denial by `REAL` is enforced, and only that denial is reported as the cause.
    now(limiter.limit(&REAL, "ada"));
    log.take();
    let Err(LimitError::Denied(denied)) =
        crate::support::now(async { Ok::<_, ()>(limiter.limit_all(charges()).await) })
    else {
        panic!("expected a denial")
    };
    let causes: Vec<_> = denied.decisions().violated().map(|decision| decision.policy().as_str()).collect();
    assert_eq!((causes, denied.retry_after()), (vec!["real"], Some(20 * MINUTE)));
    assert!(!denied.decisions().is_shadowed());
    assert_eq!(log.take(), ["real denied enforced", "trial denied shadow", "other denied shadow"]);
    assert_eq!(left(), (0, 0, 1));
}

#[test]
fn a_charge_denied_in_shadow_mode_cannot_be_refunded() {
    let (limiter, _log) = limiter();
    now(limiter.limit(&OTHER, "ada"));
    now(limiter.limit(&TRIAL, "ada"));
    let held = now(limiter.hold_all(charges()));
    assert!(held.decisions().is_shadowed());
    now(held.cancel());
    assert_eq!(now(limiter.remaining(&OTHER, "ada")), 1, "nothing was spent, so nothing may be refunded");
    assert_eq!(now(limiter.remaining(&REAL, "ada")), 3);
}

#[test]
fn a_reservation_in_shadow_mode_is_not_delayed() {
    let (limiter, _log) = limiter();
    now(limiter.acquire(&OTHER, "ada").cost(2));
    let reserved = now(limiter.acquire(&OTHER, "ada").reserve());
    assert_eq!((reserved.delay(), reserved.decisions().is_shadowed()), (Duration::ZERO, false));
    now(reserved.wait());
    now(limiter.acquire(&OTHER, "ada").cost(4).wait_up_to(10 * HOUR));
    let full = now(limiter.acquire(&OTHER, "ada").wait_up_to(10 * HOUR));
    assert!(full.decisions().is_shadowed());
}

#[test]
fn blocks_and_pauses_are_enforced_only_under_an_enforced_policy() {
    let (limiter, log) = limiter();
    now(limiter.block(Signal::key("ada"), HOUR));
    let shadowed = now(limiter.limit(&TRIAL, "ada"));
    assert_eq!((shadowed.is_shadowed(), shadowed.reason()), (true, Reason::Blocked));
    assert_eq!(log.take(), ["trial denied shadow"]);
    assert!(!now(limiter.try_limit(&REAL, "ada")).is_allowed());
    assert!(!now(limiter.try_limit_all(charges())).is_allowed());

    now(limiter.pause(&TRIAL, "eve", HOUR));
    now(limiter.pause(&REAL, "eve", HOUR));
    assert!(!now(limiter.limit(&TRIAL, "eve")).is_shadowed());
    assert_eq!(now(limiter.try_limit(&REAL, "eve")).reason(), Reason::Blocked);
}

#[test]
fn a_failing_backend_does_not_deny_calls_in_shadow_mode() {
    let clock = ManualClock::new();
    let backend = TestBackend::local(&clock);
    let limiter = RateLimiter::builder(Arc::clone(&backend)).on_failure(FailureMode::Deny).build();
    backend.fails.store(true, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(now(limiter.limit(&TRIAL, "ada")).decided_by(), DecidedBy::FailOpen);
    }
    let real = crate::support::now(async { Ok::<_, ()>(limiter.limit(&REAL, "ada").await) });
    assert!(matches!(real, Err(LimitError::Backend(_))));
}

#[test]
fn a_cached_denial_in_shadow_mode_lets_the_call_through() {
    let clock = ManualClock::new();
    let backend = TestBackend::remote(&clock);
    let limiter = RateLimiter::new(Arc::clone(&backend));
    for _ in 0..2 {
        now(limiter.limit(&TRIAL, "ada"));
    }
    backend.take_calls();
    let shadowed = now(limiter.limit(&TRIAL, "ada"));
    assert_eq!((shadowed.is_shadowed(), shadowed.decided_by()), (true, DecidedBy::BlockCache));
    assert_eq!(backend.take_calls(), 0);
    // The backend decides the enforced charges.
    for left in [2, 1, 0] {
        let allowed = now(limiter.limit_all([Charge::new(&TRIAL, "ada"), Charge::new(&REAL, "ada")]));
        assert_eq!(allowed.get(1).map(|decision| decision.remaining()), Some(left));
    }
    assert!(!now(limiter.try_limit_all([Charge::new(&TRIAL, "ada"), Charge::new(&REAL, "ada")])).is_allowed());
}

#[test]
fn enforcement_can_be_changed_at_run_time_and_reverted() {
    let (limiter, _log) = limiter();
    let is_denied = |key: u64| !now(limiter.try_acquire(&TRIAL, key).cost(2)).is_allowed();
    let denied = || (0..1000).filter(|key| is_denied(*key)).collect::<Vec<_>>();
    assert_eq!(denied().len(), 0);
    now(limiter.set_enforcement(&TRIAL, Enforce::Share(0.1)));
    let tenth = denied();
    assert!((50..=150).contains(&tenth.len()), "{} of 1000 keys", tenth.len());
    now(limiter.set_enforcement(&TRIAL, Enforce::Share(0.5)));
    let half = denied();
    assert!((400..=600).contains(&half.len()) && tenth.iter().all(|key| half.contains(key)), "{}", half.len());
    now(limiter.set_enforcement(&TRIAL, Enforce::Always));
    assert_eq!((denied().len(), limiter.enforcement(&TRIAL)), (1000, Enforce::Always));
    assert_eq!(limiter.set_enforcements().len(), 1);
    now(limiter.set_enforcement(&TRIAL, None));
    assert_eq!((denied().len(), limiter.enforcement(&TRIAL)), (0, Enforce::Never));
    assert_eq!(limiter.set_enforcements(), []);

    let error = crate::support::now(async { Ok::<_, ()>(limiter.set_enforcement(&REAL, Enforce::Share(-1.0)).await) });
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "policy \"real\": expected an enforced share from 0.0 to 1.0, found -1");
}
