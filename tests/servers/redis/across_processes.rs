//! Refunds, resets and quota changes reach other processes within a second.

use std::time::{Duration, Instant};

use tollgate::{DAY, Decision, Policy, Quota, RateLimiter, SECOND, Subject, policy::DecidedBy, protection::Signal};

use crate::support::server::Server;

static API: Policy = Policy::new("api", Quota::token_bucket(1000, DAY));

/// The allowance for a busy test machine, in addition to the documented second.
/// The machine may be busy.
const SLACK: Duration = Duration::from_secs(60);

async fn ask(limiter: &RateLimiter) -> Decision {
    limiter.try_limit(&API, "ada").await.unwrap()
}

/// Returns a server, two limiters that represent two processes, and a receipt. The first limiter has spent all tokens
/// in a single charge, which the receipt can settle. The second limiter has cached a denial.
async fn two_limiters() -> (Server, RateLimiter, RateLimiter, tollgate::Receipt) {
    let server = Server::start();
    let (one, other) = (RateLimiter::new(server.backend().await), RateLimiter::new(server.backend().await));
    let usage = one.acquire(&API, "ada").cost(1000).hold().await.unwrap().into_receipt();
    assert_eq!(ask(&other).await.decided_by(), DecidedBy::Backend);
    let known = ask(&other).await;
    assert_eq!((known.is_allowed(), known.decided_by()), (false, DecidedBy::BlockCache));
    (server, one, other, usage)
}

/// Polls until a call is allowed. Polling does not prolong a cached denial.
async fn assert_admitted_within_a_second(limiter: &RateLimiter) {
    let begin = Instant::now();
    while !ask(limiter).await.is_allowed() {
        assert!(begin.elapsed() < SECOND + SLACK, "still denied after {:?}", begin.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_refund_in_one_process_reaches_another_within_a_second() {
    let (_server, _one, other, usage) = two_limiters().await;
    usage.refund().await.unwrap();
    assert_admitted_within_a_second(&other).await;
}

#[tokio::test]
async fn a_settlement_in_one_process_reaches_another_within_a_second() {
    let (_server, _one, other, usage) = two_limiters().await;
    usage.settle(50).await.unwrap();
    assert_admitted_within_a_second(&other).await;
    assert_eq!(other.remaining(&API, "ada").await.unwrap(), 949);
}

#[tokio::test]
async fn a_reset_in_one_process_reaches_another_within_a_second() {
    let (_server, one, other, _usage) = two_limiters().await;
    one.reset(&API, "ada").await.unwrap();
    assert_admitted_within_a_second(&other).await;
}

#[tokio::test]
async fn a_quota_raised_in_one_process_reaches_another_within_a_second() {
    let (_server, one, other, _usage) = two_limiters().await;
    one.set_quota(&API, Quota::token_bucket(2000, DAY)).await.unwrap();
    assert_admitted_within_a_second(&other).await;
}

/// Blocks from other processes are listed without their rules, because processes share only digests.
#[tokio::test]
async fn quotas_and_blocks_set_by_another_process_are_listed() {
    let server = Server::start();
    let (one, other) = (RateLimiter::new(server.backend().await), RateLimiter::new(server.backend().await));
    one.set_key_quota(&API, "ada", Quota::token_bucket(5, DAY)).await.unwrap();
    one.block(Signal::ip([192, 0, 2, 7].into()), DAY).await.unwrap();
    let begin = Instant::now();
    while other.set_quotas().is_empty() || other.blocks().is_empty() {
        assert!(begin.elapsed() < SECOND + SLACK);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let ([there], [here]) = (&other.set_quotas()[..], &one.set_quotas()[..]) else {
        panic!("expected exactly one quota in each process")
    };
    assert_eq!((there.key, &there.quotas), (here.key, &here.quotas));
    assert_eq!(there.key, Some(other.digest(Subject::new("ada").key())));

    let ([here], [there]) = (&one.blocks()[..], &other.blocks()[..]) else {
        panic!("expected exactly one block in each process")
    };
    assert_eq!(here.rule.as_ref().map(ToString::to_string).as_deref(), Some("network 192.0.2.7/32"));
    assert!(here.by_hand && there.by_hand);
    assert_eq!((there.digest, &there.rule), (here.digest, &None));
    assert!(there.left > DAY - 10 * SECOND && there.left <= DAY, "{:?}", there.left);

    // A process that starts later learns when the changes were made.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let third = RateLimiter::new(server.backend().await);
    while third.set_quotas().is_empty() || third.blocks().is_empty() {
        assert!(begin.elapsed() < 2 * SECOND + SLACK);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let ages = [&one, &other, &third].map(|limiter| [limiter.set_quotas()[0].age, limiter.blocks()[0].age]);
    for age in ages.as_flattened() {
        assert!(*age >= Duration::from_millis(300) && *age <= begin.elapsed() + SECOND, "{ages:?}");
    }
}
