//! What a quota admits at most, over every interval, in whole numbers.

use tollgate::Quota;
use tollgate::algorithm::{Algorithm, Micros};

/// Tokens that were admitted at an instant, and truly used in the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    pub(crate) at: Micros,
    /// What it cost more than it was taken for is debt, which no bound speaks of.
    pub(crate) tokens: u64,
}

/// Checks every interval from one admission to another: at most the capacity, and what is paid back meanwhile.
pub(crate) fn check(quota: &Quota, used: &[Used]) -> Result<(), String> {
    let period = quota.period().as_micros() as i128;
    let micros = |at: Micros| i128::from(at.get());
    // In tokens times the period, so that nothing is rounded.
    let paid_back = |from: Micros, to: Micros| match quota.algorithm() {
        Algorithm::TokenBucket => (micros(to) - micros(from)) * i128::from(quota.rate()),
        Algorithm::FixedWindow => (micros(to) / period - micros(from) / period) * i128::from(quota.rate()) * period,
        other => panic!("{other:?}"),
    };
    for (i, first) in used.iter().enumerate() {
        let mut sum = 0;
        for last in &used[i..] {
            sum += i128::from(last.tokens) * period;
            let most = i128::from(quota.limit()) * period + paid_back(first.at, last.at);
            // A millionth of a token is what decisions may be off by.
            if (sum - most) * 1_000_000 > period {
                return Err(format!("{sum} of {most} between {:?} and {:?}", first.at, last.at));
            }
        }
    }
    Ok(())
}

#[test]
fn the_check_can_fail() {
    let quota = Quota::token_bucket(10, tollgate::MINUTE);
    let used = |seconds: u32, tokens| Used { at: Micros::EPOCH + seconds * tollgate::SECOND, tokens };
    assert!(check(&quota, &[used(0, 10), used(30, 5)]).is_ok());
    assert!(check(&quota, &[used(0, 10), used(30, 6)]).is_err());
    assert!(check(&quota, &[used(1, 1), used(2, 11)]).is_err());
}
