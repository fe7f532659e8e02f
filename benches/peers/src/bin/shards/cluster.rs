//! One busy key on a Redis cluster of three nodes.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tollgate::{Policy, Quota, RateLimiter, SECOND};
use tollgate_peers::{Line, Random, median, quick, rounds_of};

use crate::cluster_server::{Cluster, info};
use crate::demand::{Demand, LIMITERS};
use crate::{ENDLESS, SHARDS, policies, relative};

pub const ABOUT: &str = "Three nodes and the clients share two cores, so the nodes cannot all work at full speed at the same time. The last column\n\
    shows what more cores would allow: decisions per second of CPU time of the busiest node, which reaches its limit first.\n\
    \"The busiest node\" is the share of that node in the CPU time of all nodes. A third is ideal. Each round uses another\n\
    key, because the shards of some keys are on only one or two nodes. A client sends concurrent calls to one node\n\
    together, and shards make these batches smaller. Sixteen clients represent processes with few calls each.";

pub const ABOUT_SATURATED: &str = "64 tasks ask for twice a limit of 2,000 per second for two seconds, on a real clock. Four limiters with their own\n\
    connections share the cluster. \"Skewed\": one of them makes 85 % of the calls.";

/// Tasks, and the clients among which they are divided. A client has its own connections.
const LOADS: [(usize, usize); 3] = [(64, 1), (512, 1), (64, CLIENTS)];
const CLIENTS: usize = 16;
const RATE: u64 = 2000;
const PACED_TASKS: u64 = 64;

/// Returns the table of throughput and the table of saturated quotas, and adds lines to the plot.
pub fn measure(lines: &mut Vec<Line>) -> (String, String) {
    let cluster = Cluster::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let limiter = || RateLimiter::new(runtime.block_on(cluster.backend()));
    let limiters: Vec<RateLimiter> = (0..CLIENTS).map(|_| limiter()).collect();
    let throughput = throughput(&cluster, &runtime, &limiters, lines);
    (throughput, saturated(&runtime, &limiters[..LIMITERS]))
}

fn throughput(
    cluster: &Cluster,
    runtime: &tokio::runtime::Runtime,
    limiters: &[RateLimiter],
    lines: &mut Vec<Line>,
) -> String {
    let mut table =
        "| tasks | clients | shards | decisions/s | to one shard | the busiest node | its decisions per CPU second, to \
                     one shard |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    let (rounds, round) = if quick() { (3, 30) } else { (31, 200) };
    let policies = policies(ENDLESS);
    for (tasks, clients) in LOADS {
        let (mut shares, mut per_cpu) = (SHARDS.map(|_| Vec::new()), SHARDS.map(|_| Vec::new()));
        let mut keys = [0; SHARDS.len()];
        let rates = rounds_of(rounds, SHARDS.len(), |i| {
            keys[i] += 1;
            let key: Arc<str> = format!("hot-{tasks}-{clients}-{}", keys[i]).into();
            let before = cpu(cluster);
            let begin = Instant::now();
            let run = run(&limiters[..clients], &policies[i], &key, tasks, Duration::from_millis(round));
            let decisions = runtime.block_on(run) as f64;
            let rate = decisions / begin.elapsed().as_secs_f64();
            let spent: Vec<f64> = cpu(cluster).iter().zip(&before).map(|(after, before)| after - before).collect();
            let busiest = spent.iter().copied().fold(0.0, f64::max);
            shares[i].push(busiest / spent.iter().sum::<f64>());
            per_cpu[i].push(decisions / busiest);
            rate
        });
        let (mut faster, mut possible) = (Vec::new(), Vec::new());
        for (i, shards) in SHARDS.iter().enumerate() {
            let ((ratio, text), (cpu, cpu_text)) = (relative(&rates[i], &rates[0]), relative(&per_cpu[i], &per_cpu[0]));
            let (rate, share) = (median(rates[i].clone()), median(shares[i].clone()));
            let most = shares[i].iter().copied().fold(0.0, f64::max);
            let _ = writeln!(
                table,
                "| {tasks} | {clients} | {shards} | {rate:.0} | {text} | {share:.2} (at most {most:.2}) | {cpu_text} |"
            );
            faster.push(ratio);
            possible.push(cpu);
        }
        match clients {
            1 => lines.push(Line { name: format!("cluster, {tasks} tasks"), values: faster }),
            _ => {
                lines.push(Line { name: format!("cluster, {clients} clients"), values: faster });
                lines.push(Line { name: "same, per CPU time*".into(), values: possible });
            }
        }
    }
    table
}

/// Makes calls in `tasks` tasks, and returns the number of calls.
async fn run(limiters: &[RateLimiter], policy: &Arc<Policy>, key: &Arc<str>, tasks: usize, round: Duration) -> u64 {
    let (until, mut running) = (Instant::now() + round, JoinSet::new());
    for task in 0..tasks {
        let (limiter, policy, key) = (limiters[task % limiters.len()].clone(), Arc::clone(policy), Arc::clone(key));
        running.spawn(async move {
            let mut calls = 0;
            while Instant::now() < until {
                assert!(limiter.try_limit(&policy, &*key).await.expect("decided").is_allowed());
                calls += 1;
            }
            calls
        });
    }
    running.join_all().await.into_iter().sum()
}

/// Returns the CPU seconds of each node's main thread.
fn cpu(cluster: &Cluster) -> Vec<f64> {
    let of = |info: &str, name: &str| -> f64 {
        let value = info.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.trim().parse().ok()).expect("Redis 7 or newer")
    };
    let node = |text: String| of(&text, "used_cpu_sys_main_thread:") + of(&text, "used_cpu_user_main_thread:");
    cluster.nodes.iter().map(|server| node(info(&mut server.admin(), "cpu"))).collect()
}

fn saturated(runtime: &tokio::runtime::Runtime, limiters: &[RateLimiter]) -> String {
    let mut table = "| demand | shards | calls : limit | admitted : limit |\n| --- | ---: | ---: | ---: |\n".to_owned();
    for demand in [Demand::Uniform, Demand::Skewed] {
        for (shards, policy) in SHARDS.iter().zip(policies(Quota::token_bucket(RATE, SECOND))) {
            let (called, admitted) = runtime.block_on(paced(limiters, &policy, demand));
            let _ = writeln!(table, "| {} | {shards} | {called:.2} | {admitted:.3} |", demand.name());
        }
    }
    table
}

/// Makes calls at twice the rate. Returns the number of calls and the number of admitted calls, both relative to the
/// limit.
async fn paced(limiters: &[RateLimiter], policy: &Arc<Policy>, demand: Demand) -> (f64, f64) {
    let counts: Arc<[AtomicU64; 2]> = Arc::default();
    let mut running = JoinSet::new();
    for task in 0..PACED_TASKS {
        let (limiters, policy, counts) = (limiters.to_vec(), Arc::clone(policy), Arc::clone(&counts));
        running.spawn(async move {
            let mut random = Random(task + 1);
            let period = Duration::from_secs(PACED_TASKS).div_f64(2.0 * RATE as f64);
            // Tasks start at different times, so that calls are spread over the period.
            tokio::time::sleep(period.mul_f64(task as f64 / PACED_TASKS as f64)).await;
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            loop {
                ticks.tick().await;
                let limiter = &limiters[demand.limiter(&mut random)];
                let decision = limiter.try_limit(&policy, demand.name()).await.expect("decided");
                counts[0].fetch_add(1, Ordering::Relaxed);
                counts[1].fetch_add(decision.is_allowed().into(), Ordering::Relaxed);
            }
        });
    }
    let read = || [0, 1].map(|i| counts[i].load(Ordering::Relaxed));
    // The full quota is spent after one second.
    let (warm_up, length) = if quick() { (50, 100) } else { (1500, 2000) };
    tokio::time::sleep(Duration::from_millis(warm_up)).await;
    let (before, begin) = (read(), Instant::now());
    tokio::time::sleep(Duration::from_millis(length)).await;
    let (after, limit) = (read(), RATE as f64 * begin.elapsed().as_secs_f64());
    // Dropping the set ends the tasks.
    drop(running);
    ((after[0] - before[0]) as f64 / limit, (after[1] - before[1]) as f64 / limit)
}
