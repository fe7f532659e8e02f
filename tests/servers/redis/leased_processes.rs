//! Eight processes that lease tokens from one server or cluster. The child processes run this test program, and log the
//! time of each admitted call. The tests check that the bound on admitted calls holds. The utilization depends on the
//! machine, so they only print it. The simulation in `src/limiter/leases/tests` checks the utilization in virtual time.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use tollgate::backend::RedisBackend;
use tollgate::{Policy, Quota, RateLimiter, SECOND};

use super::coalescing::scripts;
use super::proxy::Proxy;
use crate::support::cluster_server::{Cluster, owner, slot};
use crate::support::server::Server;

const PROCESSES: usize = 8;
const TASKS: u64 = 4;
const RATE: u64 = 3200;

/// The environment variable that contains the URLs of the server or cluster, the first key, the number of keys, and the
/// path of the log.
const CHILD: &str = "TOLLGATE_TEST_LEASING_CHILD";

static ONE_KEY: Policy = Policy::new("one key", Quota::token_bucket(RATE, SECOND)).leases();
static MANY_KEYS: Policy = Policy::new("many keys", Quota::token_bucket(RATE / 100, SECOND)).leases();

/// The child processes run this test. It logs the time in microseconds and the key of each admitted call.
#[test]
fn child() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let [urls, first, keys, log] = order.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let (first, keys) = (first.parse::<u64>().unwrap(), keys.parse::<u64>().unwrap());
    let policy = if keys == 1 { &ONE_KEY } else { &MANY_KEYS };
    let log = std::sync::Arc::new(std::sync::Mutex::new(std::fs::File::create(log).unwrap()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let builder = RedisBackend::builder().deadline(SECOND);
        let connected = match urls.split(',').collect::<Vec<_>>()[..] {
            [url] => builder.connect(url).await,
            ref nodes => builder.connect_cluster(nodes.iter().copied()).await,
        };
        let limiter = RateLimiter::new(connected.unwrap());
        let task = |number: u64| {
            let (limiter, log) = (limiter.clone(), std::sync::Arc::clone(&log));
            tokio::spawn(async move {
                for call in number.. {
                    let key = first + call * 7 % keys;
                    // A call may fail while the server is unavailable.
                    if limiter.try_limit(policy, key).await.is_ok_and(|decision| decision.is_allowed()) {
                        let record = [micros().to_le_bytes(), key.to_le_bytes()].concat();
                        log.lock().unwrap().write_all(&record).unwrap();
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
        };
        for task in (0..TASKS).map(task).collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
}

fn micros() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64
}

struct Processes {
    children: Vec<Child>,
    logs: Vec<PathBuf>,
    begin: u64,
}

impl Processes {
    /// Starts processes that log to `directory`.
    fn start(urls: &str, directory: &Path, first_key: u64, keys: u64) -> Processes {
        let logs: Vec<_> = (0..PROCESSES).map(|number| directory.join(format!("admitted-{number}"))).collect();
        let start = |log: &PathBuf| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["redis::leased_processes::child", "--exact", "--nocapture"]).stdout(Stdio::null());
            command.env(CHILD, format!("{urls} {first_key} {keys} {}", log.display())).spawn().unwrap()
        };
        Processes { children: logs.iter().map(start).collect(), logs, begin: micros() }
    }

    fn on(server: &Server, keys: u64) -> Processes {
        Processes::start(&server.url(), server.directory(), 0, keys)
    }

    fn signal(&self, number: usize, name: &str) {
        let pid = self.children[number].id();
        assert!(Command::new("sh").arg("-c").arg(format!("kill -{name} {pid}")).status().unwrap().success());
    }

    /// Kills all processes, and returns the time and key of each admitted call in chronological order.
    fn end(mut self) -> Vec<(u64, u64)> {
        for child in &mut self.children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let mut admitted = Vec::new();
        for log in &self.logs {
            let bytes = std::fs::read(log).unwrap_or_default();
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
            admitted.extend(bytes.chunks_exact(16).map(|record| (number(&record[..8]), number(&record[8..]))));
        }
        admitted.sort_unstable();
        admitted
    }
}

/// Returns the largest excess of calls over refilled tokens in any interval. A call is logged after it is decided, so
/// each task may log one call late.
fn most_beyond_refill(times: impl Iterator<Item = u64>, rate: f64) -> f64 {
    let (mut excess, mut most, mut last) = (0f64, 0f64, 0);
    for time in times {
        excess = (excess - rate * (time - last) as f64 / 1e6).max(0.0) + 1.0;
        (last, most) = (time, most.max(excess));
    }
    most
}

/// Returns the average number of calls admitted per second in the three seconds after `from`.
fn rate_from(admitted: &[(u64, u64)], from: u64) -> f64 {
    admitted.iter().filter(|(time, _)| (from..from + 3_000_000).contains(time)).count() as f64 / 3.0
}

const IN_FLIGHT: f64 = (PROCESSES as u64 * TASKS) as f64;

#[test]
fn eight_processes_stay_within_the_bound_for_one_key() {
    let server = Server::start();
    let processes = Processes::on(&server, 1);
    let before = scripts(&server);
    std::thread::sleep(6 * SECOND);
    let calls = scripts(&server) - before;
    let begin = processes.begin;
    let admitted = processes.end();
    let most = most_beyond_refill(admitted.iter().map(|(time, _)| *time), RATE as f64);
    let steady = rate_from(&admitted, begin + 3_000_000) / RATE as f64;
    println!(
        "{} admitted, at most {most} beyond the refill (bound {RATE}), utilization {steady:.3}, {:.3} script calls per \
         admitted call",
        admitted.len(),
        calls as f64 / admitted.len() as f64
    );
    assert!(most <= RATE as f64 + IN_FLIGHT);
    assert!(steady > 0.0, "no calls were admitted");
}

#[test]
fn eight_processes_stay_within_the_bounds_for_a_hundred_keys() {
    let server = Server::start();
    let processes = Processes::on(&server, 100);
    std::thread::sleep(6 * SECOND);
    let admitted = processes.end();
    for key in 0..100 {
        let times = admitted.iter().filter(|(_, of)| *of == key).map(|(time, _)| *time);
        let most = most_beyond_refill(times, RATE as f64 / 100.0);
        assert!(most <= RATE as f64 / 100.0 + IN_FLIGHT, "key {key}: {most} calls beyond the refill");
    }
    println!("{} admitted calls for 100 keys", admitted.len());
}

/// Half of the processes are killed while they hold leases, and one is stopped for longer than a lease lasts.
#[test]
fn killed_and_stopped_processes_stay_within_the_bound() {
    let server = Server::start();
    let processes = Processes::on(&server, 1);
    std::thread::sleep(2 * SECOND);
    processes.signal(7, "STOP");
    (0..4).for_each(|number| processes.signal(number, "KILL"));
    let killed = micros();
    std::thread::sleep(5 * SECOND);
    processes.signal(7, "CONT");
    std::thread::sleep(4 * SECOND);
    let admitted = processes.end();
    let most = most_beyond_refill(admitted.iter().map(|(time, _)| *time), RATE as f64);
    let recovered = rate_from(&admitted, killed + 5_000_000);
    println!("at most {most} calls beyond the refill (bound {RATE}), {recovered:.0} calls per second after recovery");
    assert!(most <= RATE as f64 + IN_FLIGHT);
    assert!(recovered > 0.0, "no calls were admitted after the recovery");
}

/// The server writes each row to disk before it replies.
#[test]
fn the_bound_holds_after_a_restart_of_a_server_that_saves_all_rows() {
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (most, recovered) = restart(&mut server);
    println!("rows are saved: at most {most} calls beyond the refill (bound {RATE}), {recovered:.0}/s after recovery");
    assert!(most <= RATE as f64 + IN_FLIGHT);
    assert!(recovered > 0.0, "no calls were admitted after the recovery");
}

/// After a row is lost, the whole quota is available again, and the processes can also spend the leases that they hold.
#[test]
fn after_a_server_loses_all_rows_the_bound_is_exceeded_by_at_most_one_capacity() {
    let mut server = Server::start();
    let (most, recovered) = restart(&mut server);
    println!("rows are lost: at most {most} calls beyond the refill (bound {RATE}), {recovered:.0}/s after recovery");
    assert!(most <= 2.0 * RATE as f64 + IN_FLIGHT);
    assert!(recovered > 0.0, "no calls were admitted after the recovery");
}

/// Returns the largest number of calls beyond the refill, and the average rate in the three seconds that begin four
/// seconds after the restart.
fn restart(server: &mut Server) -> (f64, f64) {
    let processes = Processes::on(server, 1);
    std::thread::sleep(3 * SECOND);
    server.kill();
    std::thread::sleep(SECOND);
    server.restart();
    let restarted = micros();
    std::thread::sleep(7 * SECOND);
    let admitted = processes.end();
    let most = most_beyond_refill(admitted.iter().map(|(time, _)| *time), RATE as f64);
    (most, rate_from(&admitted, restarted + 4_000_000))
}

/// The replica may lack the last writes of the failed primary, so tokens that are already leased might be leased again.
#[test]
fn a_failover_exceeds_the_bound_by_at_most_the_leased_tokens() {
    let mut cluster = Cluster::with_replica(SECOND);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let limiter = RateLimiter::new(runtime.block_on(cluster.backend()));
    let is_on_first = |key: &u64| owner(slot(&cluster.nodes[0], limiter.digest(Some(&(*key).into())))) == 0;
    let key = (0..).find(is_on_first).unwrap();
    let processes = Processes::start(&cluster.urls().join(","), cluster.nodes[3].directory(), key, 1);
    std::thread::sleep(4 * SECOND);
    cluster.nodes[0].kill();
    let killed = micros();
    std::thread::sleep(12 * SECOND);
    let admitted = processes.end();
    let most = most_beyond_refill(admitted.iter().map(|(time, _)| *time), RATE as f64);
    let gap =
        admitted.windows(2).filter(|pair| pair[1].0 > killed).map(|pair| pair[1].0 - pair[0].0).max().unwrap_or(0);
    let recovered = rate_from(&admitted, killed + gap + 4_000_000);
    println!(
        "at most {most} calls beyond the refill (bound {RATE}), no calls for {} ms, {recovered:.0}/s after recovery",
        gap / 1000
    );
    assert!(most <= 1.5 * RATE as f64 + IN_FLIGHT);
    assert!(recovered > 0.0, "no calls were admitted after the recovery");
}

#[test]
fn eight_processes_with_a_slow_link_stay_within_the_bound() {
    let server = Server::start();
    let proxy = Proxy::with_delay(server.port(), Duration::from_millis(25));
    let processes = Processes::start(&proxy.url(), server.directory(), 0, 1);
    std::thread::sleep(2 * SECOND);
    let before = scripts(&server);
    let begin = micros();
    std::thread::sleep(5 * SECOND);
    let calls = scripts(&server) - before;
    let end = micros();
    let admitted = processes.end();
    let most = most_beyond_refill(admitted.iter().map(|(time, _)| *time), RATE as f64);
    let count = admitted.iter().filter(|(time, _)| (begin..end).contains(time)).count() as f64;
    let utilization = count / (RATE as f64 * (end - begin) as f64 / 1e6);
    println!(
        "50 ms round trips: at most {most} calls beyond the refill (bound {RATE}), utilization {utilization:.3}, {:.3} \
         script calls per admitted call",
        calls as f64 / count
    );
    assert!(most <= RATE as f64 + IN_FLIGHT);
    assert!(utilization > 0.0, "no calls were admitted");
}
