//! Interleaved rounds, medians and confidence intervals.

use std::time::Duration;

use crate::keys::Random;

/// Returns whether to run only a few short rounds as a smoke test (`TOLLGATE_BENCH=quick`), whose figures are
/// meaningless.
pub fn quick() -> bool {
    std::env::var_os("TOLLGATE_BENCH").is_some_and(|mode| mode == "quick")
}

pub fn rounds() -> usize {
    if quick() { 3 } else { 31 }
}

/// The length of a round.
pub const ROUND: Duration = Duration::from_millis(20);

/// Returns the medians of `rounds` measurements of each of `count` contestants.
pub fn interleaved(rounds: usize, count: usize, measure: impl FnMut(usize) -> f64) -> Vec<f64> {
    rounds_of(rounds, count, measure).into_iter().map(median).collect()
}

/// Returns `rounds` measurements of each of `count` contestants. Each contestant is first and last equally often,
/// because the machine warms up during a round.
pub fn rounds_of(rounds: usize, count: usize, mut measure: impl FnMut(usize) -> f64) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::new(); count];
    for round in 0..rounds {
        for turn in 0..count {
            let which = (round + turn) % count;
            times[which].push(measure(which));
        }
    }
    times
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[half - 1] + values[half]) / 2.0 } else { values[half] }
}

/// Returns the median and its 95% interval (bootstrap percentiles).
pub fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut random = Random(1);
    let mut again = || values[random.below(values.len() as u64) as usize];
    let mut medians: Vec<f64> = (0..10_000).map(|_| median(values.iter().map(|_| again()).collect())).collect();
    medians.sort_by(f64::total_cmp);
    (median(values.to_vec()), medians[medians.len() * 25 / 1000], medians[medians.len() * 975 / 1000])
}

/// Formats three significant digits.
pub fn ratio(value: f64) -> String {
    match value {
        value if value < 0.1 => format!("{value:.4}"),
        value if value < 10.0 => format!("{value:.2}"),
        value => format!("{value:.0}"),
    }
}
