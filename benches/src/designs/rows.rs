//! Design 4: numbered rows under a hash index, like tables of a database.
//!
//! An object is stored in a row of a persistent vector of fixed depth, and found by the row number. A hash index of
//! integers maps 32 bits of a key's hash to the row. An index value is a number: each row stores one per index, and
//! each value has a set of rows. So everything except the rows consists of plain integers, which are copied byte by
//! byte, and an update that keeps the index values copies only the path to its row.
//!
//! Not implemented: several index values per row, and shrinking of vectors and pages.

use std::sync::Arc;

use super::{Design, Entry, INDEXES, Pod, hash};

mod column;
mod hash_index;
mod radix;
mod row_set;

use column::Column;
use hash_index::HashIndex;
use radix::{Leaf, Radix};

/// No row.
const NONE: u32 = u32::MAX;

/// One stored object.
#[derive(Debug)]
pub struct Record {
    hash: u64,
    pod: Arc<Pod>,
}

/// The store. `LEAF` is the number of rows that are copied together; `LOAD` is the average number of keys per page of
/// the hash index.
#[derive(Clone, Debug)]
pub struct Rows<const LEAF: usize, const LOAD: usize> {
    rows: Radix<Leaf<Option<Arc<Record>>, LEAF>>,
    keys: HashIndex<LOAD>,
    columns: [Column<LOAD>; INDEXES],
    /// The number of rows ever allocated.
    end: u32,
    /// The head of the list of free rows. The links of this list are stored in the first column.
    free: u32,
}

impl<const LEAF: usize, const LOAD: usize> Rows<LEAF, LOAD> {
    fn record(&self, row: u32) -> Option<&Arc<Record>> {
        self.rows.get(row as usize / LEAF)?.0[row as usize % LEAF].as_ref()
    }

    fn slot(&mut self, row: u32) -> &mut Option<Arc<Record>> {
        &mut self.rows.get_mut(row as usize / LEAF).0[row as usize % LEAF]
    }

    fn find(&self, hash: u64, key: &str) -> Option<(u32, &Arc<Record>)> {
        self.keys.find(hash, |row| {
            let record = self.record(row)?;
            (record.hash == hash && *record.pod.key == *key).then_some((row, record))
        })
    }

    /// Returns a row without an object.
    fn vacant(&mut self) -> u32 {
        if self.free == NONE {
            self.end += 1;
            return self.end - 1;
        }
        let row = self.free;
        self.free = self.columns[0].number(row);
        row
    }
}

impl<const LEAF: usize, const LOAD: usize> Design for Rows<LEAF, LOAD> {
    type Old = Arc<Record>;

    fn upsert(&mut self, Entry { hash, pod }: Entry) -> Option<Arc<Record>> {
        let row = match self.find(hash, &pod.key) {
            Some((row, _)) => {
                for (column, value) in self.columns.iter_mut().zip(&pod.values) {
                    if column.value(row) != &**value {
                        column.leave(row);
                        column.join(row, value);
                    }
                }
                row
            }
            None => {
                let row = self.vacant();
                self.keys.insert(hash, row);
                for (column, value) in self.columns.iter_mut().zip(&pod.values) {
                    column.join(row, value);
                }
                row
            }
        };
        self.slot(row).replace(Arc::new(Record { hash, pod }))
    }

    fn remove(&mut self, hash: u64, key: &str) -> Option<Arc<Record>> {
        let (row, _) = self.find(hash, key)?;
        self.keys.remove(hash, row);
        for column in &mut self.columns {
            column.leave(row);
        }
        self.columns[0].set_number(row, self.free);
        self.free = row;
        self.slot(row).take()
    }

    fn get(&self, hash: u64, key: &str) -> Option<&Arc<Pod>> {
        self.find(hash, key).map(|(_, record)| &record.pod)
    }

    fn by_index<'a>(&'a self, index: usize, value: &str) -> impl Iterator<Item = &'a Arc<Pod>> {
        let rows = self.columns[index].rows(hash(value), value);
        rows.filter_map(|row| self.record(row)).map(|record| &record.pod)
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.rows.iter().flat_map(|leaf| leaf.0.iter().flatten()).map(|record| &record.pod)
    }
}

impl<const LEAF: usize, const LOAD: usize> Default for Rows<LEAF, LOAD> {
    fn default() -> Self {
        Self {
            rows: Radix::default(),
            keys: HashIndex::default(),
            columns: std::array::from_fn(|_| Column::default()),
            end: 0,
            free: NONE,
        }
    }
}
