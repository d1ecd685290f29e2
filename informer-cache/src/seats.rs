//! SHELL. Where readers look, so that they do not fight for one lock.
//!
//! Whoever takes a lock writes its cache line, readers too; so however many cores there are, they read one after the other. Here every
//! thread has a **seat**: a lock of its own with the address of what is published, from which it reads while nobody writes. (Dice and Kogan,
//! *BRAVO: Biased Locking for Reader-Writer Locks*, 2019, with a lock for each slot, so that a look needs no unsafe code.)
//!
//! A writer clears the seats that are taken before it changes anything. That costs him a lock for each, so a seat is taken only after so many
//! looks without a write in between: where many write, there is nothing to clear and nothing to pay.
//!
//! # Invariants
//! 1. A seat that holds something holds what is published. (It is taken under the read lock of that; and cleared under its write lock,
//!    by everybody who takes that, before he changes anything.)
//! 2. The bit of a seat that holds something is set.
//!
//! Order of locks: that of what is published before a seat; who looks from a seat takes no other.

use std::sync::Arc;

use crate::sync::{AtomicU64, Mutex, Ordering, QUIET, thread_number};

/// A seat for each thread, or for a few; see the [module](self).
pub(crate) struct Seats<T> {
    seats: Box<[Seat<T>]>,
    /// Which seats hold something.
    taken: AtomicU64,
    /// How often they were cleared.
    writes: AtomicU64,
}

/// In cache lines of its own: pairs of lines are fetched together.
#[repr(align(128))]
struct Seat<T>(Mutex<Sitting<T>>);

struct Sitting<T> {
    held: Option<Arc<T>>,
    /// Looks since the write of this number.
    looks: u32,
    since: u64,
}

impl<T> Seats<T> {
    /// So many, 64 at most; none is right, too.
    pub(crate) fn new(count: usize) -> Self {
        let seat = || Seat(Mutex::new(Sitting { held: None, looks: 0, since: 0 }));
        let seats = std::iter::repeat_with(seat).take(count.min(64)).collect();
        Self { seats, taken: AtomicU64::new(0), writes: AtomicU64::new(0) }
    }

    /// The seat of this thread, and its bit.
    fn mine(&self) -> Option<(&Seat<T>, u64)> {
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
        let Some(sitting) = seat.0.try_lock() else { return Err(look) };
        match &sitting.held {
            Some(held) => Ok(look(held)),
            None => Err(look),
        }
    }

    /// Somebody looked at what is published, and still holds its read lock.
    pub(crate) fn looked(&self, published: &Arc<T>) {
        let Some((seat, bit)) = self.mine() else { return };
        let Some(mut sitting) = seat.0.try_lock() else { return };
        // Ordering: Relaxed, it is written under the write lock of what is published.
        let since = self.writes.load(Ordering::Relaxed);
        if sitting.since != since {
            (sitting.since, sitting.looks) = (since, 0);
        }
        sitting.looks += 1;
        if sitting.looks >= QUIET && sitting.held.is_none() {
            sitting.held = Some(published.clone());
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
            self.seats[at].0.lock().held = None;
        }
    }
}
