//! Leases: no input panics, outstanding tokens always count as spent, and honest holders never exceed the bound.

use arbitrary::{Result, Unstructured};
use tollgate::Quota;
use tollgate::algorithm::{Ask, ChargeRecord, LEASE_LIFE, LeaseId, LeaseReport, Micros, Outstanding, State};
use tollgate::algorithm::{lease, settle_leases, step};

use crate::admitted::{self, AdmittedCharge};
use crate::model::Model;
use crate::raw;

/// Reads `data` as a quota and a history of leases and charges on one row.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let _ = match data.len() % 3 {
        0 => arbitrary_history(&mut u),
        _ => honest_history(&mut u),
    };
}

/// A lease: the tokens that its holder can still spend, and those that are spent but not yet reported.
struct Held {
    id: LeaseId,
    tokens: u64,
    spent: u64,
    deadline: Micros,
}

/// Holders spend leases until the deadline, and report each lease at most once.
fn honest_history(u: &mut Unstructured<'_>) -> Result<()> {
    let quota = raw::quota(u)?;
    if quota.rate() > 1 << 30 || quota.get_capacity() > 1 << 32 {
        return Ok(());
    }
    let (mut state, mut outstanding) = (State::default(), Outstanding::default());
    let (mut now, mut held, mut admitted) = (raw::instant(u)?, Vec::<Held>::new(), Vec::new());
    while !u.is_empty() && admitted.len() < MAX_CHARGES {
        now = later(u, &outstanding, now)?;
        let (kind, tokens) = (u.arbitrary::<u8>()?, raw::number(u)?.min(1 << 33));
        match kind % 4 {
            0 => {
                let (settled, of_settled) = settle_leases(&quota, &state, &outstanding, now);
                let answer = step(&quota, &settled, now, Ask::cost(tokens));
                if answer.is_allowed() {
                    (state, outstanding) = (answer.state, of_settled);
                    admitted.extend(charge(tokens, now));
                }
            }
            1 => {
                for lease in held.iter_mut().filter(|lease| now < lease.deadline) {
                    let spent = lease.tokens.min(tokens);
                    (lease.tokens, lease.spent) = (lease.tokens - spent, lease.spent + spent);
                    admitted.extend(charge(spent, now));
                }
            }
            _ => {
                let lost = kind & 4 == 4;
                let reported = (kind & 8 == 8 && !held.is_empty()).then(|| held.remove(0));
                let report = |held: Held| LeaseReport { id: held.id, spent: held.spent, unused: held.tokens };
                let reports: Vec<_> = reported.map(report).filter(|_| !lost).into_iter().collect();
                let answer = lease(&quota, &state, &outstanding, now, &reports, tokens);
                (state, outstanding) = (answer.state, answer.outstanding);
                // The request was sent before the row's time, by less than the life of a lease.
                let sent = Micros::new(now.get().saturating_sub(raw::number(u)? % LEASE_LIFE.as_micros() as u64));
                if answer.tokens > 0 && kind & 16 == 0 {
                    let (id, tokens, deadline) = (answer.id, answer.tokens, sent + answer.life);
                    held.push(Held { id, tokens, spent: 0, deadline });
                }
            }
        }
        check_floor(&quota, &state, &outstanding);
    }
    if let Err(text) = admitted::check(&Model::of(&quota), &admitted) {
        panic!("{text}: {quota}, {admitted:?}");
    }
    Ok(())
}

/// Two alternating quotas, any clock, and reports that an honest holder would not send.
fn arbitrary_history(u: &mut Unstructured<'_>) -> Result<()> {
    let quotas = [raw::quota(u)?, raw::quota(u)?];
    let (mut state, mut outstanding) = (State::default(), Outstanding::default());
    let mut now = raw::instant(u)?;
    while !u.is_empty() {
        let kind: u8 = u.arbitrary()?;
        let quota = &quotas[usize::from(kind & 1)];
        now = if kind & 2 == 2 { raw::instant(u)? } else { later(u, &outstanding, now)? };
        let id = match kind >> 2 & 3 {
            0 => LeaseId { since: raw::instant(u)?, turn: raw::instant(u)? },
            1 => LeaseId { since: outstanding.since, turn: Micros::new(outstanding.turn.get().saturating_sub(LIFE)) },
            _ => LeaseId { since: outstanding.since, turn: outstanding.turn },
        };
        let report = LeaseReport { id, spent: raw::number(u)?, unused: raw::number(u)? };
        let answer = lease(quota, &state, &outstanding, now, &[report, report], raw::number(u)?);
        assert!(answer.tokens <= quota.get_capacity() / 2, "{answer:?} of {quota}");
        assert!(answer.life <= 2 * LEASE_LIFE, "{answer:?} of {quota}");
        (state, outstanding) = (answer.state, answer.outstanding);
        assert!((0.0..=MOST).contains(&state.spent) && (0.0..=MOST).contains(&state.carry), "{state:?} of {quota}");
    }
    Ok(())
}

fn charge(tokens: u64, now: Micros) -> Option<AdmittedCharge> {
    let record = ChargeRecord { cost: tokens, state: State::default(), due: now };
    (tokens > 0).then(|| AdmittedCharge::of(&record, now))
}

/// Returns an instant at an edge: now, a microsecond later, or just before or after the end of a generation.
fn later(u: &mut Unstructured<'_>, outstanding: &Outstanding, now: Micros) -> Result<Micros> {
    let until_turn = outstanding.turn.since(now).as_micros() as u64;
    let micros = match u.arbitrary::<u8>()? % 8 {
        0 => 0,
        1 => 1,
        2 => until_turn,
        3 => until_turn.saturating_sub(1),
        4 => until_turn + LIFE,
        5 => LIFE / 4,
        _ => raw::number(u)?,
    };
    Ok(if micros > 1 << 45 { now } else { Micros::new(now.get().saturating_add(micros)) })
}

fn check_floor(quota: &Quota, state: &State, outstanding: &Outstanding) {
    let is_exact = (0.0..=MOST).contains(&state.spent) && (0.0..=MOST).contains(&state.carry);
    assert!(is_exact && state.spent >= outstanding.tokens() as f64, "{state:?} {outstanding:?} of {quota}");
}

const LIFE: u64 = LEASE_LIFE.as_micros() as u64;

/// The largest integer up to which an `f64` represents every integer exactly.
const MOST: f64 = 9_007_199_254_740_991.0;

/// The maximum number of admitted charges, because each is compared with all others.
const MAX_CHARGES: usize = 64;
