//! The promises that a run checks, and whether they were kept.

use std::time::Duration;

use crate::args::Phase;
use crate::hostile::{
    AttackerStats, KEY_FLOOD, NEWCOMERS, NEWCOMERS_OF_ANOTHER, POLICY_FLOOD, SPOOFERS, SPOOFS, STORM, STORM_KEYS,
};
use crate::run::{PhaseStats, Run};
use crate::sample::{Sample, Server};
use crate::server::{CLIENT_CAPACITY, CLIENT_RATE, KEY_LIMIT, KEY_WINDOW};

pub struct Verdict {
    pub promise: &'static str,
    /// The measured figures.
    pub found: String,
    pub holds: bool,
}

pub fn all(run: &Run) -> Vec<Verdict> {
    vec![
        memory(run),
        full(run),
        leaks(run),
        latency(run),
        recovery(run),
        honest(run),
        fair(run),
        confined(run),
        attacked(run),
    ]
}

fn memory(run: &Run) -> Verdict {
    let points: Vec<(f64, f64)> =
        run.of(Phase::Attack).map(|sample| (sample.second, sample.server.rss_kib as f64)).collect();
    let slope = slope(&points);
    let grown = slope * Phase::Attack.duration(run.seconds).as_secs_f64();
    let mean = points.iter().map(|(_, y)| y).sum::<f64>() / points.len() as f64;
    Verdict {
        promise: "Memory is flat after the warm-up (growth over the attack: at most 5%)",
        found: format!("{:.1} MiB, {:+.2} KiB/s, {:+.1}% over the attack", mean / 1024.0, slope, 100.0 * grown / mean),
        holds: grown <= mean * 0.05,
    }
}

fn full(run: &Run) -> Verdict {
    let rows = || run.of(Phase::Attack).map(|sample| sample.server.rows);
    let (least, most) = (rows().min().unwrap_or(0), rows().max().unwrap_or(0));
    let max = run.max_rows as u64;
    Verdict {
        promise: "The table is at least 90 % full throughout the attack, and never above its maximum",
        found: format!("{least} to {most} rows of {max}"),
        holds: most <= max && least >= max * 9 / 10,
    }
}

fn leaks(run: &Run) -> Verdict {
    let ends = |phase| {
        let samples: Vec<&Sample> = run.of(phase).collect();
        move |what: fn(&Server) -> u64| {
            let mut seen: Vec<u64> = samples.iter().rev().take(6).map(|sample| what(&sample.server)).collect();
            seen.sort_unstable();
            seen.get(seen.len() / 2).copied().unwrap_or(0)
        }
    };
    let (before, after) = (ends(Phase::Quiet), ends(Phase::After));
    let descriptors = (before(|server| server.descriptors), after(|server| server.descriptors));
    let threads = (before(|server| server.threads), after(|server| server.threads));
    let tasks = (before(|server| server.tasks), after(|server| server.tasks));
    let waiting = after(|server| server.waiting);
    // A client may be reconnecting at the time of counting.
    let same = |(before, after): (u64, u64)| after <= before + 1;
    Verdict {
        promise: "No descriptors, tasks, threads or waiting slots leak (medians of the last six seconds)",
        found: format!(
            "descriptors {} → {}, tasks {} → {}, threads {} → {}, waiting {waiting}",
            descriptors.0, descriptors.1, tasks.0, tasks.1, threads.0, threads.1
        ),
        holds: same(descriptors) && same(tasks) && threads.0 == threads.1 && waiting == 0,
    }
}

fn latency(run: &Run) -> Verdict {
    within_twice(run, Phase::Attack, "Honest p99 under attack is at most 2 × that of the quiet phase")
}

fn recovery(run: &Run) -> Verdict {
    within_twice(run, Phase::After, "Honest p99 afterwards is at most 2 × that of the quiet phase")
}

/// Compares only seconds without CPU steal, because steal delays requests with or without an attack. Fails if there are
/// too few such seconds.
fn within_twice(run: &Run, phase: Phase, promise: &'static str) -> Verdict {
    let (Some(quiet), Some(then)) = (run.course(Phase::Quiet), run.course(phase)) else {
        return Verdict { promise, found: "a phase is missing".to_owned(), holds: false };
    };
    let times = then.undisturbed.p99.as_secs_f64() / quiet.undisturbed.p99.as_secs_f64().max(1e-9);
    let of = |course: &PhaseStats| (course.seconds, run.of(course.phase).count());
    let [(some, all), (some_then, all_then)] = [of(quiet), of(then)];
    let enough = 4 * some >= all && 4 * some_then >= all_then;
    Verdict {
        promise,
        found: format!(
            "{} → {}, {times:.2} ×, over {some} and {some_then} s without CPU steal (of {all} and {all_then}{})",
            millis(quiet.undisturbed.p99),
            millis(then.undisturbed.p99),
            if enough { "" } else { ": too few" }
        ),
        holds: enough && times <= 2.0,
    }
}

fn honest(run: &Run) -> Verdict {
    let sum =
        |what: fn(&crate::sample::Honest) -> u64| run.phases.iter().map(|course| what(&course.whole)).sum::<u64>();
    let (requests, refused, failed) =
        (sum(|honest| honest.requests), sum(|honest| honest.refused), sum(|honest| honest.failed));
    Verdict {
        promise: "No honest client is refused, and none of its requests fails",
        found: format!("{requests} requests: {refused} refused, {failed} failed"),
        holds: requests > 0 && refused == 0 && failed == 0,
    }
}

/// Checks that the flood affects only the flooded policy.
fn fair(run: &Run) -> Verdict {
    let of = |name| stats_of(run, name).map_or((0, 0), |stats| (stats.ok, stats.sent));
    let ((ok, sent), (own_ok, own_sent)) = (of(NEWCOMERS_OF_ANOTHER), of(NEWCOMERS));
    let denied = stats_of(run, POLICY_FLOOD).map_or(0, |stats| stats.refused);
    let share = 100.0 * own_ok as f64 / own_sent.max(1) as f64;
    Verdict {
        promise: "A flood under one policy causes no refusals under another",
        found: format!(
            "newcomers allowed: {ok} of {sent} under the other policy, {own_ok} of {own_sent} ({share:.0}%) under the \
             flooded one; {denied} denials of invented keys"
        ),
        // Requests may be in flight when the attackers are stopped.
        holds: sent > 0 && denied > 0 && ok + 1 >= sent,
    }
}

/// Attackers that spoof addresses or repeat requests get no more than an honest client would.
fn confined(run: &Run) -> Verdict {
    let time = run.attacked() + Duration::from_secs(2);
    let windows = time.as_secs().div_ceil(KEY_WINDOW.as_secs()) + 1;
    let storm = (stats_of(run, STORM).map_or(0, |stats| stats.ok), STORM_KEYS * KEY_LIMIT * windows);
    let spoofs = (
        stats_of(run, SPOOFS).map_or(0, |stats| stats.ok),
        SPOOFERS * (CLIENT_CAPACITY + CLIENT_RATE * time.as_secs()),
    );
    Verdict {
        promise: "Stormers and spoofers get at most their own quotas",
        found: format!("storm {} of at most {}, spoofers {} of at most {}", storm.0, storm.1, spoofs.0, spoofs.1),
        holds: storm.0 <= storm.1 && spoofs.0 <= spoofs.1,
    }
}

/// Checks that the attack took place, because otherwise the other promises mean nothing.
fn attacked(run: &Run) -> Verdict {
    let idle: Vec<&str> = run.hostile.iter().filter(|stats| stats.sent == 0).map(|stats| stats.name.as_str()).collect();
    let keys = stats_of(run, KEY_FLOOD).map_or(0, |stats| stats.ok);
    let storm = stats_of(run, STORM).map_or(0, |stats| stats.refused);
    let spoofs = stats_of(run, SPOOFS).map_or(0, |stats| stats.refused);
    Verdict {
        promise: "There was an attack: all attackers ran, the table was filled more than twice, and requests were denied",
        found: format!("{keys} new keys, {storm} and {spoofs} denials; idle attackers: {idle:?}"),
        holds: idle.is_empty() && run.hostile.len() == 11 && keys > 2 * run.max_rows as u64 && storm > 0 && spoofs > 0,
    }
}

fn stats_of<'a>(run: &'a Run, name: &str) -> Option<&'a AttackerStats> {
    run.hostile.iter().find(|stats| stats.name == name)
}

/// Returns the slope of the best-fitting line.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (mx, my) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let above: f64 = points.iter().map(|(x, y)| (x - mx) * (y - my)).sum();
    let below: f64 = points.iter().map(|(x, _)| (x - mx).powi(2)).sum();
    if below > 0.0 { above / below } else { 0.0 }
}

pub fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Honest;

    #[test]
    fn a_good_run_passes() {
        let broken: Vec<_> = broken(&good()).collect();
        assert!(broken.is_empty(), "{broken:?}");
    }

    #[test]
    fn each_broken_promise_is_detected() {
        let cases: [(&str, Breaks); 15] = [
            ("Memory", |run| of(run, Phase::Attack, |server, second| server.rss_kib += second as u64 * 100)),
            ("The table", |run| of(run, Phase::Attack, |server, _| server.rows = 1_001)),
            ("The table", |run| of(run, Phase::Attack, |server, _| server.rows = 899)),
            ("No descriptor", |run| of(run, Phase::After, |server, _| server.descriptors += 2)),
            ("No descriptor", |run| of(run, Phase::After, |server, _| server.tasks += 2)),
            ("No descriptor", |run| of(run, Phase::After, |server, _| server.threads += 1)),
            ("No descriptor", |run| of(run, Phase::After, |server, _| server.waiting = 1)),
            ("Honest p99 under attack", |run| course_of(run, Phase::Attack).undisturbed.p99 *= 3),
            ("Honest p99 under attack", |run| course_of(run, Phase::Attack).seconds = 2),
            ("Honest p99 afterwards", |run| course_of(run, Phase::After).undisturbed.p99 *= 3),
            ("No honest client", |run| course_of(run, Phase::WarmUp).whole.refused = 1),
            ("No honest client", |run| course_of(run, Phase::Quiet).whole.failed = 1),
            ("A flood", |run| run.hostile.iter_mut().for_each(|stats| stats.ok = stats.ok.min(3_000))),
            ("Stormers", |run| run.hostile.iter_mut().for_each(|stats| stats.ok = 100_000)),
            ("There was", |run| drop(run.hostile.pop())),
        ];
        for (promise, breaks) in cases {
            let mut run = good();
            breaks(&mut run);
            let broken: Vec<_> = broken(&run).collect();
            assert!(broken.len() == 1 && broken[0].starts_with(promise), "{promise}: {broken:?}");
        }
    }

    #[test]
    fn the_slope_is_that_of_the_best_fitting_line() {
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), 2.0);
        assert_eq!(slope(&[(1.0, 1.0)]), 0.0);
    }

    const NAMES: [&str; 6] = [KEY_FLOOD, STORM, SPOOFS, POLICY_FLOOD, NEWCOMERS, NEWCOMERS_OF_ANOTHER];

    type Breaks = fn(&mut Run);

    fn broken(run: &Run) -> impl Iterator<Item = &'static str> {
        all(run).into_iter().filter(|verdict| !verdict.holds).map(|verdict| verdict.promise)
    }

    fn good() -> Run {
        let server =
            Server { rss_kib: 10_000, descriptors: 100, threads: 4, tasks: 90, rows: 1_000, ..Server::default() };
        let honest = Honest { requests: 1_000, p99: Duration::from_millis(1), ..Honest::default() };
        let sample = |second: u32, phase| Sample {
            second: f64::from(second),
            phase,
            server,
            honest,
            server_cores: 0.1,
            client_cores: 0.1,
            machine_cores: 0.2,
            stolen_cores: 0.0,
        };
        let stats = |i: usize| AttackerStats {
            name: NAMES.get(i).map_or_else(|| i.to_string(), |name| (*name).to_owned()),
            sent: 10_000,
            ok: match i {
                1 => 4_000,
                5 => 10_000,
                _ => 3_000,
            },
            refused: 5_000,
            other: 0,
            cut: 0,
        };
        Run {
            seconds: 90,
            max_rows: 1_000,
            is_pinned: true,
            samples: Phase::ALL.iter().flat_map(|phase| (0..10).map(|second| sample(second, *phase))).collect(),
            phases: Phase::ALL
                .map(|phase| PhaseStats { phase, whole: honest, undisturbed: honest, seconds: 10 })
                .to_vec(),
            hostile: (0..11).map(stats).collect(),
        }
    }

    fn of(run: &mut Run, phase: Phase, change: fn(&mut Server, f64)) {
        for sample in run.samples.iter_mut().filter(|sample| sample.phase == phase) {
            change(&mut sample.server, sample.second);
        }
    }

    fn course_of(run: &mut Run, phase: Phase) -> &mut PhaseStats {
        run.phases.iter_mut().find(|course| course.phase == phase).expect("a phase")
    }
}
