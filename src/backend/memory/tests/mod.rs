//! Tests of features that only the memory backend has: the cap, eviction, overflow rows and carry rows.

mod fairness;

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use super::*;
use crate::algorithm::{Ask, ChargeRecord, HOUR, MINUTE, Quota, SECOND, Step, roll};
use crate::clock::ManualClock;
use crate::policy::{Digest, Key, PolicyName, Secret};

const P: PolicyName = PolicyName::new("p");

struct Bench {
    backend: MemoryBackend,
    clock: ManualClock,
    secret: Secret,
}

impl Bench {
    fn with_rows(rows: usize) -> Bench {
        let clock = ManualClock::new();
        let backend = MemoryBackend::builder().max_rows(rows).clock(clock.clone()).build();
        Bench { backend, clock, secret: Secret::new([7; 16]) }
    }

    fn key(&self, key: u64) -> Digest {
        self.secret.digest(&Key::from(key))
    }

    fn take(&self, key: u64, quota: &Quota, cost: u64) -> Step {
        let policy = P;
        let take = Take::new(RowId { policy: &policy, key: self.key(key) }, quota, Ask::cost(cost));
        self.backend.decide(&[take], true)[0]
    }

    fn settle(&self, key: u64, quota: &Quota, charged: &Step, cost: u64, actual: u64) {
        let policy = P;
        let row = RowId { policy: &policy, key: self.key(key) };
        let receipt = ChargeRecord::new(cost, charged).expect("the take was granted");
        self.backend.settle_one(&Adjustment {
            row,
            window: 0,
            quota: quota.seeded(row.digest().seed()),
            receipt,
            actual,
        });
    }
}

/// A clock that delays its first reader while another thread tries to make a call.
#[derive(Debug)]
struct DelayedClock {
    clock: ManualClock,
    first: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>,
}

impl Clock for DelayedClock {
    fn now(&self) -> Micros {
        let now = self.clock.now();
        let first = self.first.lock().unwrap().take();
        if let Some((begin, done)) = first {
            begin.send(()).unwrap();
            // The other thread waits for the lock, so it cannot finish first.
            assert!(
                done.recv_timeout(Duration::from_millis(100)).is_err(),
                "the row must be locked while the clock is read"
            );
        }
        now
    }
}

#[test]
fn the_clock_is_read_while_the_rows_are_locked() {
    // If the clock were read before locking, another thread could meanwhile write the row at a later time. The row
    // would then be ahead of this thread's time, and could count as unspent.
    let ((begin, begun), (done, ended)) = (mpsc::channel(), mpsc::channel());
    let clock = ManualClock::new();
    let delayed = DelayedClock { clock: clock.clone(), first: Mutex::new(Some((begin, ended))) };
    let backend = MemoryBackend::builder().clock(delayed).build();
    let quota = Quota::token_bucket(1000, SECOND).capacity(5);
    let policy = P;
    let take = |cost| {
        let row = RowId { policy: &policy, key: Digest::from_bits(7) };
        backend.decide(&[Take::new(row, &quota, Ask::cost(cost))], true)[0]
    };
    std::thread::scope(|scope| {
        let (clock, take) = (&clock, &take);
        scope.spawn(move || {
            begun.recv().unwrap();
            clock.advance(SECOND);
            assert!(take(5).is_allowed());
            _ = done.send(());
        });
        assert!(take(5).is_allowed());
    });
    assert!(!take(1).is_allowed());
}

#[test]
fn exhausted_keys_stay_denied_in_a_full_table() {
    let bench = Bench::with_rows(64);
    let quota = Quota::token_bucket(2, HOUR);
    let exhausted: Vec<u64> = (0..64).filter(|key| bench.take(*key, &quota, 2).is_allowed()).collect();
    assert!(bench.backend.len() <= 64);
    for newcomer in 1000..20_000 {
        bench.take(newcomer, &quota, 1);
        assert!(bench.backend.len() <= 64, "the table has {} rows", bench.backend.len());
    }
    // Some of these keys may be on an overflow row, which also denies them.
    for key in exhausted {
        assert!(!bench.take(key, &quota, 1).is_allowed(), "{key}");
    }
}

#[test]
fn newcomers_to_a_full_table_share_a_quota() {
    let bench = Bench::with_rows(16);
    let quota = Quota::token_bucket(3, HOUR);
    for key in 0..1000 {
        bench.take(key, &quota, 3);
    }
    let admitted = (1000..3000).filter(|key| bench.take(*key, &quota, 1).is_allowed()).count();
    assert_eq!(admitted, 0, "the first newcomer spent all three tokens of the overflow row");
    bench.clock.advance(20 * MINUTE);
    let admitted = (3000..5000).filter(|key| bench.take(*key, &quota, 1).is_allowed()).count();
    // By now, each row has a refilled token and denies nothing, so newcomers can evict it.
    assert!(admitted > 1);
}

#[test]
fn an_overflow_row_is_not_reset_at_the_window_boundaries_of_its_keys() {
    let bench = Bench::with_rows(16);
    let quota = Quota::fixed_window(1, HOUR);
    let mut admitted = 0;
    for key in 0..2000 {
        admitted += u32::from(bench.take(key, &quota, 1).is_allowed());
    }
    // There are 16 rows, and 16 overflow rows in each of four shards.
    assert!(admitted <= 16 + 64, "an overflow row was reset: {admitted} calls were admitted");
}

#[test]
fn the_least_spent_row_is_evicted() {
    let bench = Bench::with_rows(64);
    let quota = Quota::token_bucket(100, HOUR);
    for key in 0..4 {
        bench.take(key, &quota, 99);
    }
    for key in 100..2000 {
        bench.take(key, &quota, 1);
    }
    let kept = (0..4).filter(|key| !bench.take(*key, &quota, 50).is_allowed()).count();
    assert_eq!(kept, 4, "newcomers evicted a nearly exhausted key");
}

#[test]
fn denied_calls_and_peeks_leave_all_rows_unchanged() {
    let bench = Bench::with_rows(1000);
    let (quota, policy) = (Quota::token_bucket(10, HOUR), P);
    let (known, empty, never_seen) = (1, 2, 3);
    bench.take(known, &quota, 4);
    bench.take(empty, &quota, 10);
    let all = |keys: &[u64], store: bool| {
        let take = |key: &u64| Take::new(RowId { policy: &policy, key: bench.key(*key) }, &quota, Ask::cost(3));
        let steps = bench.backend.decide(&keys.iter().map(take).collect::<Vec<_>>(), store);
        (steps.all_granted(), steps.iter().map(|step| step.state.spent).collect::<Vec<_>>())
    };
    let spent = |key| bench.take(key, &quota, 0).state.spent;
    assert_eq!(all(&[known, empty], true), (false, vec![4.0, 10.0]));
    assert_eq!(all(&[known, never_seen, empty], true), (false, vec![4.0, 0.0, 10.0]));
    assert_eq!((spent(known), spent(empty), spent(never_seen)), (4.0, 10.0, 0.0));
    assert_eq!(all(&[known, never_seen], false), (true, vec![7.0, 3.0]));
    assert_eq!((spent(known), spent(never_seen)), (4.0, 0.0));
    assert_eq!(all(&[known, never_seen], true), (true, vec![7.0, 3.0]));
    assert_eq!((spent(known), spent(never_seen)), (7.0, 3.0));
}

#[test]
fn a_denied_call_does_not_evict_rows() {
    let bench = Bench::with_rows(16);
    let (large, small) = (Quota::token_bucket(100, HOUR), Quota::token_bucket(1, HOUR));
    for key in 0..100 {
        bench.take(key, &large, 1);
    }
    let before = bench.backend.len();
    let rows: Vec<bool> = (0..100).map(|key| bench.take(key, &large, 0).state.spent > 0.0).collect();
    let policy = P;
    let newcomer = |quota, cost| Take::new(RowId { policy: &policy, key: bench.key(5000) }, quota, Ask::cost(cost));
    let steps = bench.backend.decide(&[newcomer(&large, 1), newcomer(&small, 2)], true);
    assert!(!steps.all_granted());
    let after: Vec<bool> = (0..100).map(|key| bench.take(key, &large, 0).state.spent > 0.0).collect();
    assert_eq!((bench.backend.len(), after), (before, rows));
}

#[test]
fn a_refund_is_remembered_in_a_carry_row() {
    let bench = Bench::with_rows(1000);
    let quota = Quota::token_bucket(10, MINUTE);
    let (first, second) = (bench.take(1, &quota, 5), bench.take(1, &quota, 5));
    bench.settle(1, &quota, &first, 5, 0);
    assert_eq!(bench.backend.len(), 2, "expected a row and its carry row");
    // The tokens spent by the only remaining charge are refilled. Then the whole capacity is spent again.
    bench.clock.advance(30 * SECOND);
    assert!(bench.take(1, &quota, 10).is_allowed());
    bench.settle(1, &quota, &second, 5, 0);
    assert!(!bench.take(1, &quota, 1).is_allowed(), "a late refund allowed too large a burst");
}

#[test]
fn a_carry_row_outlives_its_main_row_for_late_refunds() {
    let bench = Bench::with_rows(100_000);
    let quota = Quota::token_bucket(10, MINUTE);
    let (first, second) = (bench.take(1, &quota, 5), bench.take(1, &quota, 5));
    bench.settle(1, &quota, &first, 5, 0);
    bench.clock.advance(30 * SECOND);
    // All tokens are refilled, so the newcomers' calls drop the idle row.
    for key in 10..3000 {
        bench.take(key, &quota, 1);
    }
    assert!(bench.take(1, &quota, 10).is_allowed());
    bench.settle(1, &quota, &second, 5, 0);
    assert!(!bench.take(1, &quota, 1).is_allowed(), "a late refund allowed too large a burst");
}

#[test]
fn a_sliding_window_keeps_the_previous_window_in_a_carry_row() {
    let bench = Bench::with_rows(1000);
    let quota = Quota::sliding_window(10, MINUTE);
    bench.take(1, &quota, 10);
    assert_eq!(bench.backend.len(), 1);
    bench.clock.advance(MINUTE + 6 * SECOND);
    assert!(bench.take(1, &quota, 1).is_allowed(), "a tenth of the previous window has expired");
    assert_eq!(bench.backend.len(), 2);
    assert!(!bench.take(1, &quota, 1).is_allowed());
    bench.clock.advance(2 * MINUTE);
    assert!(bench.take(1, &quota, 10).is_allowed());
    assert_eq!(bench.backend.len(), 1, "the previous window has expired, so it needs no carry row");
}

#[test]
fn expired_rows_of_every_algorithm_are_dropped() {
    for (quota, refilled_after) in [
        (Quota::token_bucket(10, MINUTE), 6 * SECOND),
        (Quota::fixed_window(10, MINUTE), 2 * MINUTE),
        (Quota::sliding_window(10, MINUTE), 2 * MINUTE),
    ] {
        let bench = Bench::with_rows(1000);
        for key in 0..100 {
            bench.take(key, &quota, 1);
        }
        bench.clock.advance(refilled_after - SECOND);
        for key in 1000..1300 {
            bench.take(key, &quota, 1);
        }
        bench.clock.advance(refilled_after + SECOND);
        for key in 2000..2300 {
            bench.take(key, &quota, 1);
        }
        assert!(bench.backend.len() < 400, "{quota}: {} rows, although only 300 have not expired", bench.backend.len());
    }
}

#[test]
fn settling_a_missing_row_charges_only_the_extra_cost() {
    let bench = Bench::with_rows(16);
    let quota = Quota::token_bucket(10, HOUR);
    let charged = bench.take(1, &quota, 5);
    bench
        .backend
        .reset(&[RowId { policy: &P, key: bench.key(1) }])
        .try_ready()
        .expect("a ready future")
        .expect("reset");
    bench.settle(1, &quota, &charged, 5, 0);
    assert!(bench.backend.is_empty());
    bench.settle(1, &quota, &charged, 5, 8);
    assert_eq!(bench.take(1, &quota, 0).state.spent, 3.0, "expected the actual cost minus the charge");
}

#[test]
fn the_cap_holds_when_a_call_charges_evictable_rows() {
    // Regression: a call that charged two rows evicted one to make room for the other, then stored the evicted row.
    for rows in [16, 1000] {
        let bench = Bench::with_rows(rows);
        let quota = Quota::token_bucket(2, HOUR);
        let policy = P;
        let take = |key| Take::new(RowId { policy: &policy, key: bench.key(key) }, &quota, Ask::cost(1));
        for key in 0..4 * rows as u64 {
            bench.take(key, &quota, 2);
        }
        for key in 0..50_000 {
            bench.backend.decide(&[take(1_000_000 + key), take(1_000_000u64 + key.saturating_sub(1))], true);
            assert!(bench.backend.len() <= rows, "the table has {} rows", bench.backend.len());
        }
    }
}

#[test]
fn newcomers_in_one_call_share_overflow_rows() {
    let bench = Bench::with_rows(16);
    let quota = Quota::token_bucket(10, HOUR);
    for key in 0..500 {
        bench.take(key, &quota, 10);
    }
    // By now, the 16 overflow rows in each of the four shards are exhausted.
    let policy = P;
    let take = |key| Take::new(RowId { policy: &policy, key: bench.key(key) }, &quota, Ask::cost(1));
    for key in 500..2000 {
        assert!(!bench.backend.decide(&[take(2 * key), take(2 * key + 1)], true).all_granted());
    }
    bench.clock.advance(6 * MINUTE); // One token is refilled in each row.
    let mut admitted = 0;
    for key in 2000..4000 {
        let steps = bench.backend.decide(&[take(2 * key), take(2 * key + 1)], true);
        admitted += if steps.all_granted() { 2 } else { 0 };
    }
    assert!(admitted <= 16 * 10 + 64, "{admitted} tokens were granted");
}

#[test]
fn a_denied_newcomer_never_sees_a_full_quota() {
    let bench = Bench::with_rows(16);
    let quota = Quota::fixed_window(3, HOUR);
    for key in 0..300 {
        let step = bench.take(key, &quota, 3);
        if !step.is_allowed() {
            let digest = RowId { policy: &P, key: bench.key(key) }.digest();
            let quota = quota.seeded(digest.seed());
            let row = roll(&quota, &step.state, step.now);
            assert!(crate::algorithm::available(&quota, &row, step.now) < 3, "key {key}");
        }
    }
}

#[test]
fn carry_rows_are_evicted_once_their_main_rows_are_gone() {
    let bench = Bench::with_rows(64);
    let quota = Quota::token_bucket(10, HOUR);
    for key in 0..2000 {
        let (first, second) = (bench.take(key, &quota, 1), bench.take(key, &quota, 1));
        if first.is_allowed() && second.is_allowed() {
            bench.settle(key, &quota, &first, 1, 0);
            bench.settle(key, &quota, &second, 1, 0);
        }
    }
    let refused = (10_000..10_100).filter(|key| !bench.take(*key, &quota, 1).is_allowed()).count();
    assert_eq!(refused, 0, "a newcomer was denied although all rows were refilled");
}

#[test]
fn a_sliding_window_ignores_the_carry_of_a_bucket() {
    let bench = Bench::with_rows(1000);
    let (bucket, window) = (Quota::token_bucket(10, HOUR), Quota::sliding_window(10, HOUR));
    let (first, _second) = (bench.take(1, &bucket, 5), bench.take(1, &bucket, 1));
    bench.settle(1, &bucket, &first, 5, 0);
    assert!(bench.take(1, &window, 9).is_allowed(), "refunded tokens were counted as spent");
}

#[test]
fn the_cap_holds_for_carry_rows_and_calls_with_many_rows() {
    let bench = Bench::with_rows(64);
    let quotas = [Quota::sliding_window(3, SECOND), Quota::token_bucket(3, SECOND), Quota::fixed_window(3, SECOND)];
    let policies = [PolicyName::new("a"), PolicyName::new("b"), PolicyName::new("c")];
    let mut dice = 1u64;
    for _ in 0..30_000 {
        let mut below = |end: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % end
        };
        let takes: Vec<Take<'_>> = (0..1 + below(6))
            .map(|_| {
                let kind = below(3) as usize;
                let row = RowId { policy: &policies[kind], key: bench.key(below(120)) };
                Take::new(row, &quotas[kind], Ask::cost(1))
            })
            .collect();
        let steps = bench.backend.decide(&takes, true);
        if steps.all_granted() {
            let receipt = ChargeRecord::new(1, &steps[0]).expect("the take was granted");
            bench.backend.settle_one(&Adjustment {
                row: takes[0].row,
                window: 0,
                quota: takes[0].quota,
                receipt,
                actual: 0,
            });
        }
        assert!(bench.backend.len() <= 64, "the table has {} rows", bench.backend.len());
        bench.clock.advance(Duration::from_millis(below(40)));
    }
}
