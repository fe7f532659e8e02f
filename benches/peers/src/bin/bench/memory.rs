//! Measures the memory per key, and the longest call while a table grows. Part of `make bench`.
//!
//! Each table grows from empty in a separate process, three times for each limiter, in turns. Each key is created, used
//! once and dropped, so that only the limiter's memory remains. Prints the medians as Markdown.

use std::process::Command;
use std::time::Instant;

use tollgate_peers::{Counting, Kind, interleaved, key, limiters, quick, ratio, resident};

/// The bytes per key (allocated, maximum, resident), and the nanoseconds per call (median, 99.9th percentile, maximum).
type Measured = [f64; 6];

pub fn print() {
    println!(
        "| limiter | keys | live B/key | at most B/key | RSS B/key | p50 ns | p99.9 µs | longest call, ms \
         | tollgate's longest : this |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let counts = if quick() { [100_000, 1_000_000] } else { [1_000_000, 10_000_000] };
    for keys in counts {
        let names: Vec<_> = limiters(Kind::Allowed, keys, keys == counts[1]).iter().map(|it| it.name).collect();
        let mut measured = vec![Vec::new(); names.len()];
        // Take the median of each column.
        interleaved(if quick() { 1 } else { 3 }, names.len(), |i| {
            measured[i].push(measure_in_new_process(names[i], keys));
            0.0
        });
        let medians: Vec<Measured> = measured.iter().map(|of| columns(of)).collect();
        for (name, [live, most, rss, p50, p999, longest]) in names.iter().zip(&medians) {
            print!(
                "| {name} | {keys} | {live:.1} | {most:.1} | {rss:.1} | {p50:.0} | {:.1} | {:.2} |",
                p999 / 1e3,
                longest / 1e6
            );
            println!(" {} |", ratio(medians[0][5] / longest));
        }
    }
}

fn columns(of: &[Measured]) -> Measured {
    std::array::from_fn(|column| tollgate_peers::median(of.iter().map(|row| row[column]).collect()))
}

/// Runs in a new process, with fresh memory.
fn measure_in_new_process(name: &str, keys: usize) -> Measured {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args(["grow", name, &keys.to_string()]).output().expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let mut fields = text.split_whitespace().map(|field| field.parse().expect("a number"));
    std::array::from_fn(|_| fields.next().expect("six numbers"))
}

/// Implements `bench grow NAME KEYS`.
pub fn grow(name: &str, keys: usize) {
    Counting::begin();
    println!("{}", grown(name, keys).map(|it| it.to_string()).join(" "));
}

fn grown(name: &str, keys: usize) -> Measured {
    let contestant = limiters(Kind::Allowed, keys, false).into_iter().find(|it| it.name == name).expect("a limiter");
    // Allocate and touch this memory beforehand, so that it does not count as growth.
    let mut nanos = vec![1u32; keys];
    let (live, rss) = (Counting::live(), resident());
    Counting::forget_peak();
    for (i, nanos) in nanos.iter_mut().enumerate() {
        let key = [key(i, keys)];
        let begin = Instant::now();
        let allowed = contestant.allowed(&key);
        *nanos = begin.elapsed().as_nanos().try_into().unwrap_or(u32::MAX);
        assert!(allowed == 1, "{name}: denied");
    }
    let each = |bytes: i64| bytes as f64 / keys as f64;
    let memory = [each(Counting::live() - live), each(Counting::peak() - live), each(resident() - rss)];
    nanos.sort_unstable();
    let times = [keys / 2, keys - keys / 1000, keys - 1].map(|i| f64::from(nanos[i]));
    [memory[0], memory[1], memory[2], times[0], times[1], times[2]]
}
