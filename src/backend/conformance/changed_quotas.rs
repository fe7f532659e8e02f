//! The part of the suite for quotas that change.

use super::{Dice, ask, assert_same, fresh_row, spend};
use crate::algorithm::{Ask, HOUR, Quota};
use crate::backend::{Backend, RowId, Take};
use crate::policy::PolicyName;

/// Tests that a row keeps its spent tokens when the quota changes, and keeps its old quota until a charge is granted.
pub async fn preserves_spent_tokens_when_the_quota_changes(backend: &dyn Backend) {
    let policy = PolicyName::new("conformance change");
    let row = fresh_row(&policy);
    let large = Take::new(row, &Quota::token_bucket(200, HOUR), Ask::cost(150));
    let written = ask(backend, &[large], true).await[0];
    assert!(written.is_allowed());
    let small = Quota::token_bucket(6, HOUR);
    for _ in 0..2 {
        let step = ask(backend, &[Take::new(row, &small, Ask::cost(1))], true).await[0];
        assert!(!step.is_allowed());
        assert_eq!(
            (step.state.spent, step.state.stamp),
            (150.0, large.quota.stamp()),
            "a denial must not change the row"
        );
        assert!(step.state.clear >= written.state.clear, "{step:?} expires before {written:?}");
        assert_same(&step, &crate::algorithm::step(&small, &step.state, step.now, Ask::cost(1)), 0);
    }
    let wide = Take::new(row, &small.capacity(200), Ask::cost(40));
    assert!(ask(backend, &[wide], true).await.all_granted(), "a larger quota must apply immediately");
    let step = ask(backend, &[Take::new(row, &small.capacity(200), Ask::cost(20))], true).await[0];
    assert!(!step.is_allowed(), "{step:?}");

    // A take with a cost of 0 spends nothing, so the row keeps its quota.
    let row = fresh_row(&policy);
    let other = PolicyName::new("conformance beside");
    let beside = Take::new(RowId { policy: &other, key: row.key }, &small, Ask::cost(1));
    let nothing = Take::new(row, &small.capacity(200), Ask::cost(0));
    assert!(ask(backend, &[Take::new(row, &large.quota, Ask::cost(150))], true).await.all_granted());
    for takes in [&[nothing][..], &[nothing, beside], &[nothing, beside, nothing], &[beside, nothing]] {
        let step = ask(backend, takes, true).await.iter().find(|step| step.state.spent == 150.0).copied();
        let state = step.expect("expected the unchanged row").state;
        assert_eq!((state.spent, state.stamp), (150.0, large.quota.stamp()), "{state:?}");
        let step = ask(backend, &[Take::new(row, &small, Ask::cost(1))], false).await[0];
        assert_eq!((step.state.spent, step.state.stamp), (150.0, large.quota.stamp()), "{step:?}");
    }

    // Alternating between two quotas admits no more than the larger quota alone.
    let row = fresh_row(&policy);
    let small = Take::new(row, &Quota::token_bucket(10, 24 * HOUR).max_reserved(20), Ask::cost(1).reserve());
    let large = Take::new(row, &Quota::token_bucket(100, 24 * HOUR), Ask::cost(1));
    let mut granted = 0;
    for _ in 0..5 {
        granted += spend(backend, &[large], 101).await + spend(backend, &[small], 5).await;
    }
    assert!((100..=101).contains(&granted), "admitted {granted} calls, expected 100 or 101");

    let quotas = [
        Quota::token_bucket(20, HOUR),
        Quota::token_bucket(30, HOUR).max_reserved(10),
        Quota::fixed_window(20, HOUR),
        Quota::fixed_window(40, HOUR).capacity(60),
        Quota::sliding_window(20, HOUR),
        Quota::sliding_window(40, HOUR),
        Quota::sliding_window(40, 24 * HOUR),
    ];
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20 {
        let row = fresh_row(&policy);
        for round in 0..12 {
            let quota = quotas[dice.below(quotas.len())];
            let cost = Ask::cost(1 + dice.below(9) as u64);
            let take = Take::new(row, &quota, if dice.below(2) == 0 { cost } else { cost.reserve() });
            let other = quotas[dice.below(quotas.len())];
            let looked = ask(backend, &[Take::new(row, &other, Ask::cost(0))], false).await[0];
            let step = ask(backend, &[take], true).await[0];
            // A peek under the quota that wrote the row returns the current state. Under any other quota, it returns
            // the stored state.
            let expected = crate::algorithm::step(&take.quota, &looked.state, step.now, take.ask);
            if looked.state.stamp != other.stamp() || other.stamp() == quota.stamp() {
                assert_eq!(
                    step.is_allowed(),
                    expected.is_allowed(),
                    "round {round}: the peek returned {looked:?}, but the acquire returned {step:?}"
                );
                if step.is_allowed() {
                    assert_eq!(
                        step.state.spent, expected.state.spent,
                        "round {round}: the peek returned {looked:?}, but the acquire returned {step:?}"
                    );
                }
            }
        }
    }
}
