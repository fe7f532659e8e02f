//! A flood under one policy does not affect callers under other policies.

use std::time::Duration;

use tollgate::{DAY, HOUR, MINUTE, MemoryBackend, Policy, Quota, RateLimiter, clock::ManualClock};

use crate::support::now;

/// The number of keys that an attacker invents, which is more than the default table can hold. The attacker sends three
/// requests with each key.
const INVENTED: u64 = 1_200_000;
/// The number of honest requests in each round under each policy that is not flooded. Half of them come from callers that
/// were known before the flood.
const HONEST: u64 = 10_000;

fn hostile(name: &'static str) -> Policy {
    Policy::new(name, Quota::token_bucket(3, DAY))
}

fn honest(name: &'static str) -> Policy {
    Policy::new(name, Quota::token_bucket(60, MINUTE))
}

#[test]
fn a_flood_affects_neither_other_policies_nor_denied_keys() {
    flood(&[hostile("flooded")], &[honest("address")], 72, 10 * MINUTE);
}

#[test]
fn floods_under_three_of_five_policies_do_not_affect_the_others() {
    flood(&["a", "b", "c"].map(hostile), &["d", "e"].map(honest), 30, MINUTE);
}

/// Floods some policies, and checks the other policies and the keys that were denied before the flood.
fn flood(flooded: &[Policy], others: &[Policy], rounds: u32, pause: Duration) {
    let clock = ManualClock::new();
    let limiter = RateLimiter::new(MemoryBackend::builder().clock(clock.clone()).build());
    // Exhausted keys stay denied for longer than the simulated time.
    let denied = Policy::new("denied", Quota::token_bucket(2, 7 * DAY));
    let exhaust = |policy: &Policy, key: u64| while now(limiter.try_limit(policy, ("victim", key))).is_allowed() {};
    for key in 0..10_000 {
        exhaust(&denied, key);
        flooded.iter().for_each(|policy| exhaust(policy, key));
    }
    for policy in others {
        for key in 0..HONEST / 2 {
            assert!(now(limiter.try_limit(policy, ("known", key))).is_allowed());
        }
    }

    let (mut newcomers, mut admitted) = (0, 0);
    for key in 0..INVENTED / flooded.len() as u64 {
        for policy in flooded {
            for _ in 0..3 {
                drop(now(limiter.try_limit(policy, ("invented", key))));
            }
            if key % 1000 == 0 {
                newcomers += 1;
                admitted += u64::from(now(limiter.try_limit(policy, ("newcomer", key))).is_allowed());
            }
        }
    }
    println!("{admitted} of {newcomers} honest newcomers under the flooded policies were admitted");

    for round in 0..rounds {
        for policy in others {
            let mut admitted = 0;
            for key in 0..HONEST / 2 {
                admitted += u64::from(now(limiter.try_limit(policy, ("known", key))).is_allowed());
                admitted += u64::from(now(limiter.try_limit(policy, ("new", round, key))).is_allowed());
            }
            assert!(admitted >= 9_990, "only {admitted} of {HONEST} honest requests were admitted in round {round}");
        }
        clock.advance(pause);
    }

    let still_denied = |policy: &Policy| {
        (0..10_000_u64).filter(|key| !now(limiter.try_check(policy, ("victim", *key))).is_allowed()).count()
    };
    assert_eq!(still_denied(&denied), 10_000);
    if rounds * pause < 8 * HOUR {
        // No token has been refilled yet.
        flooded.iter().for_each(|policy| assert_eq!(still_denied(policy), 10_000, "{}", policy.name()));
    }
}
