//! The command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Result;

pub struct Args {
    /// The length of the run, which is at least 90 s. For the hostile process, the length of the attack.
    pub seconds: u64,
    /// The number of requests per second that each have a new key.
    pub flood: u64,
    /// The folder for the table and the plots.
    pub results: PathBuf,
    /// The server to attack.
    pub server: Option<SocketAddr>,
    /// The maximum number of rows of the server's limiter.
    pub max_rows: usize,
}

impl Args {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Args> {
        let mut args = Args {
            seconds: 600,
            flood: 6_000,
            results: Path::new(env!("CARGO_MANIFEST_DIR")).join("target/results"),
            server: None,
            max_rows: 100_000,
        };
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            let wrong = |error: &dyn std::fmt::Display| format!("{name} {value}: {error}");
            match name.as_str() {
                "--seconds" => args.seconds = value.parse().map_err(|error| wrong(&error))?,
                "--flood" => args.flood = value.parse().map_err(|error| wrong(&error))?,
                "--results" => args.results = PathBuf::from(&value),
                "--server" => args.server = Some(value.parse().map_err(|error| wrong(&error))?),
                "--max-rows" => args.max_rows = value.parse().map_err(|error| wrong(&error))?,
                _ => return Err(format!("{name} is not one of --seconds, --flood, --results").into()),
            }
        }
        Ok(args)
    }
}

/// The phases of a run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Clients connect, and memory is touched for the first time. This phase is not measured.
    Settle,
    /// Only the honest clients run, which is the baseline.
    Quiet,
    /// The attack starts, and the flood fills the table.
    WarmUp,
    /// The attack continues with a full table.
    Attack,
    /// The attackers have stopped. This phase is not measured.
    Drain,
    /// Only the honest clients run again, as in the baseline.
    After,
}

impl Phase {
    pub const ALL: [Phase; 6] = [Phase::Settle, Phase::Quiet, Phase::WarmUp, Phase::Attack, Phase::Drain, Phase::After];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Settle => "settle",
            Phase::Quiet => "quiet",
            Phase::WarmUp => "warm-up",
            Phase::Attack => "attack",
            Phase::Drain => "drain",
            Phase::After => "quiet again",
        }
    }

    /// Returns the length of the phase in a run of `seconds`.
    pub fn duration(self, seconds: u64) -> Duration {
        let percent = |part: u64| Duration::from_millis(seconds * part * 10);
        // Slow attackers stay for 25 s, so their number grows until then.
        let warm_up = percent(14).max(Duration::from_secs(30));
        match self {
            Phase::Settle | Phase::Drain => percent(6),
            Phase::Quiet | Phase::After => percent(14),
            Phase::WarmUp => warm_up,
            Phase::Attack => percent(60).saturating_sub(warm_up),
        }
    }

    pub fn is_hostile(self) -> bool {
        matches!(self, Phase::WarmUp | Phase::Attack)
    }
}
