//! PURE. A relist is a diff: what turns the old table into the listed objects, and nothing for what stayed.
//!
//! | stored \ listed | not listed | same identity, same version | same identity, another version | another identity |
//! |---|---|---|---|---|
//! | nothing | | Added | Added | Added |
//! | an object | Deleted, missed | unchanged | Updated, even to an older version | Replaced |
//!
//! "Same version" needs a version: objects without one always count as updated. The list is complete by definition, so it
//! wins even when it is older: a server restored from a backup tells the truth about itself.
//!
//! # Invariants
//! 1. Deletions come first, then the rest in the order of the list.
//! 2. Every key gets at most one step.
//! 3. An unchanged object keeps its record, so its address in the store does not change.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::Schema;
use crate::record::Record;
use crate::step::{Last, Step};
use crate::table::Table;

/// What a listed object is to the stored one of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Unchanged,
    Updated,
    Replaced,
}

/// Judges a listed object; runs the user's identity function.
pub(crate) fn judge<K, V>(schema: &Schema<K, V>, old: &Record<K, V>, new: &Record<K, V>) -> Verdict {
    if !schema.same(&old.object, &new.object) {
        Verdict::Replaced
    } else if old.version == new.version && !new.version.is_none() {
        Verdict::Unchanged
    } else {
        Verdict::Updated
    }
}

/// The steps from `table` to exactly the `listed` records, whose keys are distinct. What remains in `listed` are
/// the records that are not needed, for objects that did not change.
///
/// `judge` is asked once for each listed object whose key is stored, by its place in the list. Equality of keys may panic; then
/// nothing has been taken out of `listed`. O(stored + listed).
pub(crate) fn diff<K: Eq + Hash, V>(
    table: &Table<K, V>,
    listed: &mut Vec<Arc<Record<K, V>>>,
    mut judge: impl FnMut(usize, &Arc<Record<K, V>>) -> Verdict,
) -> Vec<Step<K, V>> {
    let stored: Vec<_> = listed
        .iter()
        .enumerate()
        .map(|(at, new)| {
            let old = table.find(new.hash, |key| *key == new.key)?;
            Some((old.clone(), judge(at, old)))
        })
        .collect();
    // By address, so that finding the deleted ones compares no keys again.
    let kept: HashSet<_> = stored.iter().flatten().map(|(old, _)| Arc::as_ptr(old)).collect();
    let gone = table.records.iter().filter(|record| !kept.contains(&Arc::as_ptr(record)));
    let mut steps: Vec<_> = gone
        .map(|old| Step::Deleted {
            old: old.clone(),
            last: Last { object: old.object.clone(), missed: true },
        })
        .collect();
    let mut unchanged = Vec::new();
    for (new, stored) in listed.drain(..).zip(stored) {
        match stored {
            None => steps.push(Step::Added { new }),
            Some((_, Verdict::Unchanged)) => unchanged.push(new),
            Some((old, Verdict::Updated)) => steps.push(Step::Updated { old, new }),
            Some((old, Verdict::Replaced)) => steps.push(Step::Replaced { old, new }),
        }
    }
    *listed = unchanged;
    steps
}
