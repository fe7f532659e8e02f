//! Extreme arguments and invalid rows cause no panics, overflows or out-of-range values.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::Quota;
use tollgate::algorithm::{Ask, ChargeRecord, Micros, State, Verdict, settle, step};

use crate::support::generators::cases;

/// All integers up to this number are exact in an `f64`.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

proptest! {
    #![proptest_config(cases(60_000))]

    /// Overflow checks are enabled, so an overflow would panic.
    #[test]
    fn no_argument_causes_a_panic_or_an_overflow(
        quota in quota(),
        state in state(any_spent().boxed()),
        receipt in (number(), state(any_spent().boxed()), instant()),
        now in instant(),
        ask in ask(),
        actual in number(),
    ) {
        let (cost, taken, due) = receipt;
        let step = step(&quota, &state, now, ask);
        let _ = settle(&quota, &state, &ChargeRecord { cost, state: taken, due }, now, actual);
        let _ = settle(&quota, &step.state, &ChargeRecord { cost, state: step.state, due }, now, actual);
        let _ = settle(&quota, &step.state, &ChargeRecord { cost, state: step.state, due: now }, now, actual);
    }

    /// The counts of a valid row remain finite, exact and non-negative, and no retry time is beyond the last instant.
    #[test]
    fn a_valid_row_stays_valid(
        quota in quota(),
        state in state(honest_spent().boxed()),
        now in instant(),
        asks in prop::collection::vec((ask(), instant(), number()), 1..6),
    ) {
        let (mut state, mut now) = (State { stamp: tollgate::algorithm::stamp(&quota), ..state }, now);
        for (ask, then, actual) in asks {
            let step = step(&quota, &state, now, ask);
            in_range(&step.state)?;
            match step.verdict {
                Verdict::Allow => prop_assert!(ask.tokens() <= quota.get_capacity()),
                Verdict::Reserve { wait } => {
                    prop_assert!(now + wait < Micros::MAX && Some(wait) <= ask.max_wait() && !wait.is_zero());
                }
                Verdict::Deny { retry: Some(retry) } => prop_assert!(now + retry < Micros::MAX && !retry.is_zero()),
                Verdict::Deny { retry: None } => {}
            }
            if let Some(receipt) = ChargeRecord::new(ask.tokens(), &step) {
                state = settle(&quota, &step.state, &receipt, then, actual);
                in_range(&state)?;
            }
            now = then;
        }
    }

    /// Rounding never causes a request with a huge cost to be allowed.
    #[test]
    fn no_cost_above_the_ceiling_is_granted(quota in quota(), now in instant(), ask in ask()) {
        let step = step(&quota, &State::default(), now, ask);
        let ceiling = quota.get_max_reserved().map_or(1 << 53, |tokens| quota.get_capacity() + tokens);
        prop_assert!(!step.is_allowed() || ask.tokens() <= ceiling);
        prop_assert!(!step.is_allowed() || step.state.spent == ask.tokens() as f64);
        if ask.tokens() > ceiling {
            prop_assert_eq!(step.verdict, Verdict::Deny { retry: None });
        }
    }
}

fn in_range(state: &State) -> Result<(), TestCaseError> {
    prop_assert!((0.0..=MAX_EXACT).contains(&state.spent) && state.spent.fract() == 0.0, "{state:?}");
    prop_assert!((0.0..=MAX_EXACT * 2.0).contains(&state.carry), "{state:?}");
    Ok(())
}

/// Generates numbers around the limits of `u64` and of quotas.
fn number() -> impl Strategy<Value = u64> {
    let corners = [
        0,
        1,
        2,
        Quota::MAX_TOKENS - 1,
        Quota::MAX_TOKENS,
        Quota::MAX_TOKENS + 1,
        (1 << 53) - 1,
        1 << 53,
        (1 << 53) + 1,
        u64::MAX - 1,
        u64::MAX,
    ];
    prop_oneof![prop::sample::select(corners.to_vec()), any::<u64>(), 0u64..100]
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        number().prop_map(Duration::from_micros),
        number().prop_map(Duration::from_nanos),
        Just(Duration::MAX),
        Just(Quota::MAX_PERIOD),
        Just(Quota::MAX_WINDOW),
    ]
}

fn instant() -> impl Strategy<Value = Micros> {
    prop_oneof![number().prop_map(Micros::new), Just(Micros::new(1_700_000_000_000_000)), Just(Micros::MAX)]
}

fn ask() -> impl Strategy<Value = Ask> {
    (number(), prop::option::of(prop::option::of(duration()))).prop_map(|(cost, wait)| match wait {
        None => Ask::cost(cost),
        Some(None) => Ask::cost(cost).reserve(),
        Some(Some(wait)) => Ask::cost(cost).wait_up_to(wait),
    })
}

fn any_spent() -> impl Strategy<Value = f64> {
    let corners =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, f64::MIN_POSITIVE, -0.0, -1.0, 0.5, 1e300];
    prop_oneof![prop::sample::select(corners.to_vec()), any::<f64>(), honest_spent()]
}

fn honest_spent() -> impl Strategy<Value = f64> {
    number().prop_map(|tokens| tokens.min((1 << 53) - 1) as f64)
}

fn state(spent: BoxedStrategy<f64>) -> impl Strategy<Value = State> {
    (spent.clone(), instant(), spent, any::<u32>()).prop_map(|(spent, at, carry, stamp)| State {
        spent,
        at,
        carry,
        stamp,
        ..State::default()
    })
}

fn quota() -> impl Strategy<Value = Quota> {
    let numbers = (number(), number(), prop::option::of(number()), prop::option::of(number()));
    (0u8..3, numbers, duration(), prop::option::of(duration())).prop_filter_map(
        "an invalid quota",
        |(algorithm, (rate, capacity, has_capacity, reserved), period, start)| {
            let (rate, period) = (rate.clamp(1, Quota::MAX_TOKENS), whole(period).clamp(MICRO, Quota::MAX_PERIOD));
            let mut quota = match algorithm {
                0 => Quota::try_token_bucket(rate, period).ok()?,
                1 => Quota::try_fixed_window(rate, period).ok()?,
                _ => Quota::try_sliding_window(rate, period).ok()?,
            };
            if has_capacity.is_some() {
                // The quota keeps its capacity if `capacity` is out of range.
                quota = quota.try_capacity(capacity).unwrap_or(quota);
            }
            quota = match reserved {
                Some(u64::MAX) => quota.try_unlimited_reservations().unwrap_or(quota),
                Some(tokens) => quota.try_max_reserved(tokens).unwrap_or(quota),
                None => quota,
            };
            if let Some(start) = start {
                quota = quota.try_start(whole(start)).ok()?;
            }
            Some(quota)
        },
    )
}

const MICRO: Duration = Duration::from_micros(1);

fn whole(duration: Duration) -> Duration {
    Duration::new(duration.as_secs(), duration.subsec_micros() * 1000)
}
