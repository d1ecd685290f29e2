//! PURE. The state of a store: the objects, all indexes and the version. A table is a persistent data structure (a copy shares unchanged parts). A
//! write changes it in two steps.
//!
//! Every object has a **row**: a small number that no other object has. A vector maps rows to records, and a hash index maps keys to rows. Each index
//! maps every value to the rows that have it, and every row to its values. So each object is stored in only one place, regardless of the number of
//! indexes, and an update that keeps the index values changes only that place.
//!
//! **Plan, then commit.** Planning compares keys and index values. These comparisons are user code, which may panic, so planning does not change the
//! table. Committing runs no user code and cannot fail halfway. (Nor does the commit drop the values that it replaces: the caller has a reference to
//! them, or receives one.)
//!
//! # Invariants
//! 1. Keys are distinct, and a lookup of the hash and the key of a record finds its row.
//! 2. There is one column for each index of the index set. Each column obeys its own invariants, and contains exactly the rows that exist in the
//!    table.
//! 3. All persistent structures obey their own invariants.
//!
//! So the content of every index depends only on the stored objects, not on earlier writes. The exception is an index value whose comparison with
//! another value panics: which of the two objects has the error depends on the order of their writes, and it keeps the error until it changes.

use std::hash::Hash;
use std::sync::Arc;

use flyball_sync::panics::attempt;

use crate::table::index_set::IndexSet;
use crate::table::persist::{Hashes, NodeArc, Slab, prefetch};
use crate::table::record::{AllValues, AnyValue, Object, Record, Values};
use crate::table::seed::Seed;
use crate::{ChangeKind, IndexError, Version};

mod check;
mod column;
pub(crate) mod definition;
pub(crate) mod index_set;
pub(crate) mod persist;
mod plan;
pub(crate) mod record;
pub(crate) mod relist;
pub(crate) mod seed;

pub(crate) use column::{Column, Group, RowNumbers, Rows};
pub(crate) use plan::Plan;

/// The whole state of a store at one version. A clone costs O(indexes + objects / 2048); cloning an `Arc` of a table costs O(1).
pub(crate) struct Table<K, V> {
    pub(crate) index_set: Arc<IndexSet<V>>,
    pub(crate) version: Version,
    /// The number of key writes committed since the store was built.
    pub(crate) revision: u64,
    pub(crate) rows: Slab<Record<K, V>>,
    keys: Hashes,
    /// The columns, one for each index of the index set.
    pub(crate) columns: Vec<NodeArc<Column>>,
}

/// The write of one key. It is computed from a table, and committed to the same table; the table does not change in between.
pub(crate) struct KeyWrite<K, V> {
    pub(crate) kind: ChangeKind,
    /// The row of the stored object, if there is one.
    pub(crate) row: Option<u32>,
    /// The record to store; for a deletion, the last known state.
    pub(crate) record: Record<K, V>,
    /// The object's values in the indexes; empty for a deletion. In a write of many keys, these are [lasting](Table::lasting_values).
    pub(crate) values: AllValues,
}

/// Index values and errors that a commit removed from the table. These may be the last references to the values and errors, so they must be dropped
/// while no lock is held.
#[derive(Default)]
pub(crate) struct Garbage {
    pub(crate) values: Vec<Arc<AnyValue>>,
    pub(crate) errors: Vec<Arc<IndexError>>,
}

impl<K, V> Table<K, V> {
    pub(crate) fn new(index_set: Arc<IndexSet<V>>) -> Self {
        let columns = index_set.indexes.iter().map(|index| NodeArc::new(Column::new(index))).collect();
        Self {
            index_set,
            version: Version::ZERO,
            revision: 0,
            rows: Slab::new(),
            keys: Hashes::new(),
            columns,
        }
    }

    /// Returns the row whose key has this hash and satisfies `eq`.
    pub(crate) fn find(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> Option<u32> {
        Some(self.entry(hash, eq)?.0)
    }

    /// Returns the record whose key has this hash and satisfies `eq`.
    pub(crate) fn record(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> Option<&Record<K, V>> {
        Some(self.entry(hash, eq)?.1)
    }

    /// Returns the row and the record whose key has this hash and satisfies `eq`.
    #[inline]
    pub(crate) fn entry(&self, hash: u64, mut eq: impl FnMut(&K) -> bool) -> Option<(u32, &Record<K, V>)> {
        self.keys.find(hash, |row| {
            let record = self.rows.get(row)?;
            eq(record.key()).then_some((row, record))
        })
    }

    /// Prefetches what a lookup of this hash reads first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.keys.prefetch(hash);
    }

    /// Returns the object whose key has this hash and satisfies `eq`.
    pub(crate) fn object(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> Option<Arc<V>> {
        self.record(hash, eq).map(|record| Arc::clone(&record.object))
    }

    /// Like [`entry`](Self::entry), for a write: also prefetches what the write reads next. First, these are the record and the count of its leaf, and
    /// for each index the place that says which groups the row names; then, the object.
    ///
    /// The cache misses of the first ones overlap, and that of the object overlaps with that of the key. Without prefetches, most would follow one after
    /// the other: most index functions clone an `Arc`, and the atomic increment of a clone makes the CPU wait for all earlier loads. A load ahead of
    /// time is not enough, because the CPU waits for it, too, after a few hundred instructions (0042).
    #[inline]
    pub(crate) fn entry_to_write(
        &self,
        hash: u64,
        mut eq: impl FnMut(&K) -> bool,
    ) -> Option<(u32, &Record<K, V>)> {
        self.keys.find(hash, |row| {
            self.rows.prefetch_to_change(row);
            self.columns.iter().for_each(|column| column.prefetch(row));
            let record = self.rows.get(row)?;
            prefetch(&**record.object);
            eq(record.key()).then_some((row, record))
        })
    }

    /// Plans the changes that a write makes to the columns. The plan is valid only for this state of the table. Planning compares index values, and
    /// does not change the table. If a comparison panics, this becomes an index error of the object, which `write` then contains, so that one value that
    /// cannot be compared does not fail a whole list. What an earlier plan still holds, and what is removed from `write`, is moved to `garbage`.
    #[inline]
    pub(crate) fn plan(&self, write: &mut KeyWrite<K, V>, plan: &mut Plan, garbage: &mut Garbage)
    where
        V: 'static,
    {
        plan.clear(garbage);
        let KeyWrite { kind, row, values, .. } = write;
        if values.is_empty() && !kind.is_deletion() {
            return;
        }
        let mut next = 0;
        // One call of `attempt` for all columns; after a panic, another one for the remaining columns.
        while next < self.columns.len() {
            let outcome = attempt(|| {
                while let Some(column) = self.columns.get(next) {
                    let (at, index) = (next, &self.index_set.indexes[next]);
                    next += 1;
                    match values.get(at) {
                        None if kind.is_deletion() => plan.column(at, column, index, *row, None),
                        // The row already has these values.
                        None | Some(Values::Kept) => {}
                        values => plan.column(at, column, index, *row, values),
                    }
                }
            });
            if let Err(message) = outcome {
                next -= 1;
                plan.abandon(next, garbage);
                let failed = values.get_mut(next).expect("a removal does not fail if a comparison panics");
                let error = IndexError::new(format!("a comparison of index values panicked: {message}"));
                std::mem::replace(failed, Values::Failed(Arc::new(error))).discard(garbage);
            }
        }
    }

    /// Commits a plan, which must have been made for this write and for this table in its present state. `record` is the record of the write. Returns
    /// the row, the object that was stored under the key before and, for a deletion, `record`. These may be the last references to the user's objects, so the
    /// caller must drop them while no lock is held.
    pub(crate) fn commit(
        &mut self,
        (kind, row, record): (ChangeKind, Option<u32>, Record<K, V>),
        plan: &mut Plan,
        garbage: &mut Garbage,
    ) -> (u32, Option<Object<V>>, Option<Record<K, V>>) {
        self.revision += 1;
        let mut unused = None;
        let (row, old) = match row {
            Some(row) if kind.is_deletion() => {
                self.keys.remove(record.hash(), row);
                unused = Some(record);
                (row, self.rows.remove(row).map(|removed| removed.object))
            }
            Some(row) => {
                let Record { version, object, .. } = record;
                let old = self.rows.get_mut(row).map(|stored| {
                    stored.version = version;
                    std::mem::replace(&mut stored.object, object)
                });
                (row, old)
            }
            None => {
                let hash = record.hash();
                let row = self.rows.insert(record);
                self.keys.insert(hash, row);
                (row, None)
            }
        };
        plan.carry_out(&mut self.columns, row, garbage);
        (row, old, unused)
    }

    /// Returns the index values of an object that is to be stored in a row, or in a new row if `row` is `None`. Runs the user's functions, and
    /// compares index values. The result is valid only until a column changes. `all` is an empty list, whose memory is used again.
    pub(crate) fn values(&self, row: Option<u32>, object: &V, seed: &Seed, mut all: AllValues) -> AllValues
    where
        V: 'static,
    {
        let indexes = &self.index_set.indexes;
        let mut next = 0;
        // One call of `attempt` for all indexes; after a panic, another one for the remaining indexes.
        while next < indexes.len() {
            let outcome = attempt(|| {
                while let Some(index) = indexes.get(next) {
                    next += 1;
                    let values = index.read(&self.columns[next - 1], row, object, seed);
                    self.put_values(&mut all, next - 1, values);
                }
            });
            if let Err(message) = outcome {
                self.put_values(&mut all, next - 1, Values::of_panic(message));
            }
        }
        all
    }

    /// Sets the values of the index at position `at`, which must be greater than all positions that were set before.
    #[inline]
    fn put_values(&self, all: &mut AllValues, at: usize, values: Values) {
        if matches!(values, Values::Kept) {
            return;
        }
        all.reserve_exact(self.columns.len() - all.len());
        all.resize_with(at, || Values::Kept);
        all.push(values);
    }

    /// Like [`values`](Self::values), but the result stays valid when the columns change.
    pub(crate) fn lasting_values(&self, row: Option<u32>, object: &V, seed: &Seed) -> AllValues
    where
        V: 'static,
    {
        let mut all = self.values(row, object, seed, AllValues::new());
        all.iter_mut().zip(&self.columns).for_each(|(values, column)| column.make_lasting(values));
        all
    }

    /// Converts the index values of an object from the index set `before` to the index set of this table. If an index is in both sets, its function
    /// is not called again. Leaves the values of removed indexes in `new`.
    pub(crate) fn renew(
        &self,
        (before, new): (&IndexSet<V>, &mut AllValues),
        row: Option<u32>,
        object: &V,
        seed: &Seed,
    ) -> AllValues
    where
        V: 'static,
    {
        let indexes = self.columns.iter().zip(&self.index_set.indexes);
        let values = indexes.map(|(column, index)| match before.place(index) {
            Some(at) => new.get_mut(at).map_or(Values::Kept, |new| std::mem::replace(new, Values::Kept)),
            None => {
                let mut values = index.values(column, row, object, seed);
                column.make_lasting(&mut values);
                values
            }
        });
        values.collect()
    }

    /// Frees up to about `most` nodes of a table that is no longer needed, and drops the objects and index values in them. Returns whether all are
    /// freed; then dropping the table takes O(indexes). For nodes that another table shares, this only drops references. If a destructor panics,
    /// the next call continues. The table must not be used otherwise after the first call.
    pub(crate) fn free(&mut self, most: usize) -> bool {
        let mut most = self.keys.free(self.rows.free(most));
        while let Some(column) = self.columns.last_mut() {
            most = match NodeArc::get_mut(column) {
                Some(column) => column.free(most),
                None => most,
            };
            if most == 0 {
                return false;
            }
            self.columns.pop();
        }
        most > 0
    }

    /// Returns the memory of the table in bytes, without its columns and objects.
    pub(crate) fn bytes(&self) -> usize {
        let names = self.rows.len() * Record::<K, V>::NAME;
        size_of::<Self>() + self.rows.bytes() + self.keys.bytes() + names
    }

    /// Checks the invariants; O(objects × values).
    pub(crate) fn check(&self, hash_of: impl Fn(&K) -> u64) -> Result<(), String>
    where
        K: Eq + Hash,
        V: 'static,
    {
        check::check(self, hash_of)
    }
}

// `Clone` is not derived, because a derive would require `K: Clone` and `V: Clone`; a clone of a table shares the keys and the objects.
impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Self {
            index_set: self.index_set.clone(),
            version: self.version,
            revision: self.revision,
            rows: self.rows.clone(),
            keys: self.keys.clone(),
            columns: self.columns.clone(),
        }
    }
}
