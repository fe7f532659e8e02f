//! Plots of the samples over time.

use std::fmt::Write;

use crate::args::Phase;
use crate::run::Run;
use crate::sample::Sample;

/// A function that returns the value of a lane in a sample.
type Figure = fn(&Sample) -> f64;

/// Draws lanes over a common time axis, with the attack shaded.
pub fn svg(run: &Run) -> String {
    let lanes: [(&str, &str, &str, Figure); 6] = [
        ("Memory", "MiB resident", BLUE, |sample| sample.server.rss_kib as f64 / 1024.0),
        ("Rows", "in the limiter", BLUE, |sample| sample.server.rows as f64),
        ("Descriptors", "of the server", TEAL, |sample| sample.server.descriptors as f64),
        ("Tasks", "of its runtime", TEAL, |sample| sample.server.tasks as f64),
        ("Honest p99", "ms, of each second", AMBER, |sample| sample.honest.p99.as_secs_f64() * 1e3),
        ("Honest, refused or failed", "requests", RED, |sample| (sample.honest.refused + sample.honest.failed) as f64),
    ];
    let end = run.samples.last().map_or(1.0, |sample| sample.second);
    let x = |second: f64| LEFT + (RIGHT - LEFT) * second / end;
    let mut drawn = String::new();
    let height = HEAD + lanes.len() as f64 * LANE + FOOT;
    for phase in Phase::ALL.into_iter().filter(|phase| phase.is_hostile()) {
        let from = Phase::ALL
            .iter()
            .take_while(|other| **other != phase)
            .map(|p| p.duration(run.seconds))
            .sum::<std::time::Duration>();
        let (from, to) = (x(from.as_secs_f64()), x((from + phase.duration(run.seconds)).as_secs_f64()));
        let (low, opacity) = (height - FOOT, if phase == Phase::Attack { ".12" } else { ".06" });
        let _ = writeln!(
            drawn,
            r#"<rect x="{from:.1}" y="{HEAD}" width="{:.1}" height="{:.1}" fill="{RED}" fill-opacity="{opacity}"/><text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            to - from,
            low - HEAD,
            f64::midpoint(from, to),
            height - 8.0,
            phase.name()
        );
    }
    for (i, (name, unit, color, what)) in lanes.into_iter().enumerate() {
        let points: Vec<(f64, f64)> = run.samples.iter().map(|sample| (x(sample.second), what(sample))).collect();
        let _ = writeln!(drawn, r#"<g transform="translate(0 {})">"#, HEAD + i as f64 * LANE);
        let _ = writeln!(
            drawn,
            r#"<text x="{LEFT}" y="14"><tspan fill="{color}" font-weight="700">{name}</tspan> <tspan dx="6">{unit}</tspan></text>"#
        );
        lane(&mut drawn, &points, color);
        drawn.push_str("</g>\n");
    }
    let title = format!("Under attack: {:.0} s of {} s", run.attacked().as_secs_f64(), run.seconds);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-family="system-ui, sans-serif" font-size="13" fill="{GREY}">
<title>{title}</title>
<desc>Memory, rows, descriptors and tasks of a server before, during and after an attack, and what honest clients saw of it.</desc>
<text x="{LEFT}" y="20" font-size="15" font-weight="700">{title}</text>
{drawn}</svg>
"#
    )
}

/// Draws the scale from zero to the maximum.
fn lane(out: &mut String, points: &[(f64, f64)], color: &str) {
    let most = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let scale = if most > 0.0 { most } else { 1.0 };
    let y = |value: f64| FLOOR - (FLOOR - TOP) * value / scale;
    for level in [0.0, scale] {
        let label = if level >= 100.0 || level.fract() == 0.0 { format!("{level:.0}") } else { format!("{level:.1}") };
        let _ = writeln!(
            out,
            r#"<path d="M{LEFT} {0:.1}H{RIGHT}" stroke="{GREY}" stroke-opacity=".3"/><text x="{1}" y="{2:.1}" text-anchor="end">{label}</text>"#,
            y(level),
            LEFT - 8.0,
            y(level) + 4.0
        );
    }
    let mut line = String::new();
    for (x, value) in points {
        let _ = write!(line, "{}{x:.1} {:.1}", if line.is_empty() { "M" } else { "L" }, y(*value));
    }
    let _ = writeln!(out, r#"<path d="{line}" fill="none" stroke="{color}" stroke-width="1.6"/>"#);
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 750.0;
const HEAD: f64 = 34.0;
const LANE: f64 = 112.0;
const FOOT: f64 = 26.0;
/// The y coordinates of the maximum and of zero within a lane.
const TOP: f64 = 26.0;
const FLOOR: f64 = 96.0;

// These colors are readable on white and on black.
const GREY: &str = "#767c8a";
const BLUE: &str = "#5b7cfa";
const AMBER: &str = "#c27a0a";
const TEAL: &str = "#0e9384";
const RED: &str = "#e5484d";
