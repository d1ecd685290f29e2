//! Counts the failures of each key.

use super::{Rule, Rules};

/// After the wait of a failed key has ended, its failure count is kept for at least this number of nanoseconds.
const SHORTEST_REST: u64 = 600_000_000_000;

/// The failure count of each key, ordered by the time of the last failure, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Failures {
    keys: Vec<Count>,
    /// If a key is not in use and does not fail for this time, its failure count expires. In nanoseconds.
    idle: u64,
}

#[derive(Clone, Debug)]
struct Count {
    key: String,
    failures: u64,
    last: u64,
}

impl Failures {
    /// Creates an empty list of counts, for a limiter whose longest wait is `longest`. With [`Rule::FailuresExpire`], the failure count of a key is
    /// kept for `longest` plus the larger of `longest` and ten minutes; without it, a count never expires.
    pub(super) fn new(longest: u64, rules: Rules) -> Self {
        let idle = longest.saturating_add(longest.max(SHORTEST_REST));
        Self { keys: Vec::new(), idle: if rules.has(Rule::FailuresExpire) { idle } else { u64::MAX } }
    }

    /// Counts a failure. Returns the number of earlier failures.
    ///
    /// Each call evicts at most two expired keys. Until an expired key is evicted, [`of`](Self::of) still returns its failure count. If an expired
    /// key is in use, it is not evicted, and the time until it expires starts again at `now`.
    pub(super) fn count(&mut self, key: &str, now: u64, in_use: &dyn Fn(&str) -> bool) -> u64 {
        let expired = |count: &Count| now - count.last > self.idle && !in_use(&count.key);
        let known = self.keys.iter().position(|count| count.key == key).map(|at| self.keys.remove(at));
        let before = known.as_ref().filter(|count| !expired(count)).map_or(0, |count| count.failures);
        let own = Count { key: key.to_owned(), failures: before + 1, last: now };
        // A key that is already in the list moves to its end before the expired keys are evicted. A new key is appended after the eviction.
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
