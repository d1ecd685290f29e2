//! Which two things have happened in one random life, so that a test may ask for every pair.
//!
//! Most defects sit between two features that are each right alone. So a random test says what came about in each of its lives, and asserts that each two
//! of these things came about in one life often enough: a pairwise covering table that is counted, and fails where a pair is missing.

use crate::coverage::events::Happened;

/// Counts of pairs, by name. A name of the form `option: value` excludes the other values of its option.
#[derive(Clone, Debug)]
pub struct Together {
    names: &'static [&'static str],
    /// One count for each two names, the lower one first.
    counts: Vec<u64>,
    lives: u64,
}

impl Together {
    /// No life so far, of what may happen.
    #[must_use]
    pub fn new(names: &'static [&'static str]) -> Self {
        Self { names, counts: vec![0; names.len() * names.len()], lives: 0 }
    }

    /// Counts what happened in one life.
    pub fn life(&mut self, happened: &Happened) {
        self.lives += 1;
        let there: Vec<usize> = (0..self.names.len()).filter(|at| happened.did(self.names[*at])).collect();
        for (at, low) in there.iter().enumerate() {
            for high in &there[at + 1..] {
                self.counts[low * self.names.len() + high] += 1;
            }
        }
    }

    /// The lives that were counted.
    #[must_use]
    pub fn lives(&self) -> u64 {
        self.lives
    }

    /// The pairs that came about in fewer lives, but for those that `never` says cannot.
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
        let mut together = Together::new(NAMES);
        let life = |names: &[&'static str]| {
            let mut happened = Happened::new(NAMES);
            names.iter().for_each(|name| happened.hit(name));
            happened
        };
        together.life(&life(&["list: plain", "gone", "panic"]));
        together.life(&life(&["gone", "list: paged"]));
        let rare = together.below(1, |_, _| false);
        assert_eq!(rare, [("list: paged", "panic", 0)]);
        assert_eq!(together.below(1, |a, b| (a, b) == ("panic", "list: paged")), []);
        assert_eq!(together.below(2, |_, _| false).len(), 5);
        assert_eq!(together.lives(), 2);
    }
}
