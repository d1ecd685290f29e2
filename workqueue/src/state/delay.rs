//! PURE. The deadlines of waiting keys, in the heaps of the order.

use flyball_sync::Nanos;

use super::QueueState;
use crate::state::deadlines::Deadlines;
use crate::state::order::sealed::ReadyQueue;

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// Returns the earliest deadline and the slot that it belongs to.
    #[inline]
    pub(super) fn first_wait(&self) -> Option<(Nanos, u32)> {
        self.order.heaps().filter_map(Deadlines::first).min()
    }

    /// Returns the number of `Waiting` keys, including those whose deadline has passed. Leased keys that wait do not count.
    #[inline]
    pub(super) fn waits(&self) -> usize {
        self.order.heaps().map(Deadlines::len).sum()
    }

    /// Like [`survey`](Self::survey), but keeps the result up to date, so that the next call need not count again.
    pub(super) fn passed(&mut self, by: Nanos, most: usize) -> (usize, Option<Nanos>) {
        self.order.heaps_mut().fold((0, None), |(count, next), heap| {
            let (more, other) = heap.passed(by, most);
            (count + more, next.into_iter().chain(other).min())
        })
    }

    /// Returns the number of deadlines at or before `by`, and the first deadline after `by`. Stops counting once the count exceeds `most`; in that
    /// case the second value may be wrong. O(count).
    pub(super) fn survey(&self, by: Nanos, most: usize) -> (usize, Option<Nanos>) {
        let mut found = (0, None);
        self.order.heaps().for_each(|heap| heap.survey(by, most, &mut found));
        found
    }

    /// Returns the slots whose deadlines are after `by`, earliest first. O(n log n).
    pub(super) fn waiting_after(&self, by: Nanos) -> Vec<u32> {
        let deadline =
            |heap: &Deadlines, slot| (self.slab.get(slot).at, heap.sequence(&self.slab, slot), slot);
        let all = self
            .order
            .heaps()
            .flat_map(|heap| heap.slots().into_iter().map(move |slot| deadline(heap, slot)));
        let mut waiting: Vec<_> = all.filter(|(at, ..)| *at > by).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(.., slot)| slot).collect()
    }

    /// Returns the next sequence number, which orders the new deadline among equal deadlines. Once all 2³² numbers are used up, the existing
    /// deadlines are renumbered in their current order, which takes O(n log n).
    #[inline]
    pub(super) fn next_sequence(&mut self) -> u32 {
        if self.sequence == u32::MAX {
            self.renumber();
        }
        self.sequence += 1;
        self.sequence
    }

    #[cold]
    fn renumber(&mut self) {
        let waiting = self
            .order
            .heaps()
            .flat_map(|heap| heap.slots().into_iter().map(|slot| (heap.sequence(&self.slab, slot), slot)));
        let mut sequences: Vec<_> =
            waiting.chain(self.postponed.iter().map(|(slot, own)| (own.sequence, slot))).collect();
        sequences.sort_unstable();
        let mut renumbered = vec![0; sequences.iter().map(|&(_, slot)| slot as usize + 1).max().unwrap_or(0)];
        for (sequence, (_, slot)) in (1..).zip(&sequences) {
            renumbered[*slot as usize] = sequence;
        }
        for (slot, postponed) in self.postponed.values_mut() {
            postponed.sequence = renumbered[slot as usize];
        }
        self.order.heaps_mut().for_each(|heap| heap.renumber(|slot| renumbered[slot as usize]));
        self.sequence = sequences.len() as u32;
    }
}
