//! The machine and the date of the measurements, and the core on which they run.

use std::process::Command;
use std::{fs, mem};

/// Returns a description for tables, which contains the processor, its cores, the compiler, the date and the commit.
pub fn described() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpu.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = field("model name").unwrap_or_else(|| "unknown processor".to_owned());
    let family = field("cpu family").zip(field("model\t")).map(|(family, model)| format!(" ({family}/{model})"));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let output = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let compiler = output("rustc", &["--version"]).unwrap_or_else(|| "unknown compiler".to_owned());
    let compiler = compiler.split(" (").next().unwrap_or_default();
    let day = output("date", &["-u", "+%F"]).unwrap_or_default();
    let commit = output("git", &["rev-parse", "--short=10", "HEAD"]).unwrap_or_default();
    // Files written by the benchmark do not count as changes.
    let changes =
        ["status", "--porcelain", "--untracked-files=no", "--", ":/", ":!RESULTS.md", ":!plots", ":/!src/docs/plots"];
    let changes = output("git", &changes).filter(|it| !it.is_empty()).map_or("", |_| " with changes");
    format!("{model}{}, {cores} cores, {compiler}, {day}, commit {commit}{changes}", family.unwrap_or_default())
}

/// Returns the resident memory of this process in bytes.
pub fn resident() -> i64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: i64 = pages.split(' ').nth(1).expect("a second field").parse().expect("a number");
    pages * 4096
}

/// Pins this thread and the threads that it starts to one core, if that core exists.
#[allow(unsafe_code)] // The standard library cannot pin threads.
pub fn pin(core: usize) {
    // SAFETY: a CPU set is plain bits, and the call reads at most the given size.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, mem::size_of_val(&set), &set);
    }
}
