//! Samples of the kernel's and the server's figures, once a second.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Result;
use crate::args::Phase;
use crate::honest::{Outcome, Seen};

/// One second of a run.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The time since the start of the run.
    pub second: f64,
    pub phase: Phase,
    pub server: Server,
    pub honest: Honest,
    /// The number of cores that were in use during that second, by the server, by the clients and attackers, and by the
    /// whole machine.
    pub server_cores: f64,
    pub client_cores: f64,
    pub machine_cores: f64,
    /// The number of cores that a hypervisor took away while processes were runnable (steal).
    pub stolen_cores: f64,
}

/// The server's figures, from the kernel and its status page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Server {
    pub rss_kib: u64,
    pub descriptors: u64,
    pub threads: u64,
    pub tasks: u64,
    pub rows: u64,
    pub waiting: u64,
    pub offenders: u64,
    pub blocked: u64,
}

impl Server {
    pub fn read(pid: u32, admin: SocketAddr) -> Result<Server> {
        let mut text = String::new();
        let mut stream = TcpStream::connect_timeout(&admin, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.read_to_string(&mut text)?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let status_field = |name: &str| field(&text, name);
        Ok(Server {
            rss_kib: field(&status, "VmRSS:")?,
            threads: field(&status, "Threads:")?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
            tasks: status_field("tasks")?,
            rows: status_field("rows")?,
            waiting: status_field("waiting")?,
            offenders: status_field("offenders")?,
            blocked: status_field("blocked")?,
        })
    }
}

/// The honest clients' requests in a period.
#[derive(Clone, Copy, Debug, Default)]
pub struct Honest {
    pub requests: u64,
    pub refused: u64,
    pub failed: u64,
    pub p50: Duration,
    pub p99: Duration,
    pub most: Duration,
}

impl Honest {
    pub fn of(seen: &[Seen]) -> Honest {
        let mut latencies: Vec<Duration> = seen.iter().map(|seen| seen.latency).collect();
        latencies.sort_unstable();
        let count = |outcome| seen.iter().filter(|seen| seen.outcome == outcome).count() as u64;
        Honest {
            requests: seen.len() as u64,
            refused: count(Outcome::Refused),
            failed: count(Outcome::Failed),
            p50: quantile(&latencies, 0.5),
            p99: quantile(&latencies, 0.99),
            most: latencies.last().copied().unwrap_or_default(),
        }
    }
}

fn quantile(sorted: &[Duration], part: f64) -> Duration {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
}

/// Returns the number after a name at the start of a line.
fn field(text: &str, name: &str) -> Result<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    let found = lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()).flatten());
    Ok(found.ok_or_else(|| format!("no {name:?} in {text:?}"))?.parse()?)
}

/// Returns the CPU time of a process, which is zero if the process has ended.
pub fn used_by(pid: u32) -> Duration {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return Duration::ZERO };
    // The second field is a name in parentheses, which may contain spaces. utime and stime are the 14th and 15th.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    ticks(fields.split_whitespace().skip(11).take(2))
}

/// Returns the CPU time of all processes.
pub fn used_by_all() -> Duration {
    // The fields are user, nice, system, irq and softirq, but not idle and iowait.
    of_machine(&[0, 1, 2, 5, 6])
}

/// Returns the CPU time that a hypervisor took away (steal), which is zero on physical machines.
pub fn stolen() -> Duration {
    of_machine(&[7])
}

/// Returns the sum of these fields of the machine's total CPU time.
fn of_machine(which: &[usize]) -> Duration {
    let Ok(stat) = fs::read_to_string("/proc/stat") else { return Duration::ZERO };
    let fields = stat.lines().next().unwrap_or("").split_whitespace().skip(1);
    ticks(fields.enumerate().filter(|(i, _)| which.contains(i)).map(|(_, field)| field))
}

/// The kernel reports CPU time in hundredths of a second.
fn ticks<'a>(fields: impl Iterator<Item = &'a str>) -> Duration {
    Duration::from_millis(10 * fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>())
}

/// Writes the samples as a table with fields and units in the first line.
pub fn csv(samples: &[Sample]) -> String {
    let mut text = "second,phase,rss_kib,descriptors,threads,tasks,rows,waiting,offenders,blocked,server_cores,\
                    client_cores,machine_cores,stolen_cores,honest_requests,honest_refused,honest_failed,p50_us,p99_us,max_us\n"
        .to_owned();
    for Sample { second, phase, server, honest, server_cores, client_cores, machine_cores, stolen_cores } in samples {
        let Server { rss_kib, descriptors, threads, tasks, rows, waiting, offenders, blocked } = server;
        let Honest { requests, refused, failed, p50, p99, most } = honest;
        let _ = writeln!(
            text,
            "{second:.1},{},{rss_kib},{descriptors},{threads},{tasks},{rows},{waiting},{offenders},{blocked},\
             {server_cores:.2},{client_cores:.2},{machine_cores:.2},{stolen_cores:.2},{requests},{refused},{failed},{},{},{}",
            phase.name(),
            p50.as_micros(),
            p99.as_micros(),
            most.as_micros()
        );
    }
    text
}
