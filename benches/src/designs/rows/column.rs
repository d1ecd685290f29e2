//! One index. It numbers the distinct values, and maps each row to the number of its value, and each value to its rows.

use std::sync::Arc;

use super::hash_index::HashIndex;
use super::radix::{Leaf, Radix};
use super::row_set::RowSet;
use crate::designs::hash;

#[derive(Clone, Debug)]
pub(super) struct Column<const LOAD: usize> {
    numbers: Radix<Leaf<u32, 64>>,
    groups: Radix<Leaf<Option<Group>, 16>>,
    values: HashIndex<LOAD>,
    /// The smallest value number that was never used. Smaller numbers that no value has now are in `free`.
    end: u32,
    free: Arc<Vec<u32>>,
}

#[derive(Clone, Debug)]
struct Group {
    value: Arc<str>,
    hash: u64,
    rows: RowSet,
}

impl<const LOAD: usize> Column<LOAD> {
    /// The number of the value of a row.
    pub(super) fn number(&self, row: u32) -> u32 {
        self.numbers.get(row as usize / 64).expect("the row was never set").0[row as usize % 64]
    }

    pub(super) fn set_number(&mut self, row: u32, number: u32) {
        self.numbers.get_mut(row as usize / 64).0[row as usize % 64] = number;
    }

    /// The value of a row.
    pub(super) fn value(&self, row: u32) -> &str {
        &self.group(self.number(row)).expect("the row has no value").value
    }

    /// The rows with the given value.
    pub(super) fn rows(&self, hash: u64, value: &str) -> impl Iterator<Item = u32> {
        let group = self.find(hash, value).and_then(|number| self.group(number));
        group.into_iter().flat_map(|group| group.rows.iter())
    }

    /// Sets the value of a row.
    pub(super) fn join(&mut self, row: u32, value: &Arc<str>) {
        let hash = hash(value);
        let number = match self.find(hash, value) {
            Some(number) => {
                let group = self.group_mut(number).as_mut().expect("the found value has no group");
                group.rows.insert(row);
                number
            }
            None => {
                let number = self.vacant();
                *self.group_mut(number) = Some(Group { value: value.clone(), hash, rows: RowSet::One(row) });
                self.values.insert(hash, number);
                number
            }
        };
        self.set_number(row, number);
    }

    /// Removes the value of a row.
    pub(super) fn leave(&mut self, row: u32) {
        let number = self.number(row);
        let slot = self.group_mut(number);
        let group = slot.as_mut().expect("the row has no value");
        if group.rows.remove(row) {
            let hash = group.hash;
            *slot = None;
            self.values.remove(hash, number);
            Arc::make_mut(&mut self.free).push(number);
        }
    }

    fn vacant(&mut self) -> u32 {
        if self.free.is_empty() {
            self.end += 1;
            return self.end - 1;
        }
        Arc::make_mut(&mut self.free).pop().expect("not empty")
    }

    fn find(&self, hash: u64, value: &str) -> Option<u32> {
        self.values.find(hash, |number| {
            let group = self.group(number)?;
            (group.hash == hash && *group.value == *value).then_some(number)
        })
    }

    fn group(&self, number: u32) -> Option<&Group> {
        self.groups.get(number as usize / 16)?.0[number as usize % 16].as_ref()
    }

    fn group_mut(&mut self, number: u32) -> &mut Option<Group> {
        &mut self.groups.get_mut(number as usize / 16).0[number as usize % 16]
    }
}

impl<const LOAD: usize> Default for Column<LOAD> {
    fn default() -> Self {
        Self {
            numbers: Radix::default(),
            groups: Radix::default(),
            values: HashIndex::default(),
            end: 0,
            free: Arc::default(),
        }
    }
}
