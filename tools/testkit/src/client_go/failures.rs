//! How often each key has failed.

use super::{Rule, Rules};

/// The minimum time in nanoseconds for which the failures of a key are kept after its wait.
const SHORTEST_REST: u64 = 600_000_000_000;

/// The failure counts by key, ordered by the last failure.
#[derive(Clone, Debug)]
pub(super) struct Failures {
    keys: Vec<Count>,
    /// The failures of a key that is not in use expire after this time without a failure, in nanoseconds.
    idle: u64,
}

#[derive(Clone, Debug)]
struct Count {
    key: String,
    failures: u64,
    last: u64,
}

impl Failures {
    /// Creates the counts for waits of up to `longest`. With [`Rule::FailuresExpire`], the failures of a key are kept for `longest` plus the larger
    /// of `longest` and ten minutes; otherwise they never expire.
    pub(super) fn new(longest: u64, rules: Rules) -> Self {
        let idle = longest.saturating_add(longest.max(SHORTEST_REST));
        Self { keys: Vec::new(), idle: if rules.has(Rule::FailuresExpire) { idle } else { u64::MAX } }
    }

    /// Counts a failure. Returns the number of earlier failures.
    ///
    /// Each call evicts at most two expired keys; until its eviction, `of` still returns the failures of an expired key. An expired key that is in
    /// use is not evicted: its time without a failure starts again at `now`.
    pub(super) fn count(&mut self, key: &str, now: u64, in_use: &dyn Fn(&str) -> bool) -> u64 {
        let expired = |count: &Count| now - count.last > self.idle && !in_use(&count.key);
        let known = self.keys.iter().position(|count| count.key == key).map(|at| self.keys.remove(at));
        let before = known.as_ref().filter(|count| !expired(count)).map_or(0, |count| count.failures);
        let own = Count { key: key.to_owned(), failures: before + 1, last: now };
        // A known key moves to the end of the list before the expired keys are evicted; a new key is appended after the eviction.
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
