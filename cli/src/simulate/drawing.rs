//! The drawing for `--svg`: refused requests over time, and the shares of requests and callers that each limit refuses.

use std::error::Error;
use std::path::Path;

use jiff::Timestamp;
use plotters::prelude::*;

use super::limit::Limit;
use super::report::Report;
use super::run::Applied;

const COLORS: [RGBColor; 6] = [
    RGBColor(0x3b, 0x6f, 0xd4),
    RGBColor(0xd9, 0x6c, 0x2c),
    RGBColor(0x2f, 0x9e, 0x63),
    RGBColor(0xa8, 0x4c, 0xb8),
    RGBColor(0x8a, 0x7a, 0x20),
    RGBColor(0x60, 0x60, 0x60),
];

pub fn draw(path: &Path, applied: &Applied, limits: &[Limit], report: &Report) -> Result<(), String> {
    try_draw(path, applied, limits, report).map_err(|error| format!("{}: {error}", path.display()))
}

fn try_draw(path: &Path, applied: &Applied, limits: &[Limit], report: &Report) -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (760, 560)).into_drawing_area();
        root.fill(&WHITE)?;
        let (above, below) = root.split_vertically(300);
        over_time(&above, applied, limits)?;
        shares(&below, limits, report)?;
        root.present()?;
    }
    std::fs::write(path, text)?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn over_time(area: &Area<'_>, applied: &Applied, limits: &[Limit]) -> Result<(), Box<dyn Error>> {
    let series: Vec<Vec<(f64, f64)>> =
        (0..limits.len()).map(|i| applied.callers.timelines[i * applied.cases].rates().collect()).collect();
    let first = applied.callers.first_second.unwrap_or(0) as f64;
    let last = (applied.callers.last_second as f64).max(first + 1.0);
    let most = series.iter().flatten().fold(0.0, |most: f64, (_, rate)| most.max(*rate)).max(f64::MIN_POSITIVE);
    let mut chart = ChartBuilder::on(area)
        .caption("Refused requests per second", ("sans-serif", 15))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(first..last, 0.0..most * 1.05)?;
    let time = |second: &f64| {
        Timestamp::from_second(*second as i64)
            .map_or_else(|_| String::new(), |time| time.strftime("%m-%d %H:%M").to_string())
    };
    chart.configure_mesh().light_line_style(WHITE).x_labels(6).y_labels(5).x_label_formatter(&time).draw()?;
    for (i, points) in series.into_iter().enumerate() {
        let color = COLORS[i % COLORS.len()];
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(limits[i].name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    Ok(())
}

/// Draws two bars for each limit: its shares of refused requests and of refused callers.
fn shares(area: &Area<'_>, limits: &[Limit], report: &Report) -> Result<(), Box<dyn Error>> {
    let shares: Vec<[f64; 2]> = report.refused_shares().collect();
    let most = shares.iter().flatten().fold(0.0, |most: f64, share| most.max(*share)).max(0.001) * 100.0;
    let mut chart = ChartBuilder::on(area)
        .caption("Refused share in %: requests (dark) and callers (light)", ("sans-serif", 15))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..limits.len() as f64, 0.0..most * 1.05)?;
    let name = |at: &f64| limits.get(*at as usize).map(|limit| limit.name.clone()).unwrap_or_default();
    chart.configure_mesh().disable_x_mesh().light_line_style(WHITE).x_labels(0).y_labels(5).draw()?;
    for (i, [requests, callers]) in shares.into_iter().enumerate() {
        let (color, at) = (COLORS[i % COLORS.len()], i as f64);
        let bar = |from: f64, to: f64, share: f64, color: ShapeStyle| {
            Rectangle::new([(at + from, 0.0), (at + to, share * 100.0)], color)
        };
        chart
            .draw_series([bar(0.2, 0.5, requests, color.filled()), bar(0.5, 0.8, callers, color.mix(0.4).filled())])?;
        let (x, y) = chart.backend_coord(&(at + 0.2, 0.0));
        let (left, top) = area.get_base_pixel();
        area.draw_text(&name(&at), &("sans-serif", 12).into_text_style(area), (x - left, y - top + 8))?;
    }
    Ok(())
}
