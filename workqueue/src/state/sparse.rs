//! PURE. A map for values that only a few slots have.

use hashbrown::HashTable;

use crate::state::hash::spread;

/// Maps some of the slots to a value. The map does not free memory when values are removed, so that repeated inserts and removals do not allocate.
#[derive(Debug)]
pub(crate) struct SparseMap<V> {
    values: HashTable<(u32, V)>,
}

impl<V> Default for SparseMap<V> {
    fn default() -> Self {
        Self { values: HashTable::new() }
    }
}

impl<V: Copy> SparseMap<V> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn get(&self, slot: u32) -> Option<V> {
        self.values.find(spread(slot), |(own, _)| *own == slot).map(|(_, value)| *value)
    }

    pub(crate) fn set(&mut self, slot: u32, value: V) {
        match self.values.find_mut(spread(slot), |(own, _)| *own == slot) {
            Some((_, old)) => *old = value,
            None => {
                self.values.insert_unique(spread(slot), (slot, value), |(slot, _)| spread(*slot));
            }
        }
    }

    pub(crate) fn take(&mut self, slot: u32) -> Option<V> {
        let found = self.values.find_entry(spread(slot), |(own, _)| *own == slot).ok()?;
        Some(found.remove().0.1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, V)> {
        self.values.iter().copied()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = (u32, &mut V)> {
        self.values.iter_mut().map(|(slot, value)| (*slot, value))
    }
}
