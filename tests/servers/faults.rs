//! Known faults that need a server. Each test asserts today's wrong behavior, and says what is right. Whoever mends a
//! fault turns its test round. The tests of fault 21 are regression tests, because that fault is mended.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use redis::cmd;
use tollgate::algorithm::Ask;
use tollgate::backend::{Backend, ErrorKind, RedisBackend, RedisBackendBuilder, RowId, Take};
use tollgate::observe::{Decided, Observer, Settled};
use tollgate::policy::PolicyName;
use tollgate::protection::Signal;
use tollgate::{DAY, HOUR, MemoryBackend, Policy, Quota, RateLimiter, Reason};

use crate::redis::proxy::Proxy;
use crate::support::cluster_server::{Cluster, ask, info, owner, slot};
use crate::support::server::{PATIENCE, Server};

fn builder() -> RedisBackendBuilder {
    RedisBackend::builder().deadline(PATIENCE)
}

async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !holds().await {
        assert!(begin.elapsed() < PATIENCE, "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Right: 75, as in memory. Cause: `backend/redis/mod.rs`, `decide_action` reuses the key of the row before for every
/// take that is not the first, which is also true of the second shard.
#[tokio::test]
async fn fault_01_a_read_of_a_sharded_quota_sees_the_first_shard_only() {
    static SHARDED: Policy = Policy::new("sharded", Quota::fixed_window(100, DAY).shards(4));
    let server = Server::start();
    let (redis, memory) =
        (RateLimiter::new(builder().connect(&server.url()).await.unwrap()), RateLimiter::new(MemoryBackend::new()));
    for key in 0..40 {
        for limiter in [&redis, &memory] {
            assert!(limiter.try_acquire(&SHARDED, key).cost(25).await.unwrap().is_allowed());
        }
        let left = async |limiter: &RateLimiter| {
            let check = limiter.try_check(&SHARDED, key).await.unwrap().remaining();
            [check, limiter.remaining(&SHARDED, key).await.unwrap()]
        };
        assert_eq!(left(&memory).await, [75; 2]);
        // Everything is left if the first shard is unspent, and nothing if it is spent. A check adds up the costs of its
        // four reads of one row, 1 + 2 + 3 of which it reports as spent.
        let wrong = left(&redis).await;
        assert!(wrong == [0; 2] || wrong == [94, 100], "{wrong:?}");
    }
}

/// Right: the refused call starts a probe, so publishing works again soon after the server is back. Cause:
/// `backend/redis/notices.rs`, `publish` reads the breaker, but only `Batcher::send` starts the probe that closes it.
#[tokio::test]
async fn fault_03_a_process_that_makes_no_decisions_never_publishes_again_after_an_outage() {
    static API: Policy = Policy::new("api", Quota::token_bucket(100, HOUR));
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let builder = builder().notices_every(Duration::from_millis(10));
    let limiter = RateLimiter::new(builder.connect(&proxy.url()).await.unwrap());
    proxy.refuse_connections(true);
    limiter.try_limit(&API, "ada").await.unwrap_err();
    wait_until("polling fails", async || limiter.stats().poll_failed == Some(true)).await;
    proxy.refuse_connections(false);
    wait_until("polling works again", async || limiter.stats().poll_failed == Some(false)).await;
    for _ in 0..20 {
        // The pause between two probes is at most 250 ms.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let refused = limiter.block(Signal::key("eve"), DAY).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(limiter.set_quota(&API, Quota::token_bucket(5, HOUR)).await.is_err());
        assert!(limiter.reset_policy(&API).await.is_err());
        assert_eq!((limiter.stats().poll_failed, limiter.stats().circuit_open), (Some(false), Some(true)));
    }
    // One decision cures it.
    wait_until("a decision has closed the breaker", async || limiter.try_limit(&API, "ada").await.is_ok()).await;
    limiter.block(Signal::key("eve"), DAY).await.unwrap();
}

/// Right: one or two exchanges for all notices that are pending. Cause: `backend/redis/notices.rs`, `publish` makes one
/// exchange for each notice, and `exchange` holds the mutex `cursor` meanwhile, so they follow each other.
#[tokio::test]
async fn fault_05_each_notice_takes_an_exchange_of_its_own() {
    static API: Policy = Policy::new("api", Quota::token_bucket(100, HOUR));
    const NOTICES: usize = 100;
    let server = Server::start();
    let limiter = RateLimiter::new(builder().notices_every(HOUR).connect(&server.url()).await.unwrap());
    // This exchange follows the first poll, which may have to send the script in full. The next poll is an hour away.
    limiter.pause(&API, "first", HOUR).await.unwrap();
    cmd("CONFIG").arg("RESETSTAT").exec(&mut server.admin()).unwrap();
    let pauses: Vec<_> = (0..NOTICES as u64).map(|key| limiter.pause(&API, key, HOUR)).collect();
    for pause in pauses {
        pause.await.unwrap();
    }
    assert_eq!(calls(&info(&mut server.admin(), "commandstats"), "cmdstat_evalsha:calls="), NOTICES);
}

/// Returns the number after `name`, or 0 if there is none.
fn calls(info: &str, name: &str) -> usize {
    let rest = info.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Right: the key is not paused in any process, because the order is fixed at the call. Cause:
/// `backend/redis/notices.rs`, `publish` spawns one task for each notice, and the tasks run in any order. (A runtime
/// with one worker runs the task that was spawned last first.)
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn fault_06_a_resume_is_published_before_the_pause_that_it_ends() {
    static API: Policy = Policy::new("api", Quota::token_bucket(100, HOUR));
    let server = Server::start();
    let limiter = RateLimiter::new(builder().connect(&server.url()).await.unwrap());
    let one = limiter.clone();
    let published = tokio::spawn(async move { (one.pause(&API, "ada", HOUR), one.resume(&API, "ada")) });
    let (pause, resume) = published.await.unwrap();
    pause.await.unwrap();
    resume.await.unwrap();
    let other = RateLimiter::new(builder().connect(&server.url()).await.unwrap());
    for limiter in [&limiter, &other] {
        wait_until("the key is paused", async || {
            limiter.try_check(&API, "ada").await.unwrap().reason() == Reason::Blocked
        })
        .await;
    }
}

struct Panics;

impl Observer for Panics {
    fn decided(&self, _: &Decided<'_>) {}

    fn settled(&self, _: &Settled<'_>) {
        panic!("an observer fails");
    }
}

/// Right: the process goes on, and the test that runs in it fails (101). Cause: `limiter/receipt.rs`, `settle` calls
/// observers while the thread is panicking. (Without another panic: `tests/it/faults/limiter.rs`.)
#[tokio::test]
async fn fault_12_an_observer_that_panics_during_unwinding_aborts_the_process() {
    const CHILD: &str = "TOLLGATE_FAULT_12";
    static API: Policy = Policy::new("api", Quota::token_bucket(100, HOUR));
    if std::env::var_os(CHILD).is_some() {
        let limiter = RateLimiter::builder(MemoryBackend::new()).observer(Panics).build();
        let _held = limiter.acquire(&API, "ada").hold().await.unwrap();
        panic!("a handler fails");
    }
    let name = "faults::fault_12_an_observer_that_panics_during_unwinding_aborts_the_process";
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", name]).env(CHILD, "1").output().unwrap();
    const SIGABRT: i32 = 6;
    assert_eq!(output.status.signal(), Some(SIGABRT), "{output:?}");
}

/// Two nodes redirect to each other, as during a move, until each has replied eight times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_21_a_call_is_repeated_while_its_slot_moves() {
    let cluster = Cluster::start();
    let (policy, key) = (PolicyName::new("moving"), on_the_first_node(&cluster));
    let slot = slot(&cluster.nodes[0], key).to_string();
    let moved = || -> usize { (0..2).map(|node| errors(&cluster, node, "MOVED")).sum() };
    let give = |node: usize| {
        ask::<()>(&mut cluster.nodes[node].admin(), &["CLUSTER", "SETSLOT", &slot, "NODE", &cluster.id(1)]);
    };
    let backend = cluster.connect(builder()).await;
    give(0);
    let call = tokio::spawn(take(backend.clone(), policy.clone(), key));
    wait_until("the call has been redirected", async || moved() >= 16).await;
    give(1);
    call.await.unwrap();
    assert_eq!(spent(&backend, &policy, key).await, 1.0);
}

/// No node owns the slot for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_21_a_call_is_repeated_while_its_slot_has_no_owner() {
    let cluster = Cluster::start();
    let (policy, key) = (PolicyName::new("unowned"), on_the_first_node(&cluster));
    let slot = slot(&cluster.nodes[0], key).to_string();
    let backend = cluster.connect(builder()).await;
    let node = &mut cluster.nodes[0].admin();
    ask::<()>(node, &["CLUSTER", "DELSLOTS", &slot]);
    let call = tokio::spawn(take(backend.clone(), policy.clone(), key));
    wait_until("the call has been refused", async || errors(&cluster, 0, "CLUSTERDOWN") >= 8).await;
    ask::<()>(node, &["CLUSTER", "ADDSLOTS", &slot]);
    call.await.unwrap();
    assert_eq!(spent(&backend, &policy, key).await, 1.0);
}

fn on_the_first_node(cluster: &Cluster) -> tollgate::key::Digest {
    let keys = (1u128..).map(tollgate::key::Digest::from_bits);
    keys.into_iter().find(|key| owner(slot(&cluster.nodes[0], *key)) == 0).unwrap()
}

/// Returns how many commands a node has refused with this error.
fn errors(cluster: &Cluster, node: usize, code: &str) -> usize {
    calls(&info(&mut cluster.nodes[node].admin(), "errorstats"), &format!("errorstat_{code}:count="))
}

const SLOW: Quota = Quota::token_bucket(1, DAY).capacity(100);

async fn take(backend: RedisBackend, policy: PolicyName, key: tollgate::key::Digest) {
    let row = RowId { policy: &policy, key };
    assert!(backend.acquire(&[Take::new(row, &SLOW, Ask::cost(1))]).await.unwrap().all_granted());
}

async fn spent(backend: &RedisBackend, policy: &PolicyName, key: tollgate::key::Digest) -> f64 {
    let take = Take::new(RowId { policy, key }, &SLOW, Ask::cost(0));
    backend.peek(&[take]).await.unwrap()[0].state.spent
}
