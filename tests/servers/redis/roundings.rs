//! Quotas for which the order of floating-point operations matters.

use std::time::Duration;

use tollgate::algorithm::{Ask, Micros};
use tollgate::{MINUTE, Quota};

use super::regressions::{NOW, Row};

const MOST: u64 = Quota::MAX_TOKENS;

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Returns an ask without a wait and an ask with a wait, because the script has a branch for each.
fn asks(cost: u64) -> [Ask; 2] {
    [Ask::cost(cost), Ask::cost(cost).wait_up_to(micros(1))]
}

/// If the refill were computed by dividing before multiplying, the result would not be a whole number of tokens.
#[tokio::test]
async fn whole_periods_refill_whole_tokens() {
    let (rate, period) = (41u64, 3_333_331u64);
    let quota = Quota::token_bucket(rate, micros(period)).capacity(100_000);
    let odd = |grains: &u64| (grains * period) as f64 * (rate as f64 / period as f64) != (grains * rate) as f64;
    let found: Vec<u64> = (1..2000).filter(odd).take(3).collect();
    assert!(!found.is_empty());
    for grains in found {
        for i in 0..2 {
            let mut row = Row::at(NOW).await;
            // Spend only one token more than the refill. With a larger amount, rounding would hide the difference.
            row.take(&quota, asks(grains * rate + 1)[i]).await;
            row.later(NOW + micros(grains * period));
            row.take(&quota, asks(1)[i]).await;
            assert_eq!(row.model.spent.fract(), 0.0);
        }
    }
}

#[tokio::test]
async fn a_bucket_multiplies_before_it_divides() {
    let (rate, period) = (MOST, 3_333_331u64);
    let quota = Quota::token_bucket(rate, micros(period));
    let between = |elapsed: &u64| {
        let repaid = *elapsed as f64 * rate as f64 / period as f64;
        let other = *elapsed as f64 * (rate as f64 / period as f64);
        let whole = repaid.max(other).floor();
        (whole > repaid.min(other)).then_some((*elapsed, whole as u64))
    };
    let found: Vec<_> = (1..period).filter_map(|elapsed| between(&elapsed)).take(5).collect();
    assert!(!found.is_empty());
    for (elapsed, tokens) in found {
        for i in 0..2 {
            let mut row = Row::at(NOW).await;
            row.take(&quota, Ask::cost(tokens)).await;
            row.later(NOW + micros(elapsed));
            row.take(&quota, asks(0)[i]).await;
        }
    }
}

/// If the refill were subtracted from a large number of spent tokens, the difference would be rounded.
#[tokio::test]
async fn a_large_debt_is_compared_without_rounding() {
    let (rate, period) = (999_999_937u64, 8_999_993u64);
    let quota = Quota::token_bucket(rate, micros(period)).capacity(MOST);
    let just_short = (1..period).filter(|elapsed| elapsed * rate % period > period - period / 50).take(3);
    for elapsed in just_short {
        for i in 0..2 {
            let mut row = Row::at(NOW).await;
            row.take(&quota, Ask::cost(MOST)).await;
            row.later(NOW + micros(elapsed));
            let denied = row.take(&quota, asks(elapsed * rate / period + 1)[i]).await;
            assert!(denied.is_none(), "expected a denial, because the last token is not yet completely refilled");
        }
    }
}

#[tokio::test]
async fn the_previous_window_never_counts_for_more_than_its_spent_tokens() {
    let period = 3_333_331u64;
    let quota = Quota::sliding_window(MOST, micros(period)).start(Duration::ZERO);
    let more = |tokens: &u64| *tokens as f64 * period as f64 / period as f64 > *tokens as f64;
    let begin = Micros::new(NOW.get() / period * period);
    for tokens in (MOST / 2..MOST).step_by(99_991).filter(more).take(3) {
        let mut row = Row::at(begin).await;
        row.take(&quota, Ask::cost(tokens)).await;
        row.later(begin + micros(period));
        assert!(row.take(&quota, Ask::cost(MOST - tokens)).await.is_some(), "{tokens}");
    }
}

#[tokio::test]
async fn a_sliding_window_multiplies_before_it_divides() {
    let period = 3_333_331u64;
    let quota = Quota::sliding_window(7 * period, micros(period)).start(Duration::ZERO);
    let begin = Micros::new(NOW.get() / period * period);
    let more = |left: &u64| (7 * period) as f64 * (*left as f64 / period as f64) > (7 * left) as f64;
    let found: Vec<u64> = (1..period).filter(more).take(3).collect();
    assert!(!found.is_empty());
    for left in found {
        let mut row = Row::at(begin).await;
        row.take(&quota, Ask::cost(7 * period)).await;
        row.later(begin + micros(2 * period - left));
        assert!(
            row.take(&quota, Ask::cost(7 * (period - left))).await.is_some(),
            "expected a grant, because only {} tokens of the previous window still count",
            7 * left
        );
    }
}

/// The row is ahead of the clock, so the row and the receipt are compared at the row's time.
#[tokio::test]
async fn a_settlement_takes_effect_after_the_clock_steps_back() {
    let quota = Quota::sliding_window(10, MINUTE).start(Duration::ZERO);
    let begin = Micros::new(NOW.get() / 60_000_000 * 60_000_000);
    let mut row = Row::at(begin).await;
    let receipt = row.take(&quota, Ask::cost(4)).await.unwrap();
    row.later(begin + MINUTE + micros(1));
    row.take(&quota, Ask::cost(1)).await;
    row.later(begin + micros(59_000_000));
    row.settle(&quota, receipt, 0).await;
    assert_eq!((row.model.spent, row.model.carry), (1.0, 0.0));
}
