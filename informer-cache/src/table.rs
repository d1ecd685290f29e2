//! PURE. The objects, all indexes and the version: one persistent value, changed in two steps.
//!
//! Every object has a **row**, a small number of its own. The records lie in a vector by row; keys lead to rows by hash;
//! each index knows, for every value, the rows that have it, and for every row, its values. So a version of an object is held in one
//! place, whatever the indexes, and a new version with the same values changes one place.
//!
//! **Plan, then commit.** Planning may run the equality and the order of keys and index values, which are the user's and may
//! panic; it changes nothing. Committing runs no foreign code (what it replaces is still held by the caller, or handed
//! to him, so nothing is dropped either) and cannot fail halfway.
//!
//! # Invariants
//! 1. Keys are distinct; a row is found by the hash and key of its record.
//! 2. There is a column for every index of the recipe, and each obeys its own invariants about exactly the rows there are.
//! 3. All structures obey theirs.
//!
//! Hence every index is a function of the objects, whatever happened before.

use std::hash::Hash;
use std::sync::Arc;

use crate::Version;
use crate::persist::{Hashes, Slab};
use crate::recipe::{Drafted, Recipe};
use crate::record::{AnyValue, Record, Values};
use crate::step::Step;

mod check;
mod column;
mod plan;

pub(crate) use column::{Column, RowNumbers, Rows};
pub(crate) use plan::Plan;

/// The whole state of a store at one version; cloned in O(indexes), by address in O(1).
pub(crate) struct Table<K, V> {
    pub(crate) recipe: Arc<Recipe<V>>,
    pub(crate) version: Version,
    /// How many commits and changes of indexes led here.
    pub(crate) revision: u64,
    pub(crate) rows: Slab<Record<K, V>>,
    keys: Hashes,
    /// One for each index of the recipe.
    pub(crate) columns: Vec<Arc<Column>>,
}

/// What belongs to a step besides its records.
pub(crate) struct Side<V> {
    /// The row of the old record, if there is one.
    pub(crate) row: Option<u32>,
    /// What the indexes say about the new record, if there is one.
    pub(crate) drafted: Option<Drafted<V>>,
    /// The revision of the table that it was judged by.
    pub(crate) judged: u64,
}

/// Another writer was quicker: what was judged is no longer stored, or the indexes are others.
pub(crate) struct Raced;

/// What a commit took out of the table and nobody else may hold: to be dropped where no lock is held.
#[derive(Default)]
pub(crate) struct Garbage {
    pub(crate) values: Vec<Arc<AnyValue>>,
    pub(crate) errors: Vec<Arc<crate::IndexError>>,
}

impl<K, V> Table<K, V> {
    pub(crate) fn new(recipe: Arc<Recipe<V>>) -> Self {
        let columns = recipe.indexes.iter().map(|index| Arc::new(Column::new(index, true))).collect();
        Self { recipe, version: Version::ZERO, revision: 0, rows: Slab::new(), keys: Hashes::new(), columns }
    }

    /// The row whose key `eq` accepts.
    pub(crate) fn find(&self, hash: u64, mut eq: impl FnMut(&K) -> bool) -> Option<u32> {
        self.keys.find(hash, |row| self.rows.get(row).is_some_and(|record| eq(record.key())))
    }

    /// The record whose key `eq` accepts.
    pub(crate) fn record(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> Option<&Record<K, V>> {
        self.rows.get(self.find(hash, eq)?)
    }

    /// The object whose key `eq` accepts.
    pub(crate) fn object(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> Option<Arc<V>> {
        self.record(hash, eq).map(|record| record.object.clone())
    }

    /// Whether a row has this very record.
    pub(crate) fn has(&self, row: u32, record: &Record<K, V>) -> bool {
        self.rows.get(row).is_some_and(|stored| stored.is(record))
    }

    /// What a write will change, if what it was judged by is still there. Changes nothing; the plan holds for this table as it is.
    pub(crate) fn plan(&self, step: &Step<K, V>, side: &Side<V>, plan: &mut Plan) -> Result<(), Raced>
    where
        K: Eq,
        V: 'static,
    {
        match self.stands(step, side) {
            true => {
                self.plan_judged(side, plan);
                Ok(())
            }
            false => Err(Raced),
        }
    }

    /// As [`plan`](Self::plan), of a step that was made for this very table.
    pub(crate) fn plan_judged(&self, side: &Side<V>, plan: &mut Plan)
    where
        V: 'static,
    {
        plan.clear();
        for (at, (column, index)) in self.columns.iter().zip(&self.recipe.indexes).enumerate() {
            let values = side.drafted.as_ref().map(|drafted| &drafted.values[at]);
            // What it was kept from stands.
            if side.row.is_some() && values.is_some_and(Values::are_kept) {
                continue;
            }
            plan.column(at, column, index, side.row, values);
        }
    }

    /// Whether what a step was judged by is still there, and what it was asked for the indexes is what there is to ask. Compares keys.
    pub(crate) fn stands(&self, step: &Step<K, V>, side: &Side<V>) -> bool
    where
        K: Eq,
    {
        // What most writes come to: nobody has written since.
        if side.judged == self.revision {
            return true;
        }
        let record = step.record();
        let stored = match (side.row, step.before()) {
            (Some(row), Some(old)) => self.has(row, old),
            _ => self.find(record.hash(), |key| key == record.key()).is_none(),
        };
        let same_recipe = |drafted: &Drafted<V>| Arc::ptr_eq(&drafted.recipe, &self.recipe);
        stored && side.drafted.as_ref().is_none_or(same_recipe)
    }

    /// Carries out what was planned on this very table.
    pub(crate) fn commit(
        &mut self,
        step: &Step<K, V>,
        side: &Side<V>,
        plan: &mut Plan,
        garbage: &mut Garbage,
    ) {
        self.revision += 1;
        let row = match (side.row, step.after()) {
            (Some(row), Some(new)) => {
                if let Some(stored) = self.rows.get_mut(row) {
                    *stored = new.clone();
                }
                row
            }
            (Some(row), None) => {
                self.rows.remove(row);
                self.keys.remove(step.record().hash(), row);
                row
            }
            (None, Some(new)) => {
                let row = self.rows.insert(new.clone());
                self.keys.insert(new.hash(), row);
                row
            }
            (None, None) => return,
        };
        plan.carry_out(&mut self.columns, row, garbage);
    }

    /// The same without the columns that do not hold all rows yet, whose silence about an object says nothing.
    pub(crate) fn without_coming(self: &Arc<Self>) -> Arc<Self> {
        if self.columns.iter().all(|column| column.ready) {
            return self.clone();
        }
        let known = self.columns.iter().zip(&self.recipe.indexes).filter(|(column, _)| column.ready);
        let (columns, indexes) = known.map(|(column, index)| (column.clone(), index.clone())).unzip();
        Arc::new(Self { recipe: Arc::new(Recipe { indexes }), columns, ..Self::clone(self) })
    }

    /// What the indexes say about the object of a row, as they were told. All columns are ready.
    pub(crate) fn drafted(&self, row: u32) -> Drafted<V> {
        Drafted { recipe: self.recipe.clone(), values: self.values(row) }
    }

    /// The values of a row in one index, unless that does not hold all rows yet.
    pub(crate) fn values_in(&self, index: usize, row: u32) -> Option<Values> {
        self.columns.get(index).filter(|column| column.ready).map(|column| column.values_of(row))
    }

    /// The values of a row in every index.
    pub(crate) fn values(&self, row: u32) -> Vec<Values> {
        self.columns.iter().map(|column| column.values_of(row)).collect()
    }

    /// Gives one column the values of a row.
    pub(crate) fn plan_column(&self, at: usize, row: u32, values: &Values, plan: &mut Plan)
    where
        V: 'static,
    {
        plan.clear();
        plan.column(at, &self.columns[at], &self.recipe.indexes[at], Some(row), Some(values));
    }

    /// Carries out the plan of one column.
    pub(crate) fn fill(&mut self, row: u32, plan: &mut Plan, garbage: &mut Garbage) {
        plan.carry_out(&mut self.columns, row, garbage);
    }

    /// The memory it takes besides columns and objects, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let names = self.rows.len() * Record::<K, V>::NAME;
        size_of::<Self>() + self.rows.bytes() + self.keys.bytes() + names
    }

    /// Walks the invariants; O(objects × values).
    pub(crate) fn check(&self, hash_of: impl Fn(&K) -> u64) -> Result<(), String>
    where
        K: Eq + Hash,
        V: 'static,
    {
        check::check(self, hash_of)
    }
}

// Not derived: everything in it is shared, so nothing is asked of the types.
impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Self {
            recipe: self.recipe.clone(),
            version: self.version,
            revision: self.revision,
            rows: self.rows.clone(),
            keys: self.keys.clone(),
            columns: self.columns.clone(),
        }
    }
}
