//! Random histories: the shards of a quota never admit more than the undivided quota would.

use std::time::Duration;

use tollgate::policy::Decisions;
use tollgate::{Charge, RateLimiter};

use crate::support::client::limiter;
use crate::support::now;
use crate::support::random::Random;
use crate::support::shards::{Spending, ask, charge, policies};

#[test]
fn shards_never_admit_more_than_the_quota() {
    let policies = policies();
    let mut admitted = 0;
    for seed in 1..=60_000_u64 {
        let (limiter, clock): (RateLimiter, _) = limiter();
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let (policy, mut spending) = (&policies[random.below(policies.len() as u64) as usize], Spending::default());
        for _ in 0..30 {
            let ask = ask(policy, &mut random);
            let decisions = decided(&limiter, charge(policy, ask));
            spending.add(ask, &decisions);
            admitted += u64::from(decisions.is_allowed());
            clock.advance(Duration::from_micros(random.below(9000)));
        }
    }
    assert!(admitted > 300_000, "only {admitted} of 1,800,000 calls were admitted");
}

/// Makes a call that may wait. Returns the decisions, even if the call is denied.
fn decided(limiter: &RateLimiter, charge: Charge<'_>) -> Decisions {
    match now(async { Ok::<_, ()>(limiter.hold_all([charge]).await) }) {
        Ok(reservation) => reservation.into_receipt().decisions().clone(),
        Err(error) => error.denied().expect("expected a denial").decisions().clone(),
    }
}
