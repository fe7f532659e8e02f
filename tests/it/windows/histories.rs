//! Random histories under policies with 1 to 4 quotas. Each quota decides independently, and a call is allowed only if
//! all quotas allow it.

use std::time::Duration;

use tollgate::policy::Decisions;
use tollgate::{Charge, RateLimiter};

use crate::support::client::limiter;
use crate::support::now;
use crate::support::random::Random;
use crate::support::windows::{Reference, ask, charge, policies};

#[test]
fn the_memory_backend_applies_each_quota_independently() {
    let policies = policies();
    for seed in 1..=30_u64 {
        let (limiter, clock): (RateLimiter, _) = limiter();
        let (mut random, mut reference) = (Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed)), Reference::default());
        for _ in 0..2000 {
            let policy = &policies[random.below(policies.len() as u64) as usize];
            let (key, ask) = (random.below(3), ask(policy, &mut random));
            match random.below(20) {
                0 => {
                    now(limiter.reset(policy, key));
                    reference.reset(policy, key);
                }
                1..=4 => {
                    let decisions = now(limiter.try_check_all([charge(policy, key, ask)]));
                    reference.check(policy, key, ask, &decisions, false);
                }
                _ => {
                    let decisions = decided(&limiter, charge(policy, key, ask));
                    reference.check(policy, key, ask, &decisions, true);
                }
            }
            clock.advance(Duration::from_micros(random.below(9000)));
        }
    }
}

/// Makes the call with `hold_all`. Converts a denial, which `hold_all` returns as an error, back to decisions.
fn decided(limiter: &RateLimiter, charge: Charge<'_>) -> Decisions {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    let Poll::Ready(answer) = pin!(limiter.hold_all([charge])).as_mut().poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("the memory backend's future is not ready")
    };
    match answer {
        Ok(reservation) => reservation.into_receipt().decisions().clone(),
        Err(error) => error.denied().expect("expected a denial").decisions().clone(),
    }
}
