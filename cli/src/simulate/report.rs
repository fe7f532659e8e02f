//! The result of a simulation, as text and as JSON.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::callers::Callers;
use super::limit::Limit;
use super::run::Applied;
use crate::log::LineError;

#[derive(Debug, Serialize)]
pub struct Report {
    lines: u64,
    requests: u64,
    /// The number of lines that could not be parsed.
    unread_lines: u64,
    first_unread_line: Option<Unread>,
    /// The number of requests that were logged too late to be sorted by time.
    late: u64,
    /// The number of requests whose lines do not name a caller. They are limited together.
    requests_without_caller: u64,
    first: Option<String>,
    last: Option<String>,
    callers: usize,
    /// The number of requests from callers beyond the maximum. These requests were not decided.
    requests_of_further_callers: u64,
    busiest_second_per_caller: Option<Percentiles>,
    busiest_minute_per_caller: Option<Percentiles>,
    limits: Vec<Outcome>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Unread {
    line: u64,
    error: String,
}

/// Requests per caller.
#[derive(Debug, Serialize)]
struct Percentiles {
    p50: u32,
    p90: u32,
    p99: u32,
    most: u32,
}

/// What a limit would have done. If the time stamps are whole seconds, there are two results. The first assumes that a
/// caller sends all requests of a second together, and the other assumes that it spreads them evenly.
#[derive(Debug, Serialize)]
struct Outcome {
    limit: String,
    results: Vec<Refused>,
    /// The most refused callers in the first result.
    worst_callers: Vec<Worst>,
}

#[derive(Debug, Serialize)]
struct Refused {
    requests: u64,
    request_share: f64,
    callers: u64,
    caller_share: f64,
}

#[derive(Debug, Serialize)]
struct Worst {
    caller: String,
    requests: u32,
    refused: u32,
    first_refused: String,
}

impl Report {
    pub fn new(applied: &Applied, limits: &[Limit], worst: usize) -> Report {
        let Applied { callers, cases, .. } = applied;
        let [busiest_second_per_caller, busiest_minute_per_caller] =
            callers.peaks().map(|peaks| Percentiles::of(&peaks));
        let outcome = |(i, limit): (usize, &Limit)| Outcome {
            limit: limit.name.clone(),
            results: (0..*cases).map(|case| Refused::of(callers, i * cases + case)).collect(),
            worst_callers: Worst::of(callers, i * cases, worst),
        };
        let mut notes: Vec<String> = limits.iter().flat_map(|limit| limit.notes.iter().cloned()).collect();
        let outcomes: Vec<Outcome> = limits.iter().enumerate().map(outcome).collect();
        if outcomes.iter().any(Outcome::is_range) {
            notes.push(WHOLE_SECONDS.to_owned());
        }
        notes.push(OPEN_LOOP.to_owned());
        Report {
            lines: applied.lines,
            requests: applied.requests,
            unread_lines: applied.unread,
            first_unread_line: applied.first_unread.as_ref().map(|(line, LineError(error))| {
                let (line, error) = (*line, error.clone());
                Unread { line, error }
            }),
            late: applied.late,
            requests_without_caller: applied.without_caller,
            first: callers.first_second.map(time),
            last: callers.first_second.map(|_| time(callers.last_second)),
            callers: callers.len(),
            requests_of_further_callers: callers.beyond,
            busiest_second_per_caller,
            busiest_minute_per_caller,
            limits: outcomes,
            notes,
        }
    }

    /// Returns the shares of refused requests and refused callers for each limit.
    pub fn refused_shares(&self) -> impl Iterator<Item = [f64; 2]> {
        let first =
            |outcome: &Outcome| outcome.results.first().map(|refused| [refused.request_share, refused.caller_share]);
        self.limits.iter().map(move |outcome| first(outcome).unwrap_or_default())
    }
}

const WHOLE_SECONDS: &str = "the time stamps in the log are whole seconds, so a range is shown. The first number \
                             assumes that callers spread their requests evenly over each second. The second assumes \
                             that they send them all at its beginning";

const OPEN_LOOP: &str = "refused callers often try again, which a log recorded without the limit cannot show";

impl Percentiles {
    fn of(sorted: &[u32]) -> Option<Percentiles> {
        let at = |percent: usize| sorted[(sorted.len() - 1) * percent / 100];
        (!sorted.is_empty()).then(|| Percentiles { p50: at(50), p90: at(90), p99: at(99), most: at(100) })
    }
}

impl Refused {
    fn of(callers: &Callers, gate: usize) -> Refused {
        let (mut all, mut requests, mut refused) = (0u64, 0u64, 0u64);
        for (_, total, refusals) in callers.of_gate(gate) {
            all += u64::from(total);
            requests += u64::from(refusals.count);
            refused += u64::from(refusals.count > 0);
        }
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        let (request_share, caller_share) = (share(requests, all), share(refused, callers.len() as u64));
        Refused { requests, request_share, callers: refused, caller_share }
    }
}

impl Outcome {
    /// Whether the assumptions about the times within a second lead to different results.
    fn is_range(&self) -> bool {
        self.results.windows(2).any(|pair| pair[0].requests != pair[1].requests)
    }
}

impl Worst {
    fn of(callers: &Callers, gate: usize, most: usize) -> Vec<Worst> {
        let mut refused: Vec<_> = callers.of_gate(gate).filter(|(.., refusals)| refusals.count > 0).collect();
        // The sort is stable, so callers with equal counts stay in the order of their first requests.
        refused.sort_by_key(|(.., refusals)| std::cmp::Reverse(refusals.count));
        let worst = refused.into_iter().take(most).map(|(caller, requests, refusals)| Worst {
            caller: caller.to_string(),
            requests,
            refused: refusals.count,
            first_refused: time(refusals.first_second.into()),
        });
        worst.collect()
    }
}

fn time(second: u64) -> String {
    let second = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
    second.map_or_else(|| "?".to_owned(), |second| second.to_string())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.first.as_deref().unwrap_or("?"), self.last.as_deref().unwrap_or("?"));
        writeln!(f, "requests: {}, callers: {}, from {first} to {last}", self.requests, self.callers)?;
        for (name, peaks) in [("second", &self.busiest_second_per_caller), ("minute", &self.busiest_minute_per_caller)]
        {
            if let Some(Percentiles { p50, p90, p99, most }) = peaks {
                writeln!(
                    f,
                    "requests of a caller in its busiest {name}: p50 {p50}, p90 {p90}, p99 {p99}, most {most}"
                )?;
            }
        }
        if let Some(Unread { line, error }) = &self.first_unread_line {
            writeln!(f, "unreadable lines: {}; the first is line {line}: {error}", self.unread_lines)?;
        }
        if self.late > 0 {
            writeln!(f, "requests that were logged too late to be sorted by time: {}", self.late)?;
        }
        if self.requests_without_caller > 0 {
            writeln!(f, "requests without a caller, which are limited together: {}", self.requests_without_caller)?;
        }
        if self.requests_of_further_callers > 0 {
            let further = self.requests_of_further_callers;
            writeln!(f, "requests not decided because of too many callers: {further}; raise --max-callers")?;
        }
        let width = self.limits.iter().map(|outcome| outcome.limit.chars().count()).max().unwrap_or(0).max(5);
        writeln!(f, "\n{:width$}  {:>24}  {:>24}", "limit", "requests refused", "callers refused")?;
        for outcome in &self.limits {
            let range = |number: fn(&Refused) -> (u64, f64)| {
                let mut texts: Vec<String> = outcome.results.iter().rev().map(number).map(counted).collect();
                texts.dedup();
                texts.join(" to ")
            };
            let requests = range(|refused| (refused.requests, refused.request_share));
            let callers = range(|refused| (refused.callers, refused.caller_share));
            writeln!(f, "{:width$}  {requests:>24}  {callers:>24}", outcome.limit)?;
        }
        for outcome in self.limits.iter().filter(|outcome| !outcome.worst_callers.is_empty()) {
            let width =
                outcome.worst_callers.iter().map(|worst| worst.caller.chars().count()).max().unwrap_or(0).max(24);
            writeln!(
                f,
                "\n{:width$}  {:>10}  {:>10}  first refused",
                format!("worst under {}", outcome.limit),
                "refused",
                "requests"
            )?;
            for Worst { caller, requests, refused, first_refused } in &outcome.worst_callers {
                writeln!(f, "{caller:width$}  {refused:>10}  {requests:>10}  {first_refused}")?;
            }
        }
        writeln!(f)?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

fn counted((number, share): (u64, f64)) -> String {
    format!("{number} ({:.2}%)", share * 100.0)
}
