//! PURE. The last steps of a store, for who asks what has changed since a version.
//!
//! An entry knows the store's version before and after its write. Whoever looked at version v has seen every write before the look; those
//! after it began at v or later. So the entries that `since(v)` gives are all that ended above v, and those that began and ended at v, of which nobody can
//! tell whether the look was before or after. (Objects may come with versions that the store has passed, so a write need not move it.)
//!
//! A list that takes the store back makes versions ambiguous up to the one before it: to those the log does not go back any more.
//!
//! # Invariants
//! 1. Entries are in the order of publication, at most `most`, each with a higher revision than the one before it, or the same: then they are of one write.
//! 2. Every step is an entry, or `lost` covers it: v is above `lost` only if every step that `since(v)` has to give is an entry.
//! 3. Likewise for the revision of a table: not below `passed` only if every later step is an entry.
//! 4. Of two entries in a row, the later write began where the earlier one ended, or above, or `lost` is not below where the earlier one ended. So above
//!    `lost`, what is missed since v is the end of the log.

use std::collections::VecDeque;
use std::hash::Hash;

use crate::due::Due;
use crate::pending::Pending;
use crate::step::Step;
use crate::{Change, HistoryError, Schema, Version};

/// The log of one store.
pub(crate) struct History<K, V> {
    entries: VecDeque<Entry<K, V>>,
    most: usize,
    lost: Option<Version>,
    passed: u64,
}

/// One step of one write.
pub(crate) struct Entry<K, V> {
    step: Step<K, V>,
    write: Write,
}

/// A write, as the table went through it.
#[derive(Clone, Copy)]
pub(crate) struct Write {
    pub(crate) before: Version,
    pub(crate) after: Version,
    /// Of the table after it.
    pub(crate) revision: u64,
}

impl Write {
    /// Nobody can tell whether who looked at the version looked before or after it.
    fn is_within(self, version: Version) -> bool {
        self.before == version && self.after == version
    }

    /// The latest version for which it would be missing. None for a write to the first version there is.
    fn missing_up_to(self) -> Option<Version> {
        match self.after > self.before {
            true => self.after.get().checked_sub(1).map(Version::new),
            // Or taken back: then for everything that was before.
            false => Some(self.before),
        }
    }
}

impl<K, V> History<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Self { entries: VecDeque::new(), most, lost: None, passed: 0 }
    }

    /// Notes a write that is being published. What is forgotten is dropped where no lock is held.
    pub(crate) fn note(&mut self, steps: &[Step<K, V>], write: Write, forgotten: &mut Vec<Entry<K, V>>) {
        if write.after < write.before {
            self.lost = self.lost.max(write.missing_up_to());
        }
        // Of a big one, only the end has room.
        let (skipped, kept) = steps.split_at(steps.len().saturating_sub(self.most));
        let room = self.most - kept.len();
        while self.entries.len() > room {
            let Some(entry) = self.entries.pop_front() else { break };
            self.passes(entry.write);
            forgotten.push(entry);
        }
        if !skipped.is_empty() {
            self.passes(write);
        }
        self.entries.extend(kept.iter().map(|step| Entry { step: step.clone(), write }));
    }

    fn passes(&mut self, write: Write) {
        self.lost = self.lost.max(write.missing_up_to());
        self.passed = self.passed.max(write.revision);
    }

    /// What has happened since somebody looked at `version`, in a store that is at `now`. What happened within the version is told again, so that
    /// it leads from either state to that after it.
    pub(crate) fn since(&self, version: Version, now: Version) -> Result<Vec<Step<K, V>>, HistoryError> {
        if version > now {
            return Err(HistoryError::Ahead { version: now });
        }
        if self.lost.is_some_and(|lost| version <= lost) {
            return Err(self.too_old());
        }
        let missed = self.entries_from(|write| write.after > version || write.is_within(version));
        Ok(missed.map(|entry| entry.step.again_if(entry.write.is_within(version))).collect())
    }

    /// What has happened since the table was at `revision`.
    pub(crate) fn after(&self, revision: u64) -> Result<Vec<Step<K, V>>, HistoryError> {
        if revision < self.passed {
            return Err(self.too_old());
        }
        let missed = self.entries_from(|write| write.revision > revision);
        Ok(missed.map(|entry| entry.step.clone()).collect())
    }

    /// From the first entry on whose write was missed: by invariant 4 so were all that follow. The writer waits for this, so it does not go
    /// through what is of no interest.
    fn entries_from(&self, missed: impl Fn(Write) -> bool) -> impl Iterator<Item = &Entry<K, V>> {
        self.entries.range(self.entries.partition_point(|entry| !missed(entry.write))..)
    }

    fn too_old(&self) -> HistoryError {
        let oldest = self.lost.map_or(Version::ZERO, |lost| Version::new(lost.get().saturating_add(1)));
        HistoryError::TooOld { oldest }
    }

    /// Walks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        let order = self.entries.iter().zip(self.entries.iter().skip(1));
        if self.entries.len() > self.most || order.clone().any(|(a, b)| a.write.revision > b.write.revision) {
            return Err(format!("history invariant 1: {} of {}", self.entries.len(), self.most));
        }
        if self.entries.iter().any(|entry| entry.write.revision < self.passed) {
            return Err("history invariant 3: an entry of what has passed".into());
        }
        let apart = |a: Write, b: Write| a.revision != b.revision && b.before < a.after;
        if order
            .clone()
            .any(|(a, b)| apart(a.write, b.write) && self.lost.is_none_or(|lost| lost < a.write.after))
        {
            return Err("history invariant 4: versions that went back and are not lost".into());
        }
        Ok(())
    }
}

/// Merges steps per key, as for a consumer that has heard of none of them. Compares and clones keys and asks for identities, so it belongs
/// outside every lock.
pub(crate) fn fold<K: Clone + Eq + Hash, V>(
    steps: &[Step<K, V>],
    schema: &Schema<K, V>,
) -> Vec<Change<K, V>> {
    let mut pending = Pending::new();
    for step in steps {
        let record = step.record();
        let found = pending.find(record.hash(), |key| key == record.key());
        drop(pending.merge(found, step));
    }
    let mut changes = Vec::with_capacity(pending.len());
    while let Some((_, state)) = pending.pop() {
        changes.extend(Due::Changed(state).changes(schema, None).into_iter().flatten());
    }
    changes
}
