//! `tollgate simulate`: what limits would have done to the requests in a log.

mod callers;
pub mod limit;
mod order;
mod report;

use std::io::{self, BufRead};
use std::path::PathBuf;

use self::callers::Callers;
use self::limit::{Fate, Gate, Limit};
use self::order::{Order, Request, Target};
use self::report::Report;
use crate::caller::CallerKey;
use crate::log::{Format, input};

/// Shows what limits would have done to the requests in an access log.
#[derive(clap::Args, Debug)]
pub struct Simulate {
    /// The log, which may be compressed with gzip or Zstandard; `-` is the standard input
    log: PathBuf,
    /// A limit for all requests, such as '100/min burst 20'; repeat it to compare several
    #[arg(long, value_name = "QUOTA")]
    quota: Vec<String>,
    /// The limits of a configuration file
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// What identifies a caller: ip, ip/N, user, user-agent or global
    #[arg(long, value_name = "KEY", default_value = "ip")]
    key: CallerKey,
    /// common, combined, caddy, traefik, or a log_format string of nginx
    #[arg(long, value_name = "FORMAT", conflicts_with = "field")]
    format: Option<Format>,
    /// A field of JSON lines, such as time=ts; one of time, address, user, method, path, user_agent, duration
    #[arg(long, value_name = "NAME=FIELD")]
    field: Vec<String>,
    /// How many of the most refused callers to list
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    worst: usize,
    /// The most callers to remember; requests of further callers are only counted
    #[arg(long, value_name = "NUMBER", default_value_t = 5_000_000)]
    max_callers: u32,
    /// For how many seconds requests are held to sort them by time
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    sort_within: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The most requests that are held to sort them.
const MAX_HELD: usize = 1_000_000;

impl Simulate {
    pub fn run(&self) -> Result<(), String> {
        let limits = self.limits()?;
        let mut format = match self.field.is_empty() {
            true => self.format.clone().unwrap_or_else(Format::combined),
            false => Format::json(&self.field)?,
        };
        let file = |error: io::Error| format!("{}: {error}", self.log.display());
        let mut input = input::open(&self.log, crate::progress::bar(&self.log)).map_err(file)?;
        let report = self.simulate(&limits, &mut format, &mut *input).map_err(file)?;
        if report.requests == 0 {
            let hint = report.first_unread().map_or("the log is empty".to_owned(), |first| {
                format!("no line of the log can be read; {first}; name its format with --format or --field")
            });
            return Err(format!("{}: {hint}", self.log.display()));
        }
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?),
            false => print!("{report}"),
        }
        Ok(())
    }

    fn limits(&self) -> Result<Vec<Limit>, String> {
        let quotas = self.quota.iter().map(|quota| Limit::of_quota(quota));
        let limits: Vec<Limit> =
            quotas.chain(self.config.iter().map(|path| Limit::of_file(path))).collect::<Result<_, _>>()?;
        match limits.is_empty() {
            true => Err("there is no limit to try; add --quota '100/min' or --config limits.toml".to_owned()),
            false => Ok(limits),
        }
    }

    pub fn simulate(&self, limits: &[Limit], format: &mut Format, input: &mut dyn BufRead) -> io::Result<Report> {
        let mut run =
            Run { gates: Vec::new(), callers: Callers::new(self.max_callers, 0), max_rows: self.max_callers as usize };
        let (mut report, mut order) = (Report::new(), Order::new(self.sort_within, MAX_HELD));
        let needs_targets = limits.iter().any(Limit::needs_targets);
        let (mut line, mut buffer) = (Vec::new(), String::new());
        while input::read_line(input, &mut line)? {
            report.lines += 1;
            let text = String::from_utf8_lossy(&line);
            let entry = match format.parse(&text, &mut buffer) {
                Ok(entry) => entry,
                Err(error) => {
                    report.unread(error);
                    continue;
                }
            };
            if run.gates.is_empty() {
                // With time stamps of whole seconds, each limit is tried with two sets of times.
                let cases = if entry.whole_second { &CASES[..] } else { &CASES[..1] };
                run.gates = limits
                    .iter()
                    .flat_map(|limit| cases.iter().map(|case| (*case, limit.gate(run.max_rows))))
                    .collect();
                run.callers = Callers::new(self.max_callers, run.gates.len());
            }
            report.requests += 1;
            let Some(caller) = run.callers.number(self.key.of(&entry)) else { continue };
            let target = needs_targets.then(|| {
                let own = |text: &str| text.to_owned();
                let (method, path) = (own(entry.method), own(entry.path));
                Box::new(Target { method, path, user_agent: own(entry.user_agent), address: entry.address })
            });
            let request = Request { micros: entry.micros, whole_second: entry.whole_second, caller, target };
            order.add(request, |second, requests| run.second(second, &requests));
        }
        report.late = order.late;
        order.finish(|second, requests| run.second(second, &requests));
        report.finish(run.callers, limits, self.worst);
        Ok(report)
    }
}

/// When the requests of a second were sent, if the log does not tell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    /// All requests of a caller in a second are sent at its beginning.
    Together,
    /// The requests of a caller in a second are sent evenly.
    Spread,
}

const CASES: [Case; 2] = [Case::Together, Case::Spread];

struct Run {
    gates: Vec<(Case, Gate)>,
    callers: Callers,
    max_rows: usize,
}

impl Run {
    /// Decides the requests of one second.
    fn second(&mut self, second: u64, requests: &[Request]) {
        requests.iter().for_each(|request| self.callers.arrived(request.caller, second));
        for i in 0..self.gates.len() {
            let mut times: Vec<(u64, &Request)> = match self.gates[i].0 {
                Case::Together => requests.iter().map(|request| (request.micros, request)).collect(),
                Case::Spread => self.spread(requests),
            };
            times.sort_by_key(|(micros, _)| *micros);
            for (micros, request) in times {
                let gate = &mut self.gates[i].1;
                gate.at(micros);
                let fate = gate.decide(self.callers.key(request.caller), request.target.as_deref());
                if fate == Fate::Refused {
                    self.callers.refused(request.caller, i, second);
                }
            }
        }
    }

    fn spread<'a>(&mut self, requests: &'a [Request]) -> Vec<(u64, &'a Request)> {
        let place = |(request, index): (&'a Request, u64), of: u64| match request.whole_second {
            true => (request.micros + index * 1_000_000 / of.max(1), request),
            false => (request.micros, request),
        };
        let indexes: Vec<u64> = requests.iter().map(|request| self.callers.next_in_second(request.caller)).collect();
        let placed = requests
            .iter()
            .zip(indexes)
            .map(|(request, index)| place((request, index), self.callers.count_in_second(request.caller)));
        placed.collect()
    }
}
