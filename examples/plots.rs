//! Draws the plots of the documentation, which are computed with the crate's own arithmetic.
//!
//! ```text
//! cargo run --example plots               # writes src/docs/plots/*.svg
//! cargo run --example plots -- some/folder
//! ```
//!
//! A test checks that the files are up to date. The crate does not compile if the documentation includes a missing
//! file, so create an empty file before you add a plot. The program prints:
//! ```text
//! algorithms.svg: 31 + 30 + 28 requests pass
//! burst.svg: 22 + 32 + 40 requests pass
//! waiting.svg: 12 requests are granted
//! worst_window.svg: 20 + 19 + 19 + 10 requests pass in the worst minute
//! ```

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tollgate::algorithm::{Ask, Micros, State, Verdict, step};
use tollgate::{MINUTE, Quota, SECOND};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("src/docs/plots"));
    let plots =
        [("algorithms", algorithms()), ("burst", burst()), ("waiting", waiting()), ("worst_window", worst_window())];
    for (name, Plot { svg, summary }) in plots {
        std::fs::write(folder.join(name).with_extension("svg"), svg)?;
        println!("{name}.svg: {summary}");
    }
    Ok(())
}

struct Plot {
    svg: String,
    summary: String,
}

/// Ten requests per minute under each algorithm. The traffic shows the weaknesses of the algorithms: it has bursts on
/// both sides of a window boundary, and then a steady stream slightly above the rate.
fn algorithms() -> Plot {
    let quotas = [
        (Quota::token_bucket(10, MINUTE), "Token bucket", "one refilled every six seconds", BLUE),
        (Quota::fixed_window(10, MINUTE).start(Duration::ZERO), "Fixed window", "all reset at each minute", AMBER),
        (Quota::sliding_window(10, MINUTE).start(Duration::ZERO), "Sliding window", "no burst across a minute", TEAL),
    ];
    let traffic = [every(14, 46, 900), every(14, 61, 900), every(22, 92, 4000)].concat();
    lanes("Ten per minute: three algorithms under the same requests", &quotas, &traffic)
}

fn burst() -> Plot {
    let quota = |capacity| Quota::token_bucket(10, MINUTE).capacity(capacity);
    let quotas = [
        (quota(5), "Capacity 5", "small bursts", BLUE),
        (quota(10), "Capacity 10", "what a minute refills", BLUE),
        (quota(20), "Capacity 20", "twice as much after an idle time", BLUE),
    ];
    let traffic = [every(16, 20, 900), every(16, 110, 900), every(8, 140, 5000)].concat();
    lanes("A token bucket of ten per minute: what its capacity allows at once", &quotas, &traffic)
}

/// The times of `count` requests, which start at `second` and are `millis` apart.
fn every(count: u64, second: u64, millis: u64) -> Vec<Duration> {
    (0..count).map(|i| Duration::from_millis(second * 1000 + i * millis)).collect()
}

/// Plots the remaining tokens of several quotas, each in its own lane, over the same three minutes of requests.
fn lanes(title: &str, quotas: &[(Quota, &str, &str, &str)], traffic: &[Duration]) -> Plot {
    let mut drawn = String::new();
    let mut passed = Vec::new();
    for (i, (quota, name, hint, color)) in quotas.iter().enumerate() {
        let timeline = replay(quota, traffic);
        let count = timeline.requests.iter().filter(|(_, ok)| *ok).count();
        let _ = writeln!(drawn, r#"<g transform="translate(0 {})">"#, HEAD + i as u64 * LANE);
        let _ = writeln!(
            drawn,
            r#"<text x="{LEFT}" y="12"><tspan fill="{color}" font-weight="700">{name}</tspan> <tspan dx="6">{hint}</tspan></text><text x="{RIGHT}" y="12" text-anchor="end">{count} of {} pass</text>"#,
            traffic.len()
        );
        timeline.draw(&mut drawn, quota.get_capacity(), color);
        drawn.push_str("</g>\n");
        passed.push(count.to_string());
    }
    let height = HEAD + quotas.len() as u64 * LANE + 14;
    let _ = writeln!(drawn, r#"<text x="{RIGHT}" y="20" text-anchor="end">red: refused</text>"#);
    for minute in 0..=3 {
        let (x, anchor) = (x(MINUTE * minute), ["start", "middle", "middle", "end"][minute as usize]);
        let _ = writeln!(drawn, r#"<text x="{x}" y="{}" text-anchor="{anchor}">{minute} min</text>"#, height - 8);
    }
    let summary = format!("{} requests pass", passed.join(" + "));
    let description =
        format!("Tokens left over three minutes, and which of {} requests pass: {summary}.", traffic.len());
    Plot { svg: svg(title, &description, height, &drawn), summary }
}

/// The remaining tokens over time, and whether each request was allowed.
struct Timeline {
    left: Vec<(Duration, u64)>,
    requests: Vec<(Duration, bool)>,
}

fn replay(quota: &Quota, traffic: &[Duration]) -> Timeline {
    let mut timeline = Timeline { left: Vec::new(), requests: Vec::new() };
    let mut state = State::default();
    let mut requests = traffic.iter().copied().peekable();
    let tenth = Duration::from_millis(100);
    for now in (0..1800).map(|i| tenth * i) {
        while let Some(at) = requests.next_if(|at| *at <= now) {
            let step = step(quota, &state, BEGIN + at, Ask::cost(1));
            timeline.requests.push((at, step.is_allowed()));
            if step.is_allowed() {
                state = step.state;
            }
        }
        let left = (0..=quota.get_capacity())
            .rev()
            .find(|cost| step(quota, &state, BEGIN + now, Ask::cost(*cost)).is_allowed());
        let left = left.unwrap_or(0);
        if timeline.left.last().is_none_or(|(_, before)| *before != left) {
            timeline.left.push((now, left));
        }
    }
    timeline
}

impl Timeline {
    fn draw(&self, out: &mut String, limit: u64, color: &str) {
        let y = |left: u64| TOP + (limit - left) * (FLOOR - TOP) / limit;
        let _ = write!(out, r#"<path d=""#);
        for minute in [1, 2] {
            let _ = write!(out, "M{} {TOP}V{}", x(MINUTE * minute), FLOOR + 28);
        }
        let _ = writeln!(out, r#"" stroke="{GREY}" stroke-opacity=".3"/>"#);
        for level in [0, limit] {
            let _ = writeln!(
                out,
                r#"<path d="M{LEFT} {0}H{RIGHT}" stroke="{GREY}" stroke-opacity=".3"/><text x="{1}" y="{2}" text-anchor="end">{level}</text>"#,
                y(level),
                LEFT - 8,
                y(level) + 4
            );
        }
        let mut line = String::new();
        for (at, left) in &self.left {
            let (x, y) = (x(*at), y(*left));
            let _ = if line.is_empty() { write!(line, "M{x} {y}") } else { write!(line, "H{x}V{y}") };
        }
        let _ = write!(line, "H{RIGHT}");
        let _ = writeln!(out, r#"<path d="{line}V{FLOOR}H{LEFT}Z" fill="{color}" fill-opacity=".16"/>"#);
        let _ = writeln!(out, r#"<path d="{line}" fill="none" stroke="{color}" stroke-width="2"/>"#);
        let (mut passed, mut denied) = (String::new(), String::new());
        for (at, ok) in &self.requests {
            let x = x(*at);
            let _ = match ok {
                true => write!(passed, "M{x} {}v10", FLOOR + 7),
                false => write!(denied, "M{x} {}v5", FLOOR + 21),
            };
        }
        let _ = writeln!(out, r#"<path d="{passed}" stroke="{color}" stroke-width="1.8"/>"#);
        let _ = writeln!(out, r#"<path d="{denied}" stroke="{RED}" stroke-width="1.8"/>"#);
    }
}

/// Plots twelve requests that a client sends at the same time and that wait for tokens.
fn waiting() -> Plot {
    let quota = Quota::token_bucket(1, SECOND).capacity(3).max_reserved(20);
    let (mut state, mut drawn) = (State::default(), String::new());
    let arrivals: Vec<Duration> = [every(8, 10, 300), every(4, 16, 500)].concat();
    let x = |at: Duration| LEFT + (at.as_millis() as u64 - 9_000) * (RIGHT - LEFT) / 14_000;
    let mut granted = 0;
    for (i, arrival) in arrivals.iter().enumerate() {
        let decided = step(&quota, &state, BEGIN + *arrival, Ask::cost(1).reserve());
        let wait = match decided.verdict {
            Verdict::Allow => Duration::ZERO,
            Verdict::Reserve { wait } => wait,
            Verdict::Deny { .. } => continue,
        };
        state = decided.state;
        granted += 1;
        let y = HEAD + 14 + i as u64 * 17;
        let (from, to) = (x(*arrival), x(*arrival + wait));
        let _ = writeln!(
            drawn,
            r#"<path d="M{from} {y}H{to}" stroke="{BLUE}" stroke-width="7" stroke-opacity=".28"/><circle cx="{from}" cy="{y}" r="3" fill="{GREY}"/><circle cx="{to}" cy="{y}" r="4.5" fill="{BLUE}"/>"#
        );
    }
    let height = HEAD + 14 + arrivals.len() as u64 * 17 + FOOT;
    for second in [10, 14, 18, 22] {
        let at = x(Duration::from_secs(second));
        let _ = writeln!(
            drawn,
            r#"<path d="M{at} {HEAD}V{0}" stroke="{GREY}" stroke-opacity=".3"/><text x="{at}" y="{1}" text-anchor="middle">{2} s</text>"#,
            height - 26,
            height - 8,
            second - 10
        );
    }
    let summary = format!("{granted} requests are granted");
    let title = "One per second, three at once: each waiting request has a due time";
    let description = "Each line is a request, with a gray dot where it arrives and a blue dot where it continues. \
                       The first three continue immediately, the others a second apart.";
    Plot { svg: svg(title, description, height, &drawn), summary }
}

/// Plots the maximum number of requests that pass within a given time, at ten per minute. The caller has been idle,
/// starts at the worst moment and spends each token immediately.
fn worst_window() -> Plot {
    let bucket = Quota::token_bucket(10, MINUTE);
    let quotas = [
        (Quota::fixed_window(10, MINUTE).start(Duration::ZERO), "Fixed window", AMBER, "2", "none"),
        (bucket, "Token bucket, capacity 10", BLUE, "4.5", "none"),
        (Quota::sliding_window(10, MINUTE).start(Duration::ZERO), "Sliding window", TEAL, "2", "5 4"),
        (bucket.capacity(1), "Token bucket, capacity 1", PURPLE, "2", "none"),
    ];
    let y = |passed: u64| HEAD + 200 - passed * 20 / 3;
    let x = |after: Duration| LEFT + after.as_millis() as u64 * (RIGHT - LEFT) / 120_000;
    let mut drawn = String::new();
    for level in [0, 10, 20, 30] {
        let (at, left) = (y(level), LEFT - 8);
        let _ = writeln!(
            drawn,
            r#"<path d="M{LEFT} {at}H{RIGHT}" stroke="{GREY}" stroke-opacity=".3"/><text x="{left}" y="{}" text-anchor="end">{level}</text>"#,
            at + 4
        );
    }
    let mut minutes = Vec::new();
    for (i, (quota, name, color, width, dashes)) in quotas.iter().enumerate() {
        let passed = worst(quota);
        let mut line = format!("M{LEFT} {}", y(0));
        for (after, count) in &passed {
            let _ = write!(line, "H{}V{}", x(*after), y(*count));
        }
        let minute = passed.iter().rev().find(|(after, _)| *after < MINUTE).map_or(0, |(_, count)| *count);
        minutes.push(minute.to_string());
        let _ = writeln!(
            drawn,
            r#"<path d="{line}H{RIGHT}" fill="none" stroke="{color}" stroke-width="{width}" stroke-dasharray="{dashes}"/>"#
        );
        let at = HEAD + 146 + i as u64 * 16; // below all curves
        let _ = writeln!(
            drawn,
            r#"<path d="M{0} {1}h26" stroke="{color}" stroke-width="{width}" stroke-dasharray="{dashes}"/><text x="{2}" y="{at}">{name}: {minute} in a minute</text>"#,
            LEFT + 392,
            at - 4,
            LEFT + 426
        );
    }
    for seconds in [0, 30, 60, 90, 120] {
        let anchor = if seconds == 120 { "end" } else { "middle" };
        let at = x(Duration::from_secs(seconds));
        let _ = writeln!(
            drawn,
            r#"<path d="M{at} {HEAD}V{0}" stroke="{GREY}" stroke-opacity=".3"/><text x="{at}" y="{1}" text-anchor="{anchor}">{seconds} s</text>"#,
            HEAD + 200,
            HEAD + 220
        );
    }
    let summary = format!("{} requests pass in the worst minute", minutes.join(" + "));
    let title = "Ten per minute at the worst moment: requests that pass within a given time";
    let description = format!(
        "The most requests that pass within a time of up to two minutes, whenever it begins, for a fixed window, a token \
         bucket of capacity 10, a sliding window and a token bucket of capacity 1: {summary}."
    );
    Plot { svg: svg(title, &description, HEAD + 230, &drawn), summary }
}

/// Returns the maximum number of requests that pass within each length of time, over all starts within a window. There
/// is one item for each length at which the maximum grows.
fn worst(quota: &Quota) -> Vec<(Duration, u64)> {
    let quarter = Duration::from_millis(250);
    let mut most: Vec<u64> = vec![0; 480];
    for begin in (0..240).map(|i| BEGIN + quarter * i) {
        let (mut state, mut passed) = (State::default(), 0);
        for (i, most) in most.iter_mut().enumerate() {
            loop {
                let step = step(quota, &state, begin + quarter * i as u32, Ask::cost(1));
                if !step.is_allowed() {
                    break;
                }
                (state, passed) = (step.state, passed + 1);
            }
            *most = passed.max(*most);
        }
    }
    let mut steps: Vec<(Duration, u64)> = Vec::new();
    for (i, count) in most.into_iter().enumerate() {
        if steps.last().is_none_or(|(_, before)| *before != count) {
            steps.push((quarter * i as u32, count));
        }
    }
    steps
}

/// The x coordinate of an instant.
fn x(at: Duration) -> u64 {
    LEFT + at.as_millis() as u64 * (RIGHT - LEFT) / 180_000
}

/// Returns the plot as an SVG without empty lines, so that Markdown can embed it.
fn svg(title: &str, description: &str, height: u64, drawn: &str) -> String {
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-family="system-ui, sans-serif" font-size="13" fill="{GREY}">
<title>{title}</title>
<desc>{description}</desc>
<text x="{LEFT}" y="20" font-size="15" font-weight="700">{title}</text>
{drawn}</svg>
"#
    )
}

/// The start of the plots, which is also the start of a minute.
const BEGIN: Micros = Micros::new(1_767_225_600_000_000);

const WIDTH: u64 = 760;
const LEFT: u64 = 34;
const RIGHT: u64 = 750;
const HEAD: u64 = 40;
const LANE: u64 = 136;
const FOOT: u64 = 26;
/// The y coordinates at which a lane shows a full quota and an empty quota.
const TOP: u64 = 24;
const FLOOR: u64 = 92;

// These colors are readable on white and on black.
const GREY: &str = "#767c8a";
const BLUE: &str = "#5b7cfa";
const AMBER: &str = "#c27a0a";
const TEAL: &str = "#0e9384";
const PURPLE: &str = "#a35ad1";
const RED: &str = "#e5484d";
