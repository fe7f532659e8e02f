//! The token bucket, in which spent tokens are repaid continuously.
//!
//! Until a row is fully repaid, decisions move `at` only by whole *grains*. A grain is `grain_micros` microseconds, in
//! which exactly `grain_tokens` tokens are repaid. Stored rows therefore contain whole tokens, and no rounding errors
//! accumulate. Each decision recomputes the tokens repaid within the current grain, in floating point.

use super::quota::Quota;
use super::{Micros, State};

pub(super) fn roll(quota: &Quota, state: &State, now: Micros) -> State {
    let elapsed = now.micros_since(state.at);
    let mut row = *state;
    if elapsed >= quota.grain_micros {
        // Whole grains are subtracted first, because `repaid` rounds its product if the elapsed time is long.
        let grains = elapsed / quota.grain_micros;
        row.spent -= grains as f64 * quota.grain_tokens as f64;
        row.at = state.at.plus(grains * quota.grain_micros);
    }
    if repaid(quota, now.micros_since(row.at)) >= row.spent {
        return State { spent: 0.0, at: state.at.max(now), ..row };
    }
    row
}

/// Returns the whole second by which all of `spent` is repaid. The result is never too early.
pub(super) fn clear(quota: &Quota, spent: f64, at: Micros) -> Micros {
    let micros = if quota.grain_tokens == 1 {
        spent * quota.grain_micros as f64
    } else {
        // The result is rounded twice, so the error bound is added.
        spent * quota.grain_micros as f64 / quota.grain_tokens as f64 * (1.0 + 2.0 * f64::EPSILON)
    };
    at.plus(micros.ceil() as u64).to_whole_second()
}

pub(super) fn spent(quota: &Quota, state: &State, now: Micros) -> f64 {
    (state.spent - repaid(quota, now.micros_since(state.at))).max(0.0)
}

pub(super) fn within(quota: &Quota, state: &State, now: Micros, level: f64) -> bool {
    // Comparing `spent()` with `level` would add another rounding.
    state.spent - level <= repaid(quota, now.micros_since(state.at))
}

#[inline]
pub(super) fn when(quota: &Quota, state: &State, now: Micros, level: f64) -> Option<Micros> {
    let debt = state.spent - level;
    if debt <= 0.0 {
        return Some(now);
    }
    // The time for whole grains is exact. Only the time within the last grain is rounded.
    let grains = (debt / quota.grain_tokens as f64) as u64;
    if grains as f64 * quota.grain_micros as f64 > Micros::MAX.get() as f64 {
        return None;
    }
    let rest = debt - grains as f64 * quota.grain_tokens as f64;
    let elapsed = if rest > 0.0 { micros_for(quota, rest) } else { 0 };
    let instant = state.at.plus(grains * quota.grain_micros + elapsed).max(now);
    (instant < Micros::MAX).then_some(instant)
}

/// Returns the number of microseconds after which [`repaid`] reaches `rest`. `rest` is less than `grain_tokens`.
fn micros_for(quota: &Quota, rest: f64) -> u64 {
    // This estimate is rounded, so it is adjusted to the exact microsecond at which the result of `within` changes.
    let mut elapsed = (rest * quota.grain_micros as f64 / quota.grain_tokens as f64) as u64 + 1;
    for _ in 0..4 {
        if repaid(quota, elapsed) < rest {
            elapsed += 1;
        } else if elapsed > 0 && repaid(quota, elapsed - 1) >= rest {
            elapsed -= 1;
        } else {
            break;
        }
    }
    elapsed
}

pub(super) const fn micros_to_repay(quota: &Quota, tokens: u64) -> u128 {
    (tokens as u128 * quota.grain_micros as u128).div_ceil(quota.grain_tokens as u128)
}

/// Returns the tokens repaid in `elapsed` microseconds. Dividing before multiplying would often be less accurate.
fn repaid(quota: &Quota, elapsed: u64) -> f64 {
    elapsed as f64 * quota.grain_tokens as f64 / quota.grain_micros as f64
}

#[cfg(test)]
mod tests {
    use super::super::{Ask, MINUTE, step};
    use super::*;

    #[test]
    fn a_million_uneven_steps_accumulate_no_rounding_error() {
        let quota = Quota::token_bucket(7, std::time::Duration::from_micros(3_333_331)).capacity(1000);
        let (mut state, mut now, mut taken) = (State::default(), Micros::new(1_700_000_000_000_000), 0u64);
        let begin = now;
        for i in 0..1_000_000u64 {
            now = now.plus(170_000 + i % 977);
            let step = step(&quota, &state, now, Ask::cost(1));
            if step.is_allowed() {
                state = step.state;
                taken += 1;
            }
            assert_eq!(state.spent.fract(), 0.0);
        }
        let exact = 1000 + u128::from(now.micros_since(begin)) * 7 / 3_333_331;
        assert!(u128::from(taken) <= exact && u128::from(taken) + 2 >= exact, "{taken} of {exact}");
    }

    #[test]
    fn waits_are_exact_even_if_the_estimate_is_rounded() {
        let quotas = [(688, 2_642_333_253_483_893, 458.0), (583, 2_669_512_150_641_176, 221.0)];
        for (tokens, micros, rest) in
            quotas.into_iter().chain([(107, 2_731_336_258_599_208, 58.0), (7, 3_333_331, 3.0)])
        {
            let quota = Quota::token_bucket(tokens, std::time::Duration::from_micros(micros));
            let elapsed = micros_for(&quota, rest);
            assert!(repaid(&quota, elapsed) >= rest && repaid(&quota, elapsed - 1) < rest, "{quota:?}: {elapsed}");
        }
    }

    #[test]
    fn the_expiry_of_a_row_is_always_rounded_up() {
        // At 30,001 tokens per microsecond, one token is repaid in less than 0.1 ns.
        let quota = Quota::token_bucket(30_001, std::time::Duration::from_micros(1)).capacity(1);
        assert_eq!(clear(&quota, 1.0, Micros::EPOCH), Micros::new(1_000_000));
        assert_eq!(clear(&quota, 0.0, Micros::EPOCH), Micros::EPOCH);
        // Seven tokens are repaid in exactly one minute. The error bound of the division adds a second.
        let quota = Quota::token_bucket(7, MINUTE);
        assert_eq!(clear(&quota, 7.0, Micros::EPOCH), Micros::new(61_000_000));
    }

    #[test]
    fn damaged_rows_cause_no_panic() {
        // Redis can return any 32 bytes, so even the largest number of grains must not overflow.
        let at = Micros::new(1_700_000_000_000_000);
        for quota in [Quota::token_bucket(10, MINUTE), Quota::token_bucket(7, MINUTE), Quota::token_bucket(1, MINUTE)] {
            for spent in [1e300, f64::MAX, f64::INFINITY, 2f64.powi(63), 2f64.powi(64), f64::NAN, -1e300] {
                for at in [at, Micros::EPOCH, Micros::MAX] {
                    let row = State { spent, at, stamp: quota.stamp(), ..State::default() };
                    let answer = step(&quota, &row, Micros::new(1_700_000_000_000_001), Ask::cost(1));
                    let retries = matches!(answer.verdict, super::super::Verdict::Deny { retry: Some(_) });
                    assert!(!retries || spent.is_nan() || spent < 1e18, "{spent} of {quota:?}: {answer:?}");
                }
            }
        }
    }

    #[test]
    fn at_ten_tokens_per_minute_one_token_is_refilled_in_six_seconds() {
        let quota = Quota::token_bucket(10, MINUTE);
        let now = Micros::new(1_700_000_000_000_000);
        let state = step(&quota, &State::default(), now, Ask::cost(10)).state;
        assert_eq!(when(&quota, &state, now, 9.0), Some(now.plus(6_000_000)));
        assert!(!within(&quota, &state, now.plus(5_999_999), 9.0));
        assert!(within(&quota, &state, now.plus(6_000_000), 9.0));
    }

    #[test]
    fn a_grain_of_several_tokens_is_repaid_continuously() {
        let quota = Quota::token_bucket(7, 3 * super::super::SECOND).capacity(100);
        let at = Micros::new(1_700_000_000_000_000);
        let row = State { spent: 20.0, at, stamp: quota.stamp(), ..State::default() };
        let when = |level| when(&quota, &row, at, level).map(|then| then.micros_since(at));
        assert_eq!((when(20.0), when(19.0), when(18.0)), (Some(0), Some(428_572), Some(857_143)));
        assert_eq!((when(13.0), when(12.0), when(0.0)), (Some(3_000_000), Some(3_428_572), Some(8_571_429)));
        let rolled = |micros| roll(&quota, &row, at.plus(micros));
        assert_eq!((rolled(2_999_999), rolled(3_000_000)), (row, State { spent: 13.0, at: at.plus(3_000_000), ..row }));
        assert_eq!(rolled(7_000_000), State { spent: 6.0, at: at.plus(6_000_000), ..row });
        assert_eq!(rolled(8_571_429), State { spent: 0.0, at: at.plus(8_571_429), ..row });
    }

    #[test]
    fn a_bucket_that_would_be_full_only_after_the_last_instant_never_becomes_full() {
        let quota = Quota::token_bucket(1, Quota::MAX_PERIOD).capacity(2);
        let at = |micros| State { spent: 2.0, at: Micros::new(micros), stamp: quota.stamp(), ..State::default() };
        let last = Micros::MAX.get() - 2 * quota.period_micros();
        assert_eq!(when(&quota, &at(last), Micros::EPOCH, 0.0), None);
        assert_eq!(when(&quota, &at(last - 1), Micros::EPOCH, 0.0), Some(Micros::new(Micros::MAX.get() - 1)));
    }
}
