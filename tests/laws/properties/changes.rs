//! Quotas that change or alternate on one row admit a bounded number of tokens together. An upgrade takes effect
//! immediately. After a downgrade, denials last at most as long as the old quota would take to repay the debt.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::algorithm::{Algorithm, Ask, ChargeRecord, Micros, State, Verdict, settle, step};
use tollgate::{MINUTE, Quota, SECOND};

use super::decisions::check_promise;
use super::give_backs::max_cost;
use super::together::{Bound, Charge, excess};
use crate::support::generators::{Raw, begin, bucket, cases, history, quota, sliding, tiny, window};

/// Generates the number of tokens that can be reserved under a small quota.
fn reserved() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0u64), 1 => 1..=8u64]
}

/// Generates whole and fractional numbers of seconds.
fn period() -> impl Strategy<Value = Duration> {
    prop_oneof![
        3 => (1..=20u32).prop_map(|seconds| seconds * SECOND),
        1 => (1..=20_000_000u64).prop_map(Duration::from_micros)
    ]
}

fn several<S: Strategy<Value = Quota>>(quota: S) -> impl Strategy<Value = Vec<Quota>> {
    // A row cannot distinguish quotas with the same stamp.
    prop::collection::vec(quota, 2..=4).prop_filter("quotas with the same stamp", |quotas| {
        (1..quotas.len()).all(|i| {
            quotas[..i].iter().all(|other| tollgate::algorithm::stamp(other) != tollgate::algorithm::stamp(&quotas[i]))
        })
    })
}

fn small_bucket() -> impl Strategy<Value = Quota> {
    (1..=12u64, period(), 1..=12u64, reserved()).prop_map(|(rate, period, capacity, more)| {
        Quota::token_bucket(rate, period).capacity(capacity).max_reserved(more)
    })
}

fn buckets() -> impl Strategy<Value = Vec<Quota>> {
    let plain = (1..=1000u64, period()).prop_map(|(rate, period)| Quota::token_bucket(rate, period));
    several(prop_oneof![2 => small_bucket(), 1 => plain])
}

fn aligned_windows() -> impl Strategy<Value = Vec<Quota>> {
    (period(), 0..20_000_000u64).prop_flat_map(|(period, start)| {
        several((1..=12u64, 1..=20u64, reserved()).prop_map(move |(rate, capacity, more)| {
            let window = Quota::fixed_window(rate, period).start(Duration::from_micros(start));
            window.capacity(capacity).max_reserved(more)
        }))
    })
}

fn aligned_sliding() -> impl Strategy<Value = Vec<Quota>> {
    (1..=20u32, 0..20_000_000u64).prop_flat_map(|(seconds, start)| {
        several(
            (1..=30u64).prop_map(move |limit| {
                Quota::sliding_window(limit, seconds * SECOND).start(Duration::from_micros(start))
            }),
        )
    })
}

fn mixed() -> impl Strategy<Value = Vec<Quota>> {
    let start = || (0..20_000_000u64).prop_map(Duration::from_micros);
    let window =
        (1..=12u64, period(), start(), 1..=20u64, reserved()).prop_map(|(rate, period, start, capacity, more)| {
            Quota::fixed_window(rate, period).start(start).capacity(capacity).max_reserved(more)
        });
    let sliding = (1..=12u64, period(), start())
        .prop_map(|(limit, period, start)| Quota::sliding_window(limit, period).start(start));
    several(prop_oneof![small_bucket(), window, sliding])
}

fn any_quotas() -> impl Strategy<Value = Vec<Quota>> {
    prop_oneof![
        several(bucket()),
        several(window()),
        several(sliding()),
        several(tiny()),
        several(quota()),
        buckets(),
        aligned_windows(),
        aligned_sliding(),
        mixed(),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All operations. The actual cost of a settlement may exceed the charge.
    Any,
    /// All operations. The actual cost of a settlement never exceeds the charge.
    Honest,
    /// Calls at short intervals. Each call takes one token or all available tokens.
    Greedy,
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Any, Kind::Honest, Kind::Greedy])
}

/// Plays a history under alternating quotas. Passes each decision to `inspect` and returns the admitted charges.
fn play(
    quotas: &[Quota],
    begin: Micros,
    history: &[Raw],
    kind: Kind,
    mut inspect: impl FnMut(&Quota, &State, Ask, &tollgate::algorithm::Step) -> Result<(), TestCaseError>,
) -> Result<Vec<Charge>, TestCaseError> {
    let (mut state, mut now, mut promised) = (State::default(), begin, begin);
    let mut charges: Vec<Charge> = Vec::new();
    let mut open: Vec<(usize, Quota, ChargeRecord)> = Vec::new();
    for raw in history {
        let (what, which) = raw.what;
        let quota = quotas[(raw.how.1 >> 32) as usize % quotas.len()];
        let next = if raw.how.1 >> 60 < 4 { state.clear } else { promised };
        let fastest = quotas.iter().map(|quota| quota.period().as_micros() as u64 / quota.rate()).min().unwrap_or(0);
        now = match raw.step.0 {
            1..9 if kind == Kind::Greedy => now + Duration::from_micros(raw.step.1 % (2 * fastest + 2)),
            _ => raw.moved(&quota, now, next),
        };
        if what >= if kind == Kind::Greedy { 11 } else { 8 } && !open.is_empty() {
            let (i, quota, receipt) = open.remove((which >> 16) as usize % open.len());
            let actual = match raw.cost.0 {
                0..=2 => 0,
                3 if kind == Kind::Any => receipt.cost + raw.cost.1 % 20,
                _ => raw.cost.1 % (receipt.cost + 1),
            };
            let before = state;
            state = settle(&quota, &before, &receipt, now, actual);
            charges[i].used = actual.min(receipt.cost);
            let is_foreign =
                before.stamp != tollgate::algorithm::stamp(&quota) && now < before.clear && before.spent > 0.0;
            if is_foreign && actual <= receipt.cost {
                prop_assert_eq!(state, before, "a refund changed a row that was written under another quota");
            }
            continue;
        }
        let ask = match kind {
            Kind::Greedy if raw.cost.0 > 1 => Ask::cost(max_cost(&quota, &state, now).max(1)),
            Kind::Greedy => Ask::cost(1),
            _ => raw.ask(&quota),
        };
        let step = step(&quota, &state, now, ask);
        inspect(&quota, &state, ask, &step)?;
        if let Verdict::Reserve { wait: time } | Verdict::Deny { retry: Some(time) } = step.verdict {
            promised = now + time;
        }
        if let Some(receipt) = ChargeRecord::new(ask.tokens(), &step) {
            open.push((charges.len(), quota, receipt));
            charges.push(Charge { at: now, used: receipt.cost });
            state = step.state;
        }
    }
    Ok(charges)
}

fn check(quotas: &[Quota], charges: &[Charge], bound: Bound) -> Result<(), TestCaseError> {
    let excess = excess(quotas, charges, bound);
    prop_assert!(excess <= 1e-3, "{} tokens beyond the bound: {:?}", excess, charges);
    Ok(())
}

fn ignore(_: &Quota, _: &State, _: Ask, _: &tollgate::algorithm::Step) -> Result<(), TestCaseError> {
    Ok(())
}

proptest! {
    #![proptest_config(cases(8000))]

    /// Quotas with the same algorithm admit at most twice the largest capacity, plus the refill of the fastest quota.
    #[test]
    fn alternating_quotas_with_the_same_algorithm_stay_within_the_largest_bound(
        quotas in prop_oneof![2 => buckets(), 1 => aligned_windows(), 1 => aligned_sliding()],
        begin in begin(),
        history in history(60),
        kind in kinds(),
    ) {
        let charges = play(&quotas, begin, &history, kind, ignore)?;
        check(&quotas, &charges, Bound::Largest)?;
    }

    /// Quotas with different algorithms admit at most three times the largest capacity, plus the refills of all quotas.
    #[test]
    fn alternating_quotas_with_any_algorithms_stay_within_their_joint_bound(
        quotas in mixed(),
        begin in begin(),
        history in history(60),
        kind in kinds(),
    ) {
        let charges = play(&quotas, begin, &history, kind, ignore)?;
        check(&quotas, &charges, Bound::Sum)?;
    }

    /// A denial does not change the row. Its retry time is exact, does not move as time passes, and is never after
    /// `clear`. Postponing `clear` never admits more tokens.
    #[test]
    fn denials_change_nothing_and_their_retry_times_are_exact(
        quotas in any_quotas(),
        begin in begin(),
        history in history(30),
        later in 0..100u64,
    ) {
        let inspect = |quota: &Quota, before: &State, ask: Ask, step: &tollgate::algorithm::Step| {
            let now = step.now;
            let is_foreign = before.stamp != tollgate::algorithm::stamp(quota) && before.stamp != 0
                && (before.spent > 0.0 || before.carry > 0.0 && before.stamp & 7 == 3) && now < before.clear;
            if before.stamp != tollgate::algorithm::stamp(quota) {
                check_promise(quota, before, &ask, step)?;
            }
            if is_foreign {
                let put_off = State { clear: before.clear + Duration::from_secs(later), ..*before };
                let then = tollgate::algorithm::step(quota, &put_off, now, ask);
                prop_assert!(!then.is_allowed() || step.is_allowed(), "postponing `clear` admits more tokens");
            }
            if let (true, Verdict::Deny { retry }) = (is_foreign, step.verdict) {
                prop_assert_eq!(step.state, *before, "a denial changed the row");
                if ask.tokens() <= quota.get_capacity() && before.clear < Micros::MAX {
                    prop_assert!(retry.is_some_and(|retry| now + retry <= before.clear), "denied beyond `clear`");
                }
                let part = retry.map(|retry| Duration::from_micros(retry.as_micros() as u64 / 3));
                if let (Some(retry), Some(part)) = (retry, part) {
                    let again = tollgate::algorithm::step(quota, &step.state, now + part, ask);
                    prop_assert_eq!(again.verdict, Verdict::Deny { retry: Some(retry - part) });
                }
            }
            if step.is_allowed() && before.stamp != 0 {
                let at = step.state.at;
                // A sliding window rounds `at` down to the start of its window, so `at` can move back on a row that was
                // written under another quota.
                let is_same_window =
                    quota.algorithm() == Algorithm::SlidingWindow && before.at < at + quota.period();
                prop_assert!(at >= before.at || is_same_window, "moved back from {:?} to {:?}", before, step.state);
            }
            Ok(())
        };
        play(&quotas, begin, &history, Kind::Any, inspect)?;
    }

    /// After tokens have been spent under other quotas, the rest of the new capacity is available immediately.
    #[test]
    fn an_upgrade_takes_effect_immediately(quotas in any_quotas(), begin in begin(), history in history(20)) {
        let inspect = |quota: &Quota, before: &State, _: Ask, step: &tollgate::algorithm::Step| {
            let owed = before.spent + if before.stamp & 7 == 3 { before.carry } else { 0.0 };
            let rest = quota.get_capacity().saturating_sub(owed as u64);
            prop_assert!(before.stamp == tollgate::algorithm::stamp(quota) || max_cost(quota, before, step.now) >= rest);
            Ok(())
        };
        play(&quotas, begin, &history, Kind::Any, inspect)?;
    }
}

proptest! {
    #![proptest_config(cases(60))]

    /// Small errors would accumulate over a long history.
    #[test]
    fn alternating_quotas_stay_within_their_bounds_over_many_calls(
        (quotas, bound) in prop_oneof![
            prop_oneof![2 => buckets(), 1 => aligned_windows(), 1 => aligned_sliding()]
                .prop_map(|quotas| (quotas, Bound::Largest)),
            mixed().prop_map(|quotas| (quotas, Bound::Sum)),
        ],
        begin in begin(),
        history in long_history(),
        kind in kinds(),
    ) {
        let charges = play(&quotas, begin, &history, kind, ignore)?;
        check(&quotas, &charges, bound)?;
    }
}

fn long_history() -> impl Strategy<Value = Vec<Raw>> {
    prop::collection::vec(history(30), 80).prop_map(|parts| {
        let calls: Vec<Raw> = parts.into_iter().flatten().collect();
        calls.into_iter().take(1500).collect()
    })
}

/// Regression: each change capped the spent tokens at the new capacity, so 56,519 requests were admitted in a minute.
#[test]
fn alternating_quotas_do_not_restore_spent_tokens() {
    let quotas = [Quota::token_bucket(60, MINUTE), Quota::token_bucket(1000, MINUTE)];
    let begin = Micros::new(1_700_000_000_000_000);
    let (mut state, mut admitted) = (State::default(), 0);
    for second in 0..60 {
        for quota in &quotas {
            let now = begin + second * SECOND;
            while let Some(next) = Some(step(quota, &state, now, Ask::cost(1))).filter(|step| step.is_allowed()) {
                state = next.state;
                admitted += 1;
            }
        }
    }
    assert!((1900..=2000 + 1000).contains(&admitted), "{admitted}");
}

/// The first token is available once the spent tokens have fallen to one below the new capacity.
#[test]
fn the_first_token_after_a_downgrade_is_available_before_the_old_debt_is_repaid() {
    let (premium, free) = (Quota::token_bucket(1000, MINUTE), Quota::token_bucket(60, MINUTE));
    for begin in [0, 1_700_000_000_000_000, 4_000_000_000_000_000].map(Micros::new) {
        let state = step(&premium, &State::default(), begin, Ask::cost(1000)).state;
        assert_eq!(state.clear, begin + MINUTE);
        let allowed =
            |micros: u64| step(&free, &state, begin + Duration::from_micros(micros), Ask::cost(1)).is_allowed();
        assert!(allowed(56_460_000) && !allowed(56_459_999));
        assert!(step(&free, &state, begin + MINUTE, Ask::cost(60)).is_allowed());
    }
}
