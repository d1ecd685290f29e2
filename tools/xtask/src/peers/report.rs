//! Computes medians and ratios, and formats them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::json;

use super::parties::Party;
use super::table::{Measurement, Row, Target};

/// The numbers that one process has measured. The keys are the names of the numbers.
pub(super) type Sample = BTreeMap<String, f64>;

/// The median of several samples, with the smallest and the largest of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    runs: usize,
}

impl Figure {
    pub(super) fn of(samples: &[Sample], name: &str) -> Option<Self> {
        let mut all: Vec<f64> = samples.iter().filter_map(|sample| sample.get(name).copied()).collect();
        all.sort_by(f64::total_cmp);
        let (&least, &most) = (all.first()?, all.last()?);
        let middle = all.len() / 2;
        let median = match all.len() % 2 {
            1 => all[middle],
            _ => (all[middle - 1] + all[middle]) / 2.0,
        };
        Some(Self { median, least, most, runs: all.len() })
    }
}

/// The header of the table whose rows [`Verdict::markdown`] returns.
pub(super) const HEAD: &str = "\
| work | unit | ours | peer | theirs | ratio | target | |
|---|---|---|---|---|---|---|---|";

/// One row: flyball in comparison with one peer.
#[derive(Debug)]
pub(super) struct Verdict {
    work: String,
    unit: &'static str,
    peer: Party,
    target: Target,
    ours: Figure,
    theirs: Figure,
    /// The medians of other variants of flyball.
    variants: Vec<(Party, f64)>,
    /// Further medians of flyball and of the peer, each with a description.
    extra: Vec<(&'static str, f64, f64)>,
}

/// Further results, which help to judge the results of the rows. Some of them report how much work was done: see `contended.rs` and `beside.rs` in
/// the measuring programs. Others report the delays that the machine itself causes: see `replace.rs` and `stall.rs`. "MiB before" is the resident
/// memory at the start of the measurement, including the objects to be sent. "ms slept" is how long a reconcile really slept, see `controller.rs`.
const EXTRA_FIGURES: [(&str, &str); 8] = [
    ("handed-out", "handed out an add"),
    ("lists", "lists a second"),
    ("slowest", "with load"),
    ("quiet", "without a list"),
    ("before", "MiB before"),
    ("told", "deliveries per event"),
    ("slept", "ms slept"),
    ("never", "keys that were never reconciled"),
];

impl Verdict {
    pub(super) fn new(
        measurement: &Measurement,
        row: &Row,
        peer: Party,
        samples: &BTreeMap<Party, Vec<Sample>>,
    ) -> Result<Self> {
        let figure = |party: Party, name: &str| Figure::of(&samples[&party], name);
        let needed = |party: Party| {
            figure(party, row.figure).with_context(|| format!("{}: no figure of {}", row.work, party.name()))
        };
        let (own, others) = measurement.ours.split_first().context("no run of flyball")?;
        let mut variants = Vec::new();
        for party in others {
            variants.push((*party, needed(*party)?.median));
        }
        let extra = |(name, words)| {
            let [ours, theirs] = [*own, peer].map(|party| Some(figure(party, name)?.median));
            Some((words, ours?, theirs?))
        };
        let target = row.target(peer);
        let work = match target {
            // A row without a target for this peer gets the name of the peer as a suffix, so that it is not mistaken for the row with the target.
            Target::Shown => format!("{}-{}", row.work, peer.name()),
            _ => row.work.to_owned(),
        };
        Ok(Self {
            work,
            unit: row.unit,
            peer,
            target,
            ours: needed(*own)?,
            theirs: needed(peer)?,
            variants,
            extra: EXTRA_FIGURES.into_iter().filter_map(extra).collect(),
        })
    }

    /// The median of flyball, divided by that of the peer. If the median of flyball is 0, the ratio is 0, even if that of the peer is also 0.
    fn ratio(&self) -> f64 {
        if self.ours.median == 0.0 { 0.0 } else { self.ours.median / self.theirs.median }
    }

    fn met(&self) -> bool {
        match self.target {
            Target::Ratio(most) => self.ratio() <= most,
            Target::Ours(most) => self.ours.median <= most,
            Target::Shown => true,
        }
    }

    pub(super) fn complaint(&self) -> Option<String> {
        let Self { work, unit, peer, .. } = self;
        let asked = match self.target {
            Target::Ratio(most) => format!("at most {most:.3} of theirs"),
            Target::Ours(most) => format!("at most {most} {unit}"),
            Target::Shown => return None,
        };
        let (ours, ratio) = (self.ours.median, self.ratio());
        (!self.met()).then(|| {
            format!("{work} beside {}: {ours:.1} {unit}, ratio {ratio:.2}; asked {asked}", peer.name())
        })
    }

    pub(super) fn json(&self) -> String {
        let (target, of) = match self.target {
            Target::Ratio(most) => (Some(most), "ratio"),
            Target::Ours(most) => (Some(most), "ours"),
            Target::Shown => (None, "shown"),
        };
        let mut row = json!({
            "work": self.work,
            "unit": self.unit,
            "ours": self.ours.median,
            "peer": self.peer.name(),
            "theirs": self.theirs.median,
            "ratio": self.ratio(),
            "target": target,
            "target_of": of,
            "met": self.met(),
            "runs": self.ours.runs.min(self.theirs.runs),
            "ours_spread": [self.ours.least, self.ours.most],
            "theirs_spread": [self.theirs.least, self.theirs.most],
        });
        for (party, median) in &self.variants {
            row["variants"][party.name()] = json!(median);
        }
        for (words, ours, theirs) in &self.extra {
            row[words.replace(' ', "_")] = json!([ours, theirs]);
        }
        row.to_string()
    }

    pub(super) fn markdown(&self) -> String {
        let figure = |Figure { median, least, most, .. }: &Figure| match least == most {
            true => short(*median),
            false => format!("{} ({}–{})", short(*median), short(*least), short(*most)),
        };
        let target = match self.target {
            Target::Ratio(most) => format!("ratio ≤ {most:.2}"),
            Target::Ours(most) => format!("ours ≤ {most}"),
            Target::Shown => String::new(),
        };
        let mut note = if self.met() { "" } else { "**missed**" }.to_owned();
        for (party, median) in &self.variants {
            note += &format!(" {} {};", party.name(), short(*median));
        }
        for (words, ours, theirs) in &self.extra {
            note += &format!(" {words}: {}, {};", short(*ours), short(*theirs));
        }
        format!(
            "| `{}` | {} | {} | {} | {} | {:.2} | {target} | {} |",
            self.work,
            self.unit,
            figure(&self.ours),
            self.peer.name(),
            figure(&self.theirs),
            self.ratio(),
            note.trim().trim_end_matches(';'),
        )
    }

    pub(super) fn line(&self) -> String {
        let Self { work, unit, ours, theirs, .. } = self;
        let spread = |figure: &Figure| format!("({:.1}..{:.1})", figure.least, figure.most);
        let target = match self.target {
            Target::Ratio(most) => format!("ratio <= {most:.3}"),
            Target::Ours(most) => format!("ours <= {most}"),
            Target::Shown => String::new(),
        };
        let end = if self.met() { "ok" } else { "MISSED" };
        let mut line = format!(
            "{work:33} {unit:17} ours {:>9.2} {:20} {:18} {:>9.2} {:20} ratio {:>6.3}  {target:15} {end}",
            ours.median,
            spread(ours),
            self.peer.name(),
            theirs.median,
            spread(theirs),
            self.ratio(),
        );
        for (party, median) in &self.variants {
            line += &format!("; {} {median:.1}", party.name());
        }
        for (words, ours, theirs) in &self.extra {
            line += &format!("; {words} {} and {}", short(*ours), short(*theirs));
        }
        line
    }
}

/// Formats a number with about three digits: the measurements are not accurate enough for more.
fn short(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::MEASUREMENTS;
    use super::*;

    fn samples(name: &str, values: &[f64]) -> Vec<Sample> {
        values.iter().map(|value| Sample::from([(name.to_owned(), *value)])).collect()
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let figure = Figure::of(&samples("ns", &[9.0, 1.0, 3.0]), "ns").unwrap();
        assert_eq!((figure.median, figure.least, figure.most), (3.0, 1.0, 9.0));
        assert_eq!(Figure::of(&samples("ns", &[4.0, 1.0, 2.0, 9.0]), "ns").unwrap().median, 3.0);
        assert_eq!(Figure::of(&samples("ns", &[1.0]), "other"), None);
    }

    fn cycle(ours: &[f64], theirs: &[f64]) -> Result<Verdict> {
        let measurement = &MEASUREMENTS[0];
        let mut all: BTreeMap<Party, Vec<Sample>> = BTreeMap::new();
        all.insert(Party::Ours, samples("ns", ours));
        all.insert(Party::ClientGo, samples("ns", theirs));
        Verdict::new(measurement, &measurement.rows[0], Party::ClientGo, &all)
    }

    #[test]
    fn a_target_is_met_or_missed() {
        let met = cycle(&[75.0], &[150.0]).unwrap();
        assert!(met.complaint().is_none() && met.ratio() == 0.5);
        assert!(cycle(&[76.0], &[150.0]).unwrap().complaint().is_some());
    }

    #[test]
    fn a_missing_figure_is_an_error() {
        assert!(cycle(&[50.0], &[]).is_err());
        assert!(cycle(&[], &[50.0]).is_err());
    }

    #[test]
    fn zero_beside_zero_meets_target() {
        let verdict = cycle(&[0.0], &[0.0]).unwrap();
        assert_eq!((verdict.ratio(), verdict.met()), (0.0, true));
    }

    #[test]
    fn rows_without_target_have_own_name() {
        let named = |measurement: &&Measurement| measurement.rows[0].work == "store-add";
        let measurement = MEASUREMENTS.iter().find(named).unwrap();
        let mut all: BTreeMap<Party, Vec<Sample>> = BTreeMap::new();
        for (party, ns) in [(Party::Ours, 50.0), (Party::ClientGo, 150.0), (Party::Kube, 10.0)] {
            all.insert(party, samples("ns", &[ns]));
        }
        let verdict = |peer| Verdict::new(measurement, &measurement.rows[0], peer, &all).unwrap();
        let (asked, shown) = (verdict(Party::ClientGo), verdict(Party::Kube));
        assert_eq!((&*asked.work, &*shown.work), ("store-add", "store-add-kube"));
        assert!(asked.ratio() < 1.0 && shown.ratio() > 1.0 && shown.complaint().is_none());
    }

    #[test]
    fn a_row_has_the_agreed_fields() {
        let row: serde_json::Value = serde_json::from_str(&cycle(&[50.0], &[150.0]).unwrap().json()).unwrap();
        for field in ["work", "unit", "ours", "peer", "theirs", "ratio", "target"] {
            assert!(!row[field].is_null(), "{field}");
        }
    }
}
