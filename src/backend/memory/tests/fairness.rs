//! Tests of a full table: row counts per policy, eviction and overflow rows.

use std::collections::HashMap;

use super::*;
use crate::algorithm::DAY;

static POLICIES: [PolicyName; 3] = [PolicyName::new("a"), PolicyName::new("b"), PolicyName::new("c")];

impl Bench {
    fn take_of(&self, policy: &PolicyName, key: u64, quota: &Quota, cost: u64) -> Step {
        self.backend.decide(&[Take::new(RowId { policy, key: self.key(key) }, quota, Ask::cost(cost))], true)[0]
    }

    fn rows_of(&self, policy: &PolicyName) -> usize {
        self.backend.rows_by_policy().iter().find(|(name, _)| name == policy).map_or(0, |(_, rows)| *rows)
    }

    /// Counts all rows by policy number, and compares the counts with those in the ledgers.
    fn recount(&self) -> HashMap<u32, u32> {
        let mut counted = HashMap::new();
        for number in 0..self.backend.table.shards() {
            let mut shard = self.backend.table.lock(number);
            let mut rows = HashMap::new();
            for mut cursor in 0..4 * (shard.rows.capacity() as u32 / 8 + 1) {
                shard.rows.sample(&mut cursor, |key, row| _ = rows.insert(key, row));
            }
            assert_eq!(rows.len(), shard.rows.len(), "the samples must include every row");
            let mut here: HashMap<u32, u32> = HashMap::new();
            rows.values().for_each(|row| *here.entry(row.policy).or_default() += 1);
            assert_eq!(here, shard.ledger().sizes().collect(), "shard {number}");
            here.into_iter().for_each(|(policy, rows)| *counted.entry(policy).or_default() += rows);
        }
        counted
    }
}

#[test]
fn row_counts_by_policy_stay_correct_under_random_calls() {
    for rows in [16, 60, 300, 2000] {
        let bench = Bench::with_rows(rows);
        let quotas = [Quota::token_bucket(3, HOUR), Quota::fixed_window(3, MINUTE), Quota::sliding_window(3, MINUTE)];
        let mut dice = rows as u64;
        for round in 0..4000 {
            let mut below = |end: u64| {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (dice >> 33) % end
            };
            let takes: Vec<Take<'_>> = (0..1 + below(4))
                .map(|_| {
                    let kind = below(3) as usize;
                    let row = RowId { policy: &POLICIES[kind], key: bench.key(below(2 * rows as u64)) };
                    Take::new(row, &quotas[kind], Ask::cost(1 + below(2)))
                })
                .collect();
            let steps = bench.backend.decide(&takes, below(10) > 0);
            match below(10) {
                0 => _ = bench.backend.reset(&[takes[0].row]),
                1 | 2 if steps.all_granted() => {
                    let receipt = ChargeRecord::new(takes[0].ask.tokens(), &steps[0]).expect("the take was granted");
                    let Take { row, quota, .. } = takes[0];
                    bench.backend.settle_one(&Adjustment { row, window: 0, quota, receipt, actual: below(5) });
                }
                3 => bench.clock.advance(Duration::from_secs(below(30))),
                _ => {}
            }
            if round % 100 == 0 {
                let counted = bench.recount();
                assert_eq!(counted.values().sum::<u32>() as usize, bench.backend.len());
                let named: usize = bench.backend.rows_by_policy().iter().map(|(_, rows)| rows).sum();
                assert_eq!(named, bench.backend.len());
            }
        }
    }
}

#[test]
fn a_single_policy_can_fill_the_table() {
    let bench = Bench::with_rows(10_000);
    for key in 0..100_000 {
        bench.take_of(&POLICIES[0], key, &Quota::token_bucket(1, DAY), 1);
    }
    assert_eq!(bench.rows_of(&POLICIES[0]), bench.backend.len());
    assert!(bench.backend.len() >= 9_990, "the table has {} rows", bench.backend.len());
}

#[test]
fn denied_keys_stay_denied_during_a_flood_under_their_policy() {
    let (bench, quota) = (Bench::with_rows(10_000), Quota::token_bucket(2, DAY));
    let denied: Vec<u64> = (0..5_000).collect();
    for key in &denied {
        bench.take_of(&POLICIES[0], *key, &quota, 2);
    }
    for key in 100_000..300_000 {
        bench.take_of(&POLICIES[0], key, &quota, 1 + key % 2);
    }
    let freed = denied.iter().filter(|key| bench.take_of(&POLICIES[0], **key, &quota, 1).is_allowed()).count();
    assert_eq!(freed, 0);
}

#[test]
fn two_flooded_policies_stop_evicting_each_others_rows() {
    let (bench, quota) = (Bench::with_rows(10_000), Quota::token_bucket(1, DAY));
    for key in 0..100_000 {
        bench.take_of(&POLICIES[0], key, &quota, 1);
    }
    for key in 0..100_000 {
        bench.take_of(&POLICIES[1], key, &quota, 1);
    }
    let (a, b) = (bench.rows_of(&POLICIES[0]), bench.rows_of(&POLICIES[1]));
    assert!(b >= a * 3 / 4 && b <= a * 5 / 4, "the policies have {a} and {b} rows");
    let (evicted, _) = bench.backend.table.pressure();
    for key in 100_000..200_000 {
        bench.take_of(&POLICIES[0], key, &quota, 1);
        bench.take_of(&POLICIES[1], key, &quota, 1);
    }
    let (now, _) = bench.backend.table.pressure();
    assert!(now - evicted < 100, "{} rows were evicted in 200,000 calls", now - evicted);
}

#[test]
fn a_small_policy_evicts_rows_of_a_flooded_policy() {
    let (bench, quota) = (Bench::with_rows(10_000), Quota::token_bucket(1, DAY));
    for key in 0..100_000 {
        bench.take_of(&POLICIES[0], key, &quota, 1);
    }
    let admitted = (0..2_000).filter(|key| bench.take_of(&POLICIES[1], *key, &quota, 1).is_allowed()).count();
    assert_eq!(admitted, 2_000);
    assert!(bench.rows_of(&POLICIES[1]) >= 1_990, "the policy has {} rows", bench.rows_of(&POLICIES[1]));
}

#[test]
fn keys_are_assigned_to_different_overflow_rows_in_each_table() {
    let quota = Quota::token_bucket(1, DAY);
    let admitted = || {
        let bench = Bench::with_rows(1000);
        for key in 0..20_000 {
            bench.take_of(&POLICIES[0], key, &quota, 1);
        }
        let keys = (30_000..30_300).filter(|key| bench.take_of(&POLICIES[1], *key, &quota, 1).is_allowed());
        keys.collect::<Vec<u64>>().len()
    };
    assert_eq!((admitted(), admitted()), (300, 300), "callers under another policy must get rows");
    let shared = |bench: &Bench, key: u64| {
        let row = RowId { policy: &POLICIES[0], key: bench.key(key) };
        bench.backend.table.hasher().key(&row).hash() % 16
    };
    let (one, other) = (Bench::with_rows(16), Bench::with_rows(16));
    let same = (0..1000).filter(|key| shared(&one, *key) == shared(&other, *key)).count();
    assert!(
        (20..150).contains(&same),
        "{same} of 1,000 keys use the same overflow row in both tables; expected about one in sixteen"
    );
}

#[test]
fn a_call_charges_one_overflow_row_per_shard() {
    // Regression: overflow rows with the same index in two shards were treated as the same row.
    let (bench, quota) = (Bench::with_rows(16), Quota::token_bucket(2, DAY));
    let policy = &POLICIES[0];
    let table = &bench.backend.table;
    let row = |key: u64| table.hasher().key(&RowId { policy, key: bench.key(key) });
    let newcomer = |shard: usize| {
        (100_000..).find(|key| table.shard_of(row(*key)) == shard && row(*key).hash() % 16 == 5).expect("a key")
    };
    let (a, b) = (newcomer(0), newcomer(1));
    // Rows that deny requests fill all shards, but the overflow rows of these two newcomers stay unused.
    for key in (0..1000).filter(|key| row(*key).hash() % 16 != 5) {
        bench.take_of(policy, key, &quota, 2);
    }
    let take = |key: u64| Take::new(RowId { policy, key: bench.key(key) }, &quota, Ask::cost(1));
    assert!(bench.backend.decide(&[take(a), take(b)], true).all_granted());
    for key in [a, b] {
        let admitted = [(); 2].map(|()| bench.take_of(policy, key, &quota, 1).is_allowed());
        assert_eq!(admitted, [true, false], "one of the two tokens is left");
    }
}

#[test]
fn a_hundred_thousand_policies_stay_within_the_cap() {
    let (bench, quota) = (Bench::with_rows(10_000), Quota::token_bucket(2, DAY));
    for number in 0..100_000_u64 {
        let policy = PolicyName::try_new(format!("tenant-{number}")).expect("a name");
        for key in 0..3 {
            bench.take_of(&policy, key, &quota, 1);
            bench.take_of(&policy, 10 + number * 10 + key, &quota, 2);
        }
    }
    assert!(bench.backend.len() <= 10_000, "the table has {} rows", bench.backend.len());
    let sizes = bench.backend.rows_by_policy();
    assert!(sizes.len() <= 1025 && sizes.iter().any(|(name, _)| name.as_str() == "(others)"), "{}", sizes.len());
    for number in 0..bench.backend.table.shards() {
        let mut shard = bench.backend.table.lock(number);
        let rows = shard.ledger().overflow_rows();
        assert!(rows <= 17 * 16, "the shard has {rows} overflow rows");
    }
}

#[test]
fn small_tables_stay_within_the_cap_and_keep_denied_keys() {
    for rows in [4, 16, 17, 64, 100, 1000] {
        let (bench, quota) = (Bench::with_rows(rows), Quota::token_bucket(1, DAY));
        let first: Vec<u64> =
            (0..10_000).filter(|key| bench.take_of(&POLICIES[0], *key, &quota, 1).is_allowed()).collect();
        assert!(bench.backend.len() <= rows.max(16));
        assert!(first.len() >= bench.backend.len(), "only {} keys were admitted to {rows} rows", first.len());
        assert!(first.iter().all(|key| !bench.take_of(&POLICIES[0], *key, &quota, 1).is_allowed()), "{rows} rows");
    }
}
