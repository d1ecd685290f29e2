//! PURE. The definition of a typed index inside a store. It contains the functions of the index, but not the type of the values, which is erased.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use flyball_sync::panics::{DropContained, DropEach};

use super::{Function, Index, Label, LabelIndex};
use crate::table::definition::{Definition, ValuesFn, typed};
use crate::table::record::{AnyValue, IndexValue, Value, Values};
use crate::table::seed::Seed;
use crate::table::{Column, Group};

impl<V: 'static> Definition<V> {
    pub(crate) fn new<IK: Eq + Hash + Send + Sync + 'static>(index: &Index<V, IK>) -> Self {
        let values: Box<ValuesFn<V>> = match index.function.clone() {
            Function::One(value) => Box::new(move |column, row, object, seed| {
                let new = DropContained::new(value(object));
                match column.values_of(row).next() {
                    Some(old) if *typed::<IK>(old) == *new => Values::Kept,
                    _ => one(column, new, seed),
                }
            }),
            Function::Many(values) => {
                Box::new(move |column, row, object, seed| many(column, row, values(object), seed))
            }
            Function::Fallible(values) => Box::new(move |column, row, object, seed| match values(object) {
                Ok(values) => many(column, row, values, seed),
                Err(error) => Values::Failed(Arc::new(error)),
            }),
            Function::Capturing(values) => {
                Box::new(move |column, row, object, seed| many(column, row, values(object), seed))
            }
        };
        let equal = |a: &AnyValue, b: &AnyValue| typed::<IK>(a) == typed::<IK>(b);
        Self { id: index.id(), values: DropContained::new(values), equal, compare: index.compare }
    }

    pub(crate) fn labels(labels: LabelIndex<V>) -> Self {
        let values: Box<ValuesFn<V>> = Box::new(move |column, row, object, seed| {
            let known = || column.values_of(row).map(|known| typed::<Label>(known));
            many(column, row, labels.labels(object, known), seed)
        });
        Self {
            id: labels.id(),
            values: DropContained::new(values),
            equal: |a, b| typed::<Label>(a) == typed::<Label>(b),
            compare: Some(|a, b| typed::<Label>(a).cmp(typed::<Label>(b))),
        }
    }
}

/// Returns the only index value of an object.
fn one<IK: Eq + Hash + Send + Sync + 'static>(
    column: &Column,
    key: DropContained<IK>,
    seed: &Seed,
) -> Values {
    let hash = seed.hash_one(&*key);
    match column.find(hash, |known| *typed::<IK>(known) == *key) {
        Some(group) => {
            column.prefetch_rows(group);
            Values::Known(group)
        }
        None => Values::One(IndexValue { value: Arc::new(Value { hash, key }), group: None }),
    }
}

/// Returns the index's own copy of this value if the index contains the value; otherwise creates a new index value.
fn shared<IK: Eq + Hash + Send + Sync + 'static>(column: &Column, key: IK, seed: &Seed) -> IndexValue {
    let key = DropContained::new(key);
    let hash = seed.hash_one(&*key);
    match column.entry(hash, |known| *typed::<IK>(known) == *key) {
        Some((group, Group { value, .. })) => {
            let (value, group) = (value.clone(), Some(group));
            // `key` is dropped explicitly, because a panic in its destructor while the function returns would leak the return value.
            drop(key);
            IndexValue { value, group }
        }
        None => IndexValue { value: Arc::new(Value { hash, key }), group: None },
    }
}

/// Returns the new index values of an object, or `Kept` if they equal the values that the index has for the object's row.
fn many<IK: Eq + Hash + Send + Sync + 'static>(
    column: &Column,
    row: Option<u32>,
    values: Vec<IK>,
    seed: &Seed,
) -> Values {
    let values = DropEach::new(values);
    match is_same(column.values_of(row), values.as_slice()) {
        true => Values::Kept,
        false => distinct(column, values, seed),
    }
}

/// Returns whether `values` contains exactly the old values, each of them once, in any order. Returns `false` if both lists are empty: a row without
/// values may have an index error, which the write must clear.
fn is_same<'a, IK: Eq + 'static>(mut old: impl Iterator<Item = &'a Arc<AnyValue>>, values: &[IK]) -> bool {
    let mut left = [None; FEW];
    let mut count = 0;
    for (place, old) in left.iter_mut().zip(old.by_ref()) {
        *place = Some(typed::<IK>(old));
        count += 1;
    }
    // The old values are distinct, and each matches only one new value. So if a new value is repeated, its second occurrence finds no match.
    let take = |value| left[..count].iter_mut().any(|old| old.take_if(|old| *old == value).is_some());
    let is_complete = old.next().is_none();
    is_complete && count > 0 && count == values.len() && values.iter().all(take)
}

/// If a row has more old values than this, `is_same` does not compare them and returns `false`.
const FEW: usize = 16;

/// Sorts by hash and removes duplicates.
fn distinct<IK: Eq + Hash + Send + Sync + 'static>(
    column: &Column,
    values: DropEach<IK>,
    seed: &Seed,
) -> Values {
    let mut values: Vec<_> = values.map(|key| shared(column, key, seed)).collect();
    values.sort_by_key(|entry| entry.value.hash);
    let mut kept: Vec<IndexValue> = Vec::with_capacity(values.len());
    for entry in values {
        let value = &entry.value;
        let earlier = kept.iter().rev().map(|earlier| &earlier.value);
        let mut same_hash = earlier.take_while(|earlier| earlier.hash == value.hash);
        if !same_hash.any(|earlier| typed::<IK>(earlier) == typed::<IK>(value)) {
            kept.push(entry);
        }
    }
    Values::Many(kept)
}
