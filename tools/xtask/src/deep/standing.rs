//! How far a part of a rung is from its bar, by the slices in the ledger.

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::Slice;
use super::rungs::{Bar, Part, Rung};

/// The work done for one part of a rung at one state of its sources.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// The work done for each item of the part.
    pub(super) counts: BTreeMap<String, u64>,
    /// The items of which nothing is left to do.
    complete: BTreeSet<String>,
    /// The time that all slices took.
    pub(super) seconds: u64,
    /// Whether the last slice failed.
    pub(super) failed: bool,
    /// The day of the last slice.
    pub(super) date: String,
    /// The note of the last slice.
    pub(super) note: String,
}

impl Standing {
    /// Sums up the slices of this part whose sources have this hash.
    pub(super) fn at(rung: &Rung, part: &Part, sources: &str, slices: &[Slice]) -> Self {
        let mut standing = Self { counts: zeros(part), ..Self::default() };
        for slice in slices.iter().filter(|slice| of(rung, part, slice) && slice.sources == sources) {
            standing.seconds += slice.seconds;
            standing.failed = !slice.passed;
            standing.date.clone_from(&slice.date);
            standing.note.clone_from(&slice.note);
            standing.complete.extend(slice.complete.iter().filter(|item| part.items.contains(item)).cloned());
            // An item that the part no longer has does not count.
            for (item, count) in &slice.counts {
                if let Some(sum) = standing.counts.get_mut(item) {
                    *sum = match rung.bar {
                        // An exploration goes on where the last slice stopped, and reports all that it has explored.
                        Bar::Explored => (*sum).max(*count),
                        Bar::Each(_) => *sum + count,
                    };
                }
            }
        }
        standing
    }

    /// The part of the bar that the item furthest behind has reached: 1 if every item has reached it.
    pub(super) fn reached(&self, bar: Bar) -> f64 {
        let share = |(item, count): (&String, &u64)| match bar {
            _ if self.complete.contains(item) => 1.0,
            Bar::Each(bar) => (*count as f64 / bar as f64).min(1.0),
            // A model that was not explored completely never counts as done, but one that was explored further comes later.
            Bar::Explored => 1.0 - 1.0 / (1.0 + *count as f64 / 1e6).sqrt(),
        };
        self.counts.iter().map(share).fold(1.0, f64::min)
    }

    /// Whether the item has reached its bar.
    pub(super) fn is_done(&self, item: &str, bar: Bar) -> bool {
        self.complete.contains(item)
            || match bar {
                Bar::Each(bar) => self.counts.get(item).is_some_and(|count| *count >= bar),
                Bar::Explored => false,
            }
    }

    /// The items that have not reached their bar, those with the least work first.
    pub(super) fn behind(&self, bar: Bar) -> Vec<String> {
        let mut items: Vec<_> = self.counts.iter().filter(|(item, _)| !self.is_done(item, bar)).collect();
        items.sort_by_key(|(item, count)| (**count, (*item).clone()));
        items.into_iter().map(|(item, _)| item.clone()).collect()
    }

    pub(super) fn done(&self, bar: Bar) -> usize {
        self.counts.keys().filter(|item| self.is_done(item, bar)).count()
    }

    pub(super) fn least(&self) -> u64 {
        self.counts.values().copied().min().unwrap_or(0)
    }

    pub(super) fn sum(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// The hash of the sources that the last slice of this part covered before they became what they are.
pub(super) fn before(rung: &Rung, part: &Part, sources: &str, slices: &[Slice]) -> Option<String> {
    let earlier = slices.iter().rev().find(|slice| of(rung, part, slice) && slice.sources != sources);
    earlier.map(|slice| slice.sources.clone())
}

fn of(rung: &Rung, part: &Part, slice: &Slice) -> bool {
    slice.rung == rung.name && slice.package == part.package
}

fn zeros(part: &Part) -> BTreeMap<String, u64> {
    part.items.iter().map(|item| (item.clone(), 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::ledger::sample;
    use super::super::rungs::sample as rung;
    use super::*;

    fn part() -> Part {
        Part { package: "a".to_owned(), items: vec!["x".to_owned(), "y".to_owned()] }
    }

    #[test]
    fn slices_at_the_same_sources_add_up() {
        let slices = [
            sample("r", "a", "1", &[("x", 40), ("y", 10)]),
            sample("r", "a", "2", &[("x", 5), ("gone", 7)]),
            sample("r", "b", "1", &[("x", 500)]),
            sample("other", "a", "1", &[("x", 500)]),
            sample("r", "a", "1", &[("x", 60)]),
        ];
        let rung = rung("r", Bar::Each(100));
        let standing = Standing::at(&rung, &part(), "1", &slices);
        assert_eq!((standing.sum(), standing.least(), standing.seconds), (110, 10, 120));
        assert_eq!((standing.reached(rung.bar), standing.done(rung.bar)), (0.1, 1));
        assert_eq!(standing.behind(rung.bar), ["y"]);
        assert_eq!(before(&rung, &part(), "1", &slices).as_deref(), Some("2"));
        let now = Standing::at(&rung, &part(), "2", &slices);
        assert_eq!((now.sum(), now.least()), (5, 0), "an item that is gone does not count");
        assert_eq!(before(&rung, &part(), "2", &slices[..1]).as_deref(), Some("1"));
        assert_eq!(before(&rung, &part(), "1", &slices[..1]), None);
    }

    #[test]
    fn an_exploration_reports_all_that_it_has_explored() {
        let mut slices =
            [sample("r", "a", "1", &[("x", 40), ("y", 10)]), sample("r", "a", "1", &[("y", 90)])];
        slices[1].complete.insert("y".to_owned());
        let rung = rung("r", Bar::Explored);
        let standing = Standing::at(&rung, &part(), "1", &slices);
        assert_eq!((standing.sum(), standing.done(rung.bar)), (130, 1));
        assert!(standing.reached(rung.bar) < 1.0);
        assert_eq!(standing.behind(rung.bar), ["x"]);
        slices[0].complete.insert("x".to_owned());
        assert_eq!(Standing::at(&rung, &part(), "1", &slices).reached(rung.bar), 1.0);
    }

    #[test]
    fn the_last_slice_says_whether_the_part_failed() {
        let mut slices = [sample("r", "a", "1", &[]), sample("r", "a", "1", &[])];
        slices[0].passed = false;
        let rung = rung("r", Bar::Each(1));
        assert!(!Standing::at(&rung, &part(), "1", &slices).failed);
        slices[1].passed = false;
        assert!(Standing::at(&rung, &part(), "1", &slices).failed);
    }
}
