//! Concurrent use from eight threads causes neither a panic nor a deadlock, and the final state is correct.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use tollgate::{
    Charge, HOUR, MINUTE, Quota, RateLimiter, Reason,
    clock::ManualClock,
    protection::{AutoBlock, DenyList, DenyRule, Signal, Signals},
};

use super::app::{API, ONE, Spy, ip};
use crate::support::now;
use crate::support::test_backend::TestBackend;

const ROUNDS: u64 = 2_000;

#[test]
fn concurrent_use_from_eight_threads_ends_in_the_expected_state() {
    let clock = ManualClock::new();
    let (list, spy, backend) = (DenyList::new(), Spy::new(), TestBackend::remote(&clock));
    let limiter = RateLimiter::builder(Arc::clone(&backend))
        .deny_list(&list)
        .auto_block(AutoBlock::new([&ONE]).threshold(5).within(MINUTE).block_for(HOUR))
        .observer(Arc::clone(&spy))
        .build();
    let (done, all_done) = channel();
    for thread in 0..8u64 {
        let (limiter, list, done) = (limiter.clone(), list.clone(), done.clone());
        std::thread::spawn(move || {
            for round in 0..ROUNDS {
                work(&limiter, &list, thread, round);
            }
            done.send(thread).unwrap();
        });
    }
    drop(done);
    for _ in 0..8 {
        // If a thread panics, its sender is dropped. If there is a deadlock, the test times out.
        all_done.recv_timeout(Duration::from_secs(50)).expect("a thread panicked or did not finish");
    }

    assert_eq!(list.len(), 8);
    for thread in 0..8u64 {
        assert!(list.contains(&DenyRule::key(("denied", thread, ROUNDS - 1))));
        assert_eq!(now(limiter.try_check(&API, ("denied", thread, ROUNDS - 1))).reason(), Reason::DenyList);
        assert!(now(limiter.try_check(&API, ("denied", thread, ROUNDS - 2))).is_allowed());
        assert_eq!(now(limiter.try_check(&API, ("blocked", thread))).reason(), Reason::Blocked);
        assert_eq!(now(limiter.try_check(&API, ("unblocked", thread))).reason(), Reason::WithinQuota);
        assert_eq!(now(limiter.try_check(&ONE, ("offender", thread))).reason(), Reason::Blocked);
        assert_eq!(limiter.quotas(&API, ("quota", thread))[0].get_capacity(), ROUNDS);
    }
    let stats = limiter.stats();
    assert_eq!(stats.changed_quotas, 8);
    // Eight blocks are manual. Each of the eight offending callers adds two automatic blocks, on its key and its
    // address.
    assert_eq!((stats.offenders, stats.blocked), (16, 24));
    let automatic = spy.take_blocked().into_iter().filter(|(_, _, times)| *times > 0).count();
    assert_eq!(automatic, 16, "each offender's key and address must be blocked once");
    let admitted = spy.decided.lock().unwrap().iter().filter(|(reason, _)| *reason == "within_quota").count();
    assert_eq!(now(limiter.remaining(&API, "shared")), 0);
    assert!(admitted >= 10);
}

fn work(limiter: &RateLimiter, list: &DenyList, thread: u64, round: u64) {
    list.insert(DenyRule::key(("denied", thread, round)));
    if round > 0 {
        list.remove(&DenyRule::key(("denied", thread, round - 1)));
    }
    now(limiter.block(Signal::key(("unblocked", thread)), HOUR));
    now(limiter.set_key_quota(&API, ("quota", thread), Quota::token_bucket(round + 1, MINUTE)));
    now(limiter.block(Signal::key(("blocked", thread)), HOUR));
    let signals = Signals::new().ip(ip(&format!("192.0.2.{thread}")));
    drop(now(limiter.try_limit_all([Charge::new(&ONE, ("offender", thread)).cost(2).signals(signals)])));
    drop(now(limiter.try_limit_all([Charge::new(&API, "shared"), Charge::new(&API, ("own", thread, round))])));
    drop(now(limiter.try_limit(&API, "shared")));
    assert_eq!(now(limiter.try_check(&API, ("blocked", thread))).reason(), Reason::Blocked);
    assert_eq!(limiter.quotas(&API, ("quota", thread))[0].get_capacity(), round + 1);
    now(limiter.unblock(Signal::key(("unblocked", thread))));
    assert!(limiter.stats().offenders <= 32);
}
