//! PURE. What can be asked of the state machine for its order.

use flyball_ratelimit::Nanos;

use super::Core;
use crate::order::groups::Groups;
use crate::order::levels::Levels;
use crate::order::{GroupCounts, LevelDepth};

impl<K: Eq> Core<K, Levels> {
    pub(crate) fn priority(&self, key: &K, hash: u32) -> Option<i8> {
        self.find(key, hash).map(|slot| self.order.priority(slot))
    }

    /// Says whether there is such a key.
    pub(crate) fn set_priority(&mut self, key: &K, hash: u32, priority: i8, now: Option<Nanos>) -> bool {
        self.observe(now);
        let found = self.find(key, hash);
        if let Some(slot) = found {
            self.order.set_priority(&mut self.slab, slot, priority);
        }
        found.is_some()
    }

    pub(crate) fn levels(&mut self, now: Option<Nanos>) -> Vec<LevelDepth> {
        self.gather_all(now);
        self.order.depths()
    }
}

impl<K, G: Clone + Eq + Send + 'static> Core<K, Groups<G>> {
    pub(crate) fn groups(
        &mut self,
        now: Option<Nanos>,
        most: usize,
        groups: &mut Vec<GroupCounts<G>>,
    ) -> GroupCounts<usize> {
        self.gather_all(now);
        self.order.depths(most, groups)
    }
}
