//! Runs the attack, from the start to the verdict.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::args::{Args, Phase};
use crate::honest::{self, Seen};
use crate::hostile::AttackerStats;
use crate::sample::{Honest, Sample, Server, csv, stolen, used_by, used_by_all};
use crate::{Result, plot, report, server, verdict};

/// The data of a run.
pub struct Run {
    pub seconds: u64,
    pub max_rows: usize,
    /// Whether the server and the clients had separate cores.
    pub is_pinned: bool,
    pub samples: Vec<Sample>,
    pub phases: Vec<PhaseStats>,
    pub hostile: Vec<AttackerStats>,
}

/// The honest clients' requests in a phase.
#[derive(Clone, Copy)]
pub struct PhaseStats {
    pub phase: Phase,
    /// The requests in the whole phase.
    pub whole: Honest,
    /// The requests in undisturbed seconds, and the number of these seconds. A second is undisturbed if there was no
    /// CPU steal in it or in the second before it.
    pub undisturbed: Honest,
    pub seconds: usize,
}

impl Run {
    /// Returns the samples that were taken in a phase.
    pub fn of(&self, phase: Phase) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.phase == phase)
    }

    pub fn course(&self, phase: Phase) -> Option<&PhaseStats> {
        self.phases.iter().find(|course| course.phase == phase)
    }

    /// The length of the attack.
    pub fn attacked(&self) -> Duration {
        Phase::ALL.iter().filter(|phase| phase.is_hostile()).map(|phase| phase.duration(self.seconds)).sum()
    }
}

/// Returns whether every promise was kept.
pub fn run(args: &Args) -> Result<bool> {
    if args.seconds < 90 {
        return Err("a run takes at least 90 seconds; shorter phases are not meaningful".into());
    }
    std::fs::create_dir_all(&args.results)?;
    let run = attack(args)?;
    let verdicts = verdict::all(&run);
    let summary = report::markdown(&run, args.flood, &verdicts);
    std::fs::write(args.results.join("attack.csv"), csv(&run.samples))?;
    std::fs::write(args.results.join("attack.svg"), plot::svg(&run))?;
    std::fs::write(args.results.join("attack.md"), &summary)?;
    println!("{summary}");
    eprintln!("attack: table, plot and this summary are in {}", args.results.display());
    Ok(verdicts.iter().all(|verdict| verdict.holds))
}

fn attack(args: &Args) -> Result<Run> {
    // The flood must fill the table in the first half of the warm-up.
    let max_rows = (args.flood * Phase::WarmUp.duration(args.seconds).as_secs() / 2).clamp(10_000, 100_000) as usize;
    let is_pinned = pin();
    let mut server = ServerProcess::start(is_pinned, max_rows)?;
    let (sender, seen) = channel();
    honest::start(server.address, &sender)?;
    drop(sender);

    let mut run = Run {
        seconds: args.seconds,
        max_rows,
        is_pinned,
        samples: Vec::new(),
        phases: Vec::new(),
        hostile: Vec::new(),
    };
    let begin = Instant::now();
    let mut ends = begin;
    let mut hostile: Option<AttackerProcess> = None;
    let mut was_stolen = false;
    for phase in Phase::ALL {
        eprintln!("attack: {} for {} s", phase.name(), phase.duration(args.seconds).as_secs_f64());
        if phase == Phase::WarmUp {
            hostile = Some(AttackerProcess::start(server.address, args.flood, run.attacked())?);
        }
        ends += phase.duration(args.seconds);
        let (mut all, mut undisturbed, mut seconds) = (Vec::new(), Vec::new(), 0);
        let mut watch = Sampler::new(server.child.id(), hostile.as_ref().map(|hostile| hostile.0.id()));
        // Requests that were sent in the previous phase belong to that phase.
        let _ = seen.try_iter().count();
        while Instant::now() < ends {
            sleep((ends - Instant::now()).min(SECOND));
            let (sample, latest) = watch.sample(begin, phase, server.admin, &seen)?;
            let is_stolen = sample.stolen_cores > 0.0;
            if !is_stolen && !was_stolen {
                undisturbed.extend(&latest);
                seconds += 1;
            }
            was_stolen = is_stolen;
            all.extend(latest);
            run.samples.push(sample);
        }
        let (whole, undisturbed) = (Honest::of(&all), Honest::of(&undisturbed));
        run.phases.push(PhaseStats { phase, whole, undisturbed, seconds });
        if phase == Phase::Attack
            && let Some(hostile) = hostile.take()
        {
            run.hostile = hostile.end()?;
        }
        if let Some(status) = server.child.try_wait()? {
            return Err(format!("the server has ended: {status}").into());
        }
    }
    Ok(run)
}

/// The counters to compare with the previous second.
struct Sampler {
    server: u32,
    hostile: Option<u32>,
    at: Instant,
    used: [Duration; 4],
}

impl Sampler {
    fn new(server: u32, hostile: Option<u32>) -> Sampler {
        let mut watch = Sampler { server, hostile, at: Instant::now(), used: [Duration::ZERO; 4] };
        watch.used = watch.used();
        watch
    }

    fn used(&self) -> [Duration; 4] {
        let clients = used_by(std::process::id()) + self.hostile.map_or(Duration::ZERO, used_by);
        [used_by(self.server), clients, used_by_all(), stolen()]
    }

    fn sample(
        &mut self,
        begin: Instant,
        phase: Phase,
        admin: SocketAddr,
        seen: &Receiver<Seen>,
    ) -> Result<(Sample, Vec<Seen>)> {
        let (used, at) = (self.used(), Instant::now());
        let cores = |i: usize| used[i].saturating_sub(self.used[i]).as_secs_f64() / (at - self.at).as_secs_f64();
        let [server_cores, client_cores, machine_cores, stolen_cores] = [0, 1, 2, 3].map(cores);
        (self.used, self.at) = (used, at);
        let latest: Vec<Seen> = seen.try_iter().collect();
        let sample = Sample {
            second: begin.elapsed().as_secs_f64(),
            phase,
            server: Server::read(self.server, admin)?,
            honest: Honest::of(&latest),
            server_cores,
            client_cores,
            machine_cores,
            stolen_cores,
        };
        Ok((sample, latest))
    }
}

/// The server process, which exits when its standard input ends or when this value is dropped.
struct ServerProcess {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
}

impl ServerProcess {
    fn start(is_pinned: bool, max_rows: usize) -> Result<ServerProcess> {
        let own = std::env::current_exe()?;
        let mut command = if is_pinned { Command::new("taskset") } else { Command::new(&own) };
        if is_pinned {
            command.args(["-c", "0"]).arg(&own);
        }
        command.args(["serve", "--max-rows", &max_rows.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("the server has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let (address, admin) = server::parse_line(&line)?;
        Ok(ServerProcess { child, address, admin })
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The attackers, which have a lower priority than the honest clients on the same core, so the measured latencies are
/// those of the server.
struct AttackerProcess(Child);

impl AttackerProcess {
    fn start(server: SocketAddr, flood: u64, time: Duration) -> Result<AttackerProcess> {
        let child = Command::new("nice")
            .args(["-n", "10"])
            .arg(std::env::current_exe()?)
            .args(["hostile", "--server", &server.to_string(), "--flood", &flood.to_string()])
            .args(["--seconds", &time.as_secs().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(AttackerProcess(child))
    }

    fn end(mut self) -> Result<Vec<AttackerStats>> {
        let mut text = String::new();
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_string(&mut text)?;
        }
        Ok(text.lines().filter_map(AttackerStats::parse).collect())
    }
}

impl Drop for AttackerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Pins this process and its children to the second core, so that the server has the first core to itself. Without
/// `taskset` or a second core, all processes share the cores.
fn pin() -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let own = std::process::id().to_string();
    let pinned = Command::new("taskset").args(["-cp", "1", &own]).stdout(Stdio::null()).status();
    cores > 1 && pinned.is_ok_and(|status| status.success())
}

const SECOND: Duration = Duration::from_secs(1);
