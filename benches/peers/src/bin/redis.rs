//! Compares decisions on Redis with a bare round trip and with other crates' Redis backends, interleaved in one run.
//! Run it with `make bench-redis`. The run can be changed with the arguments `keys=100000`, `rounds=1`, `tasks=64`,
//! `charges=1` and `only=PING,coalesced` (words in the contestants' names).
//!
//! Starts a redis-server and prints Markdown tables: requests and decisions per second, latency, and the cost of a
//! decision on the server's main thread. The server has the first core, and the client has the second. Each contestant
//! has one connection, the same random keys, and limits that allow everything. Figures are medians of the rounds.
//! Because machines are noisy, compare ratios. Each ratio is taken within a round, in which the contestants run right
//! after one another, and the tables show the median ratio and its 95% interval (bootstrap).
//!
//! A decision covers one charge, as elsewhere in tollgate, so a request with three charges makes three decisions, on
//! three rows. Latencies are those of requests.
//!
//! Contestants:
//! - `PING`: a round trip without a decision, on redis-rs's `MultiplexedConnection`. The other contestants use this
//!   type too (actix in an older version, inside a `ConnectionManager`).
//! - tollgate: token buckets; all charges of a request or none, in one script call. Coalesced: one limiter for all
//!   tasks, whose concurrent decisions share a call. Un-coalesced: a backend per task on the same connection, so that
//!   no call has more than one decision.
//! - tollgate, three quotas: one charge under a policy of three quotas, coalesced. Each request counts as one
//!   decision, even next to requests with three charges.
//! - tollgate, leases: the same charges under policies with leases. Each round begins with half a second that is not
//!   measured, in which the leases are granted.
//! - actix-extensible-rate-limit: fixed windows; `BITFIELD INCRBY`, `EXPIRE NX`, `TTL` in a transaction. Denials count
//!   too.
//! - tower-rate-limiter (feature `tower-rate-limiter`): GCRA, a script call per charge.
//!
//! The peers cannot decide several charges atomically. Their charges are sent concurrently, which is the best case,
//! because stacked middleware would send them one after the other.
//!
//! Not included: limitador 0.14, whose Redis storage does not compile without RocksDB.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use actix_extensible_rate_limit::backend::redis::RedisBackend as Actix;
use actix_extensible_rate_limit::backend::{Backend, SimpleInput};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use tokio::task::{LocalSet, spawn_local};
use tollgate::backend::RedisBackend;
use tollgate::{Charge, DAY, HOUR, Policy, Quota, RateLimiter, WEEK};
use tollgate_peers::{median, pin, spread};
#[cfg(feature = "tower-rate-limiter")]
use tower_rate_limiter::{DecisionOutcome, GcraQuota, RateLimitPolicy, RedisGcra};

const TASKS: [usize; 3] = [1, 64, 512];
const CHARGES: [usize; 2] = [1, 3];
/// The number of keys. With a hundred times as many keys, the server's caches matter, so measure both.
const KEYS: usize = 1_000;
/// The number of rounds, which take about five minutes in total. With fifteen rounds, the medians still varied by a
/// tenth.
const ROUNDS: usize = 45;
const ROUND: Duration = Duration::from_millis(200);
/// The time for which a contestant with leases runs before it is measured.
const LEASING: Duration = Duration::from_millis(500);

/// The capacity of each policy. Nothing is refilled or expires during the run.
const RATE: u32 = 10;
const BURST: u32 = 50_000;
const QUOTA: Quota = Quota::token_bucket(RATE as u64, HOUR).capacity(BURST as u64);
const NAMES: [&str; 3] = ["address", "user", "route"];
static POLICIES: [Policy; 3] =
    [Policy::new(NAMES[0], QUOTA), Policy::new(NAMES[1], QUOTA), Policy::new(NAMES[2], QUOTA)];

/// The policies with leases need more tokens, because they make many more decisions.
const LEASED_QUOTA: Quota = Quota::token_bucket(1_000_000, HOUR).capacity(50_000_000);
static LEASED_POLICIES: [Policy; 3] = [
    Policy::new("leased address", LEASED_QUOTA).leases(),
    Policy::new("leased user", LEASED_QUOTA).leases(),
    Policy::new("leased route", LEASED_QUOTA).leases(),
];

static THREE_QUOTAS: Policy = Policy::new("quotas", QUOTA)
    .and(Quota::token_bucket(RATE as u64, DAY).capacity(BURST as u64))
    .and(Quota::token_bucket(RATE as u64, WEEK).capacity(BURST as u64));

/// A deadline that is longer than any stall of the machine.
const DEADLINE: Duration = Duration::from_secs(2);

fn main() {
    let choice = Choice::from_arguments();
    pin(0);
    let mut server = Server::start();
    pin(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let results = LocalSet::new().block_on(&runtime, async {
        let mut contestants = Contestant::all(&server.url()).await;
        contestants.retain(|contestant| choice.wants(contestant.name()));
        measure(&mut server, &contestants, &choice).await
    });
    for (charges, results) in CHARGES.into_iter().zip(&results) {
        if choice.charges.is_none_or(|only| only == charges) {
            print(charges, results);
        }
    }
    print_targets(&results);
}

struct Choice {
    keys: usize,
    rounds: usize,
    tasks: Option<usize>,
    charges: Option<usize>,
    /// Words in the names of the contestants to run. If there are none, all contestants run.
    names: Vec<String>,
}

impl Choice {
    fn from_arguments() -> Choice {
        let mut choice = Choice { keys: KEYS, rounds: ROUNDS, tasks: None, charges: None, names: Vec::new() };
        for argument in std::env::args().skip(1) {
            let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
            let number = || value.parse().unwrap_or_else(|_| panic!("{argument}: {value:?} is not a number"));
            match name {
                "keys" => choice.keys = number(),
                "rounds" => choice.rounds = number(),
                "tasks" => choice.tasks = Some(number()),
                "charges" => choice.charges = Some(number()),
                "only" => choice.names = value.split(',').map(str::to_owned).collect(),
                _ => panic!("{argument}: expected keys=, rounds=, tasks=, charges=, only="),
            }
        }
        choice
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || name.split([' ', ',', '`']).any(|word| self.names.iter().any(|other| other == word))
    }
}

/// Each contestant's results, by number of tasks and round.
type Results = Vec<(&'static str, [Vec<Round>; TASKS.len()])>;

/// Returns the results, indexed by the number of charges.
async fn measure(server: &mut Server, contestants: &[Contestant], choice: &Choice) -> Vec<Results> {
    let keys: Rc<[String]> = {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        (0..choice.keys).map(|_| format!("user-{:016x}", dice.roll())).collect()
    };
    let mut results: Vec<Results> =
        CHARGES.map(|_| contestants.iter().map(|c| (c.name(), Default::default())).collect()).into();
    for round in 0..=choice.rounds {
        for (charges, results) in CHARGES.into_iter().zip(&mut results) {
            for (place, tasks) in TASKS.into_iter().enumerate() {
                if choice.charges.is_some_and(|only| only != charges) || choice.tasks.is_some_and(|only| only != tasks)
                {
                    continue;
                }
                for i in 0..contestants.len() {
                    // Alternate the order, because the machine changes during a round.
                    let i = if round % 2 == 0 { i } else { contestants.len() - 1 - i };
                    // The first round is a warm-up.
                    let length = if round == 0 { ROUND / 4 } else { ROUND };
                    if matches!(contestants[i], Contestant::Leased(_)) {
                        contestants[i].round(server, &keys, tasks, charges, LEASING).await;
                    }
                    let measured = contestants[i].round(server, &keys, tasks, charges, length).await;
                    if round > 0 {
                        results[i].1[place].push(measured);
                    }
                }
            }
        }
    }
    results
}

fn print(charges: usize, results: &Results) {
    let s = if charges == 1 { "" } else { "s, all or none" };
    println!("| {charges} charge{s} | tasks | requests/s | decisions/s | p50 µs | p99 µs | server µs/decision |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (place, tasks) in TASKS.into_iter().enumerate() {
        for (name, rounds) in results {
            if rounds[place].is_empty() {
                continue;
            }
            let middle = |of: fn(&Round) -> f64| median(rounds[place].iter().map(of).collect());
            let [per_second, p50] = [middle(|it| it.per_second), middle(|it| it.p50)];
            let [p99, server] = [middle(|it| it.p99), middle(|it| it.server)];
            let times = decisions(name, charges);
            let (decided, server) = (per_second * times, server / times);
            println!("| {name} | {tasks} | {per_second:.0} | {decided:.0} | {p50:.0} | {p99:.0} | {server:.1} |");
        }
    }
    println!();
}

/// Returns the number of decisions per request.
fn decisions(name: &str, charges: usize) -> f64 {
    if [PING, QUOTAS].contains(&name) { 1.0 } else { charges as f64 }
}

fn print_targets(results: &[Results]) {
    println!("| ratio | target | 1 charge | 3 charges |");
    println!("| --- | --- | --- | --- |");
    // Returns one of a contestant's figures in a round.
    type Figure<'a> = &'a dyn Fn((usize, &Results), usize) -> Option<f64>;
    let line = |label: &str, target: &str, of: Figure, to: Figure| {
        let cells = CHARGES.into_iter().zip(results).map(|results| {
            let ratios: Vec<f64> = (0..).map_while(|i| Some(of(results, i)? / to(results, i)?)).collect();
            if ratios.is_empty() {
                return String::new();
            }
            let (middle, low, high) = spread(&ratios);
            format!("{middle:.2} ({low:.2} to {high:.2})")
        });
        println!("| {label} | {target} | {} |", cells.collect::<Vec<_>>().join(" | "));
    };
    let round = |results: &Results, name: &str, tasks: usize, i: usize| {
        let place = TASKS.iter().position(|other| *other == tasks)?;
        results.iter().find(|(other, _)| *other == name)?.1[place].get(i).copied()
    };
    let rate = |name: &'static str, tasks| {
        move |(charges, results): (usize, &Results), i: usize| {
            Some(round(results, name, tasks, i)?.per_second * decisions(name, charges))
        }
    };
    let p50 =
        |name: &'static str| move |(_, results): (usize, &Results), i: usize| Some(round(results, name, 1, i)?.p50);
    let best_peer = |tasks| {
        move |(charges, results): (usize, &Results), i: usize| {
            let peers = results
                .iter()
                .map(|(name, _)| *name)
                .filter(|name| ![PING, COALESCED, ALONE, QUOTAS, LEASED].contains(name));
            peers.filter_map(|name| rate(name, tasks)((charges, results), i)).reduce(f64::max)
        }
    };
    let coalesced = "coalesced, decisions/s : PING/s at 64 tasks";
    line(coalesced, "at least 0.6", &rate(COALESCED, 64), &rate(PING, 64));
    let alone = "coalesced : un-coalesced, decisions/s at 512 tasks";
    line(alone, "at least 2", &rate(COALESCED, 512), &rate(ALONE, 512));
    line("coalesced : PING, p50 at 1 task", "at most 1.6", &p50(COALESCED), &p50(PING));
    let server = |name: &'static str, tasks| {
        move |(_, results): (usize, &Results), i: usize| Some(round(results, name, tasks, i)?.server)
    };
    for tasks in [1, 64, 512] {
        let label = format!("three quotas : coalesced, server CPU per request at {tasks} tasks");
        line(&label, "at most 1.5", &server(QUOTAS, tasks), &server(COALESCED, tasks));
    }
    line("leases : coalesced, decisions/s at 512 tasks", "at least 10", &rate(LEASED, 512), &rate(COALESCED, 512));
    line("leases : coalesced, server CPU per request at 512 tasks", "", &server(LEASED, 512), &server(COALESCED, 512));
    line("three quotas : coalesced, p50 at 1 task", "at most 1.15", &p50(QUOTAS), &p50(COALESCED));
    for tasks in [64, 512] {
        let label = format!("coalesced : best peer, decisions/s at {tasks} tasks");
        line(&label, "more than 1", &rate(COALESCED, tasks), &best_peer(tasks));
    }
}

const PING: &str = "`PING`";
const COALESCED: &str = "tollgate, coalesced";
const ALONE: &str = "tollgate, un-coalesced";
const QUOTAS: &str = "tollgate, three quotas";
const LEASED: &str = "tollgate, leases";
const ACTIX: &str = "actix-extensible-rate-limit";
#[cfg(feature = "tower-rate-limiter")]
const TOWER: &str = "tower-rate-limiter";

enum Contestant {
    Ping(MultiplexedConnection),
    Coalesced(RateLimiter),
    ThreeQuotas(RateLimiter),
    Leased(RateLimiter),
    /// One limiter for each task.
    Alone(Vec<RateLimiter>),
    Actix(Actix),
    /// One limiter for each policy.
    #[cfg(feature = "tower-rate-limiter")]
    Tower(Vec<RedisGcra>),
}

impl Contestant {
    async fn all(url: &str) -> Vec<Contestant> {
        // The client has no timeout, because tollgate has its own timeout, and the other contestants need none here.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(url).expect("a URL");
        let connection =
            || async { client.get_multiplexed_async_connection_with_config(&config).await.expect("connected") };
        let backend = |prefix| RedisBackend::builder().deadline(DEADLINE).prefix(prefix);
        let alone = connection().await;
        let actix =
            redis_of_actix::aio::ConnectionManager::new(redis_of_actix::Client::open(url).expect("a URL")).await;
        vec![
            Contestant::Ping(connection().await),
            Contestant::Coalesced(RateLimiter::new(backend("coalesced").connect(url).await.expect("connected"))),
            Contestant::ThreeQuotas(RateLimiter::new(backend("quotas").connect(url).await.expect("connected"))),
            Contestant::Leased(RateLimiter::new(backend("leases").connect(url).await.expect("connected"))),
            Contestant::Alone(
                (0..TASKS[TASKS.len() - 1])
                    .map(|_| RateLimiter::new(backend("alone").connection(alone.clone())))
                    .collect(),
            ),
            Contestant::Actix(Actix::builder(actix.expect("connected")).key_prefix(Some("actix:")).build()),
            #[cfg(feature = "tower-rate-limiter")]
            Contestant::Tower({
                let quota = GcraQuota::new(RATE, HOUR, BURST).expect("a quota");
                let connection = connection().await;
                NAMES.map(|name| RedisGcra::new(connection.clone(), quota).with_namespace(name)).into()
            }),
        ]
    }

    fn name(&self) -> &'static str {
        match self {
            Contestant::Ping(_) => PING,
            Contestant::Coalesced(_) => COALESCED,
            Contestant::ThreeQuotas(_) => QUOTAS,
            Contestant::Leased(_) => LEASED,
            Contestant::Alone(_) => ALONE,
            Contestant::Actix(_) => ACTIX,
            #[cfg(feature = "tower-rate-limiter")]
            Contestant::Tower(_) => TOWER,
        }
    }

    async fn round(
        &self,
        server: &mut Server,
        keys: &Rc<[String]>,
        tasks: usize,
        charges: usize,
        length: Duration,
    ) -> Round {
        let before = server.cpu();
        let begin = Instant::now();
        let mut running = Vec::with_capacity(tasks);
        for task in 0..tasks {
            // All contestants get the same keys, in the same order.
            let turns = Turns { keys: Rc::clone(keys), dice: Dice(task as u64 + 1), until: begin + length };
            running.push(match self {
                Contestant::Ping(connection) => {
                    let mut connection = connection.clone();
                    spawn_local(turns.take(async move |_| {
                        redis::cmd("PING").query_async::<()>(&mut connection).await.expect("PONG");
                    }))
                }
                Contestant::Coalesced(limiter) => {
                    let limiter = limiter.clone();
                    spawn_local(turns.take(async move |key| decide(&limiter, &POLICIES, charges, key).await))
                }
                Contestant::Leased(limiter) => {
                    let limiter = limiter.clone();
                    spawn_local(turns.take(async move |key| {
                        decide(&limiter, &LEASED_POLICIES, charges, key).await;
                        // A decision from a lease never waits, so without this line, other tasks would not run.
                        tokio::task::coop::consume_budget().await;
                    }))
                }
                Contestant::ThreeQuotas(limiter) => {
                    let limiter = limiter.clone();
                    spawn_local(turns.take(async move |key| {
                        assert!(limiter.try_limit(&THREE_QUOTAS, key).await.expect("decided").is_allowed());
                    }))
                }
                Contestant::Alone(limiters) => {
                    let limiter = limiters[task].clone();
                    spawn_local(turns.take(async move |key| decide(&limiter, &POLICIES, charges, key).await))
                }
                Contestant::Actix(backend) => {
                    let backend = backend.clone();
                    spawn_local(turns.take(async move |key| {
                        all(charges, async |i| {
                            let key = format!("{}:{key}", NAMES[i]);
                            let input = SimpleInput { interval: HOUR, max_requests: BURST.into(), key };
                            backend.request(input).await.expect("decided").0.is_allowed()
                        })
                        .await
                    }))
                }
                #[cfg(feature = "tower-rate-limiter")]
                Contestant::Tower(policies) => {
                    let policies = policies.clone();
                    spawn_local(turns.take(async move |key| {
                        all(charges, async |i| {
                            policies[i].check(key.to_owned()).await.expect("decided").outcome()
                                == DecisionOutcome::Allowed
                        })
                        .await
                    }))
                }
            });
        }
        let mut nanos = Vec::new();
        for task in running {
            nanos.extend(task.await.expect("a task"));
        }
        let elapsed = begin.elapsed();
        Round::of(nanos, elapsed, server.cpu() - before)
    }
}

async fn decide(limiter: &RateLimiter, policies: &[Policy; 3], charges: usize, key: &str) {
    let decision = match charges {
        1 => limiter.try_limit(&policies[0], key).await.map(|decision| decision.into_result().map(drop)),
        _ => {
            let charges = policies[..charges].iter().map(|policy| Charge::new(policy, key));
            limiter.try_limit_all(charges).await.map(|decisions| decisions.into_result().map(drop))
        }
    };
    decision.expect("decided").expect("allowed");
}

/// Sends a peer's charges concurrently.
async fn all(charges: usize, charge: impl AsyncFn(usize) -> bool) {
    assert!(match charges {
        1 => charge(0).await,
        _ => tokio::join!(charge(0), charge(1), charge(2)) == (true, true, true),
    });
}

/// One task's part of a round.
struct Turns {
    keys: Rc<[String]>,
    dice: Dice,
    until: Instant,
}

impl Turns {
    /// Makes calls in sequence, and returns the nanoseconds of each.
    async fn take(mut self, mut call: impl AsyncFnMut(&str)) -> Vec<u32> {
        let mut nanos = Vec::new();
        let mut now = Instant::now();
        while now < self.until {
            call(&self.keys[self.dice.roll() as usize % self.keys.len()]).await;
            let then = std::mem::replace(&mut now, Instant::now());
            nanos.push((now - then).as_nanos() as u32);
        }
        nanos
    }
}

#[derive(Clone, Copy)]
struct Round {
    /// Requests per second.
    per_second: f64,
    /// Latencies in microseconds.
    p50: f64,
    p99: f64,
    /// The CPU time of the server's main thread per request, in microseconds.
    server: f64,
}

impl Round {
    fn of(mut nanos: Vec<u32>, elapsed: Duration, cpu: f64) -> Round {
        nanos.sort_unstable();
        let micros = |part: usize| nanos[nanos.len() * part / 100] as f64 / 1000.0;
        let count = nanos.len() as f64;
        Round { per_second: count / elapsed.as_secs_f64(), p50: micros(50), p99: micros(99), server: cpu * 1e6 / count }
    }
}

/// A redis-server process, which ends with the run.
struct Server {
    child: Child,
    port: u16,
    admin: Option<redis::Connection>,
}

impl Server {
    /// Starts the server on this thread's core.
    fn start() -> Server {
        // The port is free, unless another process takes it first.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port").port();
        let program = std::env::var_os("TOLLGATE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let child = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("no redis-server: {error}. Install it: apt-get install redis-server"));
        let mut server = Server { child, port, admin: None };
        let client = Client::open(server.url()).expect("a URL");
        let begin = Instant::now();
        server.admin = loop {
            match client.get_connection() {
                Ok(connection) => break Some(connection),
                Err(error) => assert!(begin.elapsed() < 10 * DEADLINE, "redis-server does not answer: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        server
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the CPU seconds of the server's main thread.
    fn cpu(&mut self) -> f64 {
        let admin = self.admin.as_mut().expect("connected");
        let info: String = redis::cmd("INFO").arg("cpu").query(admin).expect("INFO");
        let of =
            |name: &str| -> Option<f64> { info.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok() };
        ["used_cpu_sys_main_thread:", "used_cpu_user_main_thread:"]
            .map(|name| of(name).expect("Redis 7 or newer"))
            .iter()
            .sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Dice(u64);

impl Dice {
    /// Returns the next number of splitmix64, which accepts any seed.
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}
