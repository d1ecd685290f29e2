//! How often each key has failed.

use super::{Rule, Rules};

/// The minimum time for which a key is kept after its wait.
const SHORTEST_REST: u64 = 600_000_000_000;

/// The failure counts by key, ordered by the last failure.
#[derive(Clone, Debug)]
pub(super) struct Failures {
    keys: Vec<Count>,
    /// A key that has not failed for longer than this starts from zero failures.
    idle: u64,
}

#[derive(Clone, Debug)]
struct Count {
    key: String,
    failures: u64,
    last: u64,
}

impl Failures {
    /// Creates the counts for waits of up to `longest`. A key is kept for that time, plus a rest of the same length or of at least ten
    /// minutes.
    pub(super) fn new(longest: u64, rules: Rules) -> Self {
        let idle = longest.saturating_add(longest.max(SHORTEST_REST));
        Self { keys: Vec::new(), idle: if rules.has(Rule::FailuresExpire) { idle } else { u64::MAX } }
    }

    /// Counts a failure. Returns the number of earlier failures.
    ///
    /// Each call evicts at most two expired keys; until then, `of` still returns their failures. If an expired key is in use, its rest
    /// starts again when it is checked.
    pub(super) fn count(&mut self, key: &str, now: u64, in_use: &dyn Fn(&str) -> bool) -> u64 {
        let expired = |count: &Count| now - count.last > self.idle && !in_use(&count.key);
        let known = self.keys.iter().position(|count| count.key == key).map(|at| self.keys.remove(at));
        let before = known.as_ref().filter(|count| !expired(count)).map_or(0, |count| count.failures);
        let own = Count { key: key.to_owned(), failures: before + 1, last: now };
        // A known key becomes the newest before the expired keys are checked, a new key after that.
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
