//! The part of the suite for backends that lease tokens.

use std::time::Duration;

use super::Dice;
use crate::algorithm::{Ask, LeaseReport, MINUTE, Outstanding, Quota, SECOND, State, lease, settle_leases, step};
use crate::backend::{Backend, LeaseRequest, RowId, Take};
use crate::policy::{Key, PolicyName, Secret};

/// Tests that the backend grants leases, applies reports and decides charges as the [`algorithm`](crate::algorithm)
/// module does. Does nothing if the backend does not support leases.
pub async fn leases_follow_the_algorithm(backend: &dyn Backend, pass: impl AsyncFn(Duration)) {
    let Some(leases) = backend.lease_backend() else { return };
    let quotas = [
        Quota::token_bucket(1000, SECOND).capacity(300),
        Quota::fixed_window(200, Duration::from_millis(40)),
        Quota::sliding_window(300, Duration::from_millis(60)),
        Quota::token_bucket(3, MINUTE),
    ];
    let (policy, secret, mut dice) = (PolicyName::new("conformance leases"), Secret::random(), Dice(7));
    for (key, quota) in (0u64..).zip(quotas) {
        let row = RowId { policy: &policy, key: secret.digest(&Key::from(key)) };
        let quota = Take::new(row, &quota, Ask::cost(0)).quota;
        let (mut state, mut outstanding, mut granted) = (State::default(), Outstanding::default(), Vec::new());
        for round in 0..300 {
            if round % 50 == 49 {
                pass(Duration::from_millis(10)).await;
            }
            if dice.below(3) == 0 {
                let take = Take::new(row, &quota, Ask::cost(dice.below(40) as u64));
                let answer = backend.acquire(&[take]).await.expect("the backend failed")[0];
                let (before, left) = settle_leases(&quota, &state, &outstanding, answer.now);
                let expected = step(&quota, &before, answer.now, take.ask);
                assert_eq!(answer.is_allowed(), expected.is_allowed(), "a charge to a row with leases under {quota}");
                if answer.is_allowed() {
                    (state, outstanding) = (expected.state.or_none(), left);
                }
                continue;
            }
            let mut reports = [LeaseReport::default(); 2];
            let reported = granted.len().min(dice.below(3));
            for report in reports.iter_mut().take(reported) {
                let (id, tokens): (_, u64) = granted.swap_remove(dice.below(granted.len()));
                let unused = dice.below(tokens as usize + 1) as u64;
                *report = LeaseReport { id, spent: tokens - unused, unused };
            }
            let request = LeaseRequest { row, window: 0, quota, reports, tokens: dice.below(60) as u64 };
            let answer = leases.lease(&request).await.expect("the backend failed");
            let expected = lease(&quota, &state, &outstanding, answer.now, &reports, request.tokens);
            assert_eq!(answer, expected, "a lease under {quota}");
            (state, outstanding) = (answer.state, answer.outstanding);
            if answer.tokens > 0 {
                granted.push((answer.id, answer.tokens));
            }
        }
        backend.reset(&[row]).await.expect("the backend failed");
        let request = LeaseRequest { row, window: 0, quota, reports: [LeaseReport::default(); 2], tokens: 1000 };
        let answer = leases.lease(&request).await.expect("the backend failed");
        let most = quota.get_capacity() / 2 / 2;
        assert_eq!(answer.outstanding.tokens(), if most < 2 { 0 } else { most }, "a reset must remove leases: {quota}");
    }
}
