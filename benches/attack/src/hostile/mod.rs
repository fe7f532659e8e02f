//! The attackers, which all run together, each at a bounded rate.

mod client;
mod floods;
mod giants;
mod policies;
mod resets;
mod slow;
mod spoofs;
mod waits;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::Result;
use crate::args::Args;

/// Attacks for the given time and prints the [`AttackerStats`] of each attacker, tab-separated.
pub fn attack(args: &Args) -> Result<()> {
    let server = args.server.ok_or("hostile needs --server")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tallies = runtime.block_on(async {
        let mut tallies = Vec::new();
        let mut begin = |name: &'static str| {
            let tally = Arc::new(Tally::default());
            tallies.push((name, Arc::clone(&tally)));
            Target { server, tally }
        };
        start(floods::new_keys(begin(KEY_FLOOD), args.flood));
        start(floods::storm(begin(STORM), 1_000));
        start(policies::flood(begin(POLICY_FLOOD), args.flood / 20));
        start(policies::newcomers(begin(NEWCOMERS), 20));
        start(policies::newcomers_of_another(begin(NEWCOMERS_OF_ANOTHER), 20));
        start(spoofs::spoof(begin(SPOOFS), 500));
        start(resets::resets(begin("HTTP/2 resets"), 400));
        start(waits::hang_up(begin("cancelled waits"), 50));
        start(giants::giants(begin("giant headers"), 20));
        start(slow::readers(begin("slow readers"), 5));
        start(slow::senders(begin("slow senders"), 5));
        tokio::time::sleep(Duration::from_secs(args.seconds)).await;
        tallies
    });
    for (name, tally) in tallies {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        println!(
            "{name}\t{}\t{}\t{}\t{}\t{}",
            count(&tally.sent),
            count(&tally.ok),
            count(&tally.refused),
            count(&tally.other),
            count(&tally.cut)
        );
    }
    Ok(())
}

pub const KEY_FLOOD: &str = "key flood";
pub const STORM: &str = "denial storm";
pub const POLICY_FLOOD: &str = "policy flood";
pub const NEWCOMERS: &str = "honest newcomers of the flooded policy";
pub const NEWCOMERS_OF_ANOTHER: &str = "honest newcomers of another policy";
pub const SPOOFS: &str = "spoofed addresses";
/// The number of keys in the denial storm.
pub const STORM_KEYS: u64 = 4;
/// The number of the spoofers' actual addresses.
pub const SPOOFERS: u64 = 16;

/// The statistics of an attacker, as the hostile process reports them.
#[derive(Clone, Debug)]
pub struct AttackerStats {
    pub name: String,
    pub sent: u64,
    pub ok: u64,
    pub refused: u64,
    pub other: u64,
    pub cut: u64,
}

impl AttackerStats {
    pub fn parse(line: &str) -> Option<AttackerStats> {
        let mut fields = line.split('\t');
        let name = fields.next()?.to_owned();
        let mut number = || fields.next()?.parse().ok();
        Some(AttackerStats {
            name,
            sent: number()?,
            ok: number()?,
            refused: number()?,
            other: number()?,
            cut: number()?,
        })
    }
}

/// The target of an attacker, and its counters.
#[derive(Clone)]
struct Target {
    server: SocketAddr,
    tally: Arc<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    sent: AtomicU64,
    /// Responses with 2xx.
    ok: AtomicU64,
    /// Responses with 429.
    refused: AtomicU64,
    /// Other responses.
    other: AtomicU64,
    /// Connections that the server closed or refused.
    cut: AtomicU64,
}

impl Tally {
    fn sent(&self, requests: u64) {
        self.sent.fetch_add(requests, Ordering::Relaxed);
    }

    fn count_status(&self, status: u16) {
        let counter = match status {
            200..=299 => &self.ok,
            429 => &self.refused,
            _ => &self.other,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }
}

/// Spawns a detached task, which ends with the process.
fn start(attack: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(attack));
}

/// Creates a timer that never exceeds this rate, even after a pause. The timer starts at a random part of its period,
/// so that attackers do not run in step.
fn pace(per_second: f64) -> Interval {
    static BEGUN: AtomicU64 = AtomicU64::new(0);
    let part = scatter(BEGUN.fetch_add(1, Ordering::Relaxed)) as f64 / u64::MAX as f64;
    let mut pace = interval_at(
        Instant::now() + Duration::from_secs_f64(part / per_second),
        Duration::from_secs_f64(1.0 / per_second),
    );
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    pace
}

/// Returns the next output of SplitMix64. The numbers need to be distinct, but not secret.
fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
