//! PURE. A relist is a diff: what turns the stored objects into the listed ones, and nothing for what stayed.
//!
//! | stored \ listed | not listed | same identity, same version | same identity, another version | another identity |
//! |---|---|---|---|---|
//! | nothing | | Added | Added | Added |
//! | an object | Deleted, missed | unchanged | Updated, even to an older version | Replaced |
//!
//! "Same version" needs a version, and the same content by the schema: objects without a version always count as updated. The list is complete by definition, so it
//! wins even when it is older: a server restored from a backup tells the truth about itself.
//!
//! A list is judged page by page beside the table there was when it began, its **base**: what did not change is one bit and its place in the
//! list, and the new object goes at once. Should others write meanwhile, what they touched is compared again with the table there is.
//!
//! # Invariants
//! 1. Deletions come first, then the rest in the order of the list.
//! 2. Every key gets at most one step.
//! 3. An unchanged object keeps its record, so its address in the store does not change.

use std::hash::Hash;
use std::sync::Arc;

use crate::Schema;
use crate::persist::Bits;
use crate::recipe::Drafted;
use crate::record::{Record, Values};
use crate::seed::Seed;
use crate::step::{Last, Step};
use crate::table::{Side, Table};

/// What a listed object is to the stored one of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Unchanged,
    Updated,
    Replaced,
}

/// Judges a listed object; runs the user's functions for identity and content.
pub(crate) fn judge<K, V>(schema: &Schema<K, V>, old: &Record<K, V>, new: &Record<K, V>) -> Verdict {
    if !schema.same(&old.object, &new.object) {
        Verdict::Replaced
    } else if old.version == new.version
        && !new.version.is_none()
        && schema.same_content(&old.object, &new.object)
    {
        Verdict::Unchanged
    } else {
        Verdict::Updated
    }
}

/// A listed object that is not simply the stored one.
pub(crate) struct Listed<K, V> {
    pub(crate) record: Record<K, V>,
    pub(crate) drafted: Drafted<V>,
    /// The row of its key in the base, if there is one, and what it is to that.
    pub(crate) stored: Option<(u32, Verdict)>,
    /// Its place in the list: that of the first object of its key.
    pub(crate) place: u32,
}

/// A complete list beside its base.
pub(crate) struct List<K, V> {
    pub(crate) base: Arc<Table<K, V>>,
    /// The rows of the base that are listed as they are, and the place in the list of each row's key.
    pub(crate) unchanged: Bits,
    pub(crate) places: Vec<u32>,
    /// The others; their keys are distinct, and none is of an unchanged row.
    pub(crate) listed: Vec<Listed<K, V>>,
    /// Former bases. The last to hold one drops objects, so they are kept until no lock is held.
    past: Vec<Arc<Table<K, V>>>,
}

/// The indexes have become others since the list was begun.
pub(crate) struct OtherRecipe;

impl<K: Eq + Hash, V: 'static> List<K, V> {
    pub(crate) fn new(base: Arc<Table<K, V>>) -> Self {
        let end = base.rows.end();
        let (unchanged, places) = (Bits::new(end), vec![0; end as usize]);
        // An index that is being added counts as one that comes later.
        let known = base.without_coming();
        Self { base: known, unchanged, places, listed: Vec::new(), past: vec![base] }
    }

    /// Compares the list with another table: anew, where that is not what the base is.
    ///
    /// Equality of keys may panic; then the list is of no use, but nothing has been dropped. O(listed), and O(base) pointers compared.
    pub(crate) fn rebase(
        &mut self,
        table: &Arc<Table<K, V>>,
        judge: impl Fn(&Record<K, V>, &Record<K, V>) -> Verdict,
    ) -> Result<(), OtherRecipe> {
        if Arc::ptr_eq(table, &self.base) {
            return Ok(());
        }
        if !Arc::ptr_eq(&table.recipe, &self.base.recipe) {
            return Err(OtherRecipe);
        }
        let find = |record: &Record<K, V>| {
            let row = table.find(record.hash(), |key| key == record.key())?;
            Some((row, judge(table.rows.get(row)?, record)))
        };
        for listed in &mut self.listed {
            let untouched = listed
                .stored
                .is_some_and(|(row, _)| self.base.rows.get(row).is_some_and(|stored| table.has(row, stored)));
            if !untouched {
                listed.stored = find(&listed.record);
                listed.drafted.values.iter_mut().for_each(Values::let_go);
            }
        }
        let end = table.rows.end();
        let (mut unchanged, mut places) = (Bits::new(end), vec![0; end as usize]);
        let base = self.base.clone();
        for (row, record) in base.rows.iter().filter(|(row, _)| self.unchanged.has(*row)) {
            let place = self.places[row as usize];
            let stored = match table.has(row, record) {
                true => Some((row, Verdict::Unchanged)),
                false => find(record),
            };
            match stored {
                Some((row, Verdict::Unchanged)) => {
                    unchanged.set(row);
                    places[row as usize] = place;
                }
                // Somebody took it away, or changed it: the list says that it is there as it was.
                stored => {
                    let (record, drafted) = (record.clone(), base.drafted(row));
                    self.listed.push(Listed { record, drafted, stored, place });
                }
            }
        }
        (self.unchanged, self.places) = (unchanged, places);
        self.past.push(std::mem::replace(&mut self.base, table.clone()));
        self.past.push(base);
        Ok(())
    }

    /// Gives the list the indexes of another table. Everything is listed from then on. An index function runs only about what that table does
    /// not store: an index that was added has asked about every stored object already.
    pub(crate) fn renew(&mut self, table: &Table<K, V>, seed: &Seed) {
        for (row, record) in self.base.rows.iter().filter(|(row, _)| self.unchanged.has(*row)) {
            self.listed.push(Listed {
                record: record.clone(),
                drafted: self.base.drafted(row),
                stored: Some((row, Verdict::Unchanged)),
                place: self.places[row as usize],
            });
        }
        self.unchanged = Bits::new(self.base.rows.end());
        for Listed { record, drafted, stored, .. } in &mut self.listed {
            let row = stored.map(|(row, _)| row).filter(|row| table.has(*row, record));
            let stored = |index| table.values_in(index, row?);
            drafted.renew(&table.recipe, &record.object, stored, seed);
        }
        let mut base = Table::clone(&self.base);
        base.recipe = table.recipe.clone();
        self.past.push(std::mem::replace(&mut self.base, Arc::new(base)));
    }

    /// The steps from the base to exactly the list, which is taken apart. Runs no foreign code. O(listed), and O(base) for what is gone.
    pub(crate) fn steps(&mut self) -> (Vec<Step<K, V>>, Vec<Side<V>>) {
        let mut kept = self.unchanged.clone();
        let stored = self.listed.iter().filter_map(|listed| listed.stored);
        stored.for_each(|(row, _)| kept.set(row));
        let gone = self.base.rows.iter().filter(|(row, _)| !kept.has(*row));
        let (mut steps, mut sides): (Vec<_>, Vec<_>) = gone
            .map(|(row, old)| {
                let last = Last { object: old.object.clone(), missed: true };
                (
                    Step::Deleted { old: old.clone(), last },
                    Side { row: Some(row), drafted: None, judged: self.base.revision },
                )
            })
            .unzip();
        self.listed.sort_by_key(|listed| listed.place);
        for at in 0..self.listed.len() {
            let Listed { record, stored, .. } = &self.listed[at];
            let new = record.clone();
            let old = stored.and_then(|(row, verdict)| Some((self.base.rows.get(row)?.clone(), verdict)));
            let step = match old {
                Some((_, Verdict::Unchanged)) => continue,
                Some((old, Verdict::Updated)) => Step::Updated { old, new },
                Some((old, Verdict::Replaced)) => Step::Replaced { old, new },
                // Whoever publishes it knows whether it is the first list.
                None => Step::Added { new, initial: false },
            };
            let row = stored.map(|(row, _)| row);
            let drafted = self.listed[at].drafted.take();
            steps.push(step);
            sides.push(Side { row, drafted: Some(drafted), judged: self.base.revision });
        }
        (steps, sides)
    }
}
