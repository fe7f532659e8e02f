//! Enforcement, credits, policy resets and lists of changes across several processes. The child processes run this test
//! program.

use std::process::Command;
use std::time::{Duration, Instant};

use tollgate::backend::RedisBackend;
use tollgate::policy::{DecidedBy, Enforce};
use tollgate::{Charge, DAY, HOUR, Policy, Quota, RateLimiter, SECOND, protection::Signal};

use crate::support::server::{PATIENCE, Server};

static API: Policy = Policy::new("api", Quota::token_bucket(100, DAY));
static BOTH: Policy = Policy::new("both", Quota::token_bucket(10, DAY)).and(Quota::sliding_window(20, HOUR));
static TRIAL: Policy = Policy::new("trial", Quota::token_bucket(1, DAY)).enforce(Enforce::Never);

/// The environment variable that passes the server's URL and a task to the child process.
const CHILD: &str = "TOLLGATE_TEST_RUN_TIME_CHILD";

/// Twice the documented delay, because the machine may be busy.
const MAX_DELAY: Duration = Duration::from_secs(60);

async fn limiter(url: &str) -> RateLimiter {
    RateLimiter::new(RedisBackend::builder().deadline(PATIENCE).connect(url).await.unwrap())
}

async fn wait_until(mut condition: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !condition().await {
        assert!(begin.elapsed() < MAX_DELAY, "the condition was not met within {MAX_DELAY:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a task in a child process, waits until the process exits, and returns the task's result.
async fn run(server: &Server, task: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["redis::run_time::child", "--exact", "--nocapture"]).env(CHILD, format!("{} {task}", server.url()));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text.split("result=").nth(1).and_then(|rest| rest.split(';').next()).unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// The child process runs this test. In any other process, the test does nothing.
#[test]
fn child() {
    let Ok(url_and_task) = std::env::var(CHILD) else { return };
    let (url, task) = url_and_task.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(async {
        let limiter = limiter(url).await;
        match task {
            "share" => limiter.set_enforcement(&TRIAL, Enforce::Share(0.1)).await.unwrap(),
            "half" => limiter.set_enforcement(&TRIAL, Enforce::Share(0.5)).await.unwrap(),
            "revert" => limiter.set_enforcement(&TRIAL, None).await.unwrap(),
            "credit" => {
                assert!(limiter.credit(&API, "ada", 30).await.unwrap());
                assert!(limiter.credit(&BOTH, "ada", 30).await.unwrap());
            }
            "reset" => limiter.reset_policy(&API).await.unwrap(),
            "block" => {
                limiter.block(Signal::key("mallory"), HOUR).await.unwrap();
                limiter.set_quota(&API, Quota::token_bucket(50, DAY)).await.unwrap();
                limiter.set_enforcement(&TRIAL, Enforce::Always).await.unwrap();
            }
            // A process that starts later learns of all changes from its first poll.
            "enforced" => {
                wait_until(async || !limiter.set_enforcements().is_empty()).await;
                return enforced(&limiter).await.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            }
            "remaining" => {
                // The process may make its first decision before it has read the notices.
                wait_until(async || limiter.remaining(&API, "ada").await.unwrap() == 100).await;
            }
            "list" => {
                wait_until(async || !limiter.blocks().is_empty() && !limiter.set_enforcements().is_empty()).await;
                let (block, quota) = (limiter.blocks()[0].clone(), limiter.set_quotas()[0].clone());
                let enforcement = limiter.set_enforcements()[0].clone();
                let ages = [block.age, quota.age, enforcement.age].map(|age| age.as_millis().to_string());
                return format!("{},{}", ages.join(","), block.left.as_millis());
            }
            _ => unreachable!("unknown task {task}"),
        }
        "done".to_owned()
    });
    println!("result={result};");
}

/// Returns which of 300 keys the policy is enforced for. Each check costs more than the capacity, so every enforced
/// check is denied.
async fn enforced(limiter: &RateLimiter) -> Vec<u64> {
    let mut denied = Vec::new();
    for key in 0..300u64 {
        let decision = limiter.try_acquire(&TRIAL, key).cost(2).check().await.unwrap();
        assert_ne!(decision.is_allowed(), !decision.is_shadowed());
        denied.extend((!decision.is_allowed()).then_some(key));
    }
    denied
}

#[tokio::test]
async fn a_share_is_enforced_for_the_same_keys_in_all_processes() {
    let server = Server::start();
    let here = limiter(&server.url()).await;
    assert_eq!(enforced(&here).await.len(), 0);
    run(&server, "share").await;
    wait_until(async || here.enforcement(&TRIAL) == Enforce::Share(0.1)).await;
    let tenth = enforced(&here).await;
    assert!((10..=60).contains(&tenth.len()), "{} of 300 keys", tenth.len());
    let there = run(&server, "enforced").await;
    assert_eq!(there, tenth.iter().map(u64::to_string).collect::<Vec<_>>().join(","));

    run(&server, "half").await;
    wait_until(async || here.enforcement(&TRIAL) == Enforce::Share(0.5)).await;
    let half = enforced(&here).await;
    assert!(half.len() > tenth.len() && tenth.iter().all(|key| half.contains(key)), "{half:?}");
    run(&server, "revert").await;
    wait_until(async || here.enforcement(&TRIAL) == Enforce::Never).await;
}

#[tokio::test]
async fn redis_makes_enforced_charges_even_if_it_denies_shadowed_charges() {
    let server = Server::start();
    let here = limiter(&server.url()).await;
    let both = || [Charge::new(&TRIAL, "ada"), Charge::new(&API, "ada")];
    for left in [99, 98, 97] {
        let allowed = here.limit_all(both()).await.unwrap();
        assert_eq!((allowed.is_shadowed(), allowed.get(1).unwrap().remaining()), (left < 99, left));
    }
    assert_eq!(here.remaining(&API, "ada").await.unwrap(), 97);
    here.acquire(&API, "ada").cost(97).await.unwrap();
    assert!(here.limit_all(both()).await.is_err());
}

#[tokio::test]
async fn a_credit_from_another_process_ends_cached_denials_within_a_second() {
    let server = Server::start();
    let here = limiter(&server.url()).await;
    here.acquire(&API, "ada").cost(100).await.unwrap();
    here.acquire(&BOTH, "ada").cost(10).await.unwrap();
    for policy in [&API, &BOTH] {
        drop(here.try_limit(policy, "ada").await.unwrap());
        assert_eq!(here.try_limit(policy, "ada").await.unwrap().decided_by(), DecidedBy::BlockCache);
    }
    run(&server, "credit").await;
    wait_until(async || here.check(&API, "ada").await.is_ok() && here.check(&BOTH, "ada").await.is_ok()).await;
    assert_eq!(here.remaining(&API, "ada").await.unwrap(), 30);
    // A credit never raises the remaining tokens above the capacity.
    assert_eq!(here.remaining(&BOTH, "ada").await.unwrap(), 10);
    assert!(!here.credit(&BOTH, "ada", 1).await.unwrap());
}

#[tokio::test]
async fn a_policy_reset_reaches_all_processes_within_a_second() {
    let server = Server::start();
    let here = limiter(&server.url()).await;
    for key in ["ada", "eve", "bob"] {
        here.acquire(&API, key).cost(100).await.unwrap();
    }
    here.acquire(&TRIAL, "ada").await.unwrap();
    let usage = here.acquire(&API, "cyd").cost(60).hold().await.unwrap().into_receipt();
    run(&server, "reset").await;
    wait_until(async || here.remaining(&API, "ada").await.unwrap() == 100).await;
    for key in ["eve", "bob", "cyd"] {
        assert_eq!(here.remaining(&API, key).await.unwrap(), 100, "{key}");
    }
    assert!(here.limit(&TRIAL, "ada").await.unwrap().is_shadowed(), "the other policy must keep its rows");
    // A late settlement changes only an old row. A process that starts later uses the new rows.
    usage.settle(90).await.unwrap();
    assert_eq!(here.remaining(&API, "cyd").await.unwrap(), 100);
    run(&server, "remaining").await;

    // The new rows have different names on the server. The reset neither deleted the old rows nor scanned for them.
    here.acquire(&API, "ada").cost(7).await.unwrap();
    let decision = here.try_check(&API, "ada").await.unwrap();
    let backend = server.backend().await;
    let (old, new) = (backend.row_key(API.name(), decision.key()), backend.row_key(decision.policy(), decision.key()));
    let mut admin = server.admin();
    for row in [&old, &new] {
        assert!(redis::cmd("EXISTS").arg(row).query::<bool>(&mut admin).unwrap(), "{row}");
    }
    assert_ne!(old, new);
    let calls: String = redis::cmd("INFO").arg("commandstats").query(&mut admin).unwrap();
    assert!(!calls.contains("cmdstat_scan:") && !calls.contains("cmdstat_keys:"), "{calls}");

    // Resetting one key deletes that key's new row.
    assert!(here.reset(&API, "ada").await.unwrap());
    assert_eq!(here.remaining(&API, "ada").await.unwrap(), 100);
}

#[tokio::test]
async fn processes_that_start_later_list_changes_with_their_ages() {
    let server = Server::start();
    let begin = Instant::now();
    run(&server, "block").await;
    let after = begin.elapsed();
    tokio::time::sleep(Duration::from_millis(400)).await;
    let listed = run(&server, "list").await;
    let listed: Vec<u64> = listed.split(',').map(|number| number.parse().unwrap()).collect();
    let [ages @ .., left] = &listed[..] else { panic!("{listed:?}") };
    let (least, most) = (400, begin.elapsed().as_millis() as u64);
    assert!(
        ages.iter().all(|age| (least..=most).contains(age)),
        "ages in ms: {ages:?}, expected {least} to {most}; the changes took {after:?}"
    );
    let hour = HOUR.as_millis() as u64;
    assert!((hour - most..=hour - least).contains(left), "{left}");
    assert!(begin.elapsed() < HOUR.min(600 * SECOND));
}
