//! PURE. Checks the invariants of a table.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use super::column::{Named, number};
use super::{Column, Table};
use crate::table::definition::Definition;

pub(super) fn check<K: Eq + Hash, V: 'static>(
    table: &Table<K, V>,
    hash_of: impl Fn(&K) -> u64,
) -> Result<(), String> {
    table.rows.check().map_err(|problem| format!("objects: {problem}"))?;
    let hash = |row| table.rows.get(row).map(|record| record.hash());
    table.keys.check(hash).map_err(|problem| format!("keys: {problem}"))?;
    let mut keys = HashSet::new();
    for (row, record) in table.rows.iter() {
        let found = table.find(record.hash(), |key| key == record.key());
        if record.hash() != hash_of(record.key()) || found != Some(row) {
            return Err("table invariant 1: a key does not lead to its record".into());
        }
        if !keys.insert(record.key()) {
            return Err("table invariant 1: a key has two records".into());
        }
    }
    if table.columns.len() != table.index_set.indexes.len() {
        return Err("table invariant 2: columns and indexes differ".into());
    }
    for (column, index) in table.columns.iter().zip(&table.index_set.indexes) {
        let is_row = |row| table.rows.get(row).is_some();
        check_column(column, index, is_row)
            .map_err(|problem| format!("index {}: {problem}", index.id.name))?;
    }
    Ok(())
}

fn check_column<V: 'static>(
    column: &Column,
    index: &Definition<V>,
    is_row: impl Fn(u32) -> bool,
) -> Result<(), String> {
    column.groups.check()?;
    column.values.check(|number| column.group(number).map(|group| group.value.hash))?;
    column.failed.check()?;
    let mut members = 0;
    for (at, group) in column.groups.iter() {
        let found = column.find(group.value.hash, |value| index.equal(value, &group.value));
        if found != Some(at) {
            return Err("column invariant 1: a value has two groups".into());
        }
        if let super::Rows::Many(rows) = &group.rows {
            rows.check()?;
            if rows.len() < 2 {
                return Err("column invariant 2: a list of less than two rows".into());
            }
        }
        let rows: Vec<_> = group.rows.iter().collect();
        if !rows.is_sorted_by(|a, b| a < b) || !rows.iter().all(|row| is_row(*row)) {
            return Err("column invariant 2: rows are out of order or absent".into());
        }
        if !rows.iter().all(|row| column.groups_of(*row).any(|named| named == at)) {
            return Err("column invariant 2: a row in a group that it does not name".into());
        }
        members += rows.len();
        let violates =
            column.violated.as_ref().map(|violated| violated.search(|other| other.cmp(&at)).is_ok());
        if violates.is_some_and(|listed| listed != (rows.len() > 1)) {
            return Err("column invariant 4: the list of violations does not match the groups".into());
        }
    }
    let (named, vector) = match &column.named {
        Named::One(named) => (named.len(), named.check()),
        Named::Many(named) => {
            let sorted = |names: &Arc<[_]>| names.is_sorted_by(|a, b| a < b) && !names.is_empty();
            if !named.iter().all(|(_, names)| sorted(names)) {
                return Err("column invariant 2: names out of order".into());
            }
            let all = named.iter().flat_map(|(_, names)| names.iter());
            if !all.clone().all(|name| column.group(number(*name)).is_some()) {
                return Err("column invariant 2: a name of an absent group".into());
            }
            (all.count(), named.check())
        }
    };
    vector?;
    // The check of the groups above showed that every row in a group names this group. So if the rows name as many groups in total as the groups have
    // rows in total, then no row names a group that does not contain it.
    if named != members {
        return Err(format!("column invariant 2: {named} names, {members} members"));
    }
    if let (Some(order), Some(compare)) = (&column.order, index.compare) {
        order.check()?;
        let groups: Vec<_> = order.iter().filter_map(|number| column.group(number)).collect();
        let sorted = groups.is_sorted_by(|a, b| compare(&a.value, &b.value).is_lt());
        if !sorted || groups.len() != column.groups.len() || order.len() != groups.len() {
            return Err("column invariant 3: groups out of order".into());
        }
    }
    if column.violated.as_ref().is_some_and(|violated| {
        violated.check().is_err() || violated.iter().any(|number| column.group(number).is_none())
    }) {
        return Err("column invariant 4: a violation of an absent group".into());
    }
    for (row, _) in column.failed.iter() {
        if !is_row(row) || column.groups_of(row).len() > 0 {
            return Err("column invariant 5: a failed row names groups or is absent".into());
        }
    }
    Ok(())
}
