//! The arithmetic: it never panics, never admits more than the bound, and returns retry times that are exact to the
//! microsecond.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use tollgate::Quota;
use tollgate::algorithm::{Ask, ChargeRecord, Micros, State, Step, Verdict, settle, step};

use crate::admitted::{self, AdmittedCharge};
use crate::model::Model;
use crate::raw;

/// Reads `data` as a quota and a history under it.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let _ = match data.len() % 4 {
        0 => arbitrary_history(&mut u),
        _ => realistic_history(&mut u),
    };
}

/// With realistic quotas and a clock that never goes back, the bound holds over every interval.
fn realistic_history(u: &mut Unstructured<'_>) -> Result<()> {
    let quota = raw::quota(u)?;
    if quota.rate() > 1 << 30
        || quota.get_capacity() > 1 << 32
        || quota.get_max_reserved().is_some_and(|most| most > 1 << 34)
    {
        return Ok(());
    }
    let (mut state, mut now) = (State::default(), raw::instant(u)?);
    let (mut promised, mut admitted) = (now, Vec::new());
    while !u.is_empty() && admitted.len() < MAX_CHARGES {
        now = later(u, &quota, now, promised)?;
        let ask = raw::ask(u, &quota)?;
        let answer = step(&quota, &state, now, ask);
        check_promise(&quota, &state, ask, &answer);
        check_range(&answer.state);
        if let Some(receipt) = ChargeRecord::new(ask.tokens(), &answer) {
            (state, promised) = (answer.state, receipt.due);
            admitted.push(AdmittedCharge::of(&receipt, now));
        } else if let Verdict::Deny { retry: Some(retry) } = answer.verdict {
            promised = now + retry;
        }
    }
    if let Err(text) = admitted::check(&Model::of(&quota), &admitted) {
        panic!("{text}: {quota}, {admitted:?}");
    }
    Ok(())
}

/// Two alternating quotas with any clock, any row (even an impossible one), and arbitrary settlements.
fn arbitrary_history(u: &mut Unstructured<'_>) -> Result<()> {
    let (quota, other) = (raw::quota(u)?, raw::quota(u)?);
    let mut state = raw::state(u, &quota)?;
    let is_honest = state.spent >= 0.0 && state.spent <= MOST && state.carry >= 0.0 && state.carry <= MOST;
    let (mut now, mut last) = (raw::instant(u)?, None);
    while !u.is_empty() {
        let shape: u8 = u.arbitrary()?;
        let quota = if shape & 1 == 0 { &quota } else { &other };
        now = match shape >> 1 & 3 {
            0 => raw::instant(u)?,
            1 => Micros::new(now.get().saturating_sub(raw::number(u)?)),
            _ => Micros::new(now.get().saturating_add(raw::number(u)?)),
        };
        let ask = raw::ask(u, quota)?;
        let answer = step(quota, &state, now, ask);
        if is_honest {
            check_range(&answer.state);
        }
        if let Some(receipt) = ChargeRecord::new(ask.tokens(), &answer) {
            state = answer.state;
            last = Some(receipt);
        }
        if let (Some(receipt), true) = (last, shape & 8 == 8) {
            state = settle(quota, &state, &receipt, now, raw::number(u)?);
            if is_honest {
                check_range(&state);
            }
        }
    }
    Ok(())
}

/// Returns an instant at an edge: now, a microsecond later, the end of a period, or the promised instant.
fn later(u: &mut Unstructured<'_>, quota: &Quota, now: Micros, promised: Micros) -> Result<Micros> {
    let (period, each) = (quota.period().as_micros() as u64, (quota.period() / quota.rate().max(1) as u32).as_micros());
    let step = match u.arbitrary::<u8>()? % 9 {
        0 | 1 => 0,
        2 => 1,
        3 => each as u64 + 1,
        4 => period - 1,
        5 => period - now.get() % period,
        6 => promised.since(now).as_micros() as u64,
        7 => (promised.since(now).as_micros() as u64).saturating_sub(1),
        _ => raw::number(u)?,
    };
    // A step is at most about 400 days, so that a history ends long before the last instant.
    Ok(if step > 1 << 45 { now } else { now + Duration::from_micros(step) })
}

/// Checks that the same ask is granted at the promised instant, but not a microsecond earlier, and that a reservation
/// is due exactly when the tokens spent beyond the capacity are repaid.
fn check_promise(quota: &Quota, state: &State, ask: Ask, answer: &Step) {
    let (wait, state, ask) = match answer.verdict {
        Verdict::Deny { retry: Some(retry) } => (retry, state, ask),
        Verdict::Reserve { wait } => {
            assert!(Some(wait) <= ask.max_wait(), "{wait:?} for {ask:?}");
            // A cost of 0 is granted if no debt is left.
            (wait, &answer.state, Ask::cost(0))
        }
        Verdict::Allow | Verdict::Deny { retry: None } => return,
    };
    assert!(!wait.is_zero(), "{ask:?} of {quota}");
    let (then, before) = (answer.now + wait, answer.now + (wait - Duration::from_micros(1)));
    assert!(then < Micros::MAX, "{ask:?} of {quota} at {then:?}");
    assert!(
        step(quota, state, then, ask).is_allowed(),
        "{ask:?} was denied after {wait:?}: {quota} {state:?} {answer:?}"
    );
    assert!(
        !step(quota, state, before, ask).is_allowed(),
        "{ask:?} was allowed before {wait:?}: {quota} {state:?} {answer:?}"
    );
}

/// Checks that the stored numbers are not negative, and are small enough to be exact.
fn check_range(state: &State) {
    assert!((0.0..=MOST).contains(&state.spent) && (0.0..=MOST).contains(&state.carry), "{state:?}");
}

/// The largest integer up to which an `f64` represents every integer exactly.
const MOST: f64 = 9_007_199_254_740_991.0;

/// The maximum number of admitted charges, because each is compared with all others.
const MAX_CHARGES: usize = 64;
