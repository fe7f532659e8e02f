//! Checks and snapshots, which read all shards or a sample of them.

use std::time::Duration;

use tollgate::algorithm::{Ask, Verdict};
use tollgate::{HOUR, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, Reason, clock::ManualClock};

use crate::support::client::limiter;
use crate::support::now;

const API: Policy = Policy::new("api", Quota::per_minute(130).max_reserved(65).shards(7));

#[test]
fn a_check_spends_nothing_and_reads_all_shards() {
    let (limiter, _clock) = limiter();
    for spent in 0..=130 {
        let check = now(limiter.try_check(&API, "ada"));
        assert_eq!((check.remaining(), check.is_allowed(), check.shards_read()), (130 - spent, spent < 130, 7));
        let snapshot = now(limiter.snapshot(&API, "ada")).remove(0);
        assert_eq!((snapshot.available(snapshot.now()), snapshot.rows().len()), (130 - spent, 7));
        // Retry, because a call tries only two shards. Both may be empty even if other shards have tokens left.
        while spent < 130 && !now(limiter.try_limit(&API, "ada")).is_allowed() {}
    }
}

#[test]
fn a_check_reports_the_shard_that_can_grant_the_cost_soonest() {
    let (limiter, _clock) = limiter();
    let granted = (0..6).filter(|_| now(limiter.try_acquire(&API, "ada").cost(18)).is_allowed()).count();
    assert!(granted >= 4, "{granted}");
    for cost in [0, 1, 18, 19, 20, 28] {
        let check = now(limiter.try_acquire(&API, "ada").cost(cost).check());
        let snapshot = now(limiter.snapshot(&API, "ada")).remove(0);
        let projected = snapshot.project(snapshot.now(), Ask::cost(cost));
        assert_eq!((projected.verdict, projected.is_allowed()), (check.step().verdict, check.is_allowed()), "{cost}");
        // A shard that has not been charged may have 19 tokens.
        assert!(cost == 19 || check.is_allowed() == (cost <= 18), "{cost}");
    }
    let reserve = now(limiter.snapshot(&API, "ada")).remove(0).project(now(limiter.now()), Ask::cost(20).reserve());
    assert!(matches!(reserve.verdict, Verdict::Reserve { .. }), "{reserve:?}");
    assert_eq!(now(limiter.try_acquire(&API, "ada").cost(40).check()).reason(), Reason::CostAboveShard);
}

#[test]
fn a_sample_of_shards_gives_an_estimate() {
    const HOT: Policy = Policy::new("hot", Quota::per_hour(6400).shards(64));
    let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    let limiter = RateLimiter::builder(backend).sample_shards(8).build();
    for _ in 0..3200 {
        assert!(now(limiter.try_limit(&HOT, "all")).is_allowed());
    }
    let check = now(limiter.try_check(&HOT, "all"));
    assert_eq!((check.shards_read(), check.quota().get_shards()), (8, 64));
    // Because each call uses the fuller of two shards, all shards are about equally full.
    assert!((3000..3400).contains(&check.remaining()), "{}", check.remaining());
    let snapshot = now(limiter.snapshot(&HOT, "all")).remove(0);
    assert_eq!(snapshot.rows().len(), 8);
    assert!((3000..3400).contains(&snapshot.available(snapshot.now())));
    assert_eq!(snapshot.available(snapshot.now() + 2 * HOUR), 6400);
}

#[test]
fn the_json_of_a_snapshot_lists_the_shards() {
    const TWO: Policy = Policy::new("two", Quota::fixed_window(5, MINUTE).start(Duration::from_secs(30)).shards(2));
    let (limiter, _clock) = limiter();
    now(limiter.acquire(&TWO, "ada").cost(3));
    let snapshot = now(limiter.snapshot(&TWO, "ada")).remove(0);
    let (at, time) = (snapshot.rows()[0].1.at.get(), snapshot.now().get());
    let unspent = snapshot.rows()[1].1.at.get();
    let outer =
        r#"{"policy":"two","algorithm":"fixed_window","rate":5,"period":60000000,"capacity":5,"start":30000000,"#;
    let row = |tokens: u64, spent: u64, at: u64| {
        format!(r#"{{"rate":{tokens},"capacity":{tokens},"max_reserved":0,"spent":{spent},"previous":0,"ts":{at}}}"#)
    };
    let rows = [row(3, 3, at), row(2, 0, unspent)].join(",");
    let expected = format!(r#"{outer}"max_reserved":0,"shards":2,"rows":[{rows}],"now":{time}}}"#);
    assert_eq!(snapshot.to_json(), expected);
}
