//! Replies from a Redis server: any bytes result in an error, or in decisions with numbers in range.

use arbitrary::{Result, Unstructured};
use tollgate::algorithm::{Ask, ChargeRecord, Micros, State, step};
use tollgate::fuzzing::{self, Operation, decided};
use tollgate::{Quota, backend::ErrorKind, policy::PolicyName};

use crate::raw;

/// Reads `data` as operations and the server's reply to them, either on the wire or already decoded.
pub fn run(data: &[u8]) {
    let _ = check(&mut Unstructured::new(data));
}

fn check(u: &mut Unstructured<'_>) -> Result<()> {
    let shape: u8 = u.arbitrary()?;
    if shape & 3 == 0 {
        protocol(u.bytes(u.len())?);
        return Ok(());
    }
    let operations = (0..=shape >> 2 & 3).map(|_| operation(u)).collect::<Result<Vec<_>>>()?;
    // Most replies have the right length, because all others are rejected immediately.
    let reply = if shape >> 4 == 0 { u.bytes(u.len())?.to_vec() } else { reply(u, &operations)? };
    check_answers(&operations, &reply);
    if let [Operation::Decide(takes, _)] = &operations[..]
        && let [(_, 0, quota, ask)] = takes[..]
    {
        check_decision(quota, ask, &operations, &reply);
    }
    Ok(())
}

/// For a single take, computes the decision from the instant and the row, and compares it with the server's
/// decision.
fn check_decision(quota: Quota, ask: Ask, operations: &[Operation], reply: &[u8]) {
    let Ok(bytes) = <[u8; 49]>::try_from(reply) else { return };
    let number = |at: usize| f64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let in_range = |number: f64| number.fract() == 0.0 && (0.0..=Micros::MAX.get() as f64).contains(&number);
    let (now, kind, spent, at, carry) = (number(0), word(9), number(17), number(25), number(33));
    let answer = decided(operations, reply).remove(0);
    let tokens = 0.0..=Micros::MAX.get() as f64;
    let is_row = kind == ROW_HEAD && in_range(at) && tokens.contains(&spent) && tokens.contains(&carry);
    if !in_range(now) || !is_row {
        return assert!(answer.is_err(), "{bytes:?}");
    }
    let (now, at) = (Micros::new(now as u64), Micros::new(at as u64));
    let clear = if word(45) == u32::MAX { Micros::MAX } else { Micros::new(u64::from(word(45)) * 1_000_000) };
    let row = State { spent, at, carry, stamp: word(41), clear };
    let expected = step(&quota, &row, now, ask);
    match answer {
        Ok(steps) => {
            assert!(*steps == [expected] && (bytes[8] == 1) == expected.is_allowed(), "{steps:?} {expected:?}")
        }
        Err(error) => assert!((bytes[8] == 1) != expected.is_allowed(), "{error} {expected:?}"),
    }
}

/// The first bytes of a row: version, windows, sections.
const ROW_HEAD: u32 = u32::from_le_bytes([2, 1, 0, 0]);

/// Parses any bytes as a reply on the wire.
fn protocol(bytes: &[u8]) {
    let Ok(value) = redis::parse_redis_value(bytes) else { return };
    if let Some(notices) = fuzzing::notices(value.clone()) {
        assert!(notices.iter().all(|notice| notice.text.is_some() || notice.lasts.is_none()), "{notices:?}");
    }
    match fuzzing::value_of(value) {
        Ok(reply) => {
            check_answers(&[Operation::Decide(vec![(0, 0, Quota::per_second(10), Ask::cost(1))], true)], &reply)
        }
        Err(error) => assert!(!error.to_string().is_empty(), "{error:?}"),
    }
}

/// Checks that each operation gets an answer, and that the numbers in the answer are in range.
fn check_answers(operations: &[Operation], reply: &[u8]) {
    let answers = decided(operations, reply);
    assert_eq!(answers.len(), operations.len());
    for (operation, answer) in operations.iter().zip(answers) {
        let steps = match answer {
            Ok(steps) => steps,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
                continue;
            }
        };
        let Operation::Decide(takes, _) = operation else { continue };
        assert_eq!(steps.len(), takes.len());
        let all_granted = steps.all_granted();
        for (step, (_, _, quota, ask)) in steps.iter().zip(takes) {
            let decision = fuzzing::decision(PolicyName::new("api"), *quota, ask.tokens(), *step, all_granted);
            assert!(decision.remaining() <= decision.capacity(), "{decision:?}");
            let (now, longest) = (step.now, Micros::MAX.since(step.now));
            let waits =
                [decision.window(), decision.reset(), decision.delay(), decision.retry_after().unwrap_or_default()];
            assert!(waits.iter().all(|wait| *wait <= longest.max(Quota::MAX_WINDOW)), "{decision:?} at {now:?}");
        }
    }
}

fn operation(u: &mut Unstructured<'_>) -> Result<Operation> {
    let shape: u8 = u.arbitrary()?;
    let quota = raw::quota(u)?;
    Ok(match shape & 7 {
        6 => {
            let receipt = ChargeRecord { cost: raw::number(u)?, state: raw::state(u, &quota)?, due: raw::instant(u)? };
            Operation::Settle(shape >> 6, window(u), quota, receipt, raw::number(u)?)
        }
        7 => Operation::Reset(shape >> 6),
        _ => {
            let mut takes = vec![(shape >> 6, 0, quota, raw::ask(u, &quota)?)];
            if shape & 8 == 8 {
                let quota = if shape & 16 == 16 { raw::quota(u)? } else { quota };
                takes.push((shape >> 4 & 3, 0, quota, raw::ask(u, &quota)?));
            }
            takes.iter_mut().for_each(|take| take.1 = window(u));
            Operation::Decide(takes, shape & 32 == 0)
        }
    })
}

/// Returns the index of one of a row's windows, usually the first.
fn window(u: &mut Unstructured<'_>) -> u8 {
    [0, 0, 0, 1, 2, 7][usize::from(u.arbitrary::<u8>().unwrap_or(0)) % 6]
}

/// Reads a reply with the right number of flags and rows, and with mostly plausible numbers.
fn reply(u: &mut Unstructured<'_>, operations: &[Operation]) -> Result<Vec<u8>> {
    let mut rows: Vec<(u8, Option<Quota>)> = Vec::new();
    for operation in operations {
        let of_operation: Vec<(u8, Option<Quota>)> = match operation {
            Operation::Decide(takes, _) => takes.iter().map(|(row, _, quota, _)| (*row, Some(*quota))).collect(),
            Operation::Settle(row, _, quota, ..) => vec![(*row, Some(*quota))],
            Operation::Reset(row) => vec![(*row, None)],
        };
        for (row, quota) in of_operation {
            if !rows.iter().any(|(known, _)| *known == row) {
                rows.push((row, quota));
            }
        }
    }
    let mut bytes = (raw::instant(u)?.get() as f64).to_le_bytes().to_vec();
    for _ in operations {
        bytes.push(u.arbitrary::<u8>()? & 1);
    }
    for (_, quota) in rows {
        // Most rows have one window. Some have several, and some are missing or contain a foreign value.
        let (kind, windows) = match u.arbitrary::<u8>()? {
            0 => (0, 0),
            1 => (u32::MAX, 0),
            2 => (u.arbitrary()?, u.arbitrary::<u8>()? % 9),
            many @ 3..=40 => (u32::from_le_bytes([2, many % 9, 0, 0]), many % 9),
            _ => (ROW_HEAD, 1),
        };
        bytes.extend(kind.to_le_bytes());
        bytes.extend(u.arbitrary::<[u8; 4]>()?);
        if kind == u32::MAX {
            bytes.push(u.arbitrary()?);
        }
        for _ in 0..windows {
            let state = raw::state(u, &quota.unwrap_or(Quota::per_second(1)))?;
            bytes.extend(state.spent.to_le_bytes());
            bytes.extend((state.at.get() as f64).to_le_bytes());
            bytes.extend(state.carry.to_le_bytes());
            bytes.extend(state.stamp.to_le_bytes());
            bytes.extend(u.arbitrary::<[u8; 4]>()?);
        }
    }
    Ok(bytes)
}
