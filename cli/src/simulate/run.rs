//! Reads a log once, and applies limits to its requests.

use std::io::{self, BufRead};
use std::path::Path;

use super::callers::Callers;
use super::limit::{Fate, Gate, Limit};
use super::order::{Order, Request, Target};
use crate::caller::{Caller, CallerKey};
use crate::log::{Format, LineError, input};
use crate::{progress, wrong_argument};

/// How a log is read.
#[derive(clap::Args, Clone, Debug)]
pub struct Reading {
    /// What identifies a caller: ip, ip/N, user, user-agent or global
    #[arg(long, value_name = "KEY", default_value = "ip")]
    pub key: CallerKey,
    /// common, combined, caddy, traefik, or an nginx log_format string [default: combined]
    #[arg(long, value_name = "FORMAT", conflicts_with = "field")]
    pub format: Option<Format>,
    /// A field of JSON lines, such as time=ts; the names are time, address, user, method, path, user_agent and duration
    #[arg(long, value_name = "NAME=FIELD")]
    pub field: Vec<String>,
    /// The maximum number of callers to remember; requests from further callers are only counted
    #[arg(long, value_name = "NUMBER", default_value_t = 5_000_000)]
    pub max_callers: u32,
    /// For how many seconds requests are held to sort them by time
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub sort_within: u64,
}

/// The requests in a log, and what the limits would have done.
pub struct Applied {
    pub callers: Callers,
    /// The number of results for each limit: two if the time stamps are whole seconds, otherwise one.
    pub cases: usize,
    pub lines: u64,
    pub requests: u64,
    pub unread: u64,
    /// The first line that could not be parsed.
    pub first_unread: Option<(u64, LineError)>,
    /// The number of requests that were logged too late to be sorted.
    pub late: u64,
    /// The number of requests whose lines do not name a caller. They count as requests from a single caller.
    pub without_caller: u64,
}

/// The maximum number of requests that are held for sorting. A request with long strings counts as several.
const MAX_HELD: usize = 1_000_000;

impl Reading {
    /// Applies limits to a log.
    pub fn apply(&self, log: &Path, limits: &[Limit]) -> Result<Applied, String> {
        let mut format = match self.field.is_empty() {
            true => self.format.clone().unwrap_or_else(Format::combined),
            false => Format::json(&self.field).unwrap_or_else(|error| wrong_argument(&error)),
        };
        let file = |error: io::Error| format!("{}: {error}", log.display());
        let mut input = input::open(log, progress::bar(log)).map_err(file)?;
        let applied = self.apply_to(&mut *input, &mut format, limits).map_err(file)?;
        match applied.requests {
            0 => Err(applied.nothing_read(log)),
            all if all == applied.without_caller => Err(format!(
                "{}: no line has {}; name the field with --format or --field, or choose another --key",
                log.display(),
                self.key.field()
            )),
            _ => Ok(applied),
        }
    }

    fn apply_to(&self, input: &mut dyn BufRead, format: &mut Format, limits: &[Limit]) -> io::Result<Applied> {
        let (mut gates, mut applied) = (Vec::new(), Applied::new());
        let mut order = Order::new(self.sort_within, MAX_HELD);
        let needs_targets = limits.iter().any(Limit::needs_targets);
        let (mut line, mut buffer) = (Vec::new(), String::new());
        while input::read_line(input, &mut line)? {
            applied.lines += 1;
            let text = String::from_utf8_lossy(&line);
            let entry = match format.parse(&text, &mut buffer) {
                Ok(entry) => entry,
                Err(error) => {
                    applied.unread += 1;
                    let lines = applied.lines;
                    applied.first_unread.get_or_insert((lines, error));
                    continue;
                }
            };
            if applied.requests == 0 {
                let cases = if entry.whole_second { &CASES[..] } else { &CASES[..1] };
                let max_rows = self.max_callers as usize;
                let gates_of = |limit| cases.iter().map(move |case| (*case, Limit::gate(limit, max_rows)));
                gates = limits.iter().flat_map(gates_of).collect();
                (applied.cases, applied.callers) = (cases.len(), Callers::new(self.max_callers, gates.len()));
            }
            applied.requests += 1;
            let caller = self.key.of(&entry);
            applied.without_caller += u64::from(caller == Caller::Anonymous);
            let Some(caller) = applied.callers.number(caller) else { continue };
            let target = needs_targets.then(|| {
                let [method, path, user_agent] = [entry.method, entry.path, entry.user_agent].map(str::to_owned);
                Box::new(Target { method, path, user_agent, address: entry.address })
            });
            let request = Request { micros: entry.micros, whole_second: entry.whole_second, caller, target };
            order.add(request, |second, requests| decide(&mut gates, &mut applied.callers, second, &requests));
        }
        applied.late = order.late;
        order.finish(|second, requests| decide(&mut gates, &mut applied.callers, second, &requests));
        Ok(applied)
    }
}

impl Applied {
    fn new() -> Applied {
        let callers = Callers::new(0, 0);
        Applied { callers, cases: 0, lines: 0, requests: 0, unread: 0, first_unread: None, late: 0, without_caller: 0 }
    }

    fn nothing_read(&self, log: &Path) -> String {
        let hint = self.first_unread.as_ref().map_or("the log is empty".to_owned(), |(line, LineError(error))| {
            format!("no line of the log can be read; line {line}: {error}; set --format or --field")
        });
        format!("{}: {hint}", log.display())
    }
}

/// An assumption about when requests were sent within a second, for time stamps that are whole seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    /// A caller sends all requests of a second at the beginning of that second.
    Together,
    /// A caller spreads its requests evenly over each second.
    Spread,
}

const CASES: [Case; 2] = [Case::Together, Case::Spread];

/// Decides the requests of one second.
fn decide(gates: &mut [(Case, Gate)], callers: &mut Callers, second: u64, requests: &[Request]) {
    requests.iter().for_each(|request| callers.arrived(request.caller, second));
    for (i, (case, gate)) in gates.iter_mut().enumerate() {
        let mut times: Vec<(u64, &Request)> = match case {
            Case::Together => requests.iter().map(|request| (request.micros, request)).collect(),
            Case::Spread => requests.iter().map(|request| (spread(callers, request), request)).collect(),
        };
        times.sort_by_key(|(micros, _)| *micros);
        for (micros, request) in times {
            gate.at(micros);
            if gate.decide(callers.key(request.caller), request.target.as_deref()) == Fate::Refused {
                callers.refused(request.caller, i, second);
            }
        }
    }
}

fn spread(callers: &mut Callers, request: &Request) -> u64 {
    let (index, count) = callers.next_in_second(request.caller);
    if request.whole_second { request.micros + index * 1_000_000 / count } else { request.micros }
}
