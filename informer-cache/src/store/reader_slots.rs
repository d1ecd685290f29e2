//! SHELL. One lock per reader thread, so that readers do not contend for the lock of the published state.
//!
//! Even a reader writes the cache line of a lock that it takes, so one lock serialises the readers of all cores. Here each thread has a **reader
//! slot**: a lock with a reference to the published state, through which the thread reads between two writes. (As in Dice and Kogan, *BRAVO: Biased
//! Locking for Reader-Writer Locks*, 2019, but with a lock in each slot, so that a lookup needs no unsafe code.) If there are more threads than
//! slots, some share a slot; a thread that finds its slot in use reads under the lock of the published state.
//!
//! A writer clears the filled slots before it changes the state, and takes one lock for each. So a slot is filled only after `quiet` lookups without a
//! write in between: under frequent writes no slot is filled, and a writer has none to clear.
//!
//! | data | guarded by |
//! |---|---|
//! | a slot's reference, and its count of lookups | the slot's lock |
//! | `taken` | the lock of the published state: bits are set under its read lock, and cleared under its write lock |
//! | `writes` | the lock of the published state: read under its read lock, changed under its write lock |
//!
//! # Invariants
//! 1. A filled slot holds the published state. (A slot is filled under the read lock of that state. Every write lock clears the slots before
//!    the state changes.)
//! 2. The bit of a filled slot is set.
//!
//! Order of locks: the lock of the published state before a slot; a lookup through a slot takes no other lock.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use crossbeam_utils::CachePadded;
use flyball_sync::locks::{AtomicU64, Mutex, Ordering, thread_number};

/// A reader slot for each thread, or for a few threads; see the [module](self).
pub(crate) struct ReaderSlots<T> {
    seats: Box<[ReaderSlot<T>]>,
    /// A bit for each filled slot.
    taken: AtomicU64,
    /// The number of times the slots were cleared.
    writes: AtomicU64,
    quiet: u32,
}

/// The number of reader slots, and the number of lookups that fill a slot. Both affect only the speed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReaderSlotOptions {
    /// At most 64. With 0, every lookup takes the lock of the published state.
    pub(crate) seats: usize,
    /// A slot is filled after this many lookups without a write.
    pub(crate) quiet: u32,
}

impl Default for ReaderSlotOptions {
    /// Two slots for each core up to 16 cores, so that threads that run at the same time seldom share one.
    fn default() -> Self {
        // Computed once: `available_parallelism` reads files.
        static SEATS: OnceLock<usize> = OnceLock::new();
        let cores = || available_parallelism().map_or(1, NonZeroUsize::get);
        let seats = *SEATS.get_or_init(|| cores().saturating_mul(2).next_power_of_two().clamp(8, 32));
        Self { seats, quiet: 32 }
    }
}

/// Padded to a pair of cache lines, because processors fetch lines in pairs.
type ReaderSlot<T> = CachePadded<Mutex<SlotState<T>>>;

struct SlotState<T> {
    held: Option<Arc<T>>,
    /// Lookups since write number `since`.
    looks: u32,
    since: u64,
}

impl<T> ReaderSlots<T> {
    pub(crate) fn new(options: ReaderSlotOptions) -> Self {
        let seat = || ReaderSlot::new(Mutex::new(SlotState { held: None, looks: 0, since: 0 }));
        let seats = std::iter::repeat_with(seat).take(options.seats.min(64)).collect();
        Self { seats, taken: AtomicU64::new(0), writes: AtomicU64::new(0), quiet: options.quiet }
    }

    /// Returns the reader slot of this thread, and its bit.
    fn mine(&self) -> Option<(&ReaderSlot<T>, u64)> {
        if self.seats.is_empty() {
            return None;
        }
        let at = thread_number() % self.seats.len();
        Some((&self.seats[at], 1 << at))
    }

    /// Calls `look` with the state in this thread's slot; returns `look` if the slot is empty or in use.
    pub(crate) fn look<L, R>(&self, look: L) -> Result<R, L>
    where
        L: FnOnce(&Arc<T>) -> R,
    {
        let Some((seat, bit)) = self.mine() else { return Err(look) };
        // Ordering: Relaxed, because the bit is only a hint. The content of the slot, read under its lock, decides.
        if self.taken.load(Ordering::Relaxed) & bit == 0 {
            return Err(look);
        }
        // `try_lock`, because another thread may hold the slot, or an outer call of this thread.
        let Some(state) = seat.try_lock() else { return Err(look) };
        match &state.held {
            Some(held) => Ok(look(held)),
            None => Err(look),
        }
    }

    /// Counts a lookup under the read lock of the published state, which the caller still holds, and fills the slot after `quiet` lookups without a
    /// write.
    pub(crate) fn looked(&self, published: &Arc<T>) {
        let Some((seat, bit)) = self.mine() else { return };
        let Some(mut state) = seat.try_lock() else { return };
        // Ordering: Relaxed, because the counter is written under the write lock of the published state, and the caller holds its read lock.
        let since = self.writes.load(Ordering::Relaxed);
        if state.since != since {
            (state.since, state.looks) = (since, 0);
        }
        // Saturating, because lookups of threads that share a filled slot are counted until the next write.
        state.looks = state.looks.saturating_add(1);
        if state.looks >= self.quiet && state.held.is_none() {
            state.held = Some(published.clone());
            // Ordering: Relaxed, because only the read under the write lock matters for correctness.
            self.taken.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Waits for lookups through slots to end, and clears every filled slot. The caller holds the write lock of the published state and a reference to that
    /// state, so this drops no state.
    pub(crate) fn clear(&self) {
        if self.seats.is_empty() {
            return;
        }
        // Ordering: Relaxed for all of these. They are written under read locks, all of which were released before the caller took the write lock.
        self.writes.store(self.writes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Ordering: as above.
        let mut taken = self.taken.load(Ordering::Relaxed);
        if taken == 0 {
            return;
        }
        // Ordering: as above.
        self.taken.store(0, Ordering::Relaxed);
        while taken != 0 {
            let at = taken.trailing_zeros() as usize;
            taken &= taken - 1;
            self.seats[at].lock().held = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: u32 = 32;

    fn seats(seats: usize) -> ReaderSlots<u8> {
        ReaderSlots::new(ReaderSlotOptions { seats, quiet: QUIET })
    }

    fn seen(seats: &ReaderSlots<u8>) -> Option<u8> {
        seats.look(|held| **held).ok()
    }

    #[test]
    fn a_seat_is_taken_after_a_quiet_time_and_given_up_for_a_write() {
        let (seats, published) = (seats(3), Arc::new(7));
        for _ in 0..3 {
            for _ in 0..QUIET {
                assert_eq!(seen(&seats), None);
                seats.looked(&published);
            }
            assert_eq!(seen(&seats), Some(7));
            seats.clear();
            assert_eq!((seen(&seats), Arc::strong_count(&published)), (None, 1));
            // Lookups before a write do not count.
            (1..QUIET).for_each(|_| seats.looked(&published));
            seats.clear();
        }
    }

    #[test]
    fn who_looks_again_further_down_the_stack_is_sent_to_the_lock() {
        let (seats, published) = (seats(1), Arc::new(7));
        (0..QUIET).for_each(|_| seats.looked(&published));
        let inner = seats.look(|_| {
            seats.looked(&published);
            seen(&seats)
        });
        assert_eq!((inner.ok(), seen(&seats)), (Some(None), Some(7)));
    }

    #[test]
    fn looks_at_a_seat_that_others_use_are_counted_without_end() {
        let (seats, published) = (seats(1), Arc::new(7));
        seats.seats[0].lock().looks = u32::MAX - 1;
        (0..3).for_each(|_| seats.looked(&published));
        assert_eq!(seen(&seats), Some(7));
    }

    #[test]
    fn there_may_be_no_seat_and_are_never_more_than_bits() {
        let published = Arc::new(7);
        let none = seats(0);
        (0..2 * QUIET).for_each(|_| none.looked(&published));
        none.clear();
        assert_eq!((seen(&none), Arc::strong_count(&published)), (None, 1));
        assert_eq!(seats(usize::MAX).seats.len(), 64);
    }
}
