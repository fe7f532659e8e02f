//! Every decision: the same as in exact arithmetic, its promise sufficient and tight, and a denial nothing but an answer.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::Quota;
use tollgate::algorithm::{Ask, Micros, State, Step, Verdict, step};

use crate::give_backs::most;
use crate::model::{Answer, Model, Row};
use crate::random::{begin, cases, history, quota};

const MICRO: Duration = Duration::from_micros(1);

proptest! {
    #![proptest_config(cases(6000))]

    /// Floating point and stored grains must not be told from exact arithmetic, over any history.
    #[test]
    fn decisions_agree(quota in quota(), begin in begin(), history in history(40)) {
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

    /// Who comes when told to come is let in, and nobody was told to come later than needed.
    #[test]
    fn promises_are_kept_and_tight(quota in quota(), begin in begin(), history in history(40)) {
        let (mut state, mut now, mut promised) = (State::default(), begin, begin);
        for raw in history {
            now = raw.moved(&quota, now, promised);
            let ask = raw.ask(&quota);
            let step = step(&quota, &state, now, ask);
            kept(&quota, &state, &ask, &step)?;
            promised = instant(&step);
            if step.is_allowed() {
                state = step.state;
            }
        }
    }

    /// A backend that stores denials and one that does not must answer alike.
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

    /// A check is the same decision without the write: it may be asked any number of times before, and costs nothing.
    #[test]
    fn a_check_is_the_decision_that_follows(quota in quota(), begin in begin(), history in history(20)) {
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
                // What is stored is decided upon: as many tokens fewer are there.
                let left = most(&quota, &state, now);
                state = decided.state;
                let expected = left.checked_sub(ask.tokens());
                if let (Verdict::Allow, Some(expected)) = (decided.verdict, expected) {
                    prop_assert_eq!(most(&quota, &state, now), expected);
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
            prop_assert!(on_the_edge(model, row, now, ask), "{:?} where exact is {exact:?}, of {ask:?}", step.verdict);
            return Ok(());
        }
    };
    let wait = wait.as_micros() as i128;
    let late = wait - exact_wait;
    let early = late == -1 && on_the_edge(model, row, now + wait, ask);
    prop_assert!(late == 0 || late == 1 || early, "waits {wait} us where exact is {exact_wait} us, of {ask:?}");
    Ok(())
}

/// Whether exact arithmetic is within a millionth of a token of deciding otherwise.
fn on_the_edge(model: &Model, row: &Row, now: i128, ask: &Ask) -> bool {
    let cost = i128::from(ask.tokens());
    let near = |level: i128| model.over(row, now, cost, level).abs() * 1_000_000 <= model.period;
    near(model.capacity) || model.ceiling.is_some_and(near)
}

/// The same ask at the promised instant is granted, and not a microsecond before; a turn comes when all over the capacity is
/// paid back, and not a microsecond before.
pub(crate) fn kept(quota: &Quota, state: &State, ask: &Ask, answer: &Step) -> Result<(), TestCaseError> {
    match answer.verdict {
        Verdict::Allow | Verdict::Deny { retry: None } => {}
        Verdict::Deny { retry: Some(retry) } => {
            prop_assert!(retry > Duration::ZERO);
            let then = answer.now + retry;
            prop_assert!(step(quota, state, then, *ask).is_allowed(), "refused again after {retry:?}, of {ask:?}");
            let before = answer.now + (retry - MICRO);
            prop_assert!(!step(quota, state, before, *ask).is_allowed(), "{retry:?} is too late, of {ask:?}");
        }
        Verdict::Reserve { wait } => {
            prop_assert!(wait > Duration::ZERO && Some(wait) <= ask.max_wait());
            // Nothing more asks whether anything is owed.
            let (charged, nothing) = (&answer.state, Ask::cost(0));
            prop_assert!(step(quota, charged, answer.now + wait, nothing).is_allowed(), "a turn too early, of {ask:?}");
            let before = answer.now + (wait - MICRO);
            prop_assert!(!step(quota, charged, before, nothing).is_allowed(), "a turn too late, of {ask:?}");
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
