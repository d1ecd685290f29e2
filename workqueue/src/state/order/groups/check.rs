//! PURE. Checks the invariants of groups.

use super::Groups;
use crate::state::entry::State;
use crate::state::slab::Slab;

impl<G> Groups<G> {
    pub(super) fn check_groups<K>(&self, slab: &Slab<K>) -> Result<(), String> {
        let in_ring: Vec<u32> = self.ring().collect();
        let (mut count, mut available, mut suspended, mut used) = (0, 0, 0, 0);
        for (index, group) in (0..).zip(&self.groups) {
            group.line.check(slab)?;
            let mine = |slot: &u32| self.of[*slot as usize] == index;
            if !group.line.iter(slab).all(|slot| mine(&slot)) {
                return Err(format!("groups 2: a slot of another group is in line {index}"));
            }
            let keys = slab.iter().filter(|(slot, _)| mine(slot)).count();
            let leased = slab.iter().filter(|(slot, entry)| mine(slot) && entry.state.is_leased()).count();
            if (keys, leased) != (group.keys, group.leased) {
                return Err(format!("groups 1, 2: {keys} keys, {leased} leased in group {index}"));
            }
            let is_indexed = group.is_used() || self.is_kept(index);
            if self.index.find(group.hash, |&other| other == index).is_some() != is_indexed {
                return Err(format!("groups 1: group {index} of {keys} keys"));
            }
            match &self.rates {
                Some(rates) if is_indexed => {
                    rates.check(index, group.wanted(), group.allowed.saturating_sub(group.leased))?
                }
                None if group.allowed != group.limits.max_leased as usize => {
                    return Err(format!("groups 7: group {index} is limited without a rate"));
                }
                _ => {}
            }
            if (group.share() > 0) != in_ring.contains(&index) || (group.left > 0) != (group.share() > 0) {
                return Err(format!("groups 3: group {index} has {} left", group.left));
            }
            count += group.line.len();
            available += group.share();
            suspended += group.suspended();
            used += usize::from(is_indexed);
        }
        self.rates.as_ref().map_or(Ok(()), |rates| rates.check_counts())?;
        let ready = slab.iter().filter(|(_, entry)| entry.state == State::Ready).count();
        if (count, available, suspended) != (self.count, self.available, self.suspended) || ready != count {
            return Err(format!(
                "groups 4: {count} in lines, {available} available, {suspended} suspended, {ready} ready"
            ));
        }
        let mut free = 0;
        let mut next = self.free;
        while let Some(group) = self.groups.get(next as usize).filter(|_| free <= self.groups.len()) {
            free += 1;
            next = group.next;
        }
        if used != self.index.len() || used + free != self.groups.len() {
            return Err(format!("groups 1: {used} used and {free} free of {}", self.groups.len()));
        }
        Ok(())
    }
}
