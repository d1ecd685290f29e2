//! Counts which pairs of cases occurred in the same random operation sequence, so that a test can require every pair.
//!
//! Many defects need a combination of two features, each of which is correct on its own. So a random test counts the cases that occur in each
//! operation sequence, and requires for each pair of cases that both occur together in enough sequences. This is pairwise coverage, with a count for
//! each pair.

use crate::coverage::events::Happened;

/// For each pair of cases, the number of sequences in which both occurred. Two cases named `option: value` with the same option exclude each other.
#[derive(Clone, Debug)]
pub struct PairCounts {
    names: &'static [&'static str],
    /// One count for each pair of names, at `low * names.len() + high`, where `low < high` are their positions in `names`.
    counts: Vec<u64>,
    sequences: u64,
}

impl PairCounts {
    /// Creates the counters of all pairs of the cases `names`, all zero.
    #[must_use]
    pub fn new(names: &'static [&'static str]) -> Self {
        Self { names, counts: vec![0; names.len() * names.len()], sequences: 0 }
    }

    /// Counts each pair of cases that occurred in one operation sequence.
    pub fn count_sequence(&mut self, happened: &Happened) {
        self.sequences += 1;
        let there: Vec<usize> = (0..self.names.len()).filter(|at| happened.did(self.names[*at])).collect();
        for (at, low) in there.iter().enumerate() {
            for high in &there[at + 1..] {
                self.counts[low * self.names.len() + high] += 1;
            }
        }
    }

    /// The number of counted operation sequences.
    #[must_use]
    pub fn sequences(&self) -> u64 {
        self.sequences
    }

    /// Returns the pairs that occurred in fewer than `floor` sequences, with their counts. Leaves out the pairs for which `never` returns true.
    #[must_use]
    pub fn below(
        &self,
        floor: u64,
        never: impl Fn(&str, &str) -> bool,
    ) -> Vec<(&'static str, &'static str, u64)> {
        let option = |name: &'static str| name.split_once(": ").map(|(option, _)| option);
        let mut rare = Vec::new();
        for (low, a) in self.names.iter().enumerate() {
            for (high, b) in self.names.iter().enumerate().skip(low + 1) {
                let count = self.counts[low * self.names.len() + high];
                let same_option = option(a).is_some() && option(a) == option(b);
                if count < floor && !same_option && !never(a, b) && !never(b, a) {
                    rare.push((*a, *b, count));
                }
            }
        }
        rare
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["list: plain", "list: paged", "gone", "panic"];

    #[test]
    fn names_each_pair_that_is_missing() {
        let mut pairs = PairCounts::new(NAMES);
        let sequence = |names: &[&'static str]| {
            let mut happened = Happened::new(NAMES);
            names.iter().for_each(|name| happened.hit(name));
            happened
        };
        pairs.count_sequence(&sequence(&["list: plain", "gone", "panic"]));
        pairs.count_sequence(&sequence(&["gone", "list: paged"]));
        let rare = pairs.below(1, |_, _| false);
        assert_eq!(rare, [("list: paged", "panic", 0)]);
        assert_eq!(pairs.below(1, |a, b| (a, b) == ("panic", "list: paged")), []);
        assert_eq!(pairs.below(2, |_, _| false).len(), 5);
        assert_eq!(pairs.sequences(), 2);
    }
}
