//! Models of concurrent access to the table. `proof/README.md` lists the mutations that each model detects.

use smallvec::SmallVec;

use super::row::RowKey;
use super::*;
use crate::algorithm::{Ask, ChargeRecord, HOUR, Quota, State, Step, step};
use crate::policy::Digest;
use crate::sync::model::{every_order, orders_with_preemptions, thread};

const NOW: Micros = Micros::new(1_700_000_000_000_000);
const P: PolicyName = PolicyName::new("p");

/// A clock that needs no lock, because its time never changes.
#[derive(Debug)]
struct Frozen;

impl Clock for Frozen {
    fn now(&self) -> Micros {
        NOW
    }
}

fn backend() -> Arc<MemoryBackend> {
    Arc::new(MemoryBackend::builder().max_rows(16).clock(Frozen).build())
}

/// Returns `N` keys whose rows are in the given shard.
fn keys<const N: usize>(backend: &MemoryBackend, shard: usize) -> [Digest; N] {
    keys_where(backend, |key| backend.table.shard_of(key) == shard)
}

fn keys_where<const N: usize>(backend: &MemoryBackend, condition: impl Fn(RowKey) -> bool) -> [Digest; N] {
    let all = (1..).map(|key: u128| Digest::from_bits(key.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)));
    let policy = P;
    let mut here = all.filter(|key| condition(backend.table.hasher().key(&RowId { policy: &policy, key: *key })));
    [(); N].map(|()| here.next().expect("keys are unlimited"))
}

fn take(backend: &MemoryBackend, quota: &Quota, charges: &[(Digest, u64)]) -> Steps {
    let policy = P;
    let takes: SmallVec<[Take<'_>; 2]> = charges
        .iter()
        .map(|(key, cost)| Take::new(RowId { policy: &policy, key: *key }, quota, Ask::cost(*cost)))
        .collect();
    backend.decide(&takes, true)
}

fn spent(backend: &MemoryBackend, quota: &Quota, key: Digest) -> f64 {
    take(backend, quota, &[(key, 0)])[0].state.spent
}

#[test]
fn one_row_admits_exactly_its_limit() {
    // An existing row with one of two tokens left, and a missing row.
    for (quota, before) in [(Quota::token_bucket(2, HOUR), 1), (Quota::token_bucket(1, HOUR), 0)] {
        every_order(move || {
            let backend = backend();
            let [key] = keys(&backend, 0);
            take(&backend, &quota, &[(key, before)]);
            let takers = [(); 2].map(|()| {
                let backend = Arc::clone(&backend);
                thread(move || take(&backend, &quota, &[(key, 1)]).all_granted())
            });
            let admitted = takers.map(|taker| taker.join().unwrap());
            assert_ne!(admitted[0], admitted[1]);
        });
    }
}

#[test]
fn calls_on_two_rows_in_opposite_order_are_atomic_and_do_not_deadlock() {
    every_order(|| {
        let quota = Quota::token_bucket(1, HOUR);
        let backend = backend();
        let ([a], [b]) = (keys(&backend, 0), keys(&backend, 1));
        let takers = [[(a, 1), (b, 1)], [(b, 1), (a, 1)]].map(|charges| {
            let backend = Arc::clone(&backend);
            thread(move || take(&backend, &quota, &charges).all_granted())
        });
        let admitted = takers.map(|taker| taker.join().unwrap());
        assert_ne!(admitted[0], admitted[1]);
        assert_eq!((spent(&backend, &quota, a), spent(&backend, &quota, b)), (1.0, 1.0));
    });
}

#[test]
fn calls_on_two_existing_rows_in_opposite_order_are_atomic() {
    // The rows are first in the same shard, and then in different shards.
    for shard in [0, 1] {
        every_order(move || {
            let quota = Quota::token_bucket(2, HOUR);
            let backend = backend();
            let ([a, c], [b]) = (keys(&backend, 0), keys(&backend, 1));
            let b = if shard == 0 { c } else { b };
            take(&backend, &quota, &[(a, 1)]);
            take(&backend, &quota, &[(b, 1)]);
            let takers = [[(a, 1), (b, 1)], [(b, 1), (a, 1)]].map(|charges| {
                let backend = Arc::clone(&backend);
                thread(move || take(&backend, &quota, &charges).all_granted())
            });
            let admitted = takers.map(|taker| taker.join().unwrap());
            assert_ne!(admitted[0], admitted[1]);
            assert_eq!((spent(&backend, &quota, a), spent(&backend, &quota, b)), (2.0, 2.0));
        });
    }
}

#[test]
fn concurrent_newcomers_stay_within_the_cap_and_do_not_evict_denied_keys() {
    every_order(|| {
        let quota = Quota::token_bucket(2, HOUR);
        let backend = backend();
        let [a, b, c, light, one, other] = keys(&backend, 0);
        for exhausted in [a, b, c] {
            assert!(take(&backend, &quota, &[(exhausted, 2)]).all_granted());
        }
        take(&backend, &quota, &[(light, 1)]);
        let newcomers = [one, other].map(|key| {
            let backend = Arc::clone(&backend);
            thread(move || drop(take(&backend, &quota, &[(key, 1)])))
        });
        newcomers.into_iter().for_each(|newcomer| newcomer.join().unwrap());
        assert_eq!(backend.len(), 4);
        for exhausted in [a, b, c] {
            assert!(!take(&backend, &quota, &[(exhausted, 1)]).all_granted());
        }
    });
}

#[test]
fn newcomers_to_full_shards_share_a_quota_and_do_not_deadlock() {
    orders_with_preemptions(3, || {
        let quota = Quota::token_bucket(2, HOUR);
        let backend = backend();
        for shard in [0, 1] {
            let exhausted: [Digest; 4] = keys(&backend, shard);
            exhausted.iter().for_each(|key| drop(take(&backend, &quota, &[(*key, 2)])));
        }
        // In each shard, two newcomers share an overflow row.
        let newcomers = |shard| {
            let here = |key: RowKey| backend.table.shard_of(key) == shard && key.hash() % 16 == 5;
            let [.., one, other]: [Digest; 8] = keys_where(&backend, here);
            [one, other]
        };
        let ([a, c], [b, d]) = (newcomers(0), newcomers(1));
        let callers = [vec![(a, 1), (b, 1)], vec![(d, 1), (c, 1)], vec![(c, 1)]].map(|charges| {
            let backend = Arc::clone(&backend);
            thread(move || take(&backend, &quota, &charges).all_granted())
        });
        // The newcomers to the first shard share two tokens.
        let admitted = callers.map(|caller| caller.join().unwrap());
        assert_eq!(admitted.iter().filter(|admitted| **admitted).count(), 2, "{admitted:?}");
        assert_eq!(backend.len(), 8);
    });
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    One(u64),
    /// Charges one token to each row, in either order.
    Both(bool),
    /// Refunds an earlier charge to the first row.
    Refund,
    /// Settles an earlier charge to the first row at a higher cost.
    Surcharge,
    Reset,
}

const OPERATIONS: [Operation; 7] = [
    Operation::One(1),
    Operation::One(2),
    Operation::Both(false),
    Operation::Both(true),
    Operation::Refund,
    Operation::Surcharge,
    Operation::Reset,
];

#[test]
fn three_concurrent_operations_are_linearizable() {
    let quota = Quota::token_bucket(3, HOUR);
    for i in 0..OPERATIONS.len() {
        for j in i..OPERATIONS.len() {
            for k in j..OPERATIONS.len() {
                let operations = [OPERATIONS[i], OPERATIONS[j], OPERATIONS[k]];
                let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
                let all: Vec<_> = orders.iter().map(|order| run_sequentially(&quota, &operations, order)).collect();
                orders_with_preemptions(2, move || {
                    let backend = backend();
                    let ([a], [b]) = (keys(&backend, 0), keys(&backend, 1));
                    let before = take(&backend, &quota, &[(a, 2)])[0];
                    let threads = operations.map(|operation| {
                        let backend = Arc::clone(&backend);
                        thread(move || run_on_backend(&backend, &quota, [a, b], &before, operation))
                    });
                    let results = threads.map(|thread| thread.join().unwrap());
                    let spent_after = [a, b].map(|key| spent(&backend, &quota, key));
                    assert!(
                        all.contains(&(results, spent_after)),
                        "{operations:?} returned {results:?} and left {spent_after:?} spent tokens"
                    );
                });
            }
        }
    }
}

fn run_on_backend(
    backend: &MemoryBackend,
    quota: &Quota,
    [a, b]: [Digest; 2],
    before: &Step,
    operation: Operation,
) -> bool {
    let policy = P;
    let row = RowId { policy: &policy, key: a };
    let settle = |actual| {
        let receipt = ChargeRecord::new(2, before).expect("the take was granted");
        backend.settle_one(&Adjustment { row, window: 0, quota: quota.seeded(row.digest().seed()), receipt, actual });
    };
    match operation {
        Operation::One(cost) => return take(backend, quota, &[(a, cost)]).all_granted(),
        Operation::Both(false) => return take(backend, quota, &[(a, 1), (b, 1)]).all_granted(),
        Operation::Both(true) => return take(backend, quota, &[(b, 1), (a, 1)]).all_granted(),
        Operation::Refund => settle(0),
        Operation::Surcharge => settle(3),
        Operation::Reset => drop(backend.reset(&[row])),
    }
    true
}

/// Runs the operations with the functions in `algorithm`. Returns their results and the spent tokens of both rows.
fn run_sequentially(quota: &Quota, operations: &[Operation; 3], order: &[usize; 3]) -> ([bool; 3], [f64; 2]) {
    let before = step(quota, &State::default(), NOW, Ask::cost(2));
    let mut rows = [before.state, State::default()];
    let mut results = [true; 3];
    for index in order {
        let mut charge = |costs: [u64; 2]| {
            let steps = [0, 1].map(|row| step(quota, &rows[row], NOW, Ask::cost(costs[row])));
            let granted = steps.iter().all(Step::is_allowed);
            if granted {
                rows = steps.map(|step| step.state);
            }
            granted
        };
        let receipt = ChargeRecord::new(2, &before).expect("the take was granted");
        match operations[*index] {
            Operation::One(cost) => results[*index] = charge([cost, 0]),
            Operation::Both(_) => results[*index] = charge([1, 1]),
            Operation::Refund => rows[0] = settle(quota, &rows[0], &receipt, NOW, 0),
            Operation::Surcharge => rows[0] = settle(quota, &rows[0], &receipt, NOW, 3),
            Operation::Reset => rows[0] = State::default(),
        }
    }
    (results, rows.map(|row| row.spent))
}
