//! Leases on a cluster: keys on different nodes, a slot that moves, and a node that is lost.

use std::time::{Duration, Instant};

use tollgate::policy::DecidedBy;
use tollgate::{DAY, Policy, Quota, RateLimiter, SECOND, backend::RedisBackend};

use crate::support::cluster_server::{Cluster, ask, owner, slot};

/// A policy whose quota is not refilled during a test.
static TOTAL: Policy = Policy::new("total", Quota::token_bucket(1, DAY).capacity(3000)).leases();

struct Counts {
    admitted: u64,
    leased: u64,
    failed: u64,
}

/// Calls the limiter from four tasks for the duration `time`.
async fn hammer(limiter: &RateLimiter, key: u64, time: Duration) -> Counts {
    let end = Instant::now() + time;
    let task = |_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut counts = Counts { admitted: 0, leased: 0, failed: 0 };
            while Instant::now() < end {
                match limiter.try_limit(&TOTAL, key).await {
                    Ok(decision) if decision.is_allowed() => {
                        counts.admitted += 1;
                        counts.leased += u64::from(decision.decided_by() == DecidedBy::Lease);
                    }
                    Ok(_) => {}
                    Err(_) => counts.failed += 1,
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            counts
        })
    };
    let mut sum = Counts { admitted: 0, leased: 0, failed: 0 };
    for task in (0..4).map(task).collect::<Vec<_>>() {
        let counts = task.await.unwrap();
        sum.admitted += counts.admitted;
        sum.leased += counts.leased;
        sum.failed += counts.failed;
    }
    sum
}

/// Returns one key for each primary.
fn keys(cluster: &Cluster, limiter: &RateLimiter) -> [u64; 3] {
    [0, 1, 2].map(|primary| {
        let is_on = |key: &u64| owner(slot(&cluster.nodes[0], limiter.digest(Some(&(*key).into())))) == primary;
        (0..).find(is_on).unwrap()
    })
}

async fn limiters(cluster: &Cluster) -> [RateLimiter; 2] {
    let limiter =
        async || RateLimiter::new(cluster.connect(RedisBackend::builder().deadline(Duration::from_secs(2))).await);
    [limiter().await, limiter().await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_on_different_nodes_do_not_exceed_the_limits() {
    let cluster = Cluster::start();
    let [one, other] = limiters(&cluster).await;
    let keys = keys(&cluster, &one);
    for key in keys {
        let time = 2 * SECOND;
        let (a, b) = tokio::join!(hammer(&one, key, time), hammer(&other, key, time));
        assert!(a.admitted + b.admitted <= 3000, "{} + {}", a.admitted, b.admitted);
        assert!(a.leased + b.leased > 0 && a.failed + b.failed == 0, "{} leased", a.leased + b.leased);
    }
    one.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_survive_a_slot_migration() {
    let cluster = Cluster::start();
    let [one, other] = limiters(&cluster).await;
    let key = keys(&cluster, &one)[0];
    let digest = one.digest(Some(&key.into()));
    let name = cluster.backend().await.row_key(TOTAL.name(), digest);
    let slot = slot(&cluster.nodes[0], digest);
    let (a, b, ()) = tokio::join!(hammer(&one, key, 5 * SECOND), hammer(&other, key, 5 * SECOND), async {
        tokio::time::sleep(SECOND).await;
        tokio::task::block_in_place(|| {
            let [from, to] = [0, 1].map(|i| &cluster.nodes[i]);
            let number = slot.to_string();
            ask::<()>(&mut to.admin(), &["CLUSTER", "SETSLOT", &number, "IMPORTING", &cluster.id(0)]);
            ask::<()>(&mut from.admin(), &["CLUSTER", "SETSLOT", &number, "MIGRATING", &cluster.id(1)]);
            ask::<()>(&mut from.admin(), &["MIGRATE", "127.0.0.1", &to.port().to_string(), &name, "0", "5000"]);
            cluster.give_slot(slot, 1);
        });
    });
    // No token may be spent twice, and at most 500 tokens may be lost.
    one.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
    let left = one.remaining(&TOTAL, key).await.unwrap();
    assert!(a.leased + b.leased > 0);
    assert!(a.admitted + b.admitted + left <= 3000, "{} + {} + {left}", a.admitted, b.admitted);
    assert!(a.admitted + b.admitted + left >= 2500, "{} + {} + {left}", a.admitted, b.admitted);
    assert!(a.admitted + b.admitted > 1000, "{} + {}", a.admitted, b.admitted);
}

/// After the node of a key is lost, the process spends the rest of the key's lease. Then calls for this key fail, but
/// calls for keys on other nodes still succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_node_ends_only_the_leases_of_its_keys() {
    let mut cluster = Cluster::start();
    let [limiter, _] = limiters(&cluster).await;
    let [lost, kept, _] = keys(&cluster, &limiter);
    assert!(hammer(&limiter, lost, SECOND).await.leased > 0);
    cluster.nodes[0].kill();
    let held = limiter.stats().leased_tokens;
    let (of_lost, of_kept) = tokio::join!(hammer(&limiter, lost, 5 * SECOND), hammer(&limiter, kept, 5 * SECOND));
    assert_eq!(of_lost.admitted, of_lost.leased);
    assert!(of_lost.admitted <= held && of_lost.failed > 0, "{} of {held}", of_lost.admitted);
    assert!(of_kept.admitted > 100 && of_kept.leased > 0, "{} admitted", of_kept.admitted);
}
