//! Checks, in exact integer arithmetic, that a quota admits no more than its bound over any interval.

use tollgate::Quota;
use tollgate::algorithm::{Algorithm, Micros};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    pub(crate) at: Micros,
    /// The smaller of the charge and the actual cost, because the bound does not cover debt.
    pub(crate) tokens: u64,
}

/// Checks that the tokens admitted in any interval do not exceed the capacity plus the tokens refilled in the interval.
pub(crate) fn check(quota: &Quota, used: &[Used]) -> Result<(), String> {
    let period = quota.period().as_micros() as i128;
    let micros = |at: Micros| i128::from(at.get());
    // To avoid rounding, all amounts are tokens multiplied by the period.
    let refilled = |from: Micros, to: Micros| match quota.algorithm() {
        Algorithm::TokenBucket => (micros(to) - micros(from)) * i128::from(quota.rate()),
        Algorithm::FixedWindow => (micros(to) / period - micros(from) / period) * i128::from(quota.rate()) * period,
        other => panic!("{other:?}"),
    };
    for (i, first) in used.iter().enumerate() {
        let mut sum = 0;
        for last in &used[i..] {
            sum += i128::from(last.tokens) * period;
            let bound = i128::from(quota.get_capacity()) * period + refilled(first.at, last.at);
            // Decisions tolerate an error of up to a millionth of a token.
            if (sum - bound) * 1_000_000 > period {
                return Err(format!(
                    "admitted {sum} between {:?} and {:?}, expected at most {bound} (tokens times period)",
                    first.at, last.at
                ));
            }
        }
    }
    Ok(())
}

#[test]
fn excess_admissions_are_detected() {
    let quota = Quota::token_bucket(10, tollgate::MINUTE);
    let used = |seconds: u32, tokens| Used { at: Micros::EPOCH + seconds * tollgate::SECOND, tokens };
    assert!(check(&quota, &[used(0, 10), used(30, 5)]).is_ok());
    assert!(check(&quota, &[used(0, 10), used(30, 6)]).is_err());
    assert!(check(&quota, &[used(1, 1), used(2, 11)]).is_err());
}
