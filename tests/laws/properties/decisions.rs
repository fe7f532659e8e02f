//! Decisions agree with exact arithmetic. Retry times are neither too early nor too late. Denials do not change rows.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::Quota;
use tollgate::algorithm::{Ask, Micros, State, Step, Verdict, step};

use super::give_backs::max_cost;
use crate::support::generators::{begin, cases, history, quota};
use crate::support::model::{Answer, Model, Row};

const MICRO: Duration = Duration::from_micros(1);

proptest! {
    #![proptest_config(cases(6000))]

    #[test]
    fn decisions_agree_with_exact_arithmetic(quota in quota(), begin in begin(), history in history(40)) {
        let model = Model::of(&quota);
        let (mut state, mut row, mut now, mut promised) = (State::default(), Row::default(), begin, begin);
        for raw in history {
            now = raw.moved(&quota, now, promised);
            let ask = raw.ask(&quota);
            let step = step(&quota, &state, now, ask);
            agree(&model, &row, &ask, &step)?;
            promised = instant(&step);
            if step.is_allowed() {
                state = step.state;
                row = model.charged(&row, instant_of(now), ask.tokens());
            }
        }
    }

    #[test]
    fn retry_times_and_due_times_are_exact(quota in quota(), begin in begin(), history in history(40)) {
        let (mut state, mut now, mut promised) = (State::default(), begin, begin);
        for raw in history {
            now = raw.moved(&quota, now, promised);
            let ask = raw.ask(&quota);
            let step = step(&quota, &state, now, ask);
            check_promise(&quota, &state, &ask, &step)?;
            promised = instant(&step);
            if step.is_allowed() {
                state = step.state;
            }
        }
    }

    /// Later decisions are the same whether or not a backend stores the row after a denial.
    #[test]
    fn a_denial_changes_nothing(quota in quota(), begin in begin(), history in history(40)) {
        let (mut stored, mut kept, mut now, mut promised) = (State::default(), State::default(), begin, begin);
        for raw in history {
            now = raw.moved(&quota, now, promised);
            let ask = raw.ask(&quota);
            let (one, other) = (step(&quota, &stored, now, ask), step(&quota, &kept, now, ask));
            prop_assert_eq!(one.verdict, other.verdict);
            promised = instant(&one);
            stored = one.state;
            if other.is_allowed() {
                kept = other.state;
            }
        }
    }

    /// A check before a call returns the same decision as the call, and spends nothing.
    #[test]
    fn a_check_returns_the_decision_of_the_next_call(quota in quota(), begin in begin(), history in history(20)) {
        let (mut state, mut now, mut promised) = (State::default(), begin, begin);
        for raw in history {
            now = raw.moved(&quota, now, promised);
            let (ask, before) = (raw.ask(&quota), state);
            let checked = step(&quota, &state, now, ask);
            for other in [Ask::cost(0), Ask::cost(1).reserve(), ask] {
                let _ = step(&quota, &state, now, other);
            }
            prop_assert_eq!(state, before);
            let decided = step(&quota, &state, now, ask);
            prop_assert_eq!(checked, decided);
            promised = instant(&decided);
            if decided.is_allowed() {
                // Storing the row reduces the number of available tokens by exactly `ask.tokens()`.
                let left = max_cost(&quota, &state, now);
                state = decided.state;
                let expected = left.checked_sub(ask.tokens());
                if let (Verdict::Allow, Some(expected)) = (decided.verdict, expected) {
                    prop_assert_eq!(max_cost(&quota, &state, now), expected);
                }
            }
        }
    }
}

pub(crate) fn agree(model: &Model, row: &Row, ask: &Ask, step: &Step) -> Result<(), TestCaseError> {
    let now = instant_of(step.now);
    let exact = model.answer(row, now, ask);
    let (wait, exact_wait) = match (step.verdict, exact) {
        (Verdict::Allow, Answer::Allow) | (Verdict::Deny { retry: None }, Answer::Deny(None)) => return Ok(()),
        (Verdict::Reserve { wait }, Answer::Reserve(exact)) => (wait, exact),
        (Verdict::Deny { retry: Some(wait) }, Answer::Deny(Some(exact))) => (wait, exact),
        _ => {
            prop_assert!(on_the_edge(model, row, now, ask), "expected {exact:?}, found {:?}: {ask:?}", step.verdict);
            return Ok(());
        }
    };
    let wait = wait.as_micros() as i128;
    let late = wait - exact_wait;
    let early = late == -1 && on_the_edge(model, row, now + wait, ask);
    prop_assert!(late == 0 || late == 1 || early, "expected a wait of {exact_wait} us, found {wait}: {ask:?}");
    Ok(())
}

/// Returns whether a difference of a millionth of a token would change the exact decision.
fn on_the_edge(model: &Model, row: &Row, now: i128, ask: &Ask) -> bool {
    let cost = i128::from(ask.tokens());
    let near = |level: i128| model.over(row, now, cost, level).abs() * 1_000_000 <= model.period;
    near(model.capacity) || model.ceiling.is_some_and(near)
}

/// Checks that the same ask is granted at the retry time, but not a microsecond earlier. A reservation must be due
/// exactly when the row is no longer in debt.
pub(crate) fn check_promise(quota: &Quota, state: &State, ask: &Ask, answer: &Step) -> Result<(), TestCaseError> {
    match answer.verdict {
        Verdict::Allow | Verdict::Deny { retry: None } => {}
        Verdict::Deny { retry: Some(retry) } => {
            prop_assert!(retry > Duration::ZERO);
            let then = answer.now + retry;
            prop_assert!(step(quota, state, then, *ask).is_allowed(), "still denied after {retry:?}: {ask:?}");
            let before = answer.now + (retry - MICRO);
            prop_assert!(!step(quota, state, before, *ask).is_allowed(), "{retry:?} is too late: {ask:?}");
        }
        Verdict::Reserve { wait } => {
            prop_assert!(wait > Duration::ZERO && Some(wait) <= ask.max_wait());
            // A cost of 0 is granted unless the row is in debt.
            let (charged, nothing) = (&answer.state, Ask::cost(0));
            prop_assert!(step(quota, charged, answer.now + wait, nothing).is_allowed(), "due too early: {ask:?}");
            let before = answer.now + (wait - MICRO);
            prop_assert!(!step(quota, charged, before, nothing).is_allowed(), "due too late: {ask:?}");
        }
    }
    Ok(())
}

fn instant(step: &Step) -> Micros {
    match step.verdict {
        Verdict::Reserve { wait: after } | Verdict::Deny { retry: Some(after) } => step.now + after,
        _ => step.now,
    }
}

fn instant_of(micros: Micros) -> i128 {
    i128::from(micros.get())
}
