//! `tollgate suggest`: the tightest quotas that would have refused few callers.

use std::path::PathBuf;

use serde::Serialize;

use crate::diff::Limitation;
use crate::simulate::limit::Limit;
use crate::simulate::run::Reading;
use crate::wrong_argument;

/// Finds the tightest quota of each algorithm that would have refused at most a given share of the callers in a log.
#[derive(clap::Args, Debug)]
pub struct Suggest {
    /// The log, which may be compressed with gzip or Zstandard; it is read several times
    log: PathBuf,
    /// How many callers may be refused: a share of all callers, such as 0.1%, or a number
    #[arg(long, value_name = "CALLERS", default_value = "0.1%")]
    refuse_at_most: Limitation,
    /// The period of the quotas
    #[arg(long, value_name = "PERIOD", default_value = "min")]
    period: String,
    #[command(flatten)]
    reading: Reading,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Suggestion {
    quota: String,
    refused_callers: usize,
    callers: usize,
    refused_requests: u64,
}

/// The suffix of a quota for each algorithm.
const ALGORITHMS: [&str; 3] = ["", " fixed", " sliding"];

/// The number of quotas that are tried for each algorithm in one pass over the log.
const TRIED: u64 = 12;

/// The largest rate that is tried.
const MAX_RATE: u64 = 1 << 32;

impl Suggest {
    pub fn run(&self) -> Result<(), String> {
        if self.log.as_os_str() == "-" {
            wrong_argument("suggest reads the log several times, so it needs a file instead of standard input");
        }
        let suggestions = self.search()?;
        let callers = suggestions.first().map_or(0, |suggestion| suggestion.callers);
        if matches!(self.refuse_at_most, Limitation::Share(_)) && self.refuse_at_most.of(callers) == 0 {
            eprintln!("note: --refuse-at-most is less than one of {callers} callers, so no caller may be refused");
        }
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(&suggestions).map_err(|error| error.to_string())?),
            false => suggestions.iter().for_each(|Suggestion { quota, refused_callers, callers, refused_requests }| {
                println!("{quota:24}  refuses {refused_requests} requests from {refused_callers} of {callers} callers");
            }),
        }
        Ok(())
    }

    /// Narrows the range of rates for each algorithm until a single rate is left.
    fn search(&self) -> Result<Vec<Suggestion>, String> {
        // All rates below the start of a range refuse too many callers. The end of a range refuses few enough, unless
        // it is still `MAX_RATE`.
        let mut ranges = [(1, MAX_RATE); ALGORITHMS.len()];
        let mut found: [Option<Suggestion>; ALGORITHMS.len()] = [const { None }; ALGORITHMS.len()];
        while ranges.iter().any(|(low, high)| low < high) || found.iter().any(Option::is_none) {
            let tried: Vec<(usize, u64)> =
                ranges.iter().enumerate().flat_map(|(i, range)| rates(*range).map(move |rate| (i, rate))).collect();
            let text = |(i, rate): (usize, u64)| format!("{rate}/{}{}", self.period, ALGORITHMS[i]);
            let limits: Vec<Limit> =
                tried.iter().map(|tried| Limit::of_quota(&text(*tried))).collect::<Result<_, _>>()?;
            let applied = self.reading.apply(&self.log, &limits)?;
            let most = self.refuse_at_most.of(applied.callers.len());
            for (gate, (i, rate)) in tried.iter().enumerate() {
                let refused = applied.callers.of_gate(gate * applied.cases).filter(|(.., refusals)| refusals.count > 0);
                let (mut refused_callers, mut refused_requests) = (0, 0);
                refused.for_each(|(.., refusals)| {
                    (refused_callers, refused_requests) =
                        (refused_callers + 1, refused_requests + u64::from(refusals.count));
                });
                let (low, high) = &mut ranges[*i];
                if refused_callers > most {
                    *low = (*low).max(rate + 1);
                } else if *rate <= *high {
                    *high = *rate;
                    let (quota, callers) = (text((*i, *rate)), applied.callers.len());
                    found[*i] = Some(Suggestion { quota, refused_callers, callers, refused_requests });
                }
            }
            if ranges.iter().any(|(low, high)| low > high) {
                return Err(format!("every quota up to {MAX_RATE} refuses more callers than --refuse-at-most allows"));
            }
        }
        Ok(found.into_iter().flatten().collect())
    }
}

/// Returns the rates to try in a range. If the range is small, returns all of its rates.
fn rates((low, high): (u64, u64)) -> impl Iterator<Item = u64> {
    let ratio = (high as f64 / low as f64).powf(1.0 / (TRIED - 1) as f64);
    let mut rates: Vec<u64> = match high - low {
        0..TRIED => (low..=high).collect(),
        _ => (0..TRIED).map(|i| ((low as f64 * ratio.powi(i as i32)) as u64).clamp(low, high)).collect(),
    };
    rates.push(high);
    rates.sort_unstable();
    rates.dedup();
    rates.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_cover_a_range() {
        assert_eq!(rates((5, 5)).collect::<Vec<_>>(), [5]);
        assert_eq!(rates((3, 6)).collect::<Vec<_>>(), [3, 4, 5, 6]);
        let many: Vec<u64> = rates((1, MAX_RATE)).collect();
        assert_eq!((many[0], many[many.len() - 1]), (1, MAX_RATE));
        assert!(many.is_sorted() && many.len() <= TRIED as usize + 1);
    }
}
