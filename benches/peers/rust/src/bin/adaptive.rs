//! Draws the behaviour of an adaptive limiter in front of a server whose latency rises with load: `adaptive FILE`.
//!
//! The simulation is the one in the tests of `flyball-ratelimit`. It runs on virtual time, so the picture is the same
//! in every run.

use std::env;
use std::error::Error;
use std::time::Duration;

use drivers::limiter::loaded_server::{Client, Phase, Second, WORK, run};
use flyball_ratelimit::AimdLimit;
use plotters::coord::Shift;
use plotters::prelude::*;

type Failure = Box<dyn Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

struct Line {
    name: &'static str,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

const FIRST: RGBColor = RGBColor(0, 102, 204);
const SECOND: RGBColor = RGBColor(204, 85, 0);
const WITHOUT: RGBColor = RGBColor(150, 150, 150);
const WIDTH: u32 = 800;
/// The width of the strip with the legend.
const LEGEND: u32 = 170;
const JOINS: u64 = 60;
const PHASES: [Phase; 4] = [
    Phase { until: 150, workers: 20, down: false },
    Phase { until: 210, workers: 8, down: false },
    Phase { until: 220, workers: 8, down: true },
    Phase { until: 300, workers: 20, down: false },
];

fn main() -> Result<(), Failure> {
    let words: Vec<String> = env::args().collect();
    let [_, file] = words.as_slice() else { return Err("usage: adaptive FILE".into()) };
    let bound = WORK * 3;
    let client = |limits, from| Client { limit: AimdLimit::new(limits, bound), from };
    let adaptive = run(vec![client(1..=1_000, 0), client(1..=1_000, JOINS)], &PHASES);
    let fixed = run(vec![client(100..=100, 0), client(100..=100, JOINS)], &PHASES);

    let root = SVGBackend::new(file, (WIDTH, 640)).into_drawing_area();
    root.fill(&WHITE)?;
    let (upper, lower) = root.split_vertically(320);
    let limit = |second: &Second| f64::from(second.limit);
    let limits = [
        Line { name: "first client", colour: FIRST, points: points(&adaptive[0], limit) },
        Line { name: "second client", colour: SECOND, points: points(&adaptive[1], limit) },
    ];
    draw(&upper, "operations in flight, at most", "limit", 80.0, &limits)?;
    let bound = |_: &Second| bound.as_secs_f64() * 1e3;
    let latencies = [
        Line { name: "bound", colour: BLACK, points: points(&adaptive[0], bound) },
        Line { name: "adaptive", colour: FIRST, points: points(&adaptive[0], median) },
        Line { name: "100 at once each", colour: WITHOUT, points: points(&fixed[0], median) },
    ];
    draw(&lower, "half of the first client's answers take longer than", "ms", 1_300.0, &latencies)?;
    root.present()?;
    Ok(())
}

fn median(second: &Second) -> f64 {
    match second.median {
        // Every request was refused.
        Duration::ZERO => f64::NAN,
        median => median.as_secs_f64() * 1e3,
    }
}

fn points(seconds: &[Second], figure: impl Fn(&Second) -> f64) -> Vec<(f64, f64)> {
    let figures = seconds.iter().zip(1..).map(|(second, at)| (f64::from(at), figure(second)));
    figures.filter(|(_, figure)| figure.is_finite()).collect()
}

fn draw(area: &Area<'_>, title: &str, up: &str, most: f64, lines: &[Line]) -> Result<(), Failure> {
    let end = PHASES.last().map_or(0, |phase| phase.until) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end, 0.0..most)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("seconds: two clients from 60, 8 workers of 20 from 150, all refused from 210 to 220")
        .y_desc(up)
        .x_label_formatter(&|at| format!("{at:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .draw()?;
    for (line, row) in lines.iter().zip(0..) {
        let style = line.colour.stroke_width(2);
        let inside = line.points.iter().map(|(at, figure)| (*at, figure.min(most)));
        chart.draw_series(LineSeries::new(inside, style))?;
        // The legend is beside the plot, where it covers no line.
        let (x, y) = (WIDTH as i32 - LEGEND as i32 + 10, 60 + 20 * row);
        area.draw(&PathElement::new([(x, y), (x + 16, y)], style))?;
        area.draw(&Text::new(line.name, (x + 22, y - 7), ("sans-serif", 13)))?;
    }
    Ok(())
}
