//! PURE. Queries of an ordered index: ranges and prefixes.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::Snapshot;
use crate::table::definition::typed;
use crate::table::persist::Sorted;
use crate::table::record::AnyValue;
use crate::table::{Column, RowNumbers, Table};
use crate::{Index, MissingIndex};

impl<K: Eq + Hash, V: 'static> Snapshot<K, V> {
    /// Returns the objects whose index values are in a range, in the order of these values. Objects with the same value are in unspecified order.
    /// O(log values + objects returned).
    ///
    /// # Errors
    /// Returns an error if the store has no such index, or if the index is not [ordered](Index::ordered).
    ///
    /// # Panics
    /// Panics if the start of the range is greater than its end.
    pub fn range<IK, Q, R>(
        &self,
        index: &Index<V, IK>,
        range: R,
    ) -> Result<RangeIter<'_, K, V, IK>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Ord + ?Sized,
        R: RangeBounds<Q>,
    {
        let (column, order) = self.ordered(index)?;
        let at = |bound: Bound<&Q>, start: bool| match bound {
            Bound::Unbounded if start => 0,
            Bound::Unbounded => order.len(),
            Bound::Included(bound) => split::<IK>(column, order, |value| match start {
                true => value.borrow() < bound,
                false => value.borrow() <= bound,
            }),
            Bound::Excluded(bound) => split::<IK>(column, order, |value| match start {
                true => value.borrow() <= bound,
                false => value.borrow() < bound,
            }),
        };
        let (start, end) = (range.start_bound(), range.end_bound());
        // This check runs even if the index has no values.
        if let (
            Bound::Included(start) | Bound::Excluded(start),
            Bound::Included(end) | Bound::Excluded(end),
        ) = (start, end)
        {
            assert!(start <= end, "a range that begins after its end");
        }
        let (from, to) = (at(start, true), at(end, false));
        Ok(RangeIter::new(&self.table, column, order, from, to.max(from)))
    }

    /// Returns the objects whose index values are in a contiguous range, which `place` defines: it returns whether a value is before the range
    /// (`Less`), in the range (`Equal`), or after it (`Greater`). For example, this function selects by the first part of a compound value:
    /// `|(namespace, _)| namespace.cmp("default")`.
    ///
    /// # Errors
    /// Returns an error if the store has no such index, or if the index is not [ordered](Index::ordered).
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Index, Schema, Store, Version};
    ///
    /// type Pod = (&'static str, &'static str);
    /// static BY_NAME: Index<Pod, Pod> = Index::new("name", |pod: &Pod| *pod).ordered();
    ///
    /// let mut store = Store::builder(Schema::new(|pod: &Pod| *pod, |_| Version::ZERO)).index(&BY_NAME).build()?;
    /// store.replace([("kube-system", "dns"), ("default", "b"), ("default", "a")], Version::new(1));
    /// let view = store.snapshot();
    /// let of_default = view.range_by(&BY_NAME, |(namespace, _)| namespace.cmp(&"default"))?;
    /// assert!(of_default.map(|(_, pod)| pod.1).eq(["a", "b"]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range_by<IK: 'static>(
        &self,
        index: &Index<V, IK>,
        place: impl Fn(&IK) -> Ordering,
    ) -> Result<RangeIter<'_, K, V, IK>, MissingIndex> {
        let (column, order) = self.ordered(index)?;
        let from = split::<IK>(column, order, |value| place(value).is_lt());
        let to = split::<IK>(column, order, |value| place(value).is_le());
        Ok(RangeIter::new(&self.table, column, order, from, to.max(from)))
    }

    /// Returns the objects whose index values begin with `prefix`, in the order of these values. `Ord` of the values must agree with the order of
    /// their strings.
    ///
    /// # Errors
    /// Returns an error if the store has no such index, or if the index is not [ordered](Index::ordered).
    pub fn prefix<IK>(
        &self,
        index: &Index<V, IK>,
        prefix: &str,
    ) -> Result<RangeIter<'_, K, V, IK>, MissingIndex>
    where
        IK: AsRef<str> + 'static,
    {
        self.range_by(index, |value| begins(value.as_ref(), prefix))
    }

    fn ordered<IK: 'static>(&self, index: &Index<V, IK>) -> Result<(&Column, &Sorted), MissingIndex> {
        let column = self.column(index)?;
        column.order().map(|order| (column, order)).ok_or(MissingIndex::not_ordered(index.name()))
    }
}

/// Compares a text with the range of texts that begin with `prefix`: returns `Less` before the range, `Equal` in it, and `Greater` after it.
pub(crate) fn begins(text: &str, prefix: &str) -> Ordering {
    match text.starts_with(prefix) {
        true => Ordering::Equal,
        false => text.cmp(prefix),
    }
}

/// Returns how many values satisfy `before`; these must be the first values of `order`.
fn split<IK: 'static>(column: &Column, order: &Sorted, before: impl Fn(&IK) -> bool) -> usize {
    order
        .partition_point(|number| column.group(number).is_some_and(|group| before(typed::<IK>(&group.value))))
}

/// An iterator over the objects whose index values are in a range; made by [`Snapshot::range`], [`Snapshot::range_by`] and [`Snapshot::prefix`].
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, RangeIter, Schema, Snapshot, Store, Version};
///
/// type Job = (u32, u64);
/// static BY_START: Index<Job, u64> = Index::new("start", |job: &Job| job.1).ordered();
///
/// /// The newest first.
/// fn since(view: &Snapshot<u32, Job>, start: u64) -> RangeIter<'_, u32, Job, u64> {
///     view.range(&BY_START, start..).expect("the store has this index").descending()
/// }
///
/// let mut store = Store::builder(Schema::new(|job: &Job| job.0, |_| Version::ZERO)).index(&BY_START).build()?;
/// store.replace([(1, 30), (2, 10), (3, 20), (4, 30)], Version::new(1));
/// let view = store.snapshot();
/// assert_eq!(since(&view, 20).values(), 2); // 30 and 20, of three jobs
/// assert!(since(&view, 20).map(|(start, _)| *start).eq([30, 30, 20]));
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
pub struct RangeIter<'a, K, V, IK> {
    table: &'a Table<K, V>,
    column: &'a Column,
    order: &'a Sorted,
    /// The remaining positions in `order` are `from..to`.
    from: usize,
    to: usize,
    descending: bool,
    value: Option<&'a AnyValue>,
    rows: RowNumbers<'a>,
    value_type: PhantomData<fn() -> IK>,
}

impl<'a, K, V, IK> RangeIter<'a, K, V, IK> {
    fn new(table: &'a Table<K, V>, column: &'a Column, order: &'a Sorted, from: usize, to: usize) -> Self {
        let rows = RowNumbers::One(None);
        Self { table, column, order, from, to, descending: false, value: None, rows, value_type: PhantomData }
    }

    /// Reverses the order, so that the greatest value comes first. A second call restores the order.
    #[must_use]
    pub fn descending(mut self) -> Self {
        self.descending = !self.descending;
        self
    }

    /// Returns the number of values whose objects the iterator has not reached yet.
    #[must_use]
    pub fn values(&self) -> usize {
        self.to - self.from
    }
}

impl<'a, K, V, IK: 'static> Iterator for RangeIter<'a, K, V, IK> {
    type Item = (&'a IK, &'a Arc<V>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // Column invariant 2: every row has a record.
            let record = self.rows.next().and_then(|row| self.table.rows.get(row));
            if let (Some(record), Some(value)) = (record, self.value) {
                return Some((typed::<IK>(value), &*record.object));
            }
            if self.from == self.to {
                return None;
            }
            let at = if self.descending { self.to - 1 } else { self.from };
            if self.descending {
                self.to -= 1
            } else {
                self.from += 1
            }
            let group = self.order.get(at).and_then(|number| self.column.group(number))?;
            (self.value, self.rows) = (Some(&*group.value), group.rows.iter());
        }
    }
}

impl<K, V, IK> fmt::Debug for RangeIter<'_, K, V, IK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeIter").field("values", &self.values()).finish_non_exhaustive()
    }
}
