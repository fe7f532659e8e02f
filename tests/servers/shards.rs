//! Shards on a Redis server and on a cluster.

use std::collections::HashSet;
use std::time::Duration;

use tollgate::policy::Decisions;
use tollgate::{Charge, HOUR, Policy, Quota, RateLimiter, Reason};

use crate::support::cluster_server::{Cluster, info, owner, slot};
use crate::support::random::Random;
use crate::support::server::Server;
use crate::support::shards::{Spending, ask, charge, policies};

static HOT: Policy = Policy::new("hot", Quota::token_bucket(640, HOUR).shards(64));

async fn decided(limiter: &RateLimiter, charge: Charge<'_>) -> Decisions {
    match limiter.hold_all([charge]).await {
        Ok(reservation) => reservation.into_receipt().decisions().clone(),
        Err(error) => error.denied().expect("expected a denial").decisions().clone(),
    }
}

async fn histories(limiter: &RateLimiter, calls: u64) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for policy in policies() {
        let (mut spending, mut admitted) = (Spending::default(), 0);
        for _ in 0..calls {
            let ask = ask(&policy, &mut random);
            let decisions = decided(limiter, charge(&policy, ask)).await;
            spending.add(ask, &decisions);
            admitted += u64::from(decisions.is_allowed());
            if random.below(20) == 0 {
                tokio::time::sleep(Duration::from_micros(random.below(9000))).await;
            }
        }
        assert!(admitted > 5, "only {admitted} calls under {} were admitted", policy.name());
    }
}

/// Spends one token at a time until none remain. Returns the number of tokens spent.
async fn drain(limiter: &RateLimiter, policy: &Policy) -> u64 {
    let mut spent = 0;
    while limiter.remaining(policy, "all").await.unwrap() > 0 {
        for _ in 0..10 {
            spent += u64::from(limiter.try_limit(policy, "all").await.unwrap().is_allowed());
        }
    }
    spent
}

#[tokio::test]
async fn shards_on_a_server_never_admit_more_than_the_quota() {
    let server = Server::start();
    histories(&RateLimiter::new(server.backend().await), 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_on_a_cluster_never_admit_more_than_the_quota() {
    let cluster = Cluster::start();
    histories(&RateLimiter::new(cluster.backend().await), 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_use_all_nodes_of_a_cluster_and_an_allowed_call_takes_one_round_trip() {
    let cluster = Cluster::start();
    let (backend, builder) = (cluster.backend().await, RateLimiter::builder);
    let limiter = builder(backend.clone()).build();
    let scripts = || {
        let calls = |node: &Server| {
            let stats = info(&mut node.admin(), "commandstats");
            let calls = stats.lines().filter(|line| line.starts_with("cmdstat_evalsha:calls="));
            calls.map(|line| line[22..].split(',').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
        };
        cluster.nodes.iter().map(calls).collect::<Vec<_>>()
    };
    // Load the script on all nodes.
    for _ in 0..64 {
        assert!(limiter.limit(&HOT, "all").await.is_ok());
    }
    // With so few calls, the shard that a call tries first always has tokens.
    let before = scripts();
    for _ in 0..150 {
        assert!(limiter.limit(&HOT, "all").await.is_ok());
    }
    let calls: Vec<u64> = scripts().iter().zip(&before).map(|(after, before)| after - before).collect();
    assert_eq!(calls.iter().sum::<u64>(), 150, "{calls:?}");
    assert!(calls.iter().filter(|calls| **calls > 25).count() == 3, "{calls:?}");
    assert_eq!(limiter.remaining(&HOT, "all").await.unwrap(), 640 - 214);

    // Every shard has a row once all tokens are spent.
    assert_eq!(drain(&limiter, &HOT).await, 640 - 214);
    let keys: HashSet<String> = cluster
        .nodes
        .iter()
        .flat_map(|node| redis::cmd("KEYS").arg("tollgate:2:*").query::<Vec<String>>(&mut node.admin()).unwrap())
        .collect();
    assert_eq!(keys.len(), 64);
    let key = limiter.digest(tollgate::Subject::new("all").key());
    assert!(keys.contains(&backend.row_key(HOT.name(), key)));
    assert!(limiter.reset(&HOT, "all").await.unwrap());
    assert_eq!(limiter.remaining(&HOT, "all").await.unwrap(), 640);
    assert!((0..3).contains(&owner(slot(&cluster.nodes[0], key))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_with_the_same_number_of_shards_use_the_same_slots() {
    static OTHER: Policy = Policy::new("other", Quota::fixed_window(6400, HOUR).shards(64));
    let cluster = Cluster::start();
    let limiter = RateLimiter::new(cluster.backend().await);
    for _ in 0..200 {
        let charges = [Charge::new(&HOT, "all"), Charge::new(&OTHER, "all")];
        assert!(limiter.try_limit_all(charges).await.unwrap().is_allowed());
    }
    let row_names = |policy: &str| {
        let suffix = format!(":{policy}");
        let keys = cluster
            .nodes
            .iter()
            .flat_map(|node| redis::cmd("KEYS").arg("tollgate:2:*").query::<Vec<String>>(&mut node.admin()).unwrap());
        keys.filter_map(|key| key.strip_suffix(&suffix).map(str::to_owned)).collect::<HashSet<_>>()
    };
    assert_eq!(row_names("hot"), row_names("other"));
}

#[tokio::test]
async fn two_limiters_share_the_shards() {
    let server = Server::start();
    let limiters = [RateLimiter::new(server.backend().await), RateLimiter::new(server.backend().await)];
    let mut admitted = 0;
    for _ in 0..2000 {
        for limiter in &limiters {
            admitted += u64::from(limiter.try_limit(&HOT, "all").await.unwrap().is_allowed());
        }
    }
    assert!((635..=641).contains(&admitted), "{admitted}");
    assert_eq!(limiters[0].try_limit(&HOT, "all").await.unwrap().reason(), Reason::QuotaExceeded);
    assert_eq!(limiters[1].remaining(&HOT, "all").await.unwrap(), limiters[0].remaining(&HOT, "all").await.unwrap());
}
