//! PURE. One index of a table: which rows have which value.
//!
//! Every value in use has a **group**, numbered as rows are: the value itself and the rows that have it. Nothing else
//! holds values; a row names its groups by their numbers.
//!
//! # Invariants
//! 1. Values of groups are distinct; a group is found by the hash and value.
//! 2. A row is in the groups it names, and in no other; it names each once, ascending. No group is empty.
//! 3. An ordered index has its groups in the order of their values.
//! 4. A unique index has those of more than one row listed.
//! 5. A row that the function failed on names no group.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::IndexError;
use crate::table::definition::Definition;
use crate::table::persist::{Hashes, Numbers, Slab, Sorted, Vector};
use crate::table::record::AnyValue;

/// One index; see the [module](self).
#[derive(Clone)]
pub(crate) struct Column {
    pub(super) values: Hashes,
    pub(super) groups: Slab<Group>,
    pub(super) named: Named,
    /// The groups by value, of an ordered index.
    pub(super) order: Option<Sorted>,
    /// The groups with more than one row, of a unique index.
    pub(super) violated: Option<Sorted>,
    pub(super) failed: Vector<Arc<IndexError>>,
}

/// A value and the rows that have it.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) value: Arc<AnyValue>,
    pub(crate) rows: Rows,
}

/// Ascending rows, at least one.
#[derive(Clone)]
pub(crate) enum Rows {
    One(u32),
    Many(Sorted),
}

/// The number of a group, plus one: an absent one takes no room.
pub(super) type Name = NonZeroU32;

/// The groups of each row.
#[derive(Clone)]
pub(super) enum Named {
    /// Of an index with one value per object.
    One(Vector<Name>),
    Many(Vector<Arc<[Name]>>),
}

impl Column {
    pub(crate) fn new<V>(index: &Definition<V>) -> Self {
        Self {
            values: Hashes::new(),
            groups: Slab::new(),
            named: if index.single { Named::One(Vector::new()) } else { Named::Many(Vector::new()) },
            order: index.compare.map(|_| Sorted::new()),
            violated: index.unique.then(Sorted::new),
            failed: Vector::new(),
        }
    }

    /// The number of values in use.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn group(&self, number: u32) -> Option<&Group> {
        self.groups.get(number)
    }

    /// The groups in no promised order.
    pub(crate) fn groups(&self) -> impl ExactSizeIterator<Item = &Group> + Clone {
        self.groups.iter().map(|(_, group)| group)
    }

    /// The groups in the order of their values, if the index keeps one.
    pub(crate) fn order(&self) -> Option<&Sorted> {
        self.order.as_ref()
    }

    /// The groups with more than one row, of a unique index.
    pub(crate) fn violated(&self) -> Option<&Sorted> {
        self.violated.as_ref()
    }

    /// The group of a value that `eq` accepts.
    pub(crate) fn find(&self, hash: u64, mut eq: impl FnMut(&AnyValue) -> bool) -> Option<u32> {
        self.values.find(hash, |number| self.groups.get(number).is_some_and(|group| eq(&group.value)))
    }

    /// The numbers of the groups that a row is in, ascending.
    pub(crate) fn groups_of(&self, row: u32) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.names(row).iter().map(|name| number(*name))
    }

    pub(super) fn names(&self, row: u32) -> &[Name] {
        match &self.named {
            Named::One(named) => named.get(row).map_or(&[], std::slice::from_ref),
            Named::Many(named) => named.get(row).map_or(&[], |names| names),
        }
    }

    /// The rows that the function failed on.
    pub(crate) fn failures(&self) -> impl ExactSizeIterator<Item = (u32, &Arc<IndexError>)> {
        self.failed.iter()
    }

    /// The values of a row; none of one that is not there.
    pub(crate) fn values_of(&self, row: Option<u32>) -> impl Iterator<Item = &Arc<AnyValue>> + Clone {
        let names = row.map_or(&[][..], |row| self.names(row));
        names.iter().filter_map(|name| self.group(number(*name)).map(|group| &group.value))
    }

    /// The memory it takes, in bytes, without what values point to.
    pub(crate) fn bytes(&self) -> usize {
        let rows = self.groups().map(|group| match &group.rows {
            Rows::One(_) => 0,
            Rows::Many(rows) => rows.bytes(),
        });
        let values = self.groups().map(|group| size_of_val(&*group.value) + 2 * size_of::<usize>());
        let named = match &self.named {
            Named::One(named) => named.bytes(),
            Named::Many(named) => {
                let lists = named.iter().map(|(_, names)| size_of_val(&**names) + 2 * size_of::<usize>());
                named.bytes() + lists.sum::<usize>()
            }
        };
        let lists = [&self.order, &self.violated].into_iter().flatten().map(Sorted::bytes);
        let of_groups = rows.sum::<usize>() + values.sum::<usize>();
        self.values.bytes()
            + self.groups.bytes()
            + named
            + lists.sum::<usize>()
            + self.failed.bytes()
            + of_groups
    }
}

pub(super) fn number(name: Name) -> u32 {
    name.get() - 1
}

pub(super) fn name(number: u32) -> Name {
    NonZeroU32::MIN.saturating_add(number)
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(rows) => rows.len(),
        }
    }

    pub(crate) fn iter(&self) -> RowNumbers<'_> {
        match self {
            Self::One(row) => RowNumbers::One(Some(*row)),
            Self::Many(rows) => RowNumbers::Many(rows.iter()),
        }
    }

    pub(super) fn insert(&mut self, row: u32) {
        match self {
            Self::One(one) if *one == row => {}
            Self::One(one) => *self = Self::Many(Sorted::of(&[row.min(*one), row.max(*one)])),
            Self::Many(rows) => drop(rows.insert(row)),
        }
    }

    /// Takes a row out; whether it was the last one, which then stays.
    pub(super) fn remove(&mut self, row: u32) -> bool {
        let rows = match self {
            Self::One(one) => return *one == row,
            Self::Many(rows) => rows,
        };
        rows.remove(row);
        if let (1, Some(alone)) = (rows.len(), rows.last()) {
            *self = Self::One(alone);
        }
        false
    }
}

/// Ascending rows; made by [`Rows::iter`].
#[derive(Clone)]
pub(crate) enum RowNumbers<'a> {
    One(Option<u32>),
    Many(Numbers<'a>),
}

impl Iterator for RowNumbers<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        match self {
            Self::One(row) => row.take(),
            Self::Many(rows) => rows.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self {
            Self::One(row) => usize::from(row.is_some()),
            Self::Many(rows) => rows.len(),
        };
        (left, Some(left))
    }
}

impl ExactSizeIterator for RowNumbers<'_> {}
