//! Counts how often each case occurred in a random test, so that the test can require that every case occurred.

use std::collections::BTreeMap;

/// Counts of cases, by name.
#[derive(Clone, Debug)]
pub struct Happened {
    names: &'static [&'static str],
    counts: BTreeMap<&'static str, u64>,
}

impl Happened {
    /// Creates the counters of the cases `names`, all zero.
    #[must_use]
    pub const fn new(names: &'static [&'static str]) -> Self {
        Self { names, counts: BTreeMap::new() }
    }

    /// Counts one occurrence of a case. Its name must be one of the names given to [`new`](Self::new), because [`below`](Self::below) reports only
    /// those.
    pub fn hit(&mut self, name: &'static str) {
        debug_assert!(self.names.contains(&name), "{name} is not in the list of cases");
        *self.counts.entry(name).or_default() += 1;
    }

    /// Counts one occurrence of a case if `happened` is true.
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

    /// Returns the cases that occurred fewer than `floor` times, with their counts.
    #[must_use]
    pub fn below(&self, floor: u64) -> Vec<(&'static str, u64)> {
        let counts = self.names.iter().map(|name| (*name, self.counts.get(name).copied().unwrap_or(0)));
        counts.filter(|(_, count)| *count < floor).collect()
    }
}
