//! SHELL. What a controller did.
//!
//! | guarded by | |
//! |---|---|
//! | each [`Counter`] | an atomic, for itself; nothing is published by it. The report is made after all workers were joined; only a change that was being mapped when the events stopped may be counted too late for it |

use flyball_workqueue::Leftovers;

use crate::sync::{AtomicU64, Ordering};

/// What a controller did from its start until its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report<K> {
    /// Keys that changes were mapped to and that the queue took, those merged with a waiting one included.
    pub adds: u64,
    /// Reconciles that ended, well or not.
    pub reconciles: u64,
    /// Reconciles that returned an error.
    pub errors: u64,
    /// Reconciles that panicked.
    pub panics: u64,
    /// Reconciles that took too long.
    pub timeouts: u64,
    /// Failures that were conflicts; they are among the three above, too.
    pub conflicts: u64,
    /// Failures after which the key was given up.
    pub dead_letters: u64,
    /// Panics in mappers and other functions that were given to the controller; what they were called for was left out.
    pub hook_panics: u64,
    /// What the queue still held.
    pub leftovers: Leftovers<K>,
}

impl<K> Report<K> {
    /// Failures that were answered by a retry.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.errors + self.panics + self.timeouts - self.dead_letters
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn count(&self) {
        // Ordering: Relaxed, it counts and publishes nothing.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        // Ordering: Relaxed, the workers that count were joined before.
        self.0.load(Ordering::Relaxed)
    }
}

/// The report in the making, shared by the workers and mappers of a controller.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) adds: Counter,
    pub(crate) reconciles: Counter,
    pub(crate) errors: Counter,
    pub(crate) panics: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) dead_letters: Counter,
    pub(crate) hook_panics: Counter,
}

impl Tally {
    pub(crate) fn report<K>(&self, leftovers: Leftovers<K>) -> Report<K> {
        Report {
            adds: self.adds.read(),
            reconciles: self.reconciles.read(),
            errors: self.errors.read(),
            panics: self.panics.read(),
            timeouts: self.timeouts.read(),
            conflicts: self.conflicts.read(),
            dead_letters: self.dead_letters.read(),
            hook_panics: self.hook_panics.read(),
            leftovers,
        }
    }
}
