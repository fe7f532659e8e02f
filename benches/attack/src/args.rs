//! What can be said on the command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Result;

pub struct Args {
    /// The whole run, at least 90 s. Of the hostile process: how long it attacks.
    pub seconds: u64,
    /// Requests with a new key each, a second.
    pub flood: u64,
    /// Where the table and the plots go.
    pub results: PathBuf,
    /// The server to attack.
    pub server: Option<SocketAddr>,
    /// The most rows that the server's limiter may hold.
    pub max_rows: usize,
}

impl Args {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Args> {
        let mut args = Args {
            seconds: 600,
            flood: 6_000,
            results: Path::new(env!("CARGO_MANIFEST_DIR")).join("results"),
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
                _ => return Err(format!("{name} is none of --seconds, --flood, --results").into()),
            }
        }
        Ok(args)
    }
}

/// The parts of a run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Connections are made, pages are touched for the first time. Not measured.
    Settle,
    /// Honest clients alone: what the attack is compared with.
    Quiet,
    /// The attack begins, and the flood fills the table.
    WarmUp,
    /// The table is full, and the attack goes on.
    Attack,
    /// The attackers are gone. Not measured.
    Drain,
    /// Honest clients alone again: everything should be as before.
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

    /// Its part of a run of so many seconds.
    pub fn lasts(self, seconds: u64) -> Duration {
        let percent = |part: u64| Duration::from_millis(seconds * part * 10);
        // Slow attackers hold on for 25 s: before that there are ever more of them.
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
