//! Random arrivals and departures of requests, checked against a simple model. Due times must be exact to the
//! microsecond. The limiter must never admit more than the quota allows, and a departure must not delay other requests.

use proptest::prelude::*;
use tollgate::{DAY, MINUTE, Quota, SECOND};

use super::history::History;
use super::queue::ms;
use crate::support::generators::{begin, cases, history, tiny};

proptest! {
    #![proptest_config(cases(3000))]

    #[test]
    fn reservations_under_small_quotas_are_due_when_promised(
        quota in with_reservations(tiny()),
        begin in begin(),
        raws in history(40),
    ) {
        History::new(quota, begin).play(&raws)?;
    }

    #[test]
    fn reservations_are_due_when_promised_and_departures_delay_no_request(
        quota in with_reservations(common()),
        begin in begin(),
        raws in history(60),
    ) {
        History::new(quota, begin).play(&raws)?;
    }
}

fn with_reservations(quotas: impl Strategy<Value = Quota>) -> impl Strategy<Value = Quota> {
    quotas.prop_filter("the quota allows no reservations", |quota| quota.get_max_reserved() != Some(0))
}

fn common() -> impl Strategy<Value = Quota> {
    let period = prop::sample::select(vec![ms(1), ms(100), ms(3_333), SECOND, MINUTE, DAY]);
    let reserved = prop_oneof![2 => (1u64..=40).prop_map(Some), 1 => Just(None)];
    (any::<bool>(), 1u64..=20, period, prop::option::of(0u64..=30), reserved, 0u64..5_000_000).prop_map(
        |(window, rate, period, capacity, reserved, start)| {
            let quota = if window {
                Quota::fixed_window(rate, period).start(std::time::Duration::from_micros(start))
            } else {
                Quota::token_bucket(rate, period)
            };
            let quota = capacity.map_or(quota, |capacity| quota.capacity(capacity));
            reserved.map_or(quota.unlimited_reservations(), |tokens| quota.max_reserved(tokens))
        },
    )
}
