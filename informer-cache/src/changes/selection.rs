//! PURE. Which objects a subscription is of, and what a write is to it.
//!
//! | the object before the write \\ after it | is of interest | is not, or there is none |
//! |---|---|---|
//! | is of interest | the step as it is | Deleted |
//! | is not, or there is none | Added | nothing |
//!
//! Told these steps alone, a consumer knows exactly the objects of interest, and what is pending for it is bounded by them.
//!
//! Deciding compares keys and index values, so it belongs where nothing has changed yet: a write finds it out before it commits. The index
//! function is not asked again: what it said of the old object is in the table, and what it says of the new one is beside the step.

use std::sync::Arc;

use crate::changes::pending::Ticket;
use crate::changes::step::Step;
use crate::index::Definition;
use crate::index::set::Recipe;
use crate::table::record::{AnyValue, Record, Values};
use crate::table::{Side, Table};

/// What a subscription is of, if not of everything.
pub(crate) enum Interest<K, V> {
    /// One key.
    Key { hash: u64, key: K },
    /// The objects that have a value in an index. Where that index is taken out, nothing is of interest.
    Value { index: Arc<Definition<V>>, value: Arc<AnyValue> },
}

impl<K, V> Interest<K, V> {
    /// Whether it can be told what is of interest.
    pub(crate) fn stands(&self, recipe: &Recipe<V>) -> bool {
        match self {
            Self::Key { .. } => true,
            Self::Value { index, .. } => recipe.place(index).is_some(),
        }
    }

    /// The objects of interest, in the order of their rows. Compares keys or index values.
    pub(crate) fn records(&self, table: &Table<K, V>) -> Vec<Record<K, V>>
    where
        K: Eq,
    {
        match self {
            Self::Key { hash, key } => {
                table.record(*hash, |known| known == key).cloned().into_iter().collect()
            }
            Self::Value { index, value } => {
                let column = table.recipe.place(index).map(|at| &table.columns[at]);
                let group = column.and_then(|column| {
                    column.group(column.find(value.hash, |known| index.equal(known, value))?)
                });
                let rows = group.into_iter().flat_map(|group| group.rows.iter());
                rows.filter_map(|row| table.rows.get(row).cloned()).collect()
            }
        }
    }

    /// What a write to this table is to who is interested. Compares keys or index values.
    pub(crate) fn steps(&self, steps: &[Step<K, V>], sides: &[Side], table: &Table<K, V>) -> Vec<Step<K, V>>
    where
        K: Eq,
    {
        match self {
            Self::Key { hash, key } => {
                let mine = |step: &&Step<K, V>| step.record().hash() == *hash && step.record().key() == key;
                steps.iter().filter(mine).cloned().collect()
            }
            Self::Value { index, value } => {
                let Some(at) = table.recipe.place(index) else { return Vec::new() };
                let column = &table.columns[at];
                let group = column.find(value.hash, |known| index.equal(known, value));
                let was = |row| group.is_some_and(|group| column.groups_of(row).any(|other| other == group));
                let is =
                    |values: &Vec<Values>| values[at].as_slice().iter().any(|new| index.equal(new, value));
                let seen = |(step, side): (&Step<K, V>, &Side)| {
                    step.seen(side.row.is_some_and(was), side.values.as_ref().is_some_and(is))
                };
                steps.iter().zip(sides).filter_map(seen).collect()
            }
        }
    }
}

/// What a write is to each of the feeds there are, found before it commits.
pub(crate) struct Findings<K, V> {
    /// One ticket per step and feed that is of everything.
    pub(crate) tickets: Vec<Option<Ticket>>,
    /// For each of the other feeds, in their order.
    pub(crate) own: Vec<Own<K, V>>,
}

/// What a write is to a feed that is not of everything.
pub(crate) struct Own<K, V> {
    /// The place of the feed among all.
    pub(crate) at: usize,
    pub(crate) steps: Vec<Step<K, V>>,
    pub(crate) tickets: Vec<Option<Ticket>>,
}

impl<K, V> Findings<K, V> {
    /// The steps for the feed at a place, and the tickets that were found for them.
    pub(crate) fn of<'a>(
        &'a self,
        place: usize,
        steps: &'a [Step<K, V>],
    ) -> (&'a [Step<K, V>], &'a [Option<Ticket>]) {
        let before = self.own.partition_point(|own| own.at < place);
        match self.own.get(before).filter(|own| own.at == place) {
            Some(own) => (&own.steps, &own.tickets),
            None => (steps, &self.tickets[(place - before) * steps.len()..][..steps.len()]),
        }
    }
}

// Not derived: nothing is asked of the types.
impl<K, V> Default for Findings<K, V> {
    fn default() -> Self {
        Self { tickets: Vec::new(), own: Vec::new() }
    }
}
