//! PURE. A column: one index of a table, which maps each value to the rows that have it.
//!
//! For each value that at least one row has, there is a **group**, which holds the value and the rows that have it.
//! Groups are numbered, like rows. Values are stored only in groups. For each row, the column stores the numbers of its
//! groups: the row **names** these groups.
//!
//! # Invariants
//! 1. The values of the groups are distinct, and a lookup of the hash and the value finds the group.
//! 2. A row is in exactly the groups that it names. A row names no group twice, and its groups are in ascending order
//!    of their numbers. No group is empty.
//! 3. An ordered index has a list of its groups in the order of their values.
//! 4. A unique index has a list of its groups with more than one row.
//! 5. A row names no group if the index function failed on its object.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::IndexError;
use crate::table::definition::Definition;
use crate::table::persist::{Hashes, Numbers, Slab, Sorted, Vector};
use crate::table::record::{AnyValue, IndexValue, Values};

/// One index; see the [module](self).
#[derive(Clone)]
pub(crate) struct Column {
    pub(super) values: Hashes,
    pub(super) groups: Slab<Group>,
    pub(super) named: Named,
    /// The numbers of the groups in the order of their values; `Some` only in an ordered index.
    pub(super) order: Option<Sorted>,
    /// The numbers of the groups with more than one row; `Some` only in a unique index.
    pub(super) violated: Option<Sorted>,
    pub(super) failed: Vector<Arc<IndexError>>,
}

/// A value and the rows that have it.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) value: Arc<AnyValue>,
    pub(crate) rows: Rows,
}

/// At least one row, in ascending order.
#[derive(Clone)]
pub(crate) enum Rows {
    One(u32),
    Many(Sorted),
}

/// The number of a group plus one, which is never zero. So an `Option<Name>` needs no more memory than a `Name`.
pub(super) type Name = NonZeroU32;

/// The groups that each row names.
#[derive(Clone)]
pub(super) enum Named {
    /// For an index in which every object has one value.
    One(Vector<Name>),
    Many(Vector<Arc<[Name]>>),
}

impl Column {
    pub(crate) fn new<V>(index: &Definition<V>) -> Self {
        Self {
            values: Hashes::new(),
            groups: Slab::new(),
            named: if index.id.single { Named::One(Vector::new()) } else { Named::Many(Vector::new()) },
            order: index.compare.map(|_| Sorted::new()),
            violated: index.id.unique.then(Sorted::new),
            failed: Vector::new(),
        }
    }

    /// Returns the number of values that at least one row has.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    #[inline]
    pub(crate) fn group(&self, number: u32) -> Option<&Group> {
        self.groups.get(number)
    }

    /// Returns the groups in unspecified order.
    pub(crate) fn groups(&self) -> impl ExactSizeIterator<Item = &Group> + Clone {
        self.groups.iter().map(|(_, group)| group)
    }

    /// Returns the numbers of the groups in the order of their values, if the index is ordered.
    pub(crate) fn order(&self) -> Option<&Sorted> {
        self.order.as_ref()
    }

    /// Returns the numbers of the groups with more than one row, if the index is unique.
    pub(crate) fn violated(&self) -> Option<&Sorted> {
        self.violated.as_ref()
    }

    /// Returns the number of the group whose value has this hash and satisfies `eq`.
    pub(crate) fn find(&self, hash: u64, eq: impl FnMut(&AnyValue) -> bool) -> Option<u32> {
        Some(self.entry(hash, eq)?.0)
    }

    /// Returns the group whose value has this hash and satisfies `eq`, and its number.
    #[inline]
    pub(crate) fn entry(&self, hash: u64, mut eq: impl FnMut(&AnyValue) -> bool) -> Option<(u32, &Group)> {
        self.values.find(hash, |number| {
            let group = self.groups.get(number)?;
            eq(&group.value).then_some((number, group))
        })
    }

    /// Returns the numbers of the groups that a row names, in ascending order.
    pub(crate) fn groups_of(&self, row: u32) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.names(row).iter().map(|name| number(*name))
    }

    #[inline]
    pub(super) fn names(&self, row: u32) -> &[Name] {
        match &self.named {
            Named::One(named) => named.get(row).map_or(&[], std::slice::from_ref),
            Named::Many(named) => named.get(row).map_or(&[], |names| names),
        }
    }

    /// Makes these values of an object independent of later changes of the column.
    pub(super) fn make_lasting(&self, values: &mut Values) {
        if let Values::Known(number) = *values {
            debug_assert!(self.group(number).is_some(), "the column has changed since the values were read");
            if let Some(group) = self.group(number) {
                *values = Values::One(IndexValue { value: group.value.clone(), group: Some(number) });
            }
        }
    }

    /// Prefetches the list of the rows of a group, to which a row is likely to be added.
    #[inline]
    pub(crate) fn prefetch_rows(&self, group: u32) {
        if let Some(Group { rows: Rows::Many(rows), .. }) = self.group(group) {
            rows.prefetch();
        }
    }

    /// Prefetches the end of this list. To be effective, this comes some time after [`prefetch_rows`](Self::prefetch_rows).
    #[inline]
    pub(super) fn prefetch_last_row(&self, group: u32) {
        if let Some(Group { rows: Rows::Many(rows), .. }) = self.group(group) {
            rows.prefetch_last();
        }
    }

    /// Prefetches the place that says which groups a row names.
    #[inline]
    pub(super) fn prefetch(&self, row: u32) {
        match &self.named {
            Named::One(named) => named.prefetch(row),
            Named::Many(named) => named.prefetch(row),
        }
    }

    /// Returns the rows on whose objects the index function failed, with the errors.
    pub(crate) fn failures(&self) -> impl ExactSizeIterator<Item = (u32, &Arc<IndexError>)> {
        self.failed.iter()
    }

    /// Returns the index values of a row; no values if `row` is `None`.
    #[inline]
    pub(crate) fn values_of(&self, row: Option<u32>) -> impl Iterator<Item = &Arc<AnyValue>> + Clone {
        let names = row.map_or(&[][..], |row| self.names(row));
        names.iter().filter_map(|name| self.group(number(*name)).map(|group| &group.value))
    }

    /// Frees about `most` nodes and index values, like [`Vector::free`]. The two lists of groups are freed last, with the column.
    pub(super) fn free(&mut self, most: usize) -> usize {
        let most = self.groups.free(most);
        let most = self.values.free(most);
        let most = match &mut self.named {
            Named::One(named) => named.free(most),
            Named::Many(named) => named.free(most),
        };
        self.failed.free(most)
    }

    /// Returns whether the index function failed on the object of a row.
    #[inline]
    pub(crate) fn has_failed(&self, row: u32) -> bool {
        self.failed.get(row).is_some()
    }

    /// Returns the memory of the column in bytes, without the memory to which its values point.
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

    /// Returns the row at a position.
    pub(crate) fn get(&self, at: usize) -> Option<u32> {
        match self {
            Self::One(row) => (at == 0).then_some(*row),
            Self::Many(rows) => rows.get(at),
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

    /// Removes a row, unless it is the only row. Returns whether it is the only row.
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

/// An iterator over rows in ascending order; made by [`Rows::iter`].
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

    #[inline]
    fn fold<B, F: FnMut(B, u32) -> B>(self, init: B, f: F) -> B {
        match self {
            Self::One(row) => row.into_iter().fold(init, f),
            Self::Many(rows) => rows.fold(init, f),
        }
    }
}

impl ExactSizeIterator for RowNumbers<'_> {}
