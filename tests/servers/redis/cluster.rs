//! Tests on a Redis cluster: the conformance suite, charges across several slots, and moving slots.

use std::time::Duration;

use tollgate::algorithm::Ask;
use tollgate::backend::{Backend, RedisBackend, RowId, Take, conformance};
use tollgate::{DAY, HOUR, Quota, key::Digest, policy::PolicyName};

use super::rows::with_ask;
use crate::support::cluster_server::{Cluster, ask, owner, slot, wait_until};

pub(crate) const fn slow(tokens: u64) -> Quota {
    Quota::token_bucket(1, DAY).capacity(tokens)
}

/// Returns a key whose slot belongs to the given primary and is far from the slots of the other primaries.
pub(crate) fn key_on(cluster: &Cluster, primary: usize) -> Digest {
    let node = &cluster.nodes[0];
    let keys = (1u128..).map(|bits| Digest::from_bits(bits * 0x9e37_79b9_7f4a_7c15));
    let well_inside = |slot: u16| owner(slot) == primary && [slot - 1024, slot + 1024].map(owner) == [primary; 2];
    keys.filter(|key| (1024..15360).contains(&slot(node, *key))).find(|key| well_inside(slot(node, *key))).unwrap()
}

pub(crate) async fn spent(backend: &RedisBackend, take: &Take<'_>) -> f64 {
    let nothing = with_ask(*take, Ask::cost(0).reserve());
    backend.peek(&[nothing]).await.unwrap()[0].state.spent
}

/// Repeats the take until it is denied. Returns how many times it was granted.
pub(crate) async fn drain(backend: &RedisBackend, take: &Take<'_>) -> usize {
    let mut granted = 0;
    while backend.acquire(&[*take]).await.unwrap().all_granted() {
        granted += 1;
    }
    granted
}

#[tokio::test]
async fn a_cluster_passes_the_conformance_suite_key_by_key() {
    let cluster = Cluster::start();
    conformance::all_key_by_key(&cluster.backend().await, tokio::time::sleep).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_across_several_slots_are_made_completely_or_not_at_all() {
    let cluster = Cluster::start();
    let backend = cluster.backend().await;
    let (wide, narrow) = (PolicyName::new("wide"), PolicyName::new("narrow"));
    let keys = [0, 1, 2].map(|primary| key_on(&cluster, primary));
    // Slots are charged in ascending order, so the narrow row is charged last in the first round, and first in the
    // second round.
    for (wide_key, narrow_key) in [(keys[0], keys[1]), (keys[2], keys[1])] {
        let wide = Take::new(RowId { policy: &wide, key: wide_key }, &slow(10), Ask::cost(3));
        let narrow = Take::new(RowId { policy: &narrow, key: narrow_key }, &slow(1), Ask::cost(1));
        assert!(backend.acquire(&[wide, narrow]).await.unwrap().all_granted());
        for takes in [[wide, narrow], [narrow, wide]] {
            let steps = backend.acquire(&takes).await.unwrap();
            let [granted, denied] = if takes[0].row.key == wide_key { [0, 1] } else { [1, 0] };
            assert!(
                steps[granted].is_allowed() && !steps[denied].is_allowed(),
                "expected only the narrow row to deny the call"
            );
            assert_eq!(steps[granted].state.spent, 3.0, "a denied call must not report a charge");
            assert_eq!(spent(&backend, &wide).await, 3.0, "a denied call must not charge a row");
        }
        assert_eq!(spent(&backend, &narrow).await, 1.0);
        assert_eq!(backend.reset(&[wide.row, narrow.row]).await.unwrap(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_across_several_slots_never_exceed_a_limit() {
    const TASKS: usize = 16;
    let cluster = Cluster::start();
    let backend = cluster.backend().await;
    let policies = [PolicyName::new("a"), PolicyName::new("b"), PolicyName::new("c")];
    let keys = [0, 1, 2].map(|primary| key_on(&cluster, primary));
    let quotas = [slow(90), slow(60), slow(75)];
    let hammer = |task: usize| {
        let (backend, policies) = (backend.clone(), policies.clone());
        async move {
            let takes = |i: usize| Take::new(RowId { policy: &policies[i], key: keys[i] }, &quotas[i], Ask::cost(1));
            let mut order = [takes(0), takes(1), takes(2)];
            order.rotate_left(task % 3);
            let mut admitted = 0;
            for _ in 0..20 {
                admitted += usize::from(backend.acquire(&order).await.unwrap().all_granted());
            }
            admitted
        }
    };
    let tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(hammer(task))).collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    // A denied call may charge some of the slots and then refund these charges. Until it does, other calls may be
    // denied, so fewer than 60 calls might be admitted.
    assert!((30..=60).contains(&admitted), "{admitted} calls were admitted, expected 30 to 60");
    for i in 0..3 {
        let take = Take::new(RowId { policy: &policies[i], key: keys[i] }, &quotas[i], Ask::cost(1));
        assert_eq!(spent(&backend, &take).await, admitted as f64, "{}", policies[i]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_call_charges_all_of_its_slots_or_none() {
    let cluster = Cluster::start();
    let backend = cluster.backend().await;
    let policy = PolicyName::new("dropped");
    let row = |primary: usize| RowId { policy: &policy, key: key_on(&cluster, primary) };
    let takes = [0, 1, 2].map(|primary| Take::new(row(primary), &slow(50), Ask::cost(1)));
    for round in 0..100 {
        // When the call is dropped, it may have charged none, some or all of the slots.
        let call = backend.acquire(&takes);
        let _ = tokio::time::timeout(Duration::from_micros(round * 10), call).await;
    }
    let mut rows = [-1.0; 3];
    let mut settled = false;
    while !settled {
        let before = rows;
        tokio::time::sleep(Duration::from_millis(50)).await;
        for (row, take) in rows.iter_mut().zip(&takes) {
            *row = spent(&backend, take).await;
        }
        settled = rows == before;
    }
    assert_eq!(rows, [rows[0]; 3]);
    assert!(rows[0] > 0.0 && rows[0] <= 50.0, "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_policies_are_charged_together_for_the_same_key() {
    let cluster = Cluster::start();
    let backend = cluster.backend().await;
    let policies = [PolicyName::new("wide"), PolicyName::new("narrow")];
    let key = key_on(&cluster, 1);
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (backend, policies) = (backend.clone(), policies.clone());
            tokio::spawn(async move {
                let row = |i: usize| RowId { policy: &policies[i], key };
                let mut takes =
                    [Take::new(row(0), &slow(500), Ask::cost(1)), Take::new(row(1), &slow(100), Ask::cost(1))];
                takes.rotate_left(task % 2);
                conformance::spend(&backend, &takes, 40).await
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    assert_eq!(admitted, 100);
    let wide = Take::new(RowId { policy: &policies[0], key }, &slow(500), Ask::cost(1));
    assert_eq!(spent(&backend, &wide).await, 100.0, "a denied call must not charge the wide policy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_follow_a_slot_that_moves() {
    let cluster = Cluster::start();
    let backend = cluster.backend().await;
    let policy = PolicyName::new("moving");
    let key = key_on(&cluster, 0);
    let row = RowId { policy: &policy, key };
    let name = backend.row_key(&policy, key);
    let take = Take::new(row, &slow(40), Ask::cost(1));
    let slot = slot(&cluster.nodes[0], key).to_string();
    let [from, to] = [0, 1].map(|i| &cluster.nodes[i]);
    assert_eq!(conformance::spend(&backend, &[take], 10).await, 10);

    ask::<()>(&mut to.admin(), &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &cluster.id(0)]);
    ask::<()>(&mut from.admin(), &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &cluster.id(1)]);
    assert_eq!(conformance::spend(&backend, &[take], 10).await, 10, "expected 10 grants before the row moves");

    let port = to.port().to_string();
    ask::<()>(&mut from.admin(), &["MIGRATE", "127.0.0.1", &port, &name, "0", "5000"]);
    assert_eq!(
        conformance::spend(&backend, &[take], 10).await,
        10,
        "expected 10 grants to follow an ASK redirect to the new node"
    );

    cluster.give_slot(slot.parse().unwrap(), 1);
    assert_eq!(
        conformance::spend(&backend, &[take], 20).await,
        10,
        "expected the last 10 grants to follow a MOVED redirect to the new node"
    );
    assert!(ask::<bool>(&mut to.admin(), &["EXISTS", &name]));
}

/// The slot moves back and forth, so the client's slot table is always outdated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recently_moved_slot_is_found() {
    let cluster = Cluster::start();
    let backend = cluster.backend().await;
    let policy = PolicyName::new("moved");
    let key = key_on(&cluster, 2);
    let slot = slot(&cluster.nodes[0], key);
    let take = Take::new(RowId { policy: &policy, key }, &Quota::token_bucket(1000, DAY), Ask::cost(1));
    for round in 0..20 {
        let to = [1, 2][round % 2];
        backend.reset(&[take.row]).await.unwrap();
        cluster.give_slot(slot, to);
        assert_eq!(conformance::spend(&backend, &[take], 3).await, 3, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_reset_removes_rows_in_several_slots() {
    let cluster = Cluster::start();
    let backend = cluster.backend().await;
    let policy = PolicyName::new("settled");
    let takes = [0, 1, 2].map(|primary| {
        let row = RowId { policy: &policy, key: key_on(&cluster, primary) };
        Take::new(row, &Quota::token_bucket(10, HOUR), Ask::cost(4))
    });
    assert!(backend.acquire(&takes).await.unwrap().all_granted());
    drop(backend.reset(&takes.map(|take| take.row)));
    wait_until("all rows are gone", || {
        let keys = |i: usize| ask::<u64>(&mut cluster.nodes[i].admin(), &["DBSIZE"]);
        (0..3).map(keys).sum::<u64>() == 0
    });
}
