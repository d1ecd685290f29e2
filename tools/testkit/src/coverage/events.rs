//! Counts the cases that a random test has covered, so that the test can require all of them.

use std::collections::BTreeMap;

/// Counts of cases, by name.
#[derive(Clone, Debug)]
pub struct Happened {
    names: &'static [&'static str],
    counts: BTreeMap<&'static str, u64>,
}

impl Happened {
    /// Creates zero counts for all possible cases.
    #[must_use]
    pub const fn new(names: &'static [&'static str]) -> Self {
        Self { names, counts: BTreeMap::new() }
    }

    /// Counts a case. The name must be in the list of names, because [`below`](Self::below) reports only the cases of this list.
    pub fn hit(&mut self, name: &'static str) {
        debug_assert!(self.names.contains(&name), "{name} is not in the list of cases");
        *self.counts.entry(name).or_default() += 1;
    }

    /// Counts a case if it occurred.
    pub fn hit_if(&mut self, happened: bool, name: &'static str) {
        if happened {
            self.hit(name);
        }
    }

    /// Whether a case occurred.
    #[must_use]
    pub fn did(&self, name: &'static str) -> bool {
        self.counts.contains_key(name)
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            *self.counts.entry(name).or_default() += count;
        }
    }

    /// The cases that occurred fewer than `floor` times, with their counts.
    #[must_use]
    pub fn below(&self, floor: u64) -> Vec<(&'static str, u64)> {
        let counts = self.names.iter().map(|name| (*name, self.counts.get(name).copied().unwrap_or(0)));
        counts.filter(|(_, count)| *count < floor).collect()
    }
}
