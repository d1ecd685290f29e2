//! What a random test has come by, so that it may ask for all of it.

use std::collections::BTreeMap;

/// Counts of what happened, by name.
#[derive(Clone, Debug)]
pub struct Happened {
    names: &'static [&'static str],
    counts: BTreeMap<&'static str, u64>,
}

impl Happened {
    /// Nothing has, of all that may.
    #[must_use]
    pub const fn new(names: &'static [&'static str]) -> Self {
        Self { names, counts: BTreeMap::new() }
    }

    /// Counts it. It must be among the names, or nobody would miss it.
    pub fn hit(&mut self, name: &'static str) {
        debug_assert!(self.names.contains(&name), "{name} is not waited for");
        *self.counts.entry(name).or_default() += 1;
    }

    /// Counts it if it did happen.
    pub fn hit_if(&mut self, happened: bool, name: &'static str) {
        if happened {
            self.hit(name);
        }
    }

    /// Whether it happened.
    #[must_use]
    pub fn did(&self, name: &'static str) -> bool {
        self.counts.contains_key(name)
    }

    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            *self.counts.entry(name).or_default() += count;
        }
    }

    /// What happened less often, and how often it did.
    #[must_use]
    pub fn below(&self, floor: u64) -> Vec<(&'static str, u64)> {
        let counts = self.names.iter().map(|name| (*name, self.counts.get(name).copied().unwrap_or(0)));
        counts.filter(|(_, count)| *count < floor).collect()
    }
}
