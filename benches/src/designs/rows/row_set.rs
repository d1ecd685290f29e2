//! A set of rows. One row is stored inline, a few rows in a sorted vector, and many rows in a B-tree.

use std::sync::Arc;

use crate::designs::btree::Tree;

/// The largest number of rows in a vector; more rows are stored in a B-tree.
const FEW: usize = 128;

#[derive(Clone, Debug)]
pub(super) enum RowSet {
    One(u32),
    Few(Arc<Vec<u32>>),
    Many(Tree<u32, 128>),
}

impl RowSet {
    /// `row` must not be in the set yet.
    pub(super) fn insert(&mut self, row: u32) {
        match self {
            Self::One(one) => *self = Self::Few(Arc::new(vec![row.min(*one), row.max(*one)])),
            Self::Few(rows) if rows.len() < FEW => {
                let rows = Arc::make_mut(rows);
                rows.insert(rows.partition_point(|there| *there < row), row);
            }
            Self::Few(rows) => {
                let mut tree = Tree::default();
                for row in rows.iter().copied().chain([row]) {
                    tree.insert(row, &|there| there.cmp(&row));
                }
                *self = Self::Many(tree);
            }
            Self::Many(tree) => drop(tree.insert(row, &|there| there.cmp(&row))),
        }
    }

    /// `row` must be in the set. Returns true if `row` was the last row of the set.
    pub(super) fn remove(&mut self, row: u32) -> bool {
        match self {
            Self::One(_) => true,
            Self::Few(rows) => {
                let rows = Arc::make_mut(rows);
                rows.retain(|there| *there != row);
                rows.is_empty()
            }
            Self::Many(tree) => {
                tree.remove(&|there| there.cmp(&row));
                tree.is_empty()
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let (few, many) = match self {
            Self::One(one) => (std::slice::from_ref(one), None),
            Self::Few(rows) => (rows.as_slice(), None),
            Self::Many(tree) => ([].as_slice(), Some(tree.iter())),
        };
        few.iter().chain(many.into_iter().flatten()).copied()
    }
}
