//! A quota stays within its bound over every interval of a history. The bound is computed in exact arithmetic.

use proptest::prelude::*;
use tollgate::algorithm::{ChargeRecord, State, step};

use crate::support::admitted::{AdmittedCharge, check};
use crate::support::generators::{begin, bucket_or_window, cases, history, sliding, tiny};
use crate::support::model::Model;

proptest! {
    #![proptest_config(cases(6000))]

    #[test]
    fn the_bound_holds_over_every_interval(
        quota in prop_oneof![bucket_or_window(), tiny(), sliding()],
        begin in begin(),
        history in history(60),
    ) {
        let (mut state, mut now, mut promised) = (State::default(), begin, begin);
        let mut admitted = Vec::new();
        for raw in history {
            now = raw.moved(&quota, now, promised);
            let ask = raw.ask(&quota);
            let step = step(&quota, &state, now, ask);
            if let Some(receipt) = ChargeRecord::new(ask.tokens(), &step) {
                state = step.state;
                promised = receipt.due;
                admitted.push(AdmittedCharge::of(&receipt, now));
            }
        }
        if let Err(text) = check(&Model::of(&quota), &admitted) {
            prop_assert!(false, "{}: {:?}", text, admitted);
        }
    }
}
