//! `tollgate diff`: the callers that only one of two configurations would have refused.

use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use crate::simulate::limit::Limit;
use crate::simulate::run::Reading;

/// Compares two configurations on an access log, for the review of a change.
#[derive(clap::Args, Debug)]
pub struct Diff {
    old: PathBuf,
    new: PathBuf,
    /// The log, which may be compressed with gzip or Zstandard; `-` is the standard input
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// Fail if more callers than this are newly refused: a number, or a share such as 0.1%
    #[arg(long, value_name = "CALLERS")]
    fail_over: Option<Limitation>,
    #[command(flatten)]
    reading: Reading,
    /// How many callers to list
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    worst: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A number of callers, such as `50` or `50-keys`, or a share of all callers, such as `0.1%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limitation {
    Callers(usize),
    Share(f64),
}

impl FromStr for Limitation {
    type Err = String;

    fn from_str(text: &str) -> Result<Limitation, String> {
        let share = text.strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
        let number = text.strip_suffix("-keys").unwrap_or(text).parse().ok().map(Limitation::Callers);
        let share =
            share.filter(|percent| (0.0..=100.0).contains(percent)).map(|percent| Limitation::Share(percent / 100.0));
        share.or(number).ok_or_else(|| "expected a number of callers, such as 50, or a share, such as 0.1%".to_owned())
    }
}

impl Limitation {
    /// Returns the maximum number of callers, given the number of all callers.
    pub fn of(self, callers: usize) -> usize {
        match self {
            Limitation::Callers(number) => number,
            Limitation::Share(share) => (share * callers as f64) as usize,
        }
    }
}

#[derive(Debug, Serialize)]
struct Difference {
    callers: usize,
    newly_refused_callers: usize,
    no_longer_refused_callers: usize,
    newly_refused: Vec<Changed>,
    no_longer_refused: Vec<Changed>,
}

#[derive(Debug, Serialize)]
struct Changed {
    caller: String,
    requests: u32,
    refused: u32,
}

impl Diff {
    /// Returns whether the difference is within the limit.
    pub fn run(&self) -> Result<bool, String> {
        let limits = [Limit::of_file(&self.old)?, Limit::of_file(&self.new)?];
        let applied = self.reading.apply(&self.log, &limits)?;
        let gates = [0, applied.cases];
        let changes = |from: usize, to: usize| {
            let both = applied.callers.of_gate(gates[from]).zip(applied.callers.of_gate(gates[to]));
            let mut changed: Vec<Changed> = both
                .filter(|((_, _, before), (_, _, after))| before.count == 0 && after.count > 0)
                .map(|(_, (caller, requests, after))| Changed {
                    caller: caller.to_string(),
                    requests,
                    refused: after.count,
                })
                .collect();
            changed.sort_by_key(|changed| std::cmp::Reverse(changed.refused));
            changed
        };
        let (mut new, mut gone) = (changes(0, 1), changes(1, 0));
        let callers = applied.callers.len();
        let is_within = self.fail_over.is_none_or(|most| new.len() <= most.of(callers));
        let (newly_refused_callers, no_longer_refused_callers) = (new.len(), gone.len());
        new.truncate(self.worst);
        gone.truncate(self.worst);
        let difference = Difference {
            callers,
            newly_refused_callers,
            no_longer_refused_callers,
            newly_refused: new,
            no_longer_refused: gone,
        };
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(&difference).map_err(|error| error.to_string())?),
            false => difference.print(),
        }
        if !is_within {
            eprintln!("error: newly refused callers: {newly_refused_callers}, which is more than --fail-over allows");
        }
        Ok(is_within)
    }
}

impl Difference {
    fn print(&self) {
        let lists = [
            ("newly refused", self.newly_refused_callers, &self.newly_refused),
            ("no longer refused", self.no_longer_refused_callers, &self.no_longer_refused),
        ];
        for (name, count, changed) in lists {
            println!("{name}: {count} of {} callers", self.callers);
            for Changed { caller, requests, refused } in changed {
                println!("  {caller:40}  {refused} of {requests} requests");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_a_share() {
        let of = |text: &str| text.parse::<Limitation>().map(|most| most.of(2_000));
        assert_eq!([of("50"), of("50-keys"), of("0.1%"), of("100 %")], [Ok(50), Ok(50), Ok(2), Ok(2_000)]);
        for text in ["", "-1", "101%", "x%", "1.5"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
