//! `tollgate simulate`: what limits would have done to the requests in a log.

pub mod callers;
mod drawing;
pub mod limit;
mod order;
mod report;
pub mod run;
mod timeline;

use std::path::PathBuf;

use self::limit::Limit;
use self::report::Report;
use self::run::Reading;
use crate::wrong_argument;

/// Shows what limits would have done to the requests in an access log.
#[derive(clap::Args, Debug)]
pub struct Simulate {
    /// The log, which may be compressed with gzip or Zstandard; `-` means standard input
    log: PathBuf,
    /// A limit for all requests, such as '100/min burst 20'; repeat it to compare several
    #[arg(long, value_name = "QUOTA")]
    quota: Vec<String>,
    /// The limits of a configuration file; repeat it to compare several
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    #[command(flatten)]
    reading: Reading,
    /// How many callers to list, those with the most refusals first
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    worst: usize,
    /// Draw the refused requests over time, and the shares of requests and callers that each limit refuses
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Simulate {
    pub fn run(&self) -> Result<(), String> {
        let of_quota = |quota: &String| Limit::of_quota(quota).unwrap_or_else(|error| wrong_argument(&error));
        let mut limits: Vec<Limit> = self.quota.iter().map(of_quota).collect();
        for path in &self.config {
            limits.push(Limit::of_file(path)?);
        }
        if limits.is_empty() {
            wrong_argument("there is no limit to try; add --quota '100/min' or --config limits.toml");
        }
        let applied = self.reading.apply(&self.log, &limits)?;
        let report = Report::new(&applied, &limits, self.worst);
        if let Some(path) = &self.svg {
            drawing::draw(path, &applied, &limits, &report)?;
        }
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?),
            false => print!("{report}"),
        }
        Ok(())
    }
}
