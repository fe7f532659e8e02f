//! The summary, as Markdown.

use std::fmt::Write;

use crate::args::Phase;
use crate::honest::CLIENTS;
use crate::run::Run;
use crate::sample::Sample;
use crate::verdict::{Verdict, millis};

pub fn markdown(run: &Run, flood: u64, verdicts: &[Verdict]) -> String {
    let mut text = String::from("# Attack run\n\n");
    let pinned = match run.is_pinned {
        true => "server on one core, all clients on another, attackers at a lower priority (`nice`)",
        false => "server and clients on the same cores",
    };
    let all: u64 = run.hostile.iter().map(|stats| stats.sent).sum();
    let _ = writeln!(
        text,
        "{} s on loopback: {pinned}. {CLIENTS} honest clients, two requests per second each. The attackers send {:.0} requests \
         per second (flood: {flood}), a bounded rate that does not exhaust the cores. The table has at most {} rows.\n",
        run.seconds,
        all as f64 / run.attacked().as_secs_f64(),
        run.max_rows
    );
    promises(&mut text, verdicts);
    phases(&mut text, run);
    attackers(&mut text, run);
    text
}

fn promises(text: &mut String, verdicts: &[Verdict]) {
    text.push_str("| Promise | Found | |\n| --- | --- | --- |\n");
    for Verdict { promise, found, holds } in verdicts {
        let _ = writeln!(text, "| {promise} | {found} | {} |", if *holds { "PASS" } else { "**FAIL**" });
    }
}

fn phases(text: &mut String, run: &Run) {
    text.push_str(
        "\n| Phase | Honest requests | Refused | Failed | p50 | p99 | Slowest | Memory | Descriptors | Tasks | Threads | \
         Rows | Cores: server | clients | others | stolen |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for phase in Phase::ALL {
        let Some(honest) = run.course(phase).map(|course| course.whole) else { continue };
        let samples: Vec<&Sample> = run.of(phase).collect();
        let Some(last) = samples.last().map(|sample| sample.server) else { continue };
        let mean = |what: fn(&Sample) -> f64| samples.iter().map(|s| what(s)).sum::<f64>() / samples.len() as f64;
        let others = mean(|s| (s.machine_cores - s.server_cores - s.client_cores).max(0.0));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {:.1} MiB | {} | {} | {} | {} | {:.2} | {:.2} | {others:.2} | {:.3} |",
            phase.name(),
            honest.requests,
            honest.refused,
            honest.failed,
            millis(honest.p50),
            millis(honest.p99),
            millis(honest.most),
            last.rss_kib as f64 / 1024.0,
            last.descriptors,
            last.tasks,
            last.threads,
            last.rows,
            mean(|s| s.server_cores),
            mean(|s| s.client_cores),
            mean(|s| s.stolen_cores),
        );
    }
    text.push_str(
        "\nLatencies cover the whole phase and count from the scheduled time of a request. Memory, descriptors, tasks, threads \
         and rows are those at the end of the phase. Others: other processes on the machine, which increase latencies. \
         Stolen: CPU time that the hypervisor took away while processes were runnable.\n",
    );
}

fn attackers(text: &mut String, run: &Run) {
    text.push_str(
        "\n| Attacker | Sent | 2xx | 429 | Other responses | Disconnected |\n| --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for stats in &run.hostile {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            stats.name, stats.sent, stats.ok, stats.refused, stats.other, stats.cut
        );
    }
}
