//! A quota keeps its bound over every interval of a history. The bound is computed in exact arithmetic.

use proptest::prelude::*;
use tollgate::algorithm::{ChargeRecord, State, step};

use crate::admitted::{Turn, check};
use crate::model::Model;
use crate::random::{begin, cases, history, paying_back, sliding, tiny};

proptest! {
    #![proptest_config(cases(6000))]

    #[test]
    fn the_bound_holds_over_every_interval(
        quota in prop_oneof![paying_back(), tiny(), sliding()],
        begin in begin(),
        history in history(60),
    ) {
        let (mut state, mut now, mut promised) = (State::default(), begin, begin);
        let mut turns = Vec::new();
        for raw in history {
            now = raw.moved(&quota, now, promised);
            let ask = raw.ask(&quota);
            let step = step(&quota, &state, now, ask);
            if let Some(receipt) = ChargeRecord::new(ask.tokens(), &step) {
                state = step.state;
                promised = receipt.due;
                turns.push(Turn::of(&receipt, now));
            }
        }
        if let Err(text) = check(&Model::of(&quota), &turns) {
            prop_assert!(false, "{}: {:?}", text, turns);
        }
    }
}
