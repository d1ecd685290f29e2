//! How often each key has failed.

use super::{Rule, Rules};

/// Keys are kept at least so long after a wait.
const SHORTEST_REST: u64 = 600_000_000_000;

/// A count for each key; those that failed last stand last.
#[derive(Clone, Debug)]
pub(super) struct Failures {
    keys: Vec<Count>,
    /// A key that has not failed for longer starts anew.
    idle: u64,
}

#[derive(Clone, Debug)]
struct Count {
    key: String,
    failures: u64,
    last: u64,
}

impl Failures {
    /// For waits of up to `longest`: a key is kept for that long, and a rest as long as that again.
    pub(super) fn new(longest: u64, rules: Rules) -> Self {
        let idle = longest.saturating_add(longest.max(SHORTEST_REST));
        Self { keys: Vec::new(), idle: if rules.has(Rule::FailuresExpire) { idle } else { u64::MAX } }
    }

    /// One more; returns how many there were before.
    ///
    /// Forgets lazily, at most two keys each time; until then they still show in `of`. A key that is in use starts its rest anew
    /// whenever it is looked at.
    pub(super) fn count(&mut self, key: &str, now: u64, in_use: &dyn Fn(&str) -> bool) -> u64 {
        let expired = |count: &Count| now - count.last > self.idle && !in_use(&count.key);
        let known = self.keys.iter().position(|count| count.key == key).map(|at| self.keys.remove(at));
        let before = known.as_ref().filter(|count| !expired(count)).map_or(0, |count| count.failures);
        let own = Count { key: key.to_owned(), failures: before + 1, last: now };
        // A key that is known is the newest before others are looked at; one that is not comes after.
        let (first, last) = if known.is_some() { (Some(own), None) } else { (None, Some(own)) };
        self.keys.extend(first);
        for _ in 0..2 {
            if self.keys.first().is_some_and(|oldest| now - oldest.last > self.idle) {
                let oldest = self.keys.remove(0);
                self.keys.extend(in_use(&oldest.key).then_some(Count { last: now, ..oldest }));
            }
        }
        self.keys.extend(last);
        before
    }

    pub(super) fn forget(&mut self, key: &str) {
        self.keys.retain(|count| count.key != key);
    }

    pub(super) fn of(&self, key: &str) -> u64 {
        self.keys.iter().find(|count| count.key == key).map_or(0, |count| count.failures)
    }
}
