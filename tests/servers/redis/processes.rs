//! Several processes that share one server. The child processes run this test program.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tollgate::backend::RedisBackend;
use tollgate::policy::Quotas;
use tollgate::{DAY, Policy, Quota, RateLimiter, SECOND, key::Secret};

use crate::support::server::{PATIENCE, Server};

const PROCESSES: usize = 4;
const TASKS: usize = 8;

/// The environment variable that passes the server's URL and a task to a child process.
const CHILD: &str = "TOLLGATE_TEST_CHILD";

static SLOW: Policy = Policy::new("slow", Quota::token_bucket(1, DAY).capacity(1000));

const DIVIDED: &str = "4096/d burst 1000 shards 4; 100000/w fixed shards 4";

static LIVE: Policy = Policy::new("live", Quota::token_bucket(2000, SECOND).capacity(300));

const LIVE_TIME: Duration = Duration::from_secs(2);

#[test]
fn four_processes_admit_exactly_the_limit() {
    let server = Server::start();
    assert_eq!(run(&server, "slow").iter().sum::<usize>(), 1000);
}

#[test]
fn four_processes_without_batching_admit_exactly_the_limit() {
    let server = Server::start();
    let admitted: usize = run(&server, "alone").iter().sum();
    assert_eq!(admitted, 1000);
    let scripts = super::coalescing::scripts(&server);
    let decisions = 1000 + (PROCESSES * TASKS) as u64;
    assert!(scripts >= decisions, "{scripts} script calls for {decisions} decisions");
}

/// At most `capacity + rate × time` calls may be admitted. The test also expects at least half of `rate × time`.
#[test]
fn four_processes_respect_the_refill_rate() {
    let server = Server::start();
    let begin = Instant::now();
    let admitted: usize = run(&server, "live").iter().sum();
    let most = 300.0 + 2000.0 * begin.elapsed().as_secs_f64();
    assert!(admitted as f64 <= most, "{admitted} calls were admitted, expected at most {most}");
    let least = 2000.0 * LIVE_TIME.as_secs_f64() * 0.5;
    assert!(admitted as f64 >= least, "{admitted} calls were admitted, expected at least {least} on any machine");
}

/// The token bucket regains one token every 21 seconds, so a few more calls than the burst may be admitted.
#[test]
fn four_processes_share_the_shards_of_several_quotas() {
    let server = Server::start();
    let admitted: usize = run(&server, "divided").iter().sum();
    // A task stops when both shards that it tries are empty, even if another shard has a few tokens left.
    assert!((900..=1003).contains(&admitted), "{admitted} calls were admitted, expected about 1000");
}

/// On a shared server, all limiters without a secret compute the same digest for a key, so they charge the same rows.
#[test]
fn processes_agree_on_digests_unless_their_secrets_differ() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let [one, other] = [RateLimiter::new(server.backend().await), RateLimiter::new(server.backend().await)];
        let secret = Secret::new([7; 16]);
        let keyed = RateLimiter::builder(server.backend().await).secret(secret).build();
        let also_keyed =
            RedisBackend::builder().deadline(PATIENCE).secret(secret).connect(&server.url()).await.unwrap();
        let also_keyed = RateLimiter::new(also_keyed);
        assert!(one.try_limit(&SLOW, "ada").await.unwrap().is_allowed());
        assert_eq!(other.remaining(&SLOW, "ada").await.unwrap(), 999);
        assert!(keyed.try_limit(&SLOW, "ada").await.unwrap().is_allowed());
        assert_eq!(
            also_keyed.remaining(&SLOW, "ada").await.unwrap(),
            999,
            "limiters with a secret and limiters without one must use different rows"
        );
        assert_eq!(one.remaining(&SLOW, "ada").await.unwrap(), 999);
    });
}

/// Runs the processes in parallel. Returns how many calls each process admitted.
fn run(server: &Server, what: &str) -> Vec<usize> {
    let start = |_| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // The child runs only the test `child`. Its result is mixed with the output of the test harness.
        command
            .args(["redis::processes::child", "--exact", "--nocapture"])
            .env(CHILD, format!("{} {what}", server.url()));
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<Child> = (0..PROCESSES).map(start).collect();
    let admitted = |child: Child| {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let number = text.split("admitted=").nth(1).and_then(|rest| rest.split(';').next());
        number.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    };
    children.into_iter().map(admitted).collect()
}

/// The child processes run this test. In any other process, the test does nothing.
#[test]
fn child() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let (url, what) = order.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let admitted = runtime.block_on(async {
        let limiter =
            || async { RateLimiter::new(RedisBackend::builder().deadline(PATIENCE).connect(url).await.unwrap()) };
        let (shared, mut tasks) = (limiter().await, Vec::new());
        for _ in 0..TASKS {
            let limiter = if what == "alone" { limiter().await } else { shared.clone() };
            let end = (what == "live").then(|| Instant::now() + LIVE_TIME);
            let policy = match what {
                "live" => LIVE.clone(),
                "divided" => Policy::try_new("divided", DIVIDED.parse::<Quotas>().unwrap()).unwrap(),
                _ => SLOW.clone(),
            };
            tasks.push(tokio::spawn(async move { until(&limiter, &policy, end).await }));
        }
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        admitted
    });
    println!("admitted={admitted};");
}

/// Calls the limiter until `end`, or until the first denial if `end` is `None`.
async fn until(limiter: &RateLimiter, policy: &Policy, end: Option<Instant>) -> usize {
    let mut admitted = 0;
    loop {
        let allowed = limiter.try_limit(policy, "shared").await.unwrap().is_allowed();
        admitted += usize::from(allowed);
        match end {
            Some(end) if Instant::now() >= end => return admitted,
            None if !allowed => return admitted,
            _ => {}
        }
    }
}
