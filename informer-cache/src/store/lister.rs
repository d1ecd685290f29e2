//! PURE. Lists the objects that satisfy several conditions, from the indexes.
//!
//! A column is one index, and a group is the set of rows that have one value in this index. A condition is a list of groups of one column. It selects
//! the rows in these groups or, if it is an exclusion, all other rows. The lister iterates over the rows of the condition with the fewest rows. For
//! each row, it checks the other conditions by comparing a few group numbers. So a lister allocates memory for group numbers only, and its cost
//! depends on its smallest condition.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;
use std::sync::Arc;

use crate::index::Label;
use crate::index::selector::{SelectorOperator, SelectorRequirement};
use crate::table::definition::typed;
use crate::table::persist::Items;
use crate::table::record::Record;
use crate::table::{Column, RowNumbers};
use crate::{Index, LabelIndex, MissingIndex, Selector, Snapshot};

/// Lists the objects of a [snapshot](Snapshot) that satisfy all given conditions, such as a namespace and a label selector; made by
/// [`Snapshot::lister`].
///
/// Without a condition, every object is listed. Any index can be a condition, for example one by namespace, tenant or shard. Each object is listed
/// once, in unspecified order. The cost is O(n × conditions). Here, n is the number of objects that satisfy the condition with the fewest objects, or
/// the number of all objects if every condition is an exclusion.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, LabelIndex, Schema, Store, Version};
///
/// struct Pod { id: u64, node: &'static str, phase: &'static str, app: &'static str }
///
/// static BY_NODE: Index<Pod, &str> = Index::new("node", |pod| pod.node);
/// static BY_PHASE: Index<Pod, &str> = Index::new("phase", |pod| pod.phase);
/// static LABELS: LabelIndex<Pod> = LabelIndex::new("labels", |pod, each| each("app", pod.app));
///
/// let schema = Schema::new(|pod: &Pod| pod.id, |_| Version::ZERO);
/// let mut store = Store::builder(schema).index(&BY_NODE).index(&BY_PHASE).index(&LABELS).build()?;
/// store.upsert(Pod { id: 1, node: "n1", phase: "Running", app: "web" });
/// store.upsert(Pod { id: 2, node: "n1", phase: "Pending", app: "web" });
/// store.upsert(Pod { id: 3, node: "n2", phase: "Running", app: "web" });
/// store.upsert(Pod { id: 4, node: "n1", phase: "Running", app: "db" });
///
/// let view = store.snapshot();
/// let pods = view.lister().by_index(&BY_NODE, "n1")?.by_index(&BY_PHASE, "Running")?.select(&LABELS, &"app in (web)".parse()?)?;
/// assert_eq!(pods.iter().map(|pod| pod.id).collect::<Vec<_>>(), [1]);
/// assert_eq!(view.lister().select(&LABELS, &"app".parse()?)?.iter().count(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a lister lists nothing until it is iterated"]
pub struct Lister<'a, K, V> {
    snapshot: &'a Snapshot<K, V>,
    conditions: Vec<Condition<'a>>,
}

/// A list of groups of one column, in ascending order. A row satisfies the condition if it is in one of these groups or, if the condition is an
/// exclusion, in none of them.
#[derive(Clone)]
struct Condition<'a> {
    column: &'a Column,
    groups: Vec<u32>,
    excluded: bool,
    /// Whether a row on whose object the index function failed never satisfies the condition.
    is_read: bool,
}

impl<'a, K: Eq + Hash, V: 'static> Lister<'a, K, V> {
    pub(crate) fn new(snapshot: &'a Snapshot<K, V>) -> Self {
        Self { snapshot, conditions: Vec::new() }
    }

    /// Keeps only objects that have `value` in an index.
    ///
    /// # Errors
    /// Returns an error if the store has no such index.
    pub fn by_index<IK, Q>(mut self, index: &Index<V, IK>, value: &Q) -> Result<Self, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        let column = self.snapshot.column(index)?;
        let hash = self.snapshot.reader.seed.hash_one(value);
        let group = column.find(hash, |known| typed::<IK>(known).borrow() == value);
        let groups = group.into_iter().collect();
        self.conditions.push(Condition { column, groups, excluded: false, is_read: false });
        Ok(self)
    }

    /// Keeps only objects whose labels a selector accepts. An object on which the label function panicked has no known labels, so no requirement accepts
    /// it, not even a negative one. For a requirement with a list of values (in, not in), this call takes O(values in the
    /// list). For any other requirement (exists, does not exist, greater than, less than), it takes O(values of the label in the index).
    ///
    /// # Errors
    /// Returns an error if the store has no such label index.
    pub fn select(mut self, labels: &LabelIndex<V>, selector: &Selector) -> Result<Self, MissingIndex> {
        let column = self.snapshot.column_of(labels.id())?;
        match selector.requirements() {
            None => {
                self.conditions.push(Condition { column, groups: Vec::new(), excluded: false, is_read: true })
            }
            Some(requirements) => {
                for requirement in requirements {
                    let condition = self.condition(column, requirement);
                    self.conditions.push(condition);
                }
            }
        }
        Ok(self)
    }

    /// Returns an iterator over the objects.
    pub fn iter(&self) -> impl FusedIterator<Item = &'a Arc<V>> + fmt::Debug + use<'a, K, V> {
        ListerIter(Records::new(self.clone()))
    }

    fn condition(&self, column: &'a Column, requirement: &SelectorRequirement) -> Condition<'a> {
        let with_value = |value: &str| {
            let hash = self.snapshot.reader.seed.hash_one((&*requirement.key, value));
            column.find(hash, |known| typed::<Label>(known).is(&requirement.key, value))
        };
        let (mut groups, excluded): (Vec<_>, _) = match &requirement.operator {
            SelectorOperator::In(values) => {
                (values.iter().filter_map(|value| with_value(value)).collect(), false)
            }
            SelectorOperator::NotIn(values) => {
                (values.iter().filter_map(|value| with_value(value)).collect(), true)
            }
            SelectorOperator::Exists => (of_key(column, &requirement.key, |_| true), false),
            SelectorOperator::DoesNotExist => (of_key(column, &requirement.key, |_| true), true),
            SelectorOperator::GreaterThan(_) | SelectorOperator::LessThan(_) => {
                (of_key(column, &requirement.key, |value| requirement.operator.holds(Some(value))), false)
            }
        };
        groups.sort_unstable();
        Condition { column, groups, excluded, is_read: true }
    }
}

/// Returns the groups of all labels that have this key and a value that `test` accepts.
fn of_key(column: &Column, key: &str, test: impl Fn(&str) -> bool) -> Vec<u32> {
    let Some(order) = column.order() else { return Vec::new() };
    let label = |number| column.group(number).map(|group| typed::<Label>(&group.value));
    let from =
        order.partition_point(|number| label(number).is_some_and(|label| label.compare_key(key).is_lt()));
    let ahead = (from..order.len())
        .filter_map(|at| order.get(at))
        .filter_map(|number| Some((number, label(number)?)));
    let of_key = ahead.take_while(|(_, label)| label.compare_key(key).is_eq());
    of_key.filter(|(_, label)| test(&label.value)).map(|(number, _)| number).collect()
}

impl Condition<'_> {
    /// Returns whether a row satisfies the condition.
    fn holds(&self, row: u32) -> bool {
        self.first(row).is_some() != self.excluded && !(self.is_read && self.column.has_failed(row))
    }

    /// Returns the first group of this condition that contains the row.
    fn first(&self, row: u32) -> Option<u32> {
        let mut of_row = self.column.groups_of(row);
        match self.groups.as_slice() {
            [] => None,
            [alone] => of_row.find(|group| group == alone),
            groups => of_row.find(|group| groups.binary_search(group).is_ok()),
        }
    }

    /// Returns an upper bound on the number of rows in the groups of this condition.
    fn weight(&self) -> usize {
        let groups = self.groups.iter().filter_map(|number| self.column.group(*number));
        groups.map(|group| group.rows.len()).sum()
    }
}

impl<K, V> Clone for Lister<'_, K, V> {
    fn clone(&self) -> Self {
        Self { snapshot: self.snapshot, conditions: self.conditions.clone() }
    }
}

impl<K, V> fmt::Debug for Lister<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister").field("conditions", &self.conditions.len()).finish_non_exhaustive()
    }
}

/// The iterator over the objects of a [`Lister`].
struct ListerIter<'a, K, V>(Records<'a, K, V>);

struct Records<'a, K, V> {
    snapshot: &'a Snapshot<K, V>,
    lead: Lead<'a, K, V>,
    /// The other conditions.
    conditions: Vec<Condition<'a>>,
}

/// The rows over which the lister iterates.
enum Lead<'a, K, V> {
    All(Items<'a, Record<K, V>>),
    /// The groups of a condition, one after the other. `next` is the position of the next group; `rows` are the remaining rows of the group before
    /// it.
    Groups {
        condition: Condition<'a>,
        next: usize,
        rows: RowNumbers<'a>,
    },
}

impl<'a, K, V> Records<'a, K, V> {
    fn new(lister: Lister<'a, K, V>) -> Self {
        let Lister { snapshot, mut conditions } = lister;
        let leading = conditions.iter().enumerate().filter(|(_, condition)| !condition.excluded);
        let lead = match leading.min_by_key(|(_, condition)| condition.weight()).map(|(at, _)| at) {
            Some(at) => {
                let condition = conditions.swap_remove(at);
                Lead::Groups { condition, next: 0, rows: RowNumbers::One(None) }
            }
            None => Lead::All(snapshot.table.rows.iter()),
        };
        Self { snapshot, lead, conditions }
    }
}

impl<K, V> Lead<'_, K, V> {
    fn next(&mut self) -> Option<u32> {
        match self {
            Self::All(rows) => rows.next().map(|(row, _)| row),
            Self::Groups { condition, next, rows } => loop {
                if let Some(row) = rows.next() {
                    let group = condition.groups[*next - 1];
                    // A row that is in several groups of the condition is yielded only once, as a row of the first of these groups.
                    if condition.groups.len() == 1 || condition.first(row) == Some(group) {
                        return Some(row);
                    }
                    continue;
                }
                let group = condition.column.group(*condition.groups.get(*next)?);
                *rows = group.map_or(RowNumbers::One(None), |group| group.rows.iter());
                *next += 1;
            },
        }
    }
}

impl<'a, K, V> Iterator for Records<'a, K, V> {
    type Item = &'a Record<K, V>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let row = self.lead.next()?;
            if self.conditions.iter().all(|condition| condition.holds(row)) {
                return self.snapshot.table.rows.get(row);
            }
        }
    }
}

impl<'a, K, V> Iterator for ListerIter<'a, K, V> {
    type Item = &'a Arc<V>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|record| &*record.object)
    }
}

impl<K, V> FusedIterator for ListerIter<'_, K, V> {}

impl<K, V> fmt::Debug for ListerIter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListerIter").finish_non_exhaustive()
    }
}
