//! PURE. Walks the invariants of a table.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::Table;
use crate::record::Record;

impl<K: Eq + Hash, V: 'static> Table<K, V> {
    /// Walks the invariants; O(objects × values).
    pub(crate) fn check(&self) -> Result<(), String> {
        self.records.check().map_err(|problem| format!("objects: {problem}"))?;
        self.failed.check().map_err(|problem| format!("failed: {problem}"))?;
        let mut keys = HashSet::new();
        for record in self.records.iter() {
            self.check_record(record)?;
            if !keys.insert(&record.key) {
                return Err("table invariant 1: two records of one key".into());
            }
        }
        let failed = self.records.iter().filter(|record| !record.failures.is_empty()).count();
        if self.failed.len() != failed {
            return Err(format!("table invariant 4: {failed} records failed, {} listed", self.failed.len()));
        }
        for column in 0..self.groups.len() {
            self.check_column(column)?;
        }
        Ok(())
    }

    fn check_record(&self, record: &Arc<Record<K, V>>) -> Result<(), String> {
        let found = self.find(record.hash, |key| *key == record.key);
        if record.hash != self.recipe.seed.hash_one(&record.key)
            || !found.is_some_and(|found| Arc::ptr_eq(found, record))
        {
            return Err("table invariant 1: a record that its key does not lead to".into());
        }
        if !record.labels.is_sorted_by_key(|label| (label.column, label.value.hash)) {
            return Err("record invariant 1: labels out of order".into());
        }
        for failure in &record.failures {
            if record.labels.iter().any(|label| label.column == failure.column) {
                return Err("record invariant 2: a column that failed has labels".into());
            }
        }
        let is_record = |other: &Arc<Record<K, V>>| Arc::ptr_eq(other, record);
        if !record.failures.is_empty() && self.failed.get(record.hash, is_record).is_none() {
            return Err("table invariant 4: a failure that is not listed".into());
        }
        for label in &record.labels {
            let group = self.groups[label.column]
                .get(label.value.hash, |group| Arc::ptr_eq(&group.value, &label.value))
                .ok_or("record invariant 3: a value without the group of its own")?;
            if group.records.get(record.hash, is_record).is_none() {
                return Err("table invariant 2: a record missing in a group".into());
            }
        }
        Ok(())
    }

    fn check_column(&self, column: usize) -> Result<(), String> {
        let index = &self.recipe.columns[column];
        let groups = &self.groups[column];
        groups.check().map_err(|problem| format!("index {}: {problem}", index.name))?;
        let mut members = 0;
        for group in groups.iter() {
            group.records.check().map_err(|problem| format!("a group of {}: {problem}", index.name))?;
            members += group.records.len();
            if group.records.is_empty() {
                return Err("table invariant 3: an empty group".into());
            }
            let found = self.group(column, group.value.hash, |value| index.equal(value, &group.value));
            if !found.is_some_and(|found| Arc::ptr_eq(&found.value, &group.value)) {
                return Err("table invariant 3: two groups of one value".into());
            }
        }
        // With invariant 2 checked from the records' side, equal numbers mean that no group holds more.
        let labels = self.records.iter().flat_map(|record| &record.labels);
        let labels = labels.filter(|label| label.column == column).count();
        match labels == members {
            true => Ok(()),
            false => Err(format!("table invariant 2: {labels} labels of {}, {members} members", index.name)),
        }
    }
}
