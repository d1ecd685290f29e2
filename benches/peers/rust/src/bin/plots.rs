//! Draws the results of `cargo xtask peers --scaling`: `plots TABLE FOLDER`.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;
use std::{env, fs};

use plotters::coord::Shift;
use plotters::prelude::*;

type Failure = Box<dyn Error>;

/// One line of the table.
struct Point {
    plot: String,
    party: String,
    x: f64,
    figure: String,
    median: f64,
}

/// One plot.
struct Plot {
    /// The end of the file name, which starts with the name of the table.
    file: &'static str,
    lines: fn(&[Point]) -> Lines,
    title: &'static str,
    across: &'static str,
    up: &'static str,
}

/// The points of each implementation. Positions on the x axis are numbered; `labels` contains the name of each position.
struct Lines {
    labels: Vec<String>,
    of: BTreeMap<String, Vec<(f64, f64)>>,
}

const COLOURS: [(&str, RGBColor); 9] = [
    ("ours", RGBColor(0, 102, 204)),
    ("client-go", RGBColor(204, 85, 0)),
    ("controller-runtime", RGBColor(128, 64, 160)),
    ("naive", RGBColor(110, 110, 110)),
    ("kube", RGBColor(40, 140, 60)),
    ("ours, 10k", RGBColor(0, 102, 204)),
    ("ours, 160k", RGBColor(110, 180, 250)),
    ("client-go, 10k", RGBColor(204, 85, 0)),
    ("client-go, 160k", RGBColor(250, 170, 110)),
];
const WIDTH: u32 = 800;
/// The width of the strip with the legend.
const LEGEND: u32 = 170;
/// The percentiles are drawn for this rate of adds.
const RATE: f64 = 50_000.0;

const QUEUE: [Plot; 4] = [
    Plot {
        file: "keys",
        lines: |all| growth(all, "keys", "ns"),
        title: "add, get and done, one thread",
        across: "keys queued",
        up: "ns a key",
    },
    Plot {
        file: "threads",
        lines: |all| growth(all, "threads", "ns"),
        title: "producers and as many consumers, 10 000 keys",
        across: "producers",
        up: "ns an add",
    },
    Plot {
        file: "duplicates",
        lines: |all| growth(all, "duplicates", "ns"),
        title: "adds of keys that are queued already",
        across: "duplicates, %",
        up: "ns an add",
    },
    Plot {
        file: "latency",
        lines: percentiles,
        title: "from add to getter, 4 getters, 50 000 adds a second",
        across: "percentile",
        up: "µs",
    },
];

const STORE: [Plot; 8] = [
    Plot {
        file: "update",
        lines: |all| growth(all, "operations", "update-p50"),
        title: "an update, two indexes, median",
        across: "objects",
        up: "ns",
    },
    Plot {
        file: "get",
        lines: |all| growth(all, "operations", "get-p50"),
        title: "the object of a key, median",
        across: "objects",
        up: "ns",
    },
    Plot {
        file: "by-index",
        lines: |all| growth(all, "operations", "by-index-p50"),
        title: "the 100 objects of an index value, median",
        across: "objects",
        up: "ns",
    },
    Plot {
        file: "beside",
        lines: |all| growth(all, "beside", "p999"),
        title: "an update while a thread lists all objects, 99.9th percentile",
        across: "objects",
        up: "µs",
    },
    Plot {
        file: "blocked",
        lines: |all| growth(all, "replace", "blocked"),
        title: "the longest time for which a relist blocks a reader, four indexes",
        across: "objects",
        up: "µs",
    },
    Plot {
        file: "bytes",
        lines: |all| growth(all, "bytes", "bytes"),
        title: "memory beyond the objects, two indexes",
        across: "objects",
        up: "bytes an object",
    },
    Plot {
        file: "reads",
        lines: |all| readers(all, "reads"),
        title: "lists of a namespace with all pods, while pods are modified",
        across: "readers",
        up: "lists a second",
    },
    Plot {
        file: "writes",
        lines: |all| readers(all, "writes"),
        title: "modifications through an informer to a handler, beside readers",
        across: "readers",
        up: "modifications a second",
    },
];

const INFORMER: [Plot; 2] = [
    Plot {
        file: "listeners",
        lines: |all| growth(all, "listeners", "ns"),
        title: "changes as fast as they are taken, until all listeners have them",
        across: "listeners",
        up: "ns a change",
    },
    Plot {
        file: "listeners-cpu",
        lines: |all| growth(all, "listeners", "cpu"),
        title: "CPU of a change, as fast as changes are taken, 100 000 objects",
        across: "listeners",
        up: "ns a change",
    },
];

const CONTROLLER: [Plot; 8] = [
    Plot {
        file: "throughput",
        lines: |all| growth(all, "throughput", "ns"),
        title: "changes as fast as they are reconciled, 10 000 objects",
        across: "workers (10k: unbounded)",
        up: "ns a reconcile",
    },
    Plot {
        file: "cpu",
        lines: |all| growth(all, "throughput", "cpu"),
        title: "CPU of a reconcile, as fast as changes are reconciled, 10 000 objects",
        across: "workers (10k: unbounded)",
        up: "ns a reconcile",
    },
    Plot {
        file: "latency-p50",
        lines: |all| growth(all, "latency", "p50"),
        title: "from a change to its reconcile, 20 000 changes a second, median",
        across: "workers (10k: unbounded)",
        up: "µs",
    },
    Plot {
        file: "latency-p99",
        lines: |all| growth(all, "latency", "p99"),
        title: "from a change to its reconcile, 20 000 changes a second, 99 %",
        across: "workers (10k: unbounded)",
        up: "µs",
    },
    Plot {
        file: "longest-wait",
        lines: |all| growth(all, "latency", "max"),
        title: "from a change to its reconcile, 20 000 changes a second, the longest",
        across: "workers (10k: unbounded)",
        up: "µs",
    },
    Plot {
        file: "load",
        lines: |all| growth(all, "load", "p99"),
        title: "from a change to its reconcile, ten workers, 99 %",
        across: "changes a second",
        up: "µs",
    },
    Plot {
        file: "cluster",
        lines: |all| growth(all, "cluster", "ns"),
        title: "the recorded cluster as fast as it is taken",
        across: "copies",
        up: "ns an event",
    },
    Plot {
        file: "cluster-memory",
        lines: |all| growth(all, "cluster", "peak"),
        title: "the recorded cluster: peak memory of the process, the recording included",
        across: "copies",
        up: "MiB",
    },
];

fn main() -> Result<(), Failure> {
    let words: Vec<String> = env::args().collect();
    let [_, table, folder] = words.as_slice() else { return Err("usage: plots TABLE FOLDER".into()) };
    let points = fs::read_to_string(table)?.lines().skip(1).map(point).collect::<Result<Vec<_>, _>>()?;
    let name = Path::new(table).file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let (what, plots): (_, &[Plot]) = match name.split_once('-') {
        Some(("queue", _)) => ("queue", &QUEUE),
        Some(("store", _)) => ("store", &STORE),
        Some(("informer", _)) => ("informer", &INFORMER),
        Some(("controller", _)) => ("controller", &CONTROLLER),
        _ => return Err(format!("no plot for this table: {table}").into()),
    };
    for plot in plots {
        let lines = (plot.lines)(&points);
        if lines.of.is_empty() {
            // The table is incomplete: the measurement was stopped.
            eprintln!("{what}-{}: no points", plot.file);
            continue;
        }
        draw(plot, &lines, &Path::new(folder).join(format!("{what}-{}.svg", plot.file)))?;
    }
    Ok(())
}

fn point(line: &str) -> Result<Point, Failure> {
    let cells: Vec<&str> = line.split(',').collect();
    let [plot, party, x, figure, median, _, _] = cells.as_slice() else {
        return Err(format!("not a line of the table: {line}").into());
    };
    let (plot, party, figure) = (plot.to_string(), party.to_string(), figure.to_string());
    Ok(Point { plot, party, x: x.parse()?, figure, median: median.parse()? })
}

/// The sizes are spaced evenly on the axis, because each is a multiple of the previous one.
fn growth(all: &[Point], plot: &str, figure: &str) -> Lines {
    let points: Vec<&Point> =
        all.iter().filter(|point| point.plot == plot && point.figure == figure).collect();
    let sizes: BTreeSet<u64> = points.iter().map(|point| point.x as u64).collect();
    let mut of: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for point in &points {
        let at = sizes.iter().position(|size| *size == point.x as u64).unwrap_or(0);
        of.entry(point.party.clone()).or_default().push((at as f64, point.median));
    }
    Lines { labels: sizes.into_iter().map(short).collect(), of }
}

/// The x axis shows the numbers of readers, at equal distances. Each implementation has two lines: one for the
/// smallest number of objects, and one for the largest.
fn readers(all: &[Point], figure: &str) -> Lines {
    const READERS: [&str; 6] = ["0", "1", "10", "20", "40", "80"];
    let mut of: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let shown = |point: &&Point| point.figure == figure && [10_000.0, 160_000.0].contains(&point.x);
    for point in all.iter().filter(shown) {
        let readers = point.plot.strip_prefix("readers-");
        let Some(at) = READERS.iter().position(|count| Some(*count) == readers) else { continue };
        // Without readers the rate of lists is zero, which a logarithmic axis cannot show.
        if point.median > 0.0 {
            let line = format!("{}, {}", point.party, short(point.x as u64));
            of.entry(line).or_default().push((at as f64, point.median));
        }
    }
    Lines { labels: READERS.map(str::to_owned).into(), of }
}

fn percentiles(all: &[Point]) -> Lines {
    const FIGURES: [&str; 5] = ["p50", "p90", "p99", "p999", "max"];
    let mut of: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for point in all.iter().filter(|point| point.plot == "latency" && point.x == RATE) {
        let at = FIGURES.iter().position(|figure| *figure == point.figure).unwrap_or(0);
        of.entry(point.party.clone()).or_default().push((at as f64, point.median));
    }
    Lines { labels: FIGURES.map(str::to_owned).into(), of }
}

fn short(size: u64) -> String {
    match size {
        1_000_000.. => format!("{}M", size / 1_000_000),
        1_000.. => format!("{}k", size / 1_000),
        _ => size.to_string(),
    }
}

/// The y axis is logarithmic, so that equal distances are equal ratios.
fn draw(plot: &Plot, lines: &Lines, file: &Path) -> Result<(), Failure> {
    let area: DrawingArea<SVGBackend<'_>, Shift> = SVGBackend::new(file, (WIDTH, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let figures = || lines.of.values().flatten().map(|(_, median)| *median);
    let least = figures().fold(f64::INFINITY, f64::min) / 1.5;
    let most = figures().fold(0.0, f64::max) * 1.5;
    let last = lines.labels.len() as f64 - 1.0;
    let mut chart = ChartBuilder::on(&area)
        .caption(plot.title, ("sans-serif", 18))
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.2..last + 0.2, (least..most).log_scale().base(2.0))?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(plot.across)
        .y_desc(plot.up)
        .x_labels(lines.labels.len())
        .y_labels(10)
        .x_label_formatter(&|at| label(&lines.labels, *at))
        .y_label_formatter(&|value| if *value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") })
        .draw()?;
    let present = COLOURS.iter().filter_map(|(party, colour)| Some((*party, *colour, lines.of.get(*party)?)));
    for ((party, colour, line), row) in present.zip(0..) {
        let style = colour.stroke_width(2);
        chart.draw_series(LineSeries::new(line.iter().copied(), style).point_size(3))?;
        // The legend is beside the plot, where it covers no line.
        let (x, y) = (WIDTH as i32 - LEGEND as i32 + 10, 60 + 20 * row);
        area.draw(&PathElement::new([(x, y), (x + 16, y)], style))?;
        area.draw(&Text::new(party, (x + 22, y - 7), ("sans-serif", 13)))?;
    }
    area.present()?;
    Ok(())
}

/// Only whole positions have a label.
fn label(labels: &[String], at: f64) -> String {
    let whole = (at - at.round()).abs() < 1e-6 && at >= 0.0;
    labels.get(at.round() as usize).filter(|_| whole).cloned().unwrap_or_default()
}
