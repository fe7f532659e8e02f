//! A key whose quota changes: a downgrade locks it no longer than the new quota needs to refill, an upgrade gives its room at
//! once, and what was spent is still spent.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::Quota;
use tollgate::algorithm::{Algorithm, Ask, Micros, State, step};

use crate::decisions::{agree, kept};
use crate::give_backs::most;
use crate::model::{Model, Row};
use crate::random::{Raw, begin, bucket, cases, history, sized, sliding, tiny, window};

/// Two quotas of one policy: they share the algorithm.
fn pair() -> impl Strategy<Value = (Quota, Quota)> {
    prop_oneof![
        (bucket(), bucket()),
        (window(), window()),
        (sliding(), sliding()),
        (tiny(), tiny()).prop_filter("one algorithm", |(old, new)| old.algorithm() == new.algorithm()),
    ]
    // Ten bits cannot tell all quotas apart; those that share them are one to the row.
    .prop_filter("two quotas", |(old, new)| old.stamp() != new.stamp())
}

proptest! {
    #![proptest_config(cases(6000))]

    /// However much was spent or reserved under the old quota, whoever waits for a refill of the new one gets in.
    #[test]
    fn a_change_locks_nobody_longer_than_a_refill(
        (old, new) in pair(),
        begin in begin(),
        history in history(20),
        tries in prop::collection::vec(0u64..1000, 0..4),
    ) {
        let (state, written) = charge_all(&old, begin, &history);
        let ask = Ask::cost(new.limit());
        // Of a sliding window the one before has to go out of view too.
        let windows = if new.algorithm() == Algorithm::SlidingWindow { 2 } else { 1 };
        let refill = windows * new.window().as_micros() as u64;
        prop_assume!(written.get() + refill < Micros::MAX.get());
        // Tries in between store nothing, and must not begin the wait anew.
        for part in tries {
            let at = written + Duration::from_micros((u128::from(refill) * u128::from(part) / 1000) as u64);
            kept(&new, &state, &ask, &step(&new, &state, at, ask))?;
        }
        prop_assert!(step(&new, &state, written + Duration::from_micros(refill), ask).is_allowed());
    }

    /// What the row holds counts up to the new capacity, and is paid back as the new quota says: no more is there, no less.
    #[test]
    fn the_row_is_read_by_the_new_quota((old, new) in pair(), begin in begin(), history in history(20)) {
        let (state, mut now) = charge_all(&old, begin, &history[1..]);
        now = history[0].moved(&new, now, now);
        if new.algorithm() != Algorithm::SlidingWindow {
            let model = Model::of(&new);
            let spent = model.units((state.spent as u64).min(new.limit()));
            let row = Row { spent, before: 0, at: i128::from(state.at.get()) };
            for ask in [Ask::cost(0), Ask::cost(1), history[0].ask(&new)] {
                agree(&model, &row, &ask, &step(&new, &state, now, ask))?;
            }
        }
        let spent = (state.spent + if new.algorithm() == Algorithm::SlidingWindow { state.carry } else { 0.0 }) as u64;
        prop_assert!(most(&new, &state, now) >= new.limit().saturating_sub(spent), "an upgrade gives its room at once");
    }

    /// Between quotas that differ in capacity alone, spending carries over to the microsecond, and back.
    #[test]
    fn a_higher_capacity_forgets_nothing(
        old in prop_oneof![bucket(), window(), tiny()],
        more in sized(20),
        begin in begin(),
        history in history(20),
    ) {
        let Ok(new) = old.try_capacity(old.limit() + 1 + more + old.reservable().unwrap_or(0)) else { return Ok(()) };
        let (state, now) = charge_all(&old, begin, &history);
        // What a reservation over the old capacity owes fits the new one, unless they were without bound.
        if new.stamp() == old.stamp() || state.spent > new.limit() as f64 {
            return Ok(());
        }
        let ask = Ask::cost(new.limit() - old.limit());
        let carried = step(&new, &state, now, ask);
        prop_assert_eq!(carried.is_allowed(), step(&old, &state, now, Ask::cost(0)).is_allowed());
        if carried.is_allowed() {
            prop_assert_eq!(most(&new, &carried.state, now), most(&old, &state, now));
        }
    }
}

/// A downgrade is capped at each look and stored at none: the wait runs from the row's own instant.
#[test]
fn a_downgraded_key_that_keeps_asking_gets_in() {
    let (premium, free) = (Quota::token_bucket(200, tollgate::MINUTE), Quota::token_bucket(6, tollgate::MINUTE));
    let now = Micros::new(1_700_000_000_000_000);
    let state = step(&premium, &State::default(), now, Ask::cost(200)).state;
    let admitted = (0..=60).filter(|s| step(&free, &state, now + *s * tollgate::SECOND, Ask::cost(1)).is_allowed());
    assert_eq!(admitted.min(), Some(10));
}

/// The row, and when it was last written.
fn charge_all(quota: &Quota, begin: Micros, history: &[Raw]) -> (State, Micros) {
    let (mut state, mut now, mut written) = (State::default(), begin, begin);
    for raw in history {
        now = raw.moved(quota, now, now);
        let step = step(quota, &state, now, raw.ask(quota));
        if step.is_allowed() {
            (state, written) = (step.state, now);
        }
    }
    (state, written)
}
