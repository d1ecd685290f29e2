//! PURE. The memory of a burst of keys, which an empty queue gives back.
//!
//! A queue that becomes empty gives its memory back if it did not need a quarter of it since it was last empty. So a queue that fills and empties again
//! and again does not allocate, and the memory of a burst is freed after the next, smaller one. Freeing takes time in proportion to the burst (and drops
//! the names of former groups), so it happens after unlocking.
//!
//! Rejected: to give memory back while keys are left. Leases refer to their slots by number, so the entries of leased keys cannot be moved.

use flyball_sync::Nanos;
use hashbrown::HashTable;

use super::{Postponed, QueueState};
use crate::state::metering::PendingSince;
use crate::state::order::sealed::ReadyQueue;
use crate::state::slots::{Slab, SparseMap};

/// The memory of an empty queue. The fields are only dropped.
#[expect(dead_code, reason = "only dropped")]
pub(crate) struct Memory<K, O> {
    slab: Slab<K>,
    keys: HashTable<u32>,
    order: O,
    postponed: SparseMap<Postponed>,
    limits: SparseMap<Nanos>,
    pending_since: Option<SparseMap<PendingSince>>,
}

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// If the queue is empty and much larger than it needs to be, returns memory that it does not need, which the caller must drop outside every lock.
    /// Called after an operation that may remove the last key.
    #[inline]
    #[must_use = "must be dropped after unlocking"]
    pub(crate) fn take_memory(&mut self) -> Option<Box<Memory<K, O>>> {
        if self.slab.live() == 0 && (self.slab.is_large() || self.order.is_oversized()) {
            self.take_memory_if_oversized()
        } else {
            None
        }
    }

    #[cold]
    fn take_memory_if_oversized(&mut self) -> Option<Box<Memory<K, O>>> {
        if !self.slab.is_oversized() && !self.order.is_oversized() {
            return None;
        }
        let memory = Memory {
            slab: self.slab.take_memory(),
            keys: std::mem::take(&mut self.keys),
            order: self.order.take_memory(),
            postponed: std::mem::take(&mut self.postponed),
            limits: std::mem::take(&mut self.limits),
            pending_since: self.meter.as_mut().map(|meter| meter.take_pending()),
        };
        Some(Box::new(memory))
    }
}
