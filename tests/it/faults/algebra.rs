//! Faults of the arithmetic.

use tollgate::algorithm::{Ask, ChargeRecord, Micros, State, Verdict, settle, stamp, step};
use tollgate::{MINUTE, Quota, SECOND};

const NOW: Micros = Micros::new(1_700_000_000_000_000);

/// Right: a credit never makes a retry time later. Cause: `algorithm/give_back.rs`, `credited` converts the row to the
/// new quota, so the row is no longer repaid at the faster rate of the old one.
#[test]
fn fault_08_a_credit_lengthens_a_denial() {
    let (old, new) = (Quota::token_bucket(1000, MINUTE), Quota::token_bucket(60, MINUTE));
    let spent = step(&old, &State::default(), NOW, Ask::cost(1000)).state;
    let retry = |row: &State| match step(&new, row, NOW, Ask::cost(1)).verdict {
        Verdict::Deny { retry: Some(retry) } => retry.as_secs(),
        other => panic!("{other:?}"),
    };
    let credited = settle(&new, &spent, &ChargeRecord::credit(1), NOW, 0);
    assert_eq!((retry(&spent), retry(&credited)), (56, 940));
}

/// Right: a wait above zero, or `Allow` as for an unspent row. Cause: only `token_bucket.rs` clamps a negative `spent`;
/// rows that were read from outside are clamped in no common place.
#[test]
fn fault_15_a_negative_row_gives_a_reservation_without_a_wait() {
    let quota = Quota::fixed_window(16, MINUTE).capacity(5).unlimited_reservations();
    let at = Micros::new(NOW.get() / 60_000_000 * 60_000_000);
    let clear = at + MINUTE;
    let row = State { spent: -2.0, at, carry: 0.0, stamp: stamp(&quota), clear };
    let answers: Vec<Verdict> =
        (5..=7).map(|cost| step(&quota, &row, at + SECOND, Ask::cost(cost).reserve()).verdict).collect();
    assert!(answers.contains(&Verdict::Reserve { wait: std::time::Duration::ZERO }), "{answers:?}");
}
