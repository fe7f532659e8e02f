//! Limiters that share a server use notices to inform each other of changes to quotas and blocks.

use std::time::{Duration, Instant};

use redis::cmd;
use tollgate::backend::RedisBackend;
use tollgate::{
    DAY, HOUR, MINUTE, Policy, Quota, RateLimiter, Reason, SECOND, Subject,
    limiter::SetQuotaError,
    protection::{AutoBlock, Signal},
};

use crate::support::server::{PATIENCE, Server};

static SEARCH: Policy = Policy::new("search", Quota::token_bucket(100, HOUR));

/// Much longer than the documented delay, because the machine may be busy.
const MAX_DELAY: Duration = Duration::from_secs(60);

async fn limiter(server: &Server) -> RateLimiter {
    RateLimiter::new(server.backend().await)
}

async fn wait_until(mut condition: impl AsyncFnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !condition().await {
        assert!(begin.elapsed() < MAX_DELAY, "the condition was not met within {MAX_DELAY:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begin.elapsed()
}

#[tokio::test]
async fn a_quota_change_reaches_all_limiters_and_spent_tokens_stay_spent() {
    let server = Server::start();
    let (one, other) = (limiter(&server).await, limiter(&server).await);
    let free = || Subject::new("ada").tier("free");
    let api = Policy::new("api", Quota::token_bucket(100, HOUR)).tier("free", Quota::token_bucket(10, HOUR));
    drop(other.try_acquire(&SEARCH, "ada").cost(3).await.unwrap());
    one.set_quota(&SEARCH, Quota::token_bucket(5, HOUR)).await.unwrap();
    assert_eq!(one.remaining(&SEARCH, "ada").await.unwrap(), 2, "the limiter must apply its own change immediately");
    let took = wait_until(async || other.remaining(&SEARCH, "ada").await.unwrap() == 2).await;
    println!("the change reached the other limiter after {took:?}");

    // A key's quota takes precedence over a tier's quota, which takes precedence over the policy's quota.
    one.set_quota(&api, Quota::token_bucket(7, HOUR)).await.unwrap();
    wait_until(async || other.remaining(&api, free()).await.unwrap() == 7).await;
    one.set_tier_quota(&api, "free", Quota::token_bucket(8, HOUR)).await.unwrap();
    wait_until(async || other.remaining(&api, free()).await.unwrap() == 8).await;
    one.set_key_quota(&api, free(), Quota::token_bucket(9, HOUR)).await.unwrap();
    wait_until(async || other.remaining(&api, free()).await.unwrap() == 9).await;
    assert_eq!(other.remaining(&api, Subject::new("eve").tier("free")).await.unwrap(), 8);
    assert_eq!(other.quotas(&api, "eve")[0].get_capacity(), 7);

    // Limiters that subscribe later also receive the changes and their withdrawals.
    let third = limiter(&server).await;
    wait_until(async || third.remaining(&api, free()).await.unwrap() == 9).await;
    other.set_key_quota(&api, free(), None).await.unwrap();
    other.set_tier_quota(&api, "free", None).await.unwrap();
    other.set_quota(&api, None).await.unwrap();
    wait_until(async || third.remaining(&api, free()).await.unwrap() == 10).await;
    wait_until(async || one.quotas(&api, "eve")[0].get_capacity() == 100).await;
}

#[tokio::test]
async fn all_limiters_agree_on_a_quota_after_concurrent_changes() {
    let server = Server::start();
    let limiters = [limiter(&server).await, limiter(&server).await, limiter(&server).await];
    for round in 0..10u64 {
        let quota = |i: usize| Quota::token_bucket(10 + 3 * round + i as u64, HOUR);
        let [a, b, c] = &limiters;
        let (x, y, z) = tokio::join!(
            a.set_quota(&SEARCH, quota(0)),
            b.set_quota(&SEARCH, quota(1)),
            c.set_quota(&SEARCH, quota(2))
        );
        x.and(y).and(z).unwrap();
        let limits =
            || limiters.iter().map(|limiter| limiter.quotas(&SEARCH, "ada")[0].get_capacity()).collect::<Vec<_>>();
        wait_until(async || limits().iter().all(|limit| *limit == limits()[0] && *limit >= 10 + 3 * round)).await;
    }
}

#[tokio::test]
async fn a_block_applies_in_all_processes() {
    let server = Server::start();
    let blocking = |backend: RedisBackend| {
        let rules = AutoBlock::new([&SEARCH]).threshold(3).within(MINUTE).block_for(HOUR);
        RateLimiter::builder(backend).auto_block(rules).build()
    };
    let (one, other) = (blocking(server.backend().await), blocking(server.backend().await));
    let ip = [192, 0, 2, 1].into();
    drop(one.try_acquire(&SEARCH, "eve").cost(100).ip(ip).await.unwrap());
    for _ in 0..3 {
        assert_eq!(one.try_acquire(&SEARCH, "eve").ip(ip).await.unwrap().reason(), Reason::QuotaExceeded);
    }
    assert_eq!(one.try_limit(&SEARCH, "eve").await.unwrap().reason(), Reason::Blocked);
    wait_until(async || other.try_check(&SEARCH, "eve").await.unwrap().reason() == Reason::Blocked).await;
    wait_until(async || {
        other.try_acquire(&SEARCH, "mallory").ip(ip).check().await.unwrap().reason() == Reason::Blocked
    })
    .await;
    let left = other.try_check(&SEARCH, "eve").await.unwrap().retry_after().unwrap();
    assert!(left > 59 * MINUTE && left <= HOUR, "{left:?}");
    other.unblock(Signal::key("eve")).await.unwrap();
    wait_until(async || one.try_check(&SEARCH, "eve").await.unwrap().reason() == Reason::QuotaExceeded).await;

    // Manual blocks apply under every policy, even in processes without automatic blocking.
    let plain = limiter(&server).await;
    one.block(Signal::key("mallory"), DAY).await.unwrap();
    wait_until(async || plain.try_check(&SEARCH, "mallory").await.unwrap().reason() == Reason::Blocked).await;
}

#[tokio::test]
async fn expired_notices_are_dropped_and_notices_lost_by_the_server_no_longer_apply() {
    let server = Server::start();
    let (one, other) = (limiter(&server).await, limiter(&server).await);
    one.block(Signal::key("eve"), Duration::from_millis(300)).await.unwrap();
    one.set_quota(&SEARCH, Quota::token_bucket(5, HOUR)).await.unwrap();
    wait_until(async || other.quotas(&SEARCH, "ada")[0].get_capacity() == 5).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut admin = server.admin();
    let count = |admin: &mut redis::Connection| -> usize {
        cmd("ZCARD").arg("tollgate:1:{notices}:order").query(admin).unwrap()
    };
    assert_eq!(count(&mut admin), 2);
    one.set_quota(&SEARCH, Quota::token_bucket(6, HOUR)).await.unwrap();
    assert_eq!(count(&mut admin), 1, "the expired block must be dropped");
    // Simulate a failover to a replica that does not have the data.
    cmd("FLUSHALL").exec(&mut admin).unwrap();
    wait_until(async || {
        other.quotas(&SEARCH, "ada")[0].get_capacity() == 100 && one.quotas(&SEARCH, "ada")[0].get_capacity() == 100
    })
    .await;
    other.set_quota(&SEARCH, Quota::token_bucket(7, HOUR)).await.unwrap();
    wait_until(async || one.quotas(&SEARCH, "ada")[0].get_capacity() == 7).await;
    other.set_quota(&SEARCH, None).await.unwrap();
    for key in ["notices", "order", "ends"] {
        let ttl: i64 = cmd("PTTL").arg(format!("tollgate:1:{{notices}}:{key}")).query(&mut admin).unwrap();
        assert!(ttl > 0 || ttl == -2, "{key}: {ttl}");
    }
}

#[tokio::test]
async fn several_pages_of_notices_are_received() {
    let server = Server::start();
    let one = limiter(&server).await;
    for key in 0..1200u64 {
        one.set_key_quota(&SEARCH, key, Quota::token_bucket(key + 1, HOUR)).await.unwrap();
    }
    let other = limiter(&server).await;
    wait_until(async || other.stats().changed_quotas == 1200).await;
    assert!((0..1200u64).all(|key| other.quotas(&SEARCH, key)[0].get_capacity() == key + 1));
}

#[tokio::test]
async fn a_quota_that_cannot_be_published_does_not_apply_but_a_block_does() {
    let mut server = Server::start();
    let backend = server.backend().await;
    let limiter = RateLimiter::new(backend);
    server.kill();
    let error = limiter.set_quota(&SEARCH, Quota::token_bucket(5, HOUR)).await.unwrap_err();
    assert!(matches!(error, SetQuotaError::Backend(_)), "{error}");
    assert_eq!(limiter.quotas(&SEARCH, "ada")[0].get_capacity(), 100);
    assert!(limiter.block(Signal::key("eve"), HOUR).await.is_err());
    assert_eq!(limiter.try_limit(&SEARCH, "eve").await.unwrap().reason(), Reason::Blocked);
    server.restart();
    wait_until(async || limiter.set_quota(&SEARCH, Quota::token_bucket(5, HOUR)).await.is_ok()).await;
    assert_eq!(limiter.quotas(&SEARCH, "ada")[0].get_capacity(), 5);
}

#[tokio::test]
async fn a_quota_change_reaches_all_limiters_on_a_cluster() {
    let cluster = crate::support::cluster_server::Cluster::start();
    let connect = async || RateLimiter::new(cluster.backend().await);
    let (one, other) = (connect().await, connect().await);
    one.set_quota(&SEARCH, Quota::token_bucket(5, HOUR)).await.unwrap();
    wait_until(async || other.quotas(&SEARCH, "ada")[0].get_capacity() == 5).await;
}

#[tokio::test]
async fn polling_stops_when_the_last_limiter_is_dropped() {
    let server = Server::start();
    let backend = RedisBackend::builder()
        .deadline(PATIENCE)
        .notices_every(Duration::from_millis(50))
        .connect(&server.url())
        .await
        .unwrap();
    let calls = || -> String { cmd("INFO").arg("commandstats").query(&mut server.admin()).unwrap() };
    let evals = |text: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with("cmdstat_evalsha:")).map(|line| line.to_owned());
        line.and_then(|line| line.split(['=', ',']).nth(1).and_then(|count| count.parse().ok())).unwrap_or(0)
    };
    let limiter = RateLimiter::new(backend.clone());
    tokio::time::sleep(Duration::from_millis(300)).await;
    let while_used = evals(&calls());
    assert!(while_used >= 3, "{while_used}");
    drop(limiter);
    tokio::time::sleep(Duration::from_millis(150)).await;
    let after = evals(&calls());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(evals(&calls()), after);
}

fn keys() -> [String; 3] {
    ["notices", "order", "ends"].map(|name| format!("tollgate:1:{{notices}}:{name}"))
}

/// Fills the channel with notices that expire in a day, leaving room for `free` more. The channel holds up to 100,000
/// notices.
fn fill(admin: &mut redis::Connection, free: usize) {
    let [notices, order, ends] = keys();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let (tomorrow, version) = (now.as_millis() as u64 + 86_400_000, now.as_micros() as u64 - 10_000_000);
    let existing: usize = cmd("ZCARD").arg(&order).query(admin).unwrap();
    for begin in (0..100_000 - existing - free).step_by(1000) {
        let mut all = redis::pipe();
        for i in begin..(begin + 1000).min(100_000 - existing - free) {
            let topic = format!("block\0{i:032x}");
            all.cmd("HSET").arg(&notices).arg(&topic).arg(format!("{tomorrow}+1")).ignore();
            all.cmd("ZADD").arg(&order).arg(version + i as u64).arg(&topic).ignore();
            all.cmd("ZADD").arg(&ends).arg(tomorrow).arg(&topic).ignore();
        }
        all.exec(admin).unwrap();
    }
}

/// Regression: a full channel dropped withdrawals first, because they expire first. Other processes then kept the
/// withdrawn quota forever.
#[tokio::test]
async fn a_full_channel_does_not_drop_withdrawals() {
    let server = Server::start();
    let slow = RedisBackend::builder().deadline(PATIENCE).notices_every(Duration::from_secs(3600));
    let (one, other) = (limiter(&server).await, RateLimiter::new(slow.connect(&server.url()).await.unwrap()));
    one.set_quota(&SEARCH, Quota::token_bucket(5, HOUR)).await.unwrap();
    fill(&mut server.admin(), 0);
    other.block(Signal::key("mallory"), DAY).await.unwrap();
    assert_eq!(other.quotas(&SEARCH, "ada")[0].get_capacity(), 5);
    one.set_quota(&SEARCH, None).await.unwrap();
    for eve in 0..5u64 {
        one.block(Signal::key(eve), DAY).await.unwrap();
    }
    let count: usize = cmd("ZCARD").arg(&keys()[1]).query(&mut server.admin()).unwrap();
    assert!(count <= 100_000, "{count}");
    other.block(Signal::key("eve"), DAY).await.unwrap();
    assert_eq!(other.quotas(&SEARCH, "ada")[0].get_capacity(), 100);
}

/// Regression: a process whose block was refused by a full channel received no notices until the block ended.
#[tokio::test]
async fn a_process_whose_block_is_refused_by_a_full_channel_still_receives_notices() {
    let server = Server::start();
    let rules = AutoBlock::new([&SEARCH]).threshold(1).within(MINUTE).block_for(HOUR);
    let one = RateLimiter::builder(server.backend().await).auto_block(rules).build();
    let other = limiter(&server).await;
    other.set_quota(&SEARCH, Quota::token_bucket(5, HOUR)).await.unwrap();
    fill(&mut server.admin(), 0);
    // Without this key, the channel cannot drop any notices.
    cmd("DEL").arg(&keys()[2]).exec(&mut server.admin()).unwrap();
    drop(one.try_acquire(&SEARCH, "eve").cost(100).await.unwrap());
    assert!(!one.try_limit(&SEARCH, "eve").await.unwrap().is_allowed());
    // Give `one` time to read the other notices, and the server time to refuse the block.
    tokio::time::sleep(MAX_DELAY).await;
    assert_eq!(one.stats().pending_notices, 1);
    other.set_quota(&SEARCH, Quota::token_bucket(6, HOUR)).await.unwrap();
    wait_until(async || one.quotas(&SEARCH, "ada")[0].get_capacity() == 6).await;
    assert_eq!(one.stats().pending_notices, 1);
}

/// Regression: after the server had evicted one of the channel's three keys, either publishing failed or new
/// subscribers received no notices.
#[tokio::test]
async fn a_channel_recovers_from_the_loss_of_a_key() {
    let server = Server::start();
    let (one, other) = (limiter(&server).await, limiter(&server).await);
    for lost in keys() {
        one.block(Signal::key("eve"), Duration::from_millis(1)).await.unwrap();
        one.set_quota(&SEARCH, Quota::token_bucket(5, HOUR)).await.unwrap();
        wait_until(async || other.quotas(&SEARCH, "ada")[0].get_capacity() == 5).await;
        one.block(Signal::key("mallory"), HOUR).await.unwrap();
        cmd("DEL").arg(&lost).exec(&mut server.admin()).unwrap();
        one.set_quota(&SEARCH, Quota::token_bucket(6, HOUR)).await.unwrap();
        wait_until(async || other.quotas(&SEARCH, "ada")[0].get_capacity() == 6).await;
        let third = limiter(&server).await;
        wait_until(async || third.quotas(&SEARCH, "ada")[0].get_capacity() == 6).await;
    }
}

/// A server that is restarted from an older snapshot has the same epoch, but older notices.
#[tokio::test]
async fn notices_are_read_again_after_a_restore_from_a_snapshot() {
    let server = Server::start();
    let (one, other) = (limiter(&server).await, limiter(&server).await);
    let mut admin = server.admin();
    one.set_quota(&SEARCH, Quota::token_bucket(5, HOUR)).await.unwrap();
    let dump =
        |admin: &mut redis::Connection| keys().map(|key| cmd("DUMP").arg(key).query::<Option<Vec<u8>>>(admin).unwrap());
    let before = dump(&mut admin);
    one.set_quota(&SEARCH, Quota::token_bucket(6, HOUR)).await.unwrap();
    wait_until(async || other.quotas(&SEARCH, "ada")[0].get_capacity() == 6).await;
    let mut back = redis::pipe();
    back.atomic();
    for (key, dump) in keys().iter().zip(before) {
        back.cmd("DEL").arg(key).ignore();
        if let Some(dump) = dump {
            back.cmd("RESTORE").arg(key).arg(0).arg(dump).ignore();
        }
    }
    back.exec(&mut admin).unwrap();
    wait_until(async || {
        one.quotas(&SEARCH, "ada")[0].get_capacity() == 5 && other.quotas(&SEARCH, "ada")[0].get_capacity() == 5
    })
    .await;
}

/// Regression: if a limiter subscribed after the server had lost its data, all limiters in the same process were
/// treated as up to date.
#[tokio::test]
async fn outdated_notices_are_dropped_if_a_limiter_subscribes_after_data_loss() {
    let server = Server::start();
    let backend = server.backend().await;
    let one = RateLimiter::new(backend.clone());
    one.set_quota(&SEARCH, Quota::token_bucket(5, HOUR)).await.unwrap();
    cmd("FLUSHALL").exec(&mut server.admin()).unwrap();
    let other = RateLimiter::new(backend);
    wait_until(async || one.quotas(&SEARCH, "ada")[0].get_capacity() == 100).await;
    assert_eq!(other.quotas(&SEARCH, "ada")[0].get_capacity(), 100);
}

/// After the server loses its data, other processes still apply the notices that they have already received. An unblock
/// must reach these processes.
#[tokio::test]
async fn an_unblock_after_data_loss_reaches_all_processes() {
    let server = Server::start();
    let (one, other) = (limiter(&server).await, limiter(&server).await);
    one.block(Signal::key("eve"), DAY).await.unwrap();
    wait_until(async || other.try_check(&SEARCH, "eve").await.unwrap().reason() == Reason::Blocked).await;
    cmd("FLUSHALL").exec(&mut server.admin()).unwrap();
    one.unblock(Signal::key("eve")).await.unwrap();
    wait_until(async || other.try_check(&SEARCH, "eve").await.unwrap().is_allowed()).await;
}

/// Regression: of ten thousand simultaneous blocks, nine thousand were never published, and quota changes failed during
/// the burst.
#[tokio::test]
async fn a_burst_of_blocks_is_published_without_delaying_quota_changes() {
    static ONE: Policy = Policy::new("one", Quota::token_bucket(1, HOUR));
    let server = Server::start();
    let blocking = |backend: RedisBackend| {
        // With the default `max_entries`, one run in 300 would put nine callers into a bucket for eight, and drop one.
        let rules = AutoBlock::new([&ONE]).threshold(1).block_for(HOUR).max_entries(400_000);
        RateLimiter::builder(backend).auto_block(rules).build()
    };
    let (one, other) = (blocking(server.backend().await), blocking(server.backend().await));
    for begin in (0..10_000u64).step_by(500) {
        let denials = (begin..begin + 500).map(|key| one.try_acquire(&ONE, key).cost(2).into_future());
        for denial in denials.collect::<Vec<_>>() {
            assert!(!denial.await.unwrap().is_allowed());
        }
        one.set_key_quota(&ONE, begin, Quota::token_bucket(2, HOUR)).await.unwrap();
    }
    assert_eq!(one.stats().blocked, 10_000);
    let begin = Instant::now();
    while other.stats().blocked < 10_000 {
        assert!(
            begin.elapsed() < 5 * MAX_DELAY,
            "only {} of the blocks were received: {:?}",
            other.stats().blocked,
            one.stats()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(one.stats().pending_notices, 0);
}

#[tokio::test]
async fn a_block_during_an_outage_is_published_afterward() {
    let mut server = Server::start();
    let url = server.url();
    let backend = || async { RedisBackend::builder().deadline(PATIENCE).connect(&url).await.unwrap() };
    let rules = AutoBlock::new([&SEARCH]).threshold(2).block_for(HOUR);
    let one = RateLimiter::builder(backend().await)
        .on_failure(tollgate::FailureMode::fallback(1.0))
        .auto_block(rules)
        .build();
    let other = RateLimiter::new(backend().await);
    server.kill();
    for _ in 0..2 {
        let denied = one.try_acquire(&SEARCH, "eve").cost(101).ip([192, 0, 2, 9].into()).await.unwrap();
        assert_eq!(denied.reason(), Reason::CostTooLarge);
    }
    assert_eq!(one.try_limit(&SEARCH, "eve").await.unwrap().reason(), Reason::Blocked);
    assert_eq!(one.stats().pending_notices, 2);
    server.restart();
    wait_until(async || {
        let asked = other.try_acquire(&SEARCH, "ada").ip([192, 0, 2, 9].into()).check().await;
        asked.is_ok_and(|decision| decision.reason() == Reason::Blocked)
    })
    .await;
}

/// Regression: when a process escalated a block, it ignored earlier blocks by other processes.
#[tokio::test]
async fn an_offense_repeated_in_another_process_blocks_for_longer() {
    let server = Server::start();
    let blocking = |backend: RedisBackend| {
        let rules = AutoBlock::new([&SEARCH]).threshold(1).block_for(Duration::from_millis(1200)).escalate(10, HOUR);
        RateLimiter::builder(backend).auto_block(rules).build()
    };
    let (one, other) = (blocking(server.backend().await), blocking(server.backend().await));
    assert!(!one.try_acquire(&SEARCH, "eve").cost(101).await.unwrap().is_allowed());
    wait_until(async || other.try_check(&SEARCH, "eve").await.unwrap().reason() == Reason::Blocked).await;
    wait_until(async || other.try_check(&SEARCH, "eve").await.unwrap().is_allowed()).await;
    assert!(!other.try_acquire(&SEARCH, "eve").cost(101).await.unwrap().is_allowed());
    let left = other.try_check(&SEARCH, "eve").await.unwrap().retry_after().unwrap();
    assert!(left > Duration::from_secs(5), "{left:?}");
}

/// The environment variable that contains the server's URL in the child process.
const CHILD: &str = "TOLLGATE_TEST_NOTICES_CHILD";

#[tokio::test]
async fn quotas_and_blocks_set_by_a_child_process_apply() {
    let server = Server::start();
    let here = limiter(&server).await;
    assert_eq!(here.remaining(&SEARCH, "ada").await.unwrap(), 100);
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["redis::notices::child", "--exact", "--nocapture"]).env(CHILD, server.url());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // The process that made the changes has exited.
    wait_until(async || here.remaining(&SEARCH, "ada").await.unwrap() == 5).await;
    wait_until(async || {
        let blocked = here.try_acquire(&SEARCH, "ada").ip([192, 0, 2, 1].into()).check().await.unwrap();
        blocked.reason() == Reason::Blocked
    })
    .await;
    // An automatic block on a key applies only under the policies in a limiter's own `AutoBlock`. `here` has none.
    assert_eq!(here.try_check(&SEARCH, "eve").await.unwrap().reason(), Reason::QuotaExceeded);
}

/// The child process runs this test. In any other process, the test does nothing.
#[test]
fn child() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let backend = RedisBackend::builder().deadline(PATIENCE).connect(&url).await.unwrap();
        let rules = AutoBlock::new([&SEARCH]).threshold(3).within(MINUTE).block_for(HOUR);
        let limiter = RateLimiter::builder(backend).auto_block(rules).build();
        for _ in 0..4 {
            drop(limiter.try_acquire(&SEARCH, "eve").cost(100).ip([192, 0, 2, 1].into()).await.unwrap());
        }
        limiter.set_quota(&SEARCH, Quota::token_bucket(5, HOUR)).await.unwrap();
    });
}

/// Regression: a block that could not be published during an outage was published after the caller had been unblocked,
/// which blocked the caller again.
#[tokio::test]
async fn an_unpublished_block_does_not_return_after_the_caller_is_unblocked() {
    let server = Server::start();
    let backend = RedisBackend::builder().deadline(SECOND).notices_every(4 * SECOND);
    let rules = AutoBlock::new([&SEARCH]).threshold(2).within(MINUTE).block_for(HOUR);
    let limiter = RateLimiter::builder(backend.connect(&server.url()).await.unwrap()).auto_block(rules).build();
    drop(limiter.try_acquire(&SEARCH, "eve").cost(100).await.unwrap());
    assert_eq!(limiter.try_limit(&SEARCH, "eve").await.unwrap().reason(), Reason::QuotaExceeded);
    // Wait until the first poll has ended. The next poll begins after four seconds.
    tokio::time::sleep(SECOND / 4).await;
    server.signal("STOP");
    // This second denial comes from the block cache and blocks the caller. Publishing the block times out.
    assert_eq!(limiter.try_limit(&SEARCH, "eve").await.unwrap().reason(), Reason::QuotaExceeded);
    assert_eq!(limiter.try_limit(&SEARCH, "eve").await.unwrap().reason(), Reason::Blocked);
    tokio::time::sleep(SECOND * 3 / 2).await;
    server.signal("CONT");
    limiter.unblock(Signal::key("eve")).await.unwrap();
    let begin = Instant::now();
    while begin.elapsed() < 5 * SECOND {
        assert_eq!(limiter.stats().blocked, 0, "the caller is blocked again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
