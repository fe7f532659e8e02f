//! A test suite that every [`Backend`] must pass (feature `conformance`). Any version may add tests.
//!
//! Each function panics if the backend violates the contract. The suite works with any clock, because it repeats each
//! decision with [`algorithm::step`](crate::algorithm::step) at the instant of the decision, and compares the results.
//!
//! ```
//! use tollgate::backend::{conformance, MemoryBackend};
//! use tollgate::clock::ManualClock;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let clock = ManualClock::new();
//! let backend = MemoryBackend::builder().clock(clock.clone()).build();
//! conformance::all(&backend, async |time| clock.advance(time)).await; // with a real clock: `tokio::time::sleep`
//! # }
//! ```

#![allow(clippy::expect_used)] // The suite reports failures by panicking.

use std::collections::HashMap;
use std::time::Duration;

use super::{Backend, RowId, Steps, Take};
use crate::algorithm::{Ask, HOUR, Line, Micros, Quota, SECOND, State, Step, Verdict, roll, step_all};
use crate::policy::{Digest, Key, MAX_WINDOWS, PolicyName, Secret};

/// Runs all parts of the suite. `pass` must let the given time pass on the backend's clock, and let the backend's tasks
/// run. The times add up to less than one second. To test concurrent calls as well, run [`spend`] on several threads.
pub async fn all(backend: &dyn Backend, pass: impl AsyncFn(Duration)) {
    decides_as_the_algebra_does(backend, &pass).await;
    common_parts(backend, &pass).await;
}

/// Runs the suite for a backend that cannot decide charges to several keys together, such as a Redis cluster.
pub async fn all_key_by_key(backend: &dyn Backend, pass: impl AsyncFn(Duration)) {
    histories(backend, &pass, false).await;
    common_parts(backend, &pass).await;
}

async fn common_parts(backend: &dyn Backend, pass: &impl AsyncFn(Duration)) {
    stores_all_or_none(backend).await;
    peeks_without_a_trace(backend).await;
    keeps_rows_apart(backend).await;
    charges_a_repeated_row_each_time(backend).await;
    preserves_spent_tokens_when_the_quota_changes(backend).await;
    settles_by_the_rules(backend).await;
    forgets_what_is_reset(backend).await;
    charges_even_if_the_future_is_dropped(backend, pass).await;
    settles_and_resets_even_if_futures_are_dropped(backend, pass).await;
    handles_extreme_values(backend).await;
    leases_follow_the_algorithm(backend, pass).await;
}

/// Tests that decisions on random calls, under all kinds of quotas, match those that
/// [`algorithm::step_all`](crate::algorithm::step_all) makes at the same instant.
pub async fn decides_as_the_algebra_does(backend: &dyn Backend, pass: impl AsyncFn(Duration)) {
    histories(backend, &pass, true).await;
}

async fn histories(backend: &dyn Backend, pass: &impl AsyncFn(Duration), several_keys: bool) {
    let ms = Duration::from_millis(1);
    let policies = [
        ("conformance tb", Quota::token_bucket(3, 7 * ms).capacity(5)),
        ("conformance tb reserve", Quota::token_bucket(1000, SECOND).capacity(10).max_reserved(7)),
        ("conformance tb none", Quota::token_bucket(100, SECOND).capacity(0).unlimited_reservations()),
        ("conformance fw", Quota::fixed_window(4, 5 * ms)),
        ("conformance fw roll", Quota::fixed_window(4, 5 * ms).capacity(9).max_reserved(9).start(3 * ms)),
        ("conformance sw", Quota::sliding_window(6, 5 * ms)),
        ("conformance slow", Quota::token_bucket(40, HOUR)),
    ]
    .map(|(name, quota)| (PolicyName::new(name), quota));
    let secret = Secret::random();
    let keys = [1u64, 2, 3].map(|key| secret.digest(&Key::from(key)));
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut model: HashMap<Digest, State> = HashMap::new();

    for round in 0..2000 {
        let count = 1 + dice.below(3) * dice.below(2);
        let key = keys[dice.below(keys.len())];
        let takes: Vec<Take<'_>> = (0..count)
            .map(|_| {
                let (policy, quota) = &policies[dice.below(policies.len())];
                let key = if several_keys { keys[dice.below(keys.len())] } else { key };
                let row = RowId { policy, key };
                let ask = Ask::cost(dice.below(6) as u64);
                let ask = match dice.below(3) {
                    0 => ask,
                    1 => ask.reserve(),
                    _ => ask.wait_up_to(dice.below(9) as u32 * ms),
                };
                let window = [0, 0, 1, 3][dice.below(4)];
                Take::new(row, quota, ask).at_window(window)
            })
            .collect();
        let store = dice.below(5) > 0;
        let steps = ask(backend, &takes, store).await;
        replay(&mut model, &takes, &steps, store, round);
        match dice.below(20) {
            0 => pass(ms).await,
            1 => pass(Duration::from_micros(dice.below(3000) as u64)).await,
            2 => {
                let row = takes[0].row;
                backend.reset(&[row]).await.expect("the reset failed");
                (0..MAX_WINDOWS as u8).for_each(|window| _ = model.remove(&row.digest().window(window)));
            }
            _ => {}
        }
    }
}

/// Tests that a denied call leaves every row unchanged, regardless of the order of its takes.
pub async fn stores_all_or_none(backend: &dyn Backend) {
    let (wide, narrow) = (PolicyName::new("conformance wide"), PolicyName::new("conformance narrow"));
    let key = fresh_key();
    let wide = Take::new(RowId { policy: &wide, key }, &Quota::token_bucket(10, HOUR), Ask::cost(1));
    let narrow = Take::new(RowId { policy: &narrow, key }, &Quota::token_bucket(1, HOUR), Ask::cost(1));
    assert!(ask(backend, &[wide, narrow], true).await.all_granted());
    for takes in [[wide, narrow], [narrow, wide]] {
        let before = state_of(backend, &wide).await;
        let steps = ask(backend, &takes, true).await;
        assert!(!steps.all_granted(), "the narrow quota is exhausted");
        let fits = takes.iter().zip(steps.iter()).find(|(take, _)| take.row.policy == wide.row.policy);
        assert!(fits.is_some_and(|(_, step)| step.is_allowed() && step.state.spent == before.spent));
        assert_eq!(state_of(backend, &wide).await, before, "a denied call must not charge a row");
    }
}

/// Tests that a peek returns what an acquire would return, and stores nothing.
pub async fn peeks_without_a_trace(backend: &dyn Backend) {
    let policy = PolicyName::new("conformance peek");
    let take = Take::new(fresh_row(&policy), &Quota::token_bucket(3, HOUR), Ask::cost(2));
    for _ in 0..5 {
        assert!(ask(backend, &[take], false).await.all_granted());
    }
    assert!(ask(backend, &[take], true).await.all_granted());
    assert!(!ask(backend, &[take], false).await.all_granted(), "one token is left, but two are requested");
    assert!(!ask(backend, &[take], true).await.all_granted());
}

/// Tests that each key has a separate row under each policy.
pub async fn keeps_rows_apart(backend: &dyn Backend) {
    let policies = [PolicyName::new("conformance a"), PolicyName::new("conformance b")];
    let quota = Quota::fixed_window(1, HOUR);
    for key in [fresh_key(), fresh_key()] {
        for policy in &policies {
            let take = Take::new(RowId { policy, key }, &quota, Ask::cost(1));
            assert_eq!(spend(backend, &[take], 2).await, 1);
        }
    }
}

/// Tests that a row is charged twice or not at all if a call names it twice.
pub async fn charges_a_repeated_row_each_time(backend: &dyn Backend) {
    let policy = PolicyName::new("conformance twice");
    let quota = Quota::token_bucket(3, HOUR);
    let take = Take::new(fresh_row(&policy), &quota, Ask::cost(1));
    assert_eq!(spend(backend, &[take, take], 2).await, 1);
    assert_eq!(spend(backend, &[take], 2).await, 1);

    // If two takes can never fit together, they are denied without a retry time.
    let two = Take::new(fresh_row(&policy), &quota, Ask::cost(2));
    let steps = ask(backend, &[two, two], true).await;
    assert_eq!(steps[1].verdict, Verdict::Deny { retry: None });

    // The second take accepts a reservation, so both can be granted as soon as the first fits.
    let quota = Quota::token_bucket(2, HOUR).max_reserved(5);
    let row = fresh_row(&policy);
    let take = |ask| Take::new(row, &quota, ask);
    assert!(ask(backend, &[take(Ask::cost(1))], true).await.all_granted());
    let steps = ask(backend, &[take(Ask::cost(2)), take(Ask::cost(3).reserve())], true).await;
    let Verdict::Deny { retry: Some(retry) } = steps[0].verdict else { panic!("{steps:?}") };
    assert!(retry <= HOUR / 2, "expected at most the time to refill one token, found {retry:?}");
}

/// Tests that a charge is made when `acquire` is called, even if its future is dropped.
pub async fn charges_even_if_the_future_is_dropped(backend: &dyn Backend, pass: impl AsyncFn(Duration)) {
    let policy = PolicyName::new("conformance dropped");
    let take = Take::new(fresh_row(&policy), &Quota::token_bucket(10_080, 7 * 24 * HOUR), Ask::cost(1000));
    for _ in 0..3 {
        drop(backend.acquire(&[take]));
    }
    wait_until_spent(3000.0, backend, &take, &pass).await;
}

async fn wait_until_spent(expected: f64, backend: &dyn Backend, take: &Take<'_>, pass: &impl AsyncFn(Duration)) {
    let mut spent = state_of(backend, take).await.spent;
    for _ in 0..MAX_PEEKS {
        if (spent - expected).abs() < 1.0 {
            return;
        }
        pass(Duration::from_millis(5)).await;
        spent = state_of(backend, take).await.spent;
    }
    panic!("expected {expected} spent tokens, found {spent}: a call whose future was dropped had no effect");
}

/// Tests that extreme quotas and costs are decided correctly, and that an empty call is granted.
pub async fn handles_extreme_values(backend: &dyn Backend) {
    assert!(ask(backend, &[], true).await.is_empty());
    let policy = PolicyName::new("conformance extremes");
    let max = Quota::MAX_TOKENS;
    for quota in [
        Quota::token_bucket(max, SECOND).max_reserved(max),
        Quota::token_bucket(1, Quota::MAX_PERIOD),
        Quota::fixed_window(max, Quota::MAX_PERIOD).unlimited_reservations(),
        Quota::sliding_window(max, Quota::MAX_PERIOD),
        Quota::token_bucket(1, Duration::from_micros(1)),
    ] {
        for cost in [0, 1, max, u64::MAX] {
            for ask_for in [Ask::cost(cost), Ask::cost(cost).reserve(), Ask::cost(cost).wait_up_to(Duration::MAX)] {
                let take = Take::new(fresh_row(&policy), &quota, ask_for);
                let step = ask(backend, &[take], true).await[0];
                assert_same(&step, &crate::algorithm::step(&take.quota, &State::default(), step.now, ask_for), 0);
            }
        }
    }
}

/// Acquires `takes` in each of `tries` calls, and returns how many calls were granted. To test concurrent calls, run
/// this function for the same row on several threads.
pub async fn spend(backend: &dyn Backend, takes: &[Take<'_>], tries: usize) -> usize {
    let mut granted = 0;
    for _ in 0..tries {
        granted += usize::from(ask(backend, takes, true).await.all_granted());
    }
    granted
}

async fn ask(backend: &dyn Backend, takes: &[Take<'_>], store: bool) -> Steps {
    let steps = if store { backend.acquire(takes) } else { backend.peek(takes) }.await.expect("the backend failed");
    assert_eq!(steps.len(), takes.len(), "expected one step for each take");
    assert!(steps.iter().all(|step| step.now == steps[0].now), "expected the same instant for all takes");
    steps
}

async fn state_of(backend: &dyn Backend, take: &Take<'_>) -> State {
    let nothing = Take { ask: Ask::cost(0).reserve(), ..*take };
    let step = ask(backend, &[nothing], false).await[0];
    roll(&take.quota, &step.state, step.now)
}

fn replay(model: &mut HashMap<Digest, State>, takes: &[Take<'_>], steps: &Steps, store: bool, round: usize) {
    let mut rows: Vec<Digest> = Vec::new();
    let lines = takes.iter().map(|take| {
        let row = take.digest();
        let known = rows.iter().position(|other| *other == row);
        let row = known.unwrap_or_else(|| {
            rows.push(row);
            rows.len() - 1
        });
        Line { row, quota: &take.quota, ask: take.ask }
    });
    let lines: Vec<Line<'_>> = lines.collect();
    let mut states: Vec<State> = rows.iter().map(|row| model.get(row).copied().unwrap_or_default()).collect();
    let now = steps.first().map_or(Micros::EPOCH, |step| step.now);
    let expected = step_all(&mut states, &lines, now);
    let granted = expected.all_granted();
    for ((expected, answer), take) in expected.iter().zip(steps.iter()).zip(takes) {
        // After a denial, a backend may return the row either as stored or rolled to the current time.
        let state = |step: &Step| if granted { step.state } else { roll(&take.quota, &step.state, now) };
        assert_same(&Step { state: state(answer), ..*answer }, &Step { state: state(expected), ..*expected }, round);
    }
    if granted && store {
        model.extend(rows.into_iter().zip(states));
    }
}

fn assert_same(answer: &Step, expected: &Step, round: usize) {
    assert_eq!(
        answer.verdict, expected.verdict,
        "round {round}: expected {expected:?} as decided by `algorithm::step_all`, found {answer:?}"
    );
    let (answer, expected) = (answer.state, expected.state);
    assert_eq!(
        answer.spent.to_bits(),
        expected.spent.to_bits(),
        "round {round}: expected {expected:?}, found {answer:?}"
    );
    assert_eq!(
        answer.carry.to_bits(),
        expected.carry.to_bits(),
        "round {round}: expected {expected:?}, found {answer:?}"
    );
    if answer.spent > 0.0 || answer.carry > 0.0 {
        assert_eq!((answer.at, answer.stamp), (expected.at, expected.stamp), "round {round}");
    }
}

/// The maximum number of peeks, 5 ms apart, while a test waits for a call to take effect.
const MAX_PEEKS: usize = 30;

fn fresh_row(policy: &PolicyName) -> RowId<'_> {
    RowId { policy, key: fresh_key() }
}

fn fresh_key() -> Digest {
    Secret::random().digest(&Key::anonymous())
}

/// A pseudo-random number generator (xorshift64*) that produces the same sequence in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end as u64) as usize
    }
}

mod changed_quotas;
mod leases;
mod settlements;
#[cfg(test)]
mod tests;

pub use changed_quotas::preserves_spent_tokens_when_the_quota_changes;
pub use leases::leases_follow_the_algorithm;
pub use settlements::{forgets_what_is_reset, settles_and_resets_even_if_futures_are_dropped, settles_by_the_rules};
