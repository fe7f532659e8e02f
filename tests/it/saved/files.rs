//! Saving to a file replaces it completely or not at all, even if the process is killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tollgate::clock::ManualClock;
use tollgate::key::Secret;
use tollgate::limiter::StateErrorKind;
use tollgate::{DAY, MemoryBackend, Policy, Quota, RateLimiter};

use super::{SECRET, limiter};
use crate::support::now;

fn api() -> Policy {
    Policy::new("api", Quota::token_bucket(10, DAY))
}

/// A directory that is removed when this value is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("tollgate-saved-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_is_replaced_and_no_temporary_file_remains() {
    let directory = Directory::new("replaced");
    let path = directory.0.join("limits.state");
    let clock = ManualClock::new();
    let before = limiter(&clock);
    assert!(before.load_from_file(&path).unwrap().is_none(), "expected `None` for a file that does not exist");
    now(before.limit(&api(), "ada"));
    before.save_to_file(&path).unwrap();
    now(before.limit(&api(), "ada"));
    now(before.limit(&api(), "eve"));
    assert_eq!(before.save_to_file(&path).unwrap().rows, 2);
    assert_eq!(directory.names(), ["limits.state"]);

    let after = limiter(&clock);
    assert_eq!(after.load_from_file(&path).unwrap().map(|loaded| loaded.rows), Some(2));
    assert_eq!(now(after.remaining(&api(), "ada")), 8);
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_file_that_cannot_be_written_or_read_is_named_in_the_error() {
    let directory = Directory::new("named");
    let clock = ManualClock::new();
    let limiter = limiter(&clock);
    let missing = directory.0.join("missing").join("limits.state");
    let error = limiter.save_to_file(&missing).unwrap_err();
    assert_eq!(error.kind(), StateErrorKind::Io);
    assert!(error.to_string().starts_with(&*missing.to_string_lossy()), "{error}");
    assert!(std::error::Error::source(&error).is_some());

    // A directory cannot be replaced with a file. Saving fails and removes its temporary file.
    let taken = directory.0.join("taken");
    fs::create_dir(&taken).unwrap();
    assert_eq!(limiter.save_to_file(&taken).unwrap_err().kind(), StateErrorKind::Io);
    assert_eq!(directory.names(), ["taken"]);

    let other = directory.0.join("other");
    fs::write(&other, "not a state").unwrap();
    let error = limiter.load_from_file(&other).unwrap_err();
    assert_eq!(error.kind(), StateErrorKind::Damaged);
    assert!(error.to_string().starts_with(&*other.to_string_lossy()), "{error}");
    let error = RateLimiter::default().load_from_file(directory.0.join("none")).unwrap_err();
    assert_eq!(error.kind(), StateErrorKind::Secret, "a missing secret must be reported even if there is no file");
}

#[test]
fn threads_that_save_to_one_path_leave_a_valid_file() {
    let directory = Directory::new("threads");
    let path = directory.0.join("limits.state");
    let clock = ManualClock::new();
    let limiter = limiter(&clock);
    (0..1_000u64).for_each(|key| drop(now(limiter.try_limit(&api(), key))));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10).for_each(|_| assert_eq!(limiter.save_to_file(&path).unwrap().rows, 1_000)));
        }
    });
    let loaded = super::limiter(&clock).load_from_file(&path).unwrap();
    assert_eq!((loaded.map(|loaded| loaded.rows), directory.names().len()), (Some(1_000), 1));
}

const ROWS: u64 = 100_000;
const PATH_VARIABLE: &str = "TOLLGATE_TEST_STATE";

fn on_system_clock() -> RateLimiter {
    RateLimiter::new(MemoryBackend::builder().secret(Secret::new(SECRET)).build())
}

/// Spends one token of each key, saves the state, prints a line, and then keeps saving until the process is killed.
#[test]
#[ignore = "runs only as the child process of another test"]
fn child_that_saves_until_it_is_killed() {
    let Some(path) = std::env::var_os(PATH_VARIABLE) else { return };
    let limiter = on_system_clock();
    (0..ROWS).for_each(|key| drop(now(limiter.try_limit(&api(), key))));
    limiter.save_to_file(&path).unwrap();
    println!("saving");
    loop {
        limiter.save_to_file(&path).unwrap();
    }
}

/// Kills child processes at different points during a save. The file must always be the result of a completed save.
#[test]
fn a_process_killed_during_a_save_leaves_a_complete_file() {
    let directory = Directory::new("killed");
    let path = directory.0.join("limits.state");
    let (mut processes, mut killed_while_writing) = (0, 0);
    // Whether a process is killed before the new file is complete depends on the scheduler.
    while killed_while_writing < 3 && processes < 60 {
        processes += 1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "saved::files::child_that_saves_until_it_is_killed", "--ignored", "--nocapture"])
            .env(PATH_VARIABLE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let printed = BufReader::new(child.stdout.take().unwrap());
        assert!(printed.lines().map_while(Result::ok).any(|line| line.contains("saving")), "the child process failed");
        let new = PathBuf::from(format!("{}.{}.tmp", path.display(), child.id()));
        wait_for_bytes(&new, 1 + processes % 3 * 1_000_000);
        child.kill().unwrap();
        child.wait().unwrap();

        let complete = fs::metadata(&path).unwrap().len();
        if let Some(partial) = fs::read(&new).ok().filter(|partial| (partial.len() as u64) < complete) {
            assert!(on_system_clock().load(&partial[..]).is_err());
            killed_while_writing += 1;
        }
        let after = on_system_clock();
        let loaded = after.load_from_file(&path).expect("expected a complete file").expect("expected a file");
        assert_eq!(loaded.rows as u64, ROWS);
        assert_eq!(now(after.remaining(&api(), ROWS / 2)), 9);
    }
    println!("{killed_while_writing} of {processes} processes were killed before the new file was complete");
    assert!(killed_while_writing > 0);
}

fn wait_for_bytes(path: &Path, bytes: u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while fs::metadata(path).map_or(0, |file| file.len()) < bytes && Instant::now() < deadline {}
}
