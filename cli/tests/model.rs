//! Compares the simulation of a million log lines with a slow, simple model of one token bucket per caller.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::Command;

const LINES: u32 = 1_000_000;
const BEGIN: u64 = 1_767_225_600;
/// The rate is 20 requests per minute, with a burst of 30.
const RATE: u128 = 20;
const CAPACITY: u128 = 30;
const MINUTE: u128 = 60_000_000;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Returns the caller and the second of each request. A few callers send many requests.
fn requests() -> Vec<(u64, u64)> {
    let (mut random, mut second) = (Random(42), BEGIN);
    let mut request = || {
        second += u64::from(random.below(300) == 0);
        let caller = if random.below(3) == 0 { random.below(20) } else { random.below(20_000) };
        (caller, second)
    };
    (0..LINES).map(|_| request()).collect()
}

/// A token bucket with exact integers. A token has `MINUTE` parts, and `RATE` parts are refilled per microsecond.
#[derive(Clone, Copy)]
struct Bucket {
    level: u128,
    at: u128,
}

/// Returns the number of refused requests for each caller.
fn model(requests: &[(u64, u128)]) -> HashMap<u64, u64> {
    let (mut buckets, mut refused) = (HashMap::new(), HashMap::new());
    for (caller, micros) in requests {
        let bucket = buckets.entry(*caller).or_insert(Bucket { level: CAPACITY * MINUTE, at: *micros });
        bucket.level = (bucket.level + (micros - bucket.at) * RATE).min(CAPACITY * MINUTE);
        bucket.at = *micros;
        if bucket.level >= MINUTE {
            bucket.level -= MINUTE;
        } else {
            *refused.entry(*caller).or_default() += 1;
        }
    }
    refused
}

/// Spreads the requests of each caller within a second evenly over that second.
fn spread(requests: &[(u64, u64)]) -> Vec<(u64, u128)> {
    let mut counts: HashMap<(u64, u64), u128> = HashMap::new();
    requests.iter().for_each(|request| *counts.entry(*request).or_default() += 1);
    let mut indexes: HashMap<(u64, u64), u128> = HashMap::new();
    let mut placed: Vec<(u64, u128)> = requests
        .iter()
        .map(|request| {
            let index = indexes.entry(*request).or_default();
            let micros = u128::from(request.1) * 1_000_000 + *index * 1_000_000 / counts[request];
            *index += 1;
            (request.0, micros)
        })
        .collect();
    placed.sort_by_key(|(_, micros)| *micros);
    placed
}

#[test]
fn the_simulation_and_the_model_make_the_same_decisions_for_a_million_lines() {
    let requests = requests();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let mut log = String::new();
    for (caller, second) in &requests {
        let time = jiff::Timestamp::from_second(*second as i64).unwrap().strftime("%d/%b/%Y:%H:%M:%S +0000");
        writeln!(log, "x - u{caller} [{time}] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"").unwrap();
    }
    std::fs::write(&path, log).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("simulate")
        .arg(&path)
        .args(["--quota", "20/min burst 30", "--key", "user", "--worst", "1000000", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let limit = &report["limits"][0];

    let together: Vec<(u64, u128)> =
        requests.iter().map(|(caller, second)| (*caller, u128::from(*second) * 1_000_000)).collect();
    let expected = model(&together);
    assert!(expected.len() > 15, "only {} callers are refused", expected.len());
    let found: HashMap<u64, u64> = limit["worst_callers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worst| {
            let caller = worst["caller"].as_str().unwrap().trim_start_matches('u').parse().unwrap();
            (caller, worst["refused"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(found, expected);
    let totals = |index: usize| limit["results"][index]["requests"].as_u64().unwrap();
    assert_eq!(totals(0), expected.values().sum::<u64>());
    assert_eq!(totals(1), model(&spread(&requests)).values().sum::<u64>());
    assert_eq!(report["requests"], LINES);
}
