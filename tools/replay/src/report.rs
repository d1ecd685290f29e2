//! PURE. The results of a pass: the comparison with the real cluster, the figures, and the text that is printed.

use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Display};
use std::sync::Arc;

use serde::Serialize;

use crate::args::{Args, Faults, Speed};
use crate::faults::Fired;
use crate::ledger::names_of_both;
use crate::trace::Expected;
use crate::usage::Memory;

/// The figures of a pass. `--json` prints them as a JSON object.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) events: usize,
    pub(crate) adds: u64,
    pub(crate) reconciles: u64,
    pub(crate) retries: u64,
    pub(crate) panics: u64,
    pub(crate) relists: u64,
    pub(crate) faults: Fired,
    pub(crate) seconds: f64,
    pub(crate) events_per_second: f64,
    pub(crate) queue_latency_us: Latency,
    pub(crate) checked: Checked,
    pub(crate) differences: usize,
    pub(crate) converged: bool,
    /// With `--usage` and a speed other than `max`: the time from a change to the next reconcile of its key. A change happens at its recorded time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) change_latency_us: Option<Latency>,
    /// With `--usage`: the CPU time of this pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_seconds: Option<f64>,
    /// With `--usage`: the memory of the process, measured over all passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<Memory>,
}

/// Quantiles of a time, such as the time for which keys were queued, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// The number of compared objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Checked {
    pub(crate) replicasets: usize,
    pub(crate) services: usize,
}

/// An object whose result differs from that of the real cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Difference {
    /// `ReplicaSet namespace/name` or `Service namespace/name`.
    pub(crate) what: String,
    ours: String,
    theirs: String,
}

impl Latency {
    /// Computes quantiles of waits in nanoseconds. The p50 is the smallest wait for which at least 50 % of the waits are not longer; the p99 is
    /// defined in the same way.
    pub(crate) fn of(mut waits: Vec<u64>) -> Self {
        waits.sort_unstable();
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let quantile = |percent: usize| {
            let rank = (waits.len() * percent).div_ceil(100);
            rank.checked_sub(1).map_or(0.0, |at| micros(waits[at]))
        };
        Self { p50: quantile(50), p99: quantile(99), max: quantile(100) }
    }
}

impl Checked {
    pub(crate) fn of(expected: &Expected) -> Self {
        Self { replicasets: expected.replicasets.len(), services: expected.services.len() }
    }
}

/// Compares the results of the controllers with the final state of the real cluster. The result for a key is that of its last reconcile.
pub(crate) fn compare(
    expected: &Expected,
    replicas: &HashMap<Arc<str>, (u32, u32)>,
    endpoints: &HashMap<Arc<str>, Vec<Arc<str>>>,
) -> Vec<Difference> {
    let mut differences = Vec::new();
    for name in names_of_both(&expected.replicasets, replicas) {
        let (theirs, ours) = (expected.replicasets.get(name), replicas.get(name));
        if theirs != ours {
            let shown =
                |counts: Option<&(u32, u32)>| counts.map(|(all, ready)| format!("{ready} of {all} ready"));
            differences.push(Difference::new("ReplicaSet", name, shown(ours), shown(theirs)));
        }
    }
    for name in names_of_both(&expected.services, endpoints) {
        let theirs = expected.services.get(name);
        let ours: Option<BTreeSet<_>> =
            endpoints.get(name).map(|addresses| addresses.iter().cloned().collect());
        if theirs != ours.as_ref() {
            let shown = |set: Option<&BTreeSet<Arc<str>>>| {
                set.map(|set| {
                    format!("[{}]", set.iter().map(|address| &**address).collect::<Vec<_>>().join(" "))
                })
            };
            differences.push(Difference::new("Service", name, shown(ours.as_ref()), shown(theirs)));
        }
    }
    differences.sort();
    differences
}

impl Difference {
    fn new(kind: &str, name: &str, ours: Option<String>, theirs: Option<String>) -> Self {
        let shown = |side: Option<String>| side.unwrap_or_else(|| "nothing".to_owned());
        Self { what: format!("{kind} {name}"), ours: shown(ours), theirs: shown(theirs) }
    }
}

impl Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: we stored {}, the cluster had {}", self.what, self.ours, self.theirs)
    }
}

/// The result of all passes of a run: the figures of the median pass, and the failures of all passes.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) figures: Figures,
    pub(crate) passes: usize,
    pub(crate) differences: Vec<Difference>,
    /// The name of a selected fault that was never injected. If there is one, the run has failed, even if no result differs.
    pub(crate) missing_fault: Option<&'static str>,
}

impl Run {
    /// Builds the result of a run from its passes, of which there must be at least one. The median pass is the median by duration; if the number of
    /// passes is even, it is the slower of the two in the middle.
    ///
    /// If one pass has a difference, or a selected fault that was never injected, this is also reported for the run.
    pub(crate) fn of(
        mut passes: Vec<(Figures, Vec<Difference>)>,
        asked: Faults,
        memory: Option<Memory>,
    ) -> Self {
        passes.sort_by(|(one, _), (other, _)| one.seconds.total_cmp(&other.seconds));
        let missing_fault = passes.iter().find_map(|(figures, _)| figures.faults.missing(asked));
        let converged = missing_fault.is_none() && passes.iter().all(|(figures, _)| figures.converged);
        let worst = passes.iter().max_by_key(|(_, differences)| differences.len());
        let differences = worst.map(|(_, differences)| differences.clone()).unwrap_or_default();
        let figures = passes[passes.len() / 2].0.clone();
        let figures = Figures { differences: differences.len(), converged, memory, ..figures };
        Self { figures, passes: passes.len(), differences, missing_fault }
    }

    /// The summary as text.
    pub(crate) fn summary(&self, name: &str, args: &Args) -> String {
        let Figures { events, seconds, faults, checked, queue_latency_us: latency, .. } = self.figures;
        let figures = &self.figures;
        let mut rows = Vec::new();
        let mut row = |label: &'static str, text: String| rows.push((label, text));
        let speed = match args.speed {
            Speed::Max => "at full speed".to_owned(),
            Speed::Factor(factor) => format!("at {factor} times the recorded speed"),
        };
        let plural =
            |count: u64, one: &str| format!("{} {one}{}", number(count), if count == 1 { "" } else { "s" });
        row("trace", name.to_owned());
        row(
            "played",
            format!("{speed}, {} a controller, seed {}", plural(args.workers.into(), "worker"), args.seed),
        );
        if self.passes > 1 {
            row("passes", format!("{}, the figures are those of the median", number(self.passes as u64)));
        }
        row(
            "events",
            format!(
                "{} in {seconds:.3} s, {} per second",
                number(events as u64),
                number(figures.events_per_second as u64)
            ),
        );
        row(
            "reconciles",
            format!(
                "{} for {} adds; {} retried, {} panicked",
                number(figures.reconciles),
                number(figures.adds),
                number(figures.retries),
                number(figures.panics)
            ),
        );
        row(
            "queued",
            format!("p50 {}, p99 {}, max {}", micros(latency.p50), micros(latency.p99), micros(latency.max)),
        );
        if let Some(seconds) = figures.cpu_seconds {
            row("CPU", micros(seconds * 1e6));
        }
        if let Some(memory) = figures.memory {
            let [before, peak] = [memory.before, memory.peak].map(|bytes| number(bytes >> 20));
            row("memory", format!("{peak} MiB at most, {before} MiB before the first pass"));
        }
        if args.faults != Faults::None {
            row(
                "faults",
                format!(
                    "{}, {} gone, {}; {}",
                    plural(faults.drops, "watch cut"),
                    number(faults.gone),
                    plural(faults.panics, "panic"),
                    plural(figures.relists, "relist")
                ),
            );
        }
        row("checked", format!("{} ReplicaSets, {} Services", checked.replicasets, checked.services));
        let verdict = match (self.missing_fault, figures.differences) {
            (_, differences @ 1..) => format!("NOT converged: {}", plural(differences as u64, "difference")),
            (Some(fault), 0) => format!("NOT converged: the fault `{fault}` was asked for and never fired"),
            (None, 0) => "converged: 0 differences from the real cluster".to_owned(),
        };
        row("result", verdict);
        let mut text: String = rows.iter().map(|(label, text)| format!("{label:>11}  {text}\n")).collect();
        const SHOWN: usize = 10;
        for difference in self.differences.iter().take(SHOWN) {
            text += &format!("{:>11}  {difference}\n", "");
        }
        if self.differences.len() > SHOWN {
            text += &format!("{:>11}  and {} more\n", "", self.differences.len() - SHOWN);
        }
        text
    }
}

/// Formats a number with thousands separators.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(|group| String::from_utf8_lossy(group)).collect();
    groups.join(" ")
}

pub(crate) fn micros(micros: f64) -> String {
    match micros {
        ..1e3 => format!("{micros:.0} µs"),
        ..1e6 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(number), ["0", "999", "1 000", "1 234 567"]);
        assert_eq!([12.4, 1_500.0, 2.5e6].map(micros), ["12 µs", "1.5 ms", "2.50 s"]);
    }

    #[test]
    fn quantiles_are_of_the_ranks() {
        let nanos = (1..=100).map(|wait| wait * 1_000).rev().collect();
        assert_eq!(Latency::of(nanos), Latency { p50: 50.0, p99: 99.0, max: 100.0 });
        assert_eq!(Latency::of(vec![7_000]), Latency { p50: 7.0, p99: 7.0, max: 7.0 });
        assert_eq!(Latency::of(Vec::new()), Latency { p50: 0.0, p99: 0.0, max: 0.0 });
    }

    #[test]
    fn every_way_to_disagree_is_a_difference() {
        let text = |text: &str| -> Arc<str> { text.into() };
        let expected = Expected {
            replicasets: [(text("a/same"), (2, 1)), (text("a/other"), (2, 1)), (text("a/missed"), (0, 0))]
                .into(),
            services: [(text("a/same"), [text("1"), text("2")].into())].into(),
        };
        let replicas = [(text("a/same"), (2, 1)), (text("a/other"), (2, 2)), (text("a/left"), (1, 1))].into();
        let endpoints = [(text("a/same"), vec![text("2"), text("1"), text("2")])].into();
        let shown: Vec<_> = compare(&expected, &replicas, &endpoints)
            .iter()
            .map(|difference| difference.to_string())
            .collect();
        assert_eq!(
            shown,
            [
                "ReplicaSet a/left: we stored 1 of 1 ready, the cluster had nothing",
                "ReplicaSet a/missed: we stored nothing, the cluster had 0 of 0 ready",
                "ReplicaSet a/other: we stored 2 of 2 ready, the cluster had 1 of 2 ready",
            ]
        );
        let endpoints = [(text("a/same"), vec![text("1")]), (text("a/none"), vec![])].into();
        let shown =
            compare(&Expected { replicasets: HashMap::new(), ..expected }, &HashMap::new(), &endpoints);
        assert_eq!(shown.len(), 2);
        assert_eq!(shown[1].to_string(), "Service a/same: we stored [1], the cluster had [1 2]");
    }
}
