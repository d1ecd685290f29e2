//! PURE. The summary of a run on a live cluster. It can be formatted as several lines, as one line, or as JSON.

use serde::Serialize;

use super::agreement::Lasting;
use crate::report::{Checked, Latency, micros, number};

/// The number of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Objects {
    pub(super) pods: usize,
    pub(super) services: usize,
    pub(super) replicasets: usize,
    pub(super) endpointslices: usize,
}

/// The current figures of a run. At the end, `--json` prints them as a JSON object.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(super) seconds: f64,
    /// Whether all kinds have been listed.
    pub(crate) synced: bool,
    pub(super) objects: Objects,
    /// The number of objects that could not be decoded.
    pub(super) skipped: u64,
    pub(super) events: u64,
    /// The number of events per second, over the last seconds.
    pub(super) events_per_second: f64,
    pub(super) reconciles: u64,
    pub(super) relists: u64,
    pub(super) queue_latency_us: Latency,
    pub(super) checked: Checked,
    pub(super) agree: Checked,
    pub(super) differences: usize,
    pub(super) lasting: Vec<Lasting>,
    /// The last failure of an informer that will retry.
    #[serde(skip)]
    pub(super) trouble: Option<String>,
}

/// The maximum number of objects with different results that the summary names.
const NAMED: usize = 10;

impl Summary {
    pub(crate) fn text(&self) -> String {
        let rows = self.rows();
        rows.iter().map(|(label, text)| format!("{label:>11}  {text}\n")).collect()
    }

    /// Formats the summary as one line, for output that is not a terminal.
    pub(super) fn line(&self) -> String {
        let rows = self.rows().into_iter().map(|(label, text)| match label {
            "" => text,
            label => format!("{label} {text}"),
        });
        rows.collect::<Vec<_>>().join("; ")
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { objects, queue_latency_us: latency, checked, agree, .. } = self;
        let count = |count: usize| number(count as u64);
        let mut rows = vec![("after", format!("{:.0} s", self.seconds))];
        let mut row = |label, text| rows.push((label, text));
        row(
            "objects",
            format!(
                "{} pods, {} Services, {} ReplicaSets, {} EndpointSlices",
                count(objects.pods),
                count(objects.services),
                count(objects.replicasets),
                count(objects.endpointslices)
            ),
        );
        if self.skipped > 0 {
            row("skipped", format!("{} that could not be read", number(self.skipped)));
        }
        row("events", format!("{}, {:.1} per second", number(self.events), self.events_per_second));
        row("reconciles", number(self.reconciles));
        row(
            "queued",
            format!("p50 {}, p99 {}, max {}", micros(latency.p50), micros(latency.p99), micros(latency.max)),
        );
        if self.synced {
            row(
                "agree",
                format!(
                    "{} of {} ReplicaSets, {} of {} Services",
                    count(agree.replicasets),
                    count(checked.replicasets),
                    count(agree.services),
                    count(checked.services)
                ),
            );
        } else {
            row("agree", "not known before every kind is listed".to_owned());
        }
        for (place, lasting) in self.lasting.iter().take(NAMED).enumerate() {
            let label = if place == 0 { "differ" } else { "" };
            row(label, format!("for {:.0} s, {}", lasting.seconds, lasting.difference));
        }
        if self.lasting.len() > NAMED {
            row("", format!("and {} more", self.lasting.len() - NAMED));
        }
        if let Some(trouble) = &self.trouble {
            row("trouble", trouble.clone());
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use super::super::agreement::Differing;
    use super::*;
    use crate::report::compare;
    use crate::trace::Expected;

    fn summary(differing: usize) -> Summary {
        let theirs = (0..differing).map(|number| (format!("n/{number:02}").into(), (1, 0)));
        let expected = Expected { replicasets: theirs.collect(), ..Expected::default() };
        let differences = compare(&expected, &HashMap::new(), &HashMap::new());
        let mut since = Differing::default();
        since.update(Duration::ZERO, differences.clone());
        Summary {
            seconds: 12.3,
            synced: true,
            objects: Objects { pods: 1234, services: 5, replicasets: 6, endpointslices: 7 },
            skipped: 0,
            events: 89,
            events_per_second: 7.25,
            reconciles: 1011,
            relists: 0,
            queue_latency_us: Latency { p50: 12.0, p99: 3400.0, max: 5600.0 },
            checked: Checked { replicasets: 6, services: 4 },
            agree: Checked { replicasets: 6, services: 3 },
            differences: differences.len(),
            lasting: since.update(Duration::from_secs(11), differences),
            trouble: None,
        }
    }

    #[test]
    fn summary_has_long_and_short_form() {
        let lines = "      after  12 s
    objects  1 234 pods, 5 Services, 6 ReplicaSets, 7 EndpointSlices
     events  89, 7.2 per second
 reconciles  1 011
     queued  p50 12 µs, p99 3.4 ms, max 5.6 ms
      agree  6 of 6 ReplicaSets, 3 of 4 Services
     differ  for 11 s, ReplicaSet n/00: we stored nothing, the cluster had 0 of 1 ready
";
        assert_eq!(summary(1).text(), lines);
        let line = summary(0).line();
        assert!(line.starts_with("after 12 s; objects 1 234 pods, ") && !line.contains('\n'), "{line}");
    }

    #[test]
    fn not_all_of_many_are_named() {
        let text = summary(12).text();
        assert_eq!(text.matches("for 11 s").count(), NAMED);
        assert!(text.ends_with("and 2 more\n"), "{text}");
    }

    #[test]
    fn the_json_names_who_differs() {
        let json = serde_json::to_value(summary(1)).unwrap();
        assert_eq!(json["lasting"][0]["what"], "ReplicaSet n/00");
        assert_eq!(json["lasting"][0]["seconds"], 11.0);
        assert_eq!((&json["agree"]["services"], &json["objects"]["pods"]), (&3.into(), &1234.into()));
    }

    #[test]
    fn agreement_is_unknown_before_sync() {
        let summary = Summary { synced: false, trouble: Some("pods: refused".to_owned()), ..summary(0) };
        assert!(
            summary.line().ends_with("agree not known before every kind is listed; trouble pods: refused")
        );
    }
}
