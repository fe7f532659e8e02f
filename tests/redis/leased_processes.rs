//! Eight processes that lease tokens from one server. The child processes run this test program, and log the time of
//! each admitted call.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use tollgate::backend::RedisBackend;
use tollgate::{Policy, Quota, RateLimiter, SECOND};

use crate::coalescing::scripts;
use crate::server::{PATIENCE, Server};

const PROCESSES: usize = 8;
const TASKS: u64 = 4;
const RATE: u64 = 3200;

/// The environment variable that contains the server's URL, the number of keys and the path of the log.
const CHILD: &str = "TOLLGATE_TEST_LEASING_CHILD";

static ONE_KEY: Policy = Policy::new("one key", Quota::token_bucket(RATE, SECOND)).leases();
static MANY_KEYS: Policy = Policy::new("many keys", Quota::token_bucket(RATE / 100, SECOND)).leases();

/// Writes a record of sixteen bytes for each admitted call: the time in microseconds, and the key.
#[test]
fn child() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let [url, keys, log] = order.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let (url, keys) = (url.to_owned(), keys.parse::<u64>().unwrap());
    let policy = if keys == 1 { &ONE_KEY } else { &MANY_KEYS };
    let log = std::sync::Arc::new(std::sync::Mutex::new(std::fs::File::create(log).unwrap()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let limiter = RateLimiter::new(RedisBackend::builder().deadline(PATIENCE).connect(&url).await.unwrap());
        let task = |number: u64| {
            let (limiter, log) = (limiter.clone(), std::sync::Arc::clone(&log));
            tokio::spawn(async move {
                for call in number.. {
                    let key = call * 7 % keys;
                    // A call may fail while the server is restarted.
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

struct Processes<'a> {
    server: &'a Server,
    children: Vec<Child>,
    begin: u64,
}

impl<'a> Processes<'a> {
    fn start(server: &'a Server, keys: u64) -> Processes<'a> {
        let start = |number| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["leased_processes::child", "--exact", "--nocapture"]).stdout(Stdio::null());
            let log = log(server.directory(), number);
            command.env(CHILD, format!("{} {keys} {}", server.url(), log.display())).spawn().unwrap()
        };
        Processes { children: (0..PROCESSES).map(start).collect(), begin: micros(), server }
    }

    fn signal(&self, number: usize, name: &str) {
        let pid = self.children[number].id();
        assert!(Command::new("sh").arg("-c").arg(format!("kill -{name} {pid}")).status().unwrap().success());
    }

    /// Ends all processes, and returns the times and keys of their admitted calls in order.
    fn end(mut self) -> Vec<(u64, u64)> {
        for child in &mut self.children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let mut admitted = Vec::new();
        for number in 0..PROCESSES {
            let bytes = std::fs::read(log(self.server.directory(), number)).unwrap_or_default();
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
            admitted.extend(bytes.chunks_exact(16).map(|record| (number(&record[..8]), number(&record[8..]))));
        }
        admitted.sort_unstable();
        admitted
    }
}

fn log(directory: &Path, number: usize) -> std::path::PathBuf {
    directory.join(format!("admitted-{number}"))
}

/// Returns the largest number of calls beyond the refill in any interval. Calls are logged after they were decided, so
/// each task may have one call that was decided earlier.
fn most_beyond_refill(times: impl Iterator<Item = u64>, rate: f64) -> f64 {
    let (mut excess, mut most, mut last) = (0f64, 0f64, 0);
    for time in times {
        excess = (excess - rate * (time - last) as f64 / 1e6).max(0.0) + 1.0;
        (last, most) = (time, most.max(excess));
    }
    most
}

fn admitted_between(admitted: &[(u64, u64)], from: u64, to: u64) -> f64 {
    admitted.iter().filter(|(time, _)| (from..to).contains(time)).count() as f64
}

const IN_FLIGHT: f64 = (PROCESSES as u64 * TASKS) as f64;

#[test]
fn eight_processes_keep_the_bound_of_one_key() {
    let server = Server::start();
    let processes = Processes::start(&server, 1);
    let before = scripts(&server);
    std::thread::sleep(6 * SECOND);
    let calls = scripts(&server) - before;
    let begin = processes.begin;
    let admitted = processes.end();
    let most = most_beyond_refill(admitted.iter().map(|(time, _)| *time), RATE as f64);
    let steady = admitted_between(&admitted, begin + 3_000_000, begin + 6_000_000) / (3.0 * RATE as f64);
    println!(
        "{} admitted, at most {most} beyond the refill (bound {RATE}), utilization {steady:.3}, {:.3} script calls per \
         admitted call",
        admitted.len(),
        calls as f64 / admitted.len() as f64
    );
    assert!(most <= RATE as f64 + IN_FLIGHT);
    assert!(steady > 0.7, "utilization {steady}");
}

#[test]
fn eight_processes_keep_the_bound_of_each_of_a_hundred_keys() {
    let server = Server::start();
    let processes = Processes::start(&server, 100);
    std::thread::sleep(6 * SECOND);
    let admitted = processes.end();
    for key in 0..100 {
        let times = admitted.iter().filter(|(_, of)| *of == key).map(|(time, _)| *time);
        let most = most_beyond_refill(times, RATE as f64 / 100.0);
        assert!(most <= RATE as f64 / 100.0 + IN_FLIGHT, "key {key}: {most} calls beyond the refill");
    }
    println!("{} admitted calls of 100 keys", admitted.len());
}

/// Half of the processes are killed while they hold leases, and one is stopped for longer than a lease lasts.
#[test]
fn killed_and_stopped_processes_keep_the_bound() {
    let server = Server::start();
    let processes = Processes::start(&server, 1);
    std::thread::sleep(2 * SECOND);
    processes.signal(7, "STOP");
    (0..4).for_each(|number| processes.signal(number, "KILL"));
    let killed = micros();
    std::thread::sleep(5 * SECOND);
    processes.signal(7, "CONT");
    std::thread::sleep(4 * SECOND);
    let admitted = processes.end();
    let most = most_beyond_refill(admitted.iter().map(|(time, _)| *time), RATE as f64);
    let recovered = admitted_between(&admitted, killed + 5_000_000, killed + 8_000_000) / 3.0;
    // Four tasks of each process wait for two milliseconds after each call.
    println!("at most {most} calls beyond the refill (bound {RATE}), {recovered:.0} calls per second after recovery");
    assert!(most <= RATE as f64 + IN_FLIGHT);
    assert!(recovered > 0.5 * RATE as f64, "{recovered} calls per second");
}
