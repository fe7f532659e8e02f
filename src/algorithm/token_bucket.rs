//! Token bucket: spending is paid back smoothly.
//!
//! `at` is not moved to the present at each decision but in whole *grains*: `rate / period` in lowest terms is
//! `grain_tokens / grain_micros`, so after a grain's time exactly a grain's whole tokens are paid back. Whole tokens
//! stay whole, and no history, however long, rounds anything. Only the part of a grain that has run since is computed
//! in floating point, for the decision at hand, and never stored.

use super::quota::Quota;
use super::{Micros, State, float};

/// The row as of `now`: whole grains paid back, or nothing spent any more.
#[inline(always)]
pub(super) fn roll(quota: &Quota, state: &State, now: Micros) -> State {
    let elapsed = now.micros_since(state.at);
    let mut row = *state;
    if elapsed >= quota.grain_micros {
        // Grains first: over a long time, what is paid back does not fit a floating-point number without rounding.
        let grains = elapsed / quota.grain_micros;
        row.spent -= float(grains) * float(quota.grain_tokens);
        row.at = state.at.plus(grains * quota.grain_micros);
    }
    if !outlasts_a_grain(quota, row.spent) && repaid(quota, now.micros_since(row.at)) >= row.spent {
        return State { spent: 0.0, at: state.at.max(now), ..row };
    }
    row
}

/// [`roll`] of a [plain](Quota::is_plain) bucket's row that is not ahead of `now`: what is spent, and since when.
#[inline(always)]
pub(super) fn roll_plain(quota: &Quota, mut spent: f64, mut at: Micros, now: Micros) -> (f64, Micros) {
    let mut elapsed = now.get() - at.get();
    if elapsed >= quota.grain_micros {
        let tokens = elapsed / quota.grain_micros;
        elapsed -= tokens * quota.grain_micros;
        (spent, at) = (spent - float(tokens), now.minus(elapsed));
    }
    // What is paid back since is less than one.
    if spent < 1.0 && float(elapsed) / float(quota.grain_micros) >= spent { (0.0, now) } else { (spent, at) }
}

/// The first whole second from which nothing of `spent` stands, never too early.
#[inline(always)]
pub(super) fn clear(quota: &Quota, spent: f64, at: Micros) -> Micros {
    // Of whole tokens it is exact.
    let micros = if quota.grain_tokens == 1 {
        spent * float(quota.grain_micros)
    } else {
        // Rounded twice, so a little more.
        spent * float(quota.grain_micros) / float(quota.grain_tokens) * (1.0 + 2.0 * f64::EPSILON)
    };
    // Rounded up, without the function call that `ceil` is on an old processor.
    let whole = micros as u64;
    at.plus(whole.saturating_add(u64::from((whole as f64) < micros))).to_whole_second()
}

/// What stands as spent at `now`.
pub(super) fn spent(quota: &Quota, state: &State, now: Micros) -> f64 {
    (state.spent - repaid(quota, now.micros_since(state.at))).max(0.0)
}

/// Whether no more than `level` stands as spent at `now`.
#[inline(always)]
pub(super) fn within(quota: &Quota, state: &State, now: Micros, level: f64) -> bool {
    // Not `spent() <= level`: subtracting first would round once more.
    // Mostly nothing has to be paid back for that, or too much, and division is slow.
    let debt = state.spent - level;
    let elapsed = now.micros_since(state.at);
    debt <= 0.0 || (elapsed >= quota.grain_micros || !outlasts_a_grain(quota, debt)) && debt <= repaid(quota, elapsed)
}

/// The first instant from `now` on at which [`within`] holds.
#[inline]
pub(super) fn when(quota: &Quota, state: &State, now: Micros, level: f64) -> Option<Micros> {
    let debt = state.spent - level;
    if debt <= 0.0 {
        return Some(now);
    }
    // Whole grains are exact, and are what the row will be brought forward by; only the rest of the last one is
    // rounded.
    // A cast rounds down as `floor` would, which is a call of a function where the processor may be an old one.
    // Not `float`: a damaged row, which a server may hand over, can say that anything was spent.
    let grains = (debt / quota.grain_tokens as f64) as u64;
    if grains as f64 * quota.grain_micros as f64 > Micros::MAX.get() as f64 {
        return None;
    }
    let rest = debt - grains as f64 * quota.grain_tokens as f64;
    let elapsed = if rest > 0.0 { micros_for(quota, rest) } else { 0 };
    let instant = state.at.plus(grains * quota.grain_micros + elapsed).max(now);
    (instant < Micros::MAX).then_some(instant)
}

/// In how many microseconds a [plain](Quota::is_plain) bucket's row that has been rolled, and stands a token or more above
/// `level`, has come down to it, as [`when`] has it.
#[inline(always)]
pub(super) fn wait_for(quota: &Quota, row: &State, level: u64, now: Micros) -> Option<u64> {
    if owes(quota, row.spent, level, row.at) {
        Some(wait_for_owed(quota, row.spent, level, row.at, now))
    } else {
        wait_at_length(quota, row, level, now)
    }
}

/// To be seen wherever `wait_for` is: a compiler that knows it to do nothing but tell leaves it out if nobody asks.
#[cold]
#[inline]
fn wait_at_length(quota: &Quota, row: &State, level: u64, now: Micros) -> Option<u64> {
    when(quota, row, now, float(level)).map(|at| at.micros_since(now))
}

/// Whether a row that stands above `level`, and has been rolled, so that less than a token is paid back since, owes whole
/// tokens of a [plain](Quota::is_plain) bucket, which are paid back in a time that can be told.
#[inline(always)]
fn owes(quota: &Quota, spent: f64, level: u64, at: Micros) -> bool {
    // As many as the bucket holds are paid back before the end of time, if it is not late.
    spent - float(level) <= float(quota.limit()) && at.get() < LATE && spent + SHIFT - SHIFT == spent
}

/// The middle of all instants: what begins before it, and takes less than as long, is over before the last one.
pub(super) const LATE: u64 = 1 << 52;

/// In how many microseconds what a row [owes](owes) is paid back, as [`when`] has it.
#[inline(always)]
fn wait_for_owed(quota: &Quota, spent: f64, level: u64, at: Micros, now: Micros) -> u64 {
    let tokens = (spent - float(level) + SHIFT).to_bits().wrapping_sub(SHIFT.to_bits());
    at.plus(tokens.saturating_mul(quota.grain_micros)).micros_since(now)
}

/// From 2^52 to 2^53 the last bits of a float count by one: there, behind an addition, the whole numbers from 0 on are found
/// in half of the time that a cast takes.
const SHIFT: f64 = (1_u64 << 52) as f64;

/// Microseconds after which [`repaid`] comes to `rest`, less than a grain.
fn micros_for(quota: &Quota, rest: f64) -> u64 {
    // Rounded twice, and up at that; step onto the very microsecond at which `within` changes its mind.
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

/// Microseconds in which `tokens` are paid back, rounded up.
pub(super) const fn micros_to_repay(quota: &Quota, tokens: u64) -> u128 {
    (tokens as u128 * quota.grain_micros as u128).div_ceil(quota.grain_tokens as u128)
}

/// Whether so many tokens are more than any part of a grain pays back, as [`repaid`] tells it.
#[inline(always)]
fn outlasts_a_grain(quota: &Quota, tokens: f64) -> bool {
    // Of one token, the largest part is (n - 1) / n with n less than 2^53, which is told exactly enough to be less than 1.
    // Of several it may be rounded up to all of them.
    tokens > float(quota.grain_tokens) || quota.grain_tokens == 1 && tokens >= 1.0
}

/// Tokens paid back in `elapsed` microseconds. Multiplied before divided: `elapsed * (rate / period)` differs in a
/// quarter of all cases.
#[inline(always)]
fn repaid(quota: &Quota, elapsed: u64) -> f64 {
    float(elapsed) * float(quota.grain_tokens) / float(quota.grain_micros)
}

#[cfg(test)]
mod tests {
    use super::super::{Ask, MINUTE, step};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_million_odd_steps_round_nothing() {
        // 7 tokens in 3,333,331 us: no step ends on a whole token.
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

    const NOW: Micros = Micros::new(1_700_000_000_000_000);
    /// A token in six seconds.
    const SIMPLE: Quota = Quota::token_bucket(10, MINUTE);
    /// Seven tokens at a time.
    const SEVERAL: Quota = Quota::token_bucket(7, std::time::Duration::from_micros(3_333_331));

    #[test]
    fn the_wait_for_whole_tokens_is_told_at_once() {
        let wait = |spent: f64, level: u64, at: Micros| {
            owes(&SIMPLE, spent, level, at).then(|| wait_for_owed(&SIMPLE, spent, level, at, NOW))
        };
        assert_eq!(wait(10.0, 9, NOW), Some(6_000_000));
        assert_eq!(wait(10.0, 7, NOW.minus(2)), Some(17_999_998));
        // Parts of tokens, and what no row can have spent if it is not damaged.
        assert_eq!([9.5, 1e300, f64::INFINITY, f64::NAN].map(|spent| wait(spent, 9, NOW)), [None; 4]);
        assert_eq!((wait(12.0, 2, NOW), wait(13.0, 2, NOW)), (Some(60_000_000), None));
        // And towards the end of time.
        let late = Micros::new(LATE);
        assert_eq!((wait(10.0, 9, late), wait(10.0, 9, late.minus(1)).is_some()), (None, true));
    }

    #[test]
    fn what_is_plain() {
        let micros = std::time::Duration::from_micros;
        assert!(SIMPLE.is_plain() && !SEVERAL.is_plain());
        assert!(!Quota::fixed_window(1, MINUTE).is_plain() && !Quota::sliding_window(1, MINUTE).is_plain());
        let full_in = |time: u64| Quota::token_bucket(1, micros(time / 4)).capacity(4);
        assert!(full_in(LATE - 4).is_plain() && !full_in(LATE).is_plain());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50_000))]
        #[test]
        fn what_is_plain_is_rolled_and_refused_as_everything_is(
            grain in prop_oneof![1..20u64, 1..5_000_000u64, Just(60_000_000), Just(1 << 48)],
            capacity in prop_oneof![1..20u64, Just(1 << 40)],
            reserved in prop_oneof![Just(0), 1..20u64],
            spent in prop_oneof![0..40u64, Just(1 << 39)],
            part in prop_oneof![3 => Just(0.0), 1 => 0.0..1.0],
            elapsed in prop_oneof![Just(0), 0..40u64, 0..20_000_000u64, 0..1u64 << 50],
            cost in 0..20u64,
            now in prop_oneof![Just(1_700_000_000_000_000), Just(LATE + 1_000), Just(Micros::MAX.get() - 5_000_000)],
        ) {
            let quota = Quota::try_token_bucket(1, std::time::Duration::from_micros(grain));
            let quota = quota.and_then(|quota| quota.try_capacity(capacity)).and_then(|it| it.try_max_reserved(reserved));
            let Ok(quota) = quota else { return Ok(()) };
            prop_assert_eq!(quota.is_plain(), quota.fill_micros() < LATE);
            let (now, at) = (Micros::new(now), Micros::new(now.saturating_sub(elapsed)));
            let state = State { spent: spent as f64 + part, at, stamp: quota.stamp(), ..State::default() };
            let rolled = roll(&quota, &state, now);
            prop_assert_eq!(roll_plain(&quota, state.spent, at, now), (rolled.spent, rolled.at));
            let Some(level) = quota.limit().checked_sub(cost) else { return Ok(()) };
            if rolled.spent >= (level + 1) as f64 && quota.is_plain() {
                prop_assert!(!within(&quota, &rolled, now, level as f64));
                let wait = when(&quota, &rolled, now, level as f64).map(|at| at.micros_since(now));
                prop_assert_eq!(wait_for(&quota, &rolled, level, now), wait);
            }
        }
    }

    #[test]
    fn whole_grains_outlast_any_part_of_one() {
        let outlasts =
            |quota: &Quota, tokens: &[f64]| tokens.iter().map(|it| outlasts_a_grain(quota, *it)).collect::<Vec<_>>();
        assert_eq!(outlasts(&SIMPLE, &[0.0, 0.999, 1.0, 2.0]), [false, false, true, true]);
        assert_eq!(outlasts(&SEVERAL, &[1.0, 6.999, 7.0, 7.5]), [false, false, false, true]);
    }

    #[test]
    fn the_microsecond_is_found_though_rounding_misses_it() {
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
    fn a_row_is_not_clear_before_its_last_part_of_a_microsecond() {
        // Found by histories of the cache: 30,001 tokens a microsecond, so that one is repaid in less than a thousandth.
        let quota = Quota::token_bucket(30_001, std::time::Duration::from_micros(1)).capacity(1);
        assert_eq!(clear(&quota, 1.0, Micros::EPOCH), Micros::new(1_000_000));
        assert_eq!(clear(&quota, 0.0, Micros::EPOCH), Micros::EPOCH);
    }

    #[test]
    fn a_damaged_row_has_answers_too() {
        // As of any 32 bytes that a server may hold: the largest number of grains is not taken for -1.
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
    fn an_empty_bucket_of_ten_a_minute_waits_six_seconds() {
        let quota = Quota::token_bucket(10, MINUTE);
        let now = Micros::new(1_700_000_000_000_000);
        let state = step(&quota, &State::default(), now, Ask::cost(10)).state;
        assert_eq!(when(&quota, &state, now, 9.0), Some(now.plus(6_000_000)));
        assert!(!within(&quota, &state, now.plus(5_999_999), 9.0));
        assert!(within(&quota, &state, now.plus(6_000_000), 9.0));
    }

    #[test]
    fn a_grain_of_many_tokens_is_paid_back_smoothly() {
        // 7 tokens in 3 s, so that whole grains and the rest of one are both there.
        let quota = Quota::token_bucket(7, 3 * super::super::SECOND).capacity(100);
        let at = Micros::new(1_700_000_000_000_000);
        let row = State { spent: 20.0, at, stamp: quota.stamp(), ..State::default() };
        let when = |level| when(&quota, &row, at, level).map(|then| then.micros_since(at));
        // A seventh of 3 s is 428,571.4 us.
        assert_eq!((when(20.0), when(19.0), when(18.0)), (Some(0), Some(428_572), Some(857_143)));
        assert_eq!((when(13.0), when(12.0), when(0.0)), (Some(3_000_000), Some(3_428_572), Some(8_571_429)));
        let rolled = |micros| roll(&quota, &row, at.plus(micros));
        assert_eq!((rolled(2_999_999), rolled(3_000_000)), (row, State { spent: 13.0, at: at.plus(3_000_000), ..row }));
        assert_eq!(rolled(7_000_000), State { spent: 6.0, at: at.plus(6_000_000), ..row });
        assert_eq!(rolled(8_571_429), State { spent: 0.0, at: at.plus(8_571_429), ..row });
    }

    #[test]
    fn what_is_paid_back_only_after_the_last_instant_never_is() {
        let quota = Quota::token_bucket(1, Quota::MAX_PERIOD).capacity(2);
        let at = |micros| State { spent: 2.0, at: Micros::new(micros), stamp: quota.stamp(), ..State::default() };
        let last = Micros::MAX.get() - 2 * quota.period_micros();
        assert_eq!(when(&quota, &at(last), Micros::EPOCH, 0.0), None);
        assert_eq!(when(&quota, &at(last - 1), Micros::EPOCH, 0.0), Some(Micros::new(Micros::MAX.get() - 1)));
    }
}
