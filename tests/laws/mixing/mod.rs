//! Random histories over all features at once: a limiter in memory is compared with a slow model.
//!
//! A history mixes several policies with all algorithms, several quotas, shards, tiers and callers' own quotas; calls
//! with several charges, checks, reservations and waiting calls; settlements, credits and resets; shadow mode; changes
//! of quotas and enforcement at run time; pauses, blocks, deny lists and automatic blocks; failure modes and fallback;
//! saving and loading; and a clock that moves forward and back.
//!
//! A normal run plays the same histories every time. `TOLLGATE_MIXING=3600` plays new histories for an hour, and prints
//! its progress. `TOLLGATE_MIXING_SEED=7` repeats one history. `TOLLGATE_MIXING_STRICT=1` also reports the known
//! faults. A report ends with a shortened history. Shards are drawn at random, so a history with shards may have to be
//! repeated several times.
//!
//! Not compared: calls with two charges of one key to the same shards, fallbacks of waiting calls, figures of calls
//! that fail open.

mod history;
mod ledger;
mod model;
#[path = "../../mixing/mod.rs"]
pub(crate) mod shared;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use self::model::Model;
use self::shared::adapter::{self, Program};
use self::shared::known::Finding;
use self::shared::run::{self, Played};
use self::shared::terms::{Answer, Op, Time, World};

#[test]
fn a_limiter_agrees_with_a_slow_model_in_histories_over_all_features() {
    let facts = model::Facts2::default();
    run::histories("mixing in memory", 1_500, history::generate, |world, history| play(world, history, &facts));
}

fn play(world: &World, history: &[Op], facts: &Rc<RefCell<adapter::Facts>>) -> Played {
    let mut played = Played::default();
    let stopped = catch_unwind(AssertUnwindSafe(|| {
        let (mut program, mut model) = (Program::start(world), Model::new(world, facts));
        let mut promised = world.start;
        for op in history {
            let op = match *op {
                Op::ToPromise(more) => match promised.saturating_add_signed(more).checked_sub(model.now()) {
                    Some(by) => Op::Forward(by),
                    None => continue,
                },
                Op::Back(by) if model.has_expired_since(model.now().saturating_sub(by)) => continue,
                _ => op.clone(),
            };
            if model.is_hidden(&op) {
                continue;
            }
            played.done.push(op.name());
            let result = step(&mut program, &mut model, &op, &mut promised);
            played.findings.append(&mut model.findings);
            if let Err(text) = result {
                let is_last = model.now() > adapter::LAST - 86_400_000_000 * 40;
                let known = match text.as_str() {
                    model::LET_THROUGH => Some(103),
                    model::STALE => Some(2),
                    _ => is_last.then_some(10),
                };
                let text = format!("{}: {text}; the operation was {op:?}", op.name());
                played.findings.push(Finding::of(known, text));
                return;
            }
        }
    }));
    if let Err(panic) = stopped {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        played.findings.push(Finding::of(None, format!("a panic: {text}")));
    }
    played
}

fn step(program: &mut Program, model: &mut Model, op: &Op, promised: &mut Time) -> Result<(), String> {
    let answer = program.apply(op);
    if let Answer::Lines(lines) = &answer {
        let wait = lines.iter().filter_map(|line| line.retry.or((line.delay > 0).then_some(line.delay))).max();
        *promised = wait.map_or(*promised, |wait| model.now().saturating_add(wait));
    }
    model.apply(op, &answer, &|policy, caller| program.rows(policy, caller))?;
    let mut index = 0;
    while index < model.waiting() {
        let answer = program.poll(index);
        let has_ended = model.polled(index, answer.as_ref(), &|policy, caller| program.rows(policy, caller))?;
        index += usize::from(!has_ended);
    }
    if program.waiting() != model.waiting() {
        return Err(format!("{} calls are waiting, expected {}", program.waiting(), model.waiting()));
    }
    Ok(())
}
