//! SHELL. Where readers look, so that they do not fight for one lock.
//!
//! Whoever takes a lock writes its cache line, readers too; so however many cores there are, they read one after the other. Here every
//! thread has a **seat**: a lock with the address of what is published, from which it reads while nobody writes. (Dice and Kogan,
//! *BRAVO: Biased Locking for Reader-Writer Locks*, 2019, with a lock for each slot, so that a look needs no unsafe code.) Where there are more
//! threads than seats, some share one; who finds it in use looks under the lock of what is published.
//!
//! A writer clears the seats that are taken before it changes anything. That costs him a lock for each, so a seat is taken only after so many
//! looks without a write in between: where many write, there is nothing to clear and nothing to pay.
//!
//! | what | guarded by |
//! |---|---|
//! | what a seat holds, and its looks | the seat's lock |
//! | `taken` | the lock of what is published: bits are set under its read lock, and cleared under its write lock |
//! | `writes` | the same, changed under its write lock |
//!
//! # Invariants
//! 1. A seat that holds something holds what is published. (It is taken under the read lock of that; and cleared under its write lock,
//!    by everybody who takes that, before he changes anything.)
//! 2. The bit of a seat that holds something is set.
//!
//! Order of locks: that of what is published before a seat; who looks from a seat takes no other.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use crossbeam_utils::CachePadded;
use flyball_sync::locks::{AtomicU64, Mutex, Ordering, thread_number};

/// A seat for each thread, or for a few; see the [module](self).
pub(crate) struct ReaderSlots<T> {
    seats: Box<[ReaderSlot<T>]>,
    /// Which seats hold something.
    taken: AtomicU64,
    /// How often they were cleared.
    writes: AtomicU64,
    quiet: u32,
}

/// How many seats there are, and when one is taken. Only time depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReaderSlotOptions {
    /// At most 64; none is right, too.
    pub(crate) seats: usize,
    /// A reader gets a seat after so many looks without a write.
    pub(crate) quiet: u32,
}

impl Default for ReaderSlotOptions {
    /// Two seats for each core up to 16, so that threads that run at one time seldom share one.
    fn default() -> Self {
        // Asked once: it reads files.
        static SEATS: OnceLock<usize> = OnceLock::new();
        let cores = || available_parallelism().map_or(1, NonZeroUsize::get);
        let seats = *SEATS.get_or_init(|| cores().saturating_mul(2).next_power_of_two().clamp(8, 32));
        Self { seats, quiet: 32 }
    }
}

/// In cache lines of its own: pairs of lines are fetched together.
type ReaderSlot<T> = CachePadded<Mutex<SlotState<T>>>;

struct SlotState<T> {
    held: Option<Arc<T>>,
    /// Looks since the write of this number.
    looks: u32,
    since: u64,
}

impl<T> ReaderSlots<T> {
    pub(crate) fn new(options: ReaderSlotOptions) -> Self {
        let seat = || ReaderSlot::new(Mutex::new(SlotState { held: None, looks: 0, since: 0 }));
        let seats = std::iter::repeat_with(seat).take(options.seats.min(64)).collect();
        Self { seats, taken: AtomicU64::new(0), writes: AtomicU64::new(0), quiet: options.quiet }
    }

    /// The seat of this thread, and its bit.
    fn mine(&self) -> Option<(&ReaderSlot<T>, u64)> {
        if self.seats.is_empty() {
            return None;
        }
        let at = thread_number() % self.seats.len();
        Some((&self.seats[at], 1 << at))
    }

    /// Looks from this thread's seat, if it holds something.
    pub(crate) fn look<L, R>(&self, look: L) -> Result<R, L>
    where
        L: FnOnce(&Arc<T>) -> R,
    {
        let Some((seat, bit)) = self.mine() else { return Err(look) };
        // Ordering: Relaxed, a hint. What counts is what the seat holds.
        if self.taken.load(Ordering::Relaxed) & bit == 0 {
            return Err(look);
        }
        // Not waited for: another thread has it, or this one does, further down its stack.
        let Some(state) = seat.try_lock() else { return Err(look) };
        match &state.held {
            Some(held) => Ok(look(held)),
            None => Err(look),
        }
    }

    /// Somebody looked at what is published, and still holds its read lock.
    pub(crate) fn looked(&self, published: &Arc<T>) {
        let Some((seat, bit)) = self.mine() else { return };
        let Some(mut state) = seat.try_lock() else { return };
        // Ordering: Relaxed, it is written under the write lock of what is published.
        let since = self.writes.load(Ordering::Relaxed);
        if state.since != since {
            (state.since, state.looks) = (since, 0);
        }
        // Saturating: where threads share a seat that holds something, looks go on being counted, for as long as nobody writes.
        state.looks = state.looks.saturating_add(1);
        if state.looks >= self.quiet && state.held.is_none() {
            state.held = Some(published.clone());
            // Ordering: Relaxed, it is read for what it says under the write lock.
            self.taken.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Waits for those who look from a seat, and clears them all. The caller holds the write lock of what is published, and what is
    /// published, so nothing is dropped here.
    pub(crate) fn clear(&self) {
        if self.seats.is_empty() {
            return;
        }
        // Ordering: Relaxed, all of it; the write lock that the caller holds is later than every read lock under which it was written.
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
            // Those before a write do not count.
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
