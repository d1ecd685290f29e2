//! PURE. How `Fair` lets keys in: the room of the groups, the adders that wait for it, and the records of the groups.

use super::{FIRST_GROUP, Group, Groups};
use crate::state::order::fair::{GroupLimits, GroupTag};
use crate::state::order::sealed::Admission;
use crate::state::order::{ANY_ROOM, NO_ROOM};
use crate::state::slots::List;
use crate::state::slots::NIL;

impl<G: Eq + Send + 'static> Admission for Groups<G> {
    type Tag = GroupTag<G>;
    type Class = u32;

    #[inline]
    fn is_stale(&self, tag: &GroupTag<G>) -> bool {
        tag.refresh < self.refresh
    }

    fn has_room(&mut self, tag: &mut GroupTag<G>) -> bool {
        let found = tag.group.as_ref().and_then(|name| self.find(tag.hash, name));
        tag.found = found.unwrap_or(NIL);
        match found {
            Some(index) => {
                self.set_limits(index, &tag.limits);
                self.groups[index as usize].room() > 0
            }
            None => tag.limits.limits.capacity > 0,
        }
    }

    fn adder_line(&self, tag: &GroupTag<G>) -> u32 {
        match tag.found {
            NIL if tag.limits.limits.capacity > 0 => ANY_ROOM,
            NIL => NO_ROOM,
            index => FIRST_GROUP + index,
        }
    }

    fn join_line(&mut self, line: u32) {
        if let Some(index) = line.checked_sub(FIRST_GROUP) {
            self.groups[index as usize].adders += 1;
            self.adders += 1;
        }
    }

    fn leave_line(&mut self, line: u32) {
        if let Some(index) = line.checked_sub(FIRST_GROUP) {
            self.groups[index as usize].adders -= 1;
            self.adders -= 1;
            self.release(index);
        }
    }

    fn classes_with_room(&mut self, mut each: impl FnMut(u32)) {
        for index in self.roomier.drain(..) {
            self.groups[index as usize].is_roomier = false;
            each(FIRST_GROUP + index);
        }
    }

    fn has_line(&self, line: u32) -> bool {
        line < FIRST_GROUP || self.group_of(line).is_some()
    }

    fn room(&self, line: u32) -> usize {
        match line {
            ANY_ROOM => usize::MAX,
            NO_ROOM => 0,
            line => self.group_of(line).map_or(0, Group::room),
        }
    }

    fn class(&mut self, tag: &mut GroupTag<G>) -> u32 {
        if tag.found != NIL {
            return tag.found;
        }
        let GroupTag { group: name, hash, limits: GroupLimits { limits, rate }, .. } = tag;
        let Some(new) = name.take() else { unreachable!("`class` is called once for each tag") };
        let index = match self.groups.get_mut(self.free as usize) {
            Some(group) => {
                *name = Some(std::mem::replace(&mut group.name, new));
                let index = self.free;
                self.free = group.next;
                (group.hash, group.limits, group.allowed) = (*hash, *limits, limits.max_leased as usize);
                index
            }
            None => {
                self.groups.push(Group {
                    name: new,
                    hash: *hash,
                    line: List::default(),
                    leased: 0,
                    keys: 0,
                    adders: 0,
                    is_roomier: false,
                    limits: *limits,
                    allowed: limits.max_leased as usize,
                    left: 0,
                    before: NIL,
                    next: NIL,
                });
                self.groups.len() as u32 - 1
            }
        };
        if self.rates.is_some() {
            self.insert_rate(index, *rate);
        }
        let groups = &self.groups;
        self.index.insert_unique(*hash, index, |other| groups[*other as usize].hash);
        index
    }

    fn admit(&mut self, slot: u32, group: u32) {
        let index = slot as usize;
        if index >= self.of.len() {
            self.of.resize(index + 1, NIL);
        }
        self.of[index] = group;
        self.groups[group as usize].keys += 1;
    }

    fn vacate(&mut self, slot: u32) {
        let index = self.of[slot as usize];
        self.groups[index as usize].keys -= 1;
        self.note_room(index);
        self.release(index);
    }
}
