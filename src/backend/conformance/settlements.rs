//! The part of the suite for settlements and resets.

use std::time::Duration;

use super::{ask, fresh_row, spend, state_of, wait_until_spent};
use crate::algorithm::{Ask, ChargeRecord, DAY, HOUR, Quota, Step, settle};
use crate::backend::{Adjustment, Backend, RowId, Take};
use crate::policy::PolicyName;

/// Tests that a settlement charges or refunds the difference between the actual cost and the charge, and that only the
/// last of several reservations can be refunded.
pub async fn settles_by_the_rules(backend: &dyn Backend) {
    let policy = PolicyName::new("conformance settle");
    let kinds = [
        (Quota::token_bucket(10_000, HOUR), 10_000),
        (Quota::fixed_window(10_000, HOUR), 10_000),
        (Quota::sliding_window(10_000, 24 * HOUR), 10_000),
        (Quota::token_bucket(1, HOUR).capacity(2000).unlimited_reservations(), 2000),
    ];
    for (quota, capacity) in kinds {
        let row = fresh_row(&policy);
        let take = Take::new(row, &quota, Ask::cost(1000));
        for actual in [1700, 300, 0, 1000] {
            let before = state_of(backend, &take).await;
            let step = ask(backend, &[take], true).await[0];
            settle_as(backend, &take, &step, actual).await;
            let after = state_of(backend, &take).await;
            assert_eq!(
                after.spent - before.spent,
                actual as f64,
                "{quota} with capacity {capacity}, settled at {actual}"
            );
            backend.reset(&[row]).await.expect("the reset failed");
        }
    }

    // A row remembers how many tokens were refunded for charges before the last one.
    let take = Take::new(fresh_row(&policy), &Quota::token_bucket(10, HOUR), Ask::cost(5));
    let charges = [ask(backend, &[take], true).await[0], ask(backend, &[take], true).await[0]];
    let mut model = charges[1].state;
    for step in &charges {
        let receipt = settle_as(backend, &take, step, 2).await;
        model = settle(&take.quota, &model, &receipt, step.now, 2);
        let after = state_of(backend, &take).await;
        assert_eq!((after.spent, after.carry), (model.spent, model.carry));
    }
    assert_eq!((model.spent, model.carry), (4.0, 3.0));

    // A credit gives back tokens no matter which charge spent them, but never more than are spent.
    for quota in [Quota::token_bucket(10, DAY), Quota::fixed_window(10, DAY), Quota::sliding_window(10, DAY)] {
        let take = Take::new(fresh_row(&policy), &quota, Ask::cost(7));
        for (tokens, spent, took_effect) in [(1, 0.0, false), (3, 4.0, true), (500, 0.0, true)] {
            if took_effect && spent > 0.0 {
                assert!(ask(backend, &[take], true).await.all_granted());
            }
            let Take { row, window, quota, .. } = take;
            let credit = Adjustment { row, window, quota, receipt: ChargeRecord::credit(tokens), actual: 0 };
            let credited = backend.settle(&[credit]).await.expect("the settlement failed");
            assert_eq!((state_of(backend, &take).await.spent, credited), (spent, took_effect), "{quota} + {tokens}");
        }
    }

    // After a charge under a larger quota, settling an earlier charge must not cap spent tokens at the old capacity.
    let row = fresh_row(&policy);
    let small = Take::new(row, &Quota::token_bucket(10, HOUR), Ask::cost(5));
    let large = Take::new(row, &Quota::token_bucket(1000, HOUR), Ask::cost(500));
    let charges = [ask(backend, &[small], true).await[0], ask(backend, &[small], true).await[0]];
    assert!(ask(backend, &[large], true).await.all_granted());
    for (step, actual, more) in [(charges[0], 9, 4.0), (charges[1], 0, 0.0)] {
        let before = state_of(backend, &large).await;
        settle_as(backend, &small, &step, actual).await;
        let after = state_of(backend, &large).await;
        assert_eq!(after.spent - before.spent, more, "settled at {actual} under the previous quota");
    }

    let quota = Quota::token_bucket(1, HOUR).unlimited_reservations();
    let take = Take::new(fresh_row(&policy), &quota, Ask::cost(1).reserve());
    let mut reservations = Vec::new();
    for _ in 0..4 {
        reservations.push(ask(backend, &[take], true).await[0]);
    }
    for (index, spent) in [(1, 4.0), (3, 3.0), (2, 2.0)] {
        let receipt = ChargeRecord::new(1, &reservations[index]).expect("the take was granted");
        let last = [Adjustment { row: take.row, window: take.window, quota: take.quota, receipt, actual: 0 }];
        assert_eq!(
            backend.settle(&last).await.expect("the settlement failed"),
            index > 1,
            "reservation {index}: only the last reservation can be refunded"
        );
        assert_eq!(state_of(backend, &take).await.spent, spent, "reservation {index}");
    }
}

/// Tests that a key has its full quota again after a reset, and that a reset returns how many of the rows existed.
pub async fn forgets_what_is_reset(backend: &dyn Backend) {
    let policy = PolicyName::new("conformance reset");
    for quota in [Quota::token_bucket(2, HOUR), Quota::fixed_window(2, HOUR), Quota::sliding_window(2, HOUR)] {
        let take = Take::new(fresh_row(&policy), &quota, Ask::cost(2));
        let reset = async |rows: &[RowId<'_>]| backend.reset(rows).await.expect("the reset failed");
        assert_eq!(reset(&[take.row]).await, 0, "a row that never existed");
        for rows in [&[take.row][..], &[take.row, take.row], &[fresh_row(&policy), take.row]] {
            assert_eq!(spend(backend, &[take], 2).await, 1);
            assert_eq!(reset(rows).await, 1, "the row existed");
            assert_eq!(reset(rows).await, 0, "the row had already been reset");
        }
        let later = policy.at_generation(7);
        let of_later = Take::new(RowId { policy: &later, ..take.row }, &quota, Ask::cost(2));
        assert_eq!(spend(backend, &[take], 1).await, 1);
        assert_eq!(spend(backend, &[of_later], 2).await, 1);
        assert_eq!((reset(&[of_later.row]).await, spend(backend, &[take], 1).await), (1, 0));
        assert_eq!(reset(&[take.row]).await, 1);
        let other = Take::new(fresh_row(&policy), &quota, Ask::cost(1));
        for take in [take, other] {
            assert_eq!(spend(backend, &[take], 1).await, 1);
        }
        assert_eq!(reset(&[take.row, other.row]).await, 2);
    }
}

/// Tests that settlements and resets take effect even if their futures are dropped.
pub async fn settles_and_resets_even_if_futures_are_dropped(backend: &dyn Backend, pass: impl AsyncFn(Duration)) {
    let policy = PolicyName::new("conformance posted");
    // At one token per minute, hardly any tokens are refilled during the test.
    let quota = Quota::token_bucket(10_080, 7 * 24 * HOUR);
    let take = Take::new(fresh_row(&policy), &quota, Ask::cost(1000));
    let mut expected = 0.0;
    for actual in [1700, 300] {
        let receipt = ChargeRecord::new(1000, &ask(backend, &[take], true).await[0]).expect("the take was granted");
        drop(backend.settle(&[Adjustment { row: take.row, window: take.window, quota: take.quota, receipt, actual }]));
        expected += actual as f64;
        wait_until_spent(expected, backend, &take, &pass).await;
    }
    drop(backend.reset(&[take.row]));
    wait_until_spent(0.0, backend, &take, &pass).await;
}

async fn settle_as(backend: &dyn Backend, take: &Take<'_>, step: &Step, actual: u64) -> ChargeRecord {
    let receipt = ChargeRecord::new(take.ask.tokens(), step).expect("the take was granted");
    backend
        .settle(&[Adjustment { row: take.row, window: take.window, quota: take.quota, receipt, actual }])
        .await
        .expect("the settlement failed");
    receipt
}
