//! Line plots as SVG.

use std::fmt::Write;

pub struct Plot {
    pub title: &'static str,
    pub description: String,
    /// The label of the x axis.
    pub below: &'static str,
    /// The label of the y axis.
    pub unit: &'static str,
    /// The names of the evenly spaced marks on the x axis, in order.
    pub marks: Vec<String>,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub name: String,
    /// One value for each mark.
    pub values: Vec<f64>,
}

impl Plot {
    /// Returns SVG text without blank lines, so that it can be embedded in Markdown. The y axis starts at 0, or is
    /// logarithmic if the values differ by a factor of more than 25.
    pub fn svg(&self) -> String {
        let values = || self.lines.iter().flat_map(|line| &line.values).copied();
        let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
        let logarithmic = most > 25.0 * least;
        let levels = if logarithmic { decades(least, most) } else { steps(most) };
        let (low, high) = (levels[0], levels[levels.len() - 1]);
        let y = |value: f64| {
            let part = if logarithmic { (value / low).ln() / (high / low).ln() } else { (value - low) / (high - low) };
            FLOOR - part * (FLOOR - TOP)
        };
        let x = |i: usize| LEFT + (i as f64 + 0.5) * (RIGHT - LEFT) / self.marks.len() as f64;
        let mut out = String::new();
        let _ = writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="system-ui, sans-serif" font-size="13" fill="{GREY}">"#
        );
        let _ = writeln!(out, "<title>{}</title>\n<desc>{}</desc>", self.title, self.description);
        let _ = writeln!(out, r#"<text x="{LEFT}" y="20" font-size="15" font-weight="700">{}</text>"#, self.title);
        for level in &levels {
            let (y, left) = (y(*level), LEFT - 8.0);
            let _ = writeln!(
                out,
                r#"<path d="M{LEFT} {y:.1}H{RIGHT}" stroke="{GREY}" stroke-opacity=".3"/><text x="{left}" y="{:.1}" text-anchor="end">{level}</text>"#,
                y + 4.0
            );
        }
        let _ = writeln!(out, r#"<text x="{LEFT}" y="{}">{}</text>"#, TOP - 8.0, self.unit);
        for (i, mark) in self.marks.iter().enumerate() {
            let _ = writeln!(out, r#"<text x="{:.1}" y="{}" text-anchor="middle">{mark}</text>"#, x(i), FLOOR + 20.0);
        }
        let middle = (LEFT + RIGHT) / 2.0;
        let _ = writeln!(out, r#"<text x="{middle}" y="{}" text-anchor="middle">{}</text>"#, FLOOR + 40.0, self.below);
        for (i, (line, color)) in self.lines.iter().zip(COLORS.into_iter().cycle()).enumerate() {
            let points: Vec<_> = line.values.iter().enumerate().map(|(i, v)| (x(i), y(*v))).collect();
            let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            let _ = write!(out, r#"<path d="M{}" fill="none" stroke="{color}" stroke-width="2"/>"#, path.join("L"));
            for (x, y) in points {
                let _ = write!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{color}"/>"#);
            }
            let _ = writeln!(
                out,
                r#"<text x="{}" y="{}" fill="{color}" font-weight="700">{}</text>"#,
                RIGHT + 12.0,
                TOP + 4.0 + 20.0 * i as f64,
                line.name
            );
        }
        out.push_str("</svg>\n");
        out
    }
}

/// Returns levels such as 1, 2, 5, 10, 20 and 50 that cover the range.
fn decades(least: f64, most: f64) -> Vec<f64> {
    let all: Vec<f64> = (0..9).flat_map(|i| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(i))).collect();
    let first = all.iter().rposition(|level| *level <= least).unwrap_or(0);
    let last = all.iter().position(|level| *level >= most).unwrap_or(all.len() - 1);
    all[first..=last].to_vec()
}

/// Returns 0 and four to eight evenly spaced levels above it.
fn steps(most: f64) -> Vec<f64> {
    let all = (-1..9).flat_map(|i| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(i)));
    let step = all.into_iter().find(|step| most / step <= 8.0).unwrap_or(most);
    // Round, because 3 * 0.2 is not exactly 0.6.
    (0..=(most / step).ceil() as u32).map(|i| (f64::from(i) * step * 10.0).round() / 10.0).collect()
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 590.0;
const TOP: f64 = 56.0;
const FLOOR: f64 = 284.0;

// These colors are readable on both white and black.
const GREY: &str = "#767c8a";
const COLORS: [&str; 6] = ["#5b7cfa", "#c27a0a", "#0e9384", "#e5484d", "#a855f7", "#767c8a"];
