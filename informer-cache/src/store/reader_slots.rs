//! SHELL. A separate lock for each reader thread, so that readers do not contend for the lock of the published state.
//!
//! Taking a lock writes to its cache line, even if the lock is taken for reading. So one shared lock serialises the readers of all cores. Here, each
//! thread has a **reader slot** instead: its own lock, which guards a reference to the published state. Between two writes, the thread reads through
//! its slot. (The idea is from Dice and Kogan, *BRAVO: Biased Locking for Reader-Writer Locks*, 2019. Here each slot contains a lock, so that a
//! lookup needs no unsafe code.) If there are more threads than slots, some threads share a slot. A thread whose slot is in use takes the lock of the
//! published state to read.
//!
//! Before a writer changes the state, it takes the lock of each filled slot in turn and clears the slot. So it waits for the lookups that use these
//! slots. To keep this cheap, a slot is filled only after `lookups_to_fill` lookups without a write in between. So while writes are frequent, no slot
//! is filled, and a writer has nothing to clear.
//!
//! | data | guarded by |
//! |---|---|
//! | a slot's reference, and its count of lookups | the slot's lock |
//! | `filled` | the lock of the published state: bits are set under its read lock, and cleared under its write lock |
//! | `writes` | the lock of the published state: read under its read lock, changed under its write lock |
//!
//! # Invariants
//! 1. A filled slot refers to the current published state. (A slot is filled under the read lock of that state. A thread that takes the write lock
//!    clears the slots before it changes the state.)
//! 2. The bit of a filled slot is set in `filled`.
//!
//! Lock order: the lock of the published state before the lock of a slot. A lookup through a slot takes no other lock.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use crossbeam_utils::CachePadded;
use flyball_sync::locks::{AtomicU64, Mutex, Ordering, thread_number};

/// The reader slots of a store; see the [module](self).
pub(crate) struct ReaderSlots<T> {
    slots: Box<[ReaderSlot<T>]>,
    /// One bit for each slot, which is set while the slot is filled.
    filled: AtomicU64,
    /// The number of calls of [`clear`](Self::clear): one for each time that the write lock of the published state was taken.
    writes: AtomicU64,
    lookups_to_fill: u32,
}

/// The number of reader slots, and the number of lookups after which a slot is filled. Both affect only performance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReaderSlotOptions {
    /// At most 64; a larger number counts as 64. If it is 0, every lookup takes the lock of the published state.
    pub(crate) slots: usize,
    /// A slot is filled after this many lookups without a write in between.
    pub(crate) lookups_to_fill: u32,
}

impl Default for ReaderSlotOptions {
    /// Two slots for each core, rounded up to a power of two between 8 and 32, so that threads that run at the same time seldom share a slot.
    fn default() -> Self {
        // Computed once: `available_parallelism` reads files.
        static SLOTS: OnceLock<usize> = OnceLock::new();
        let cores = || available_parallelism().map_or(1, NonZeroUsize::get);
        let slots = *SLOTS.get_or_init(|| cores().saturating_mul(2).next_power_of_two().clamp(8, 32));
        Self { slots, lookups_to_fill: 32 }
    }
}

/// Each slot is padded to two cache lines, because processors fetch cache lines in pairs.
type ReaderSlot<T> = CachePadded<Mutex<SlotState<T>>>;

struct SlotState<T> {
    held: Option<Arc<T>>,
    /// The number of lookups since the write with the number `since`.
    lookups: u32,
    since: u64,
}

impl<T> ReaderSlots<T> {
    pub(crate) fn new(options: ReaderSlotOptions) -> Self {
        let slot = || ReaderSlot::new(Mutex::new(SlotState { held: None, lookups: 0, since: 0 }));
        let slots = std::iter::repeat_with(slot).take(options.slots.min(64)).collect();
        Self {
            slots,
            filled: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            lookups_to_fill: options.lookups_to_fill,
        }
    }

    /// Returns the reader slot of this thread, and its bit.
    fn slot_of_thread(&self) -> Option<(&ReaderSlot<T>, u64)> {
        if self.slots.is_empty() {
            return None;
        }
        let at = thread_number() % self.slots.len();
        Some((&self.slots[at], 1 << at))
    }

    /// Calls `read` with the state in the slot of this thread, and returns its result. If the slot is empty or in use, returns `Err` with `read`
    /// itself.
    pub(crate) fn with_state<F, R>(&self, read: F) -> Result<R, F>
    where
        F: FnOnce(&Arc<T>) -> R,
    {
        let Some((slot, bit)) = self.slot_of_thread() else { return Err(read) };
        // Ordering: Relaxed, because the bit is only a hint. The content of the slot, read under its lock, decides.
        if self.filled.load(Ordering::Relaxed) & bit == 0 {
            return Err(read);
        }
        // `try_lock`, because another thread, or an outer call on this thread, may hold the slot.
        let Some(state) = slot.try_lock() else { return Err(read) };
        match &state.held {
            Some(held) => Ok(read(held)),
            None => Err(read),
        }
    }

    /// Counts a lookup, and fills the slot after `lookups_to_fill` lookups without a write in between. The caller holds the read lock of the
    /// published state.
    pub(crate) fn count_lookup(&self, published: &Arc<T>) {
        let Some((slot, bit)) = self.slot_of_thread() else { return };
        let Some(mut state) = slot.try_lock() else { return };
        // Ordering: Relaxed, because the counter is written under the write lock of the published state, and the caller holds its read lock.
        let since = self.writes.load(Ordering::Relaxed);
        if state.since != since {
            (state.since, state.lookups) = (since, 0);
        }
        // The addition saturates. A thread that finds its slot in use may count a lookup although the slot is filled, so the count can grow until the
        // next write.
        state.lookups = state.lookups.saturating_add(1);
        if state.lookups >= self.lookups_to_fill && state.held.is_none() {
            state.held = Some(published.clone());
            // Ordering: Relaxed, because correctness depends only on the load under the write lock, in `clear`.
            self.filled.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Waits until no lookup uses a filled slot, and clears these slots. The caller holds the write lock of the published state and a reference to
    /// that state, so clearing a slot never drops the last reference.
    #[inline]
    pub(crate) fn clear(&self) {
        if self.slots.is_empty() {
            return;
        }
        // Ordering: Relaxed for all accesses in this function: other threads write `writes` and `filled` only while they hold the lock of the
        // published state, and the caller holds its write lock.
        self.writes.store(self.writes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Ordering: as above.
        let mut filled = self.filled.load(Ordering::Relaxed);
        if filled == 0 {
            return;
        }
        // Ordering: as above.
        self.filled.store(0, Ordering::Relaxed);
        while filled != 0 {
            let at = filled.trailing_zeros() as usize;
            filled &= filled - 1;
            self.slots[at].lock().held = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKUPS_TO_FILL: u32 = 32;

    fn slots(slots: usize) -> ReaderSlots<u8> {
        ReaderSlots::new(ReaderSlotOptions { slots, lookups_to_fill: LOOKUPS_TO_FILL })
    }

    fn seen(slots: &ReaderSlots<u8>) -> Option<u8> {
        slots.with_state(|held| **held).ok()
    }

    #[test]
    fn fills_slot_after_quiet_lookups_and_clears_it_on_write() {
        let (slots, published) = (slots(3), Arc::new(7));
        for _ in 0..3 {
            for _ in 0..LOOKUPS_TO_FILL {
                assert_eq!(seen(&slots), None);
                slots.count_lookup(&published);
            }
            assert_eq!(seen(&slots), Some(7));
            slots.clear();
            assert_eq!((seen(&slots), Arc::strong_count(&published)), (None, 1));
            // A write resets the count of lookups.
            (1..LOOKUPS_TO_FILL).for_each(|_| slots.count_lookup(&published));
            slots.clear();
        }
    }

    #[test]
    fn nested_lookup_falls_back_to_the_lock() {
        let (slots, published) = (slots(1), Arc::new(7));
        (0..LOOKUPS_TO_FILL).for_each(|_| slots.count_lookup(&published));
        let inner = slots.with_state(|_| {
            slots.count_lookup(&published);
            seen(&slots)
        });
        assert_eq!((inner.ok(), seen(&slots)), (Some(None), Some(7)));
    }

    #[test]
    fn lookup_count_saturates() {
        let (slots, published) = (slots(1), Arc::new(7));
        slots.slots[0].lock().lookups = u32::MAX - 1;
        (0..3).for_each(|_| slots.count_lookup(&published));
        assert_eq!(seen(&slots), Some(7));
    }

    #[test]
    fn allows_zero_and_at_most_64_slots() {
        let published = Arc::new(7);
        let none = slots(0);
        (0..2 * LOOKUPS_TO_FILL).for_each(|_| none.count_lookup(&published));
        none.clear();
        assert_eq!((seen(&none), Arc::strong_count(&published)), (None, 1));
        assert_eq!(slots(usize::MAX).slots.len(), 64);
    }
}
