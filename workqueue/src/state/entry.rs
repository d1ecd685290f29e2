//! PURE. The entry of a key, and its states.
//!
//! # State table
//!
//! The table shows the effect of each operation on a key in each state. `=` means no effect; a blank cell cannot occur.
//! Once the deadline of a key has passed, the key is treated as if it were in the state in the last column, even before the queue has processed
//! the deadline.
//!
//! | state | `add` | delayed add (t) | `postpone` (t) | `get` | lease ends | `cancel` | deadline |
//! |---|---|---|---|---|---|---|---|
//! | absent | → Ready (tail) | → Waiting(t) | = | | | = | |
//! | Waiting(t₀) | → Ready (tail) | by its mode, see `wait.rs` | later of the two | = | | → absent | → Ready |
//! | Ready | = | = | → Waiting(t) | → Leased | | → absent | |
//! | Leased | → Leased+dirty | → Leased+Waiting(t) | = | = | → absent, or by outcome | = | |
//! | Leased+dirty | = | = | → Leased+Waiting(t) | = | → Ready (tail) | → Leased | |
//! | Leased+Waiting(t₀) | → Leased+dirty | by its mode | later of the two | = | → Waiting(earlier of t₀ and the outcome's) | → Leased | → Leased+dirty |
//!
//! With strict backoff, no add shortens a wait that is a backoff. And if a lease ends as a failure, the key waits for
//! its backoff, even if the key is dirty or has an earlier wait.

use flyball_sync::Nanos;

/// "No slot": the end of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// The entry of a key, from its first add until it leaves the queue.
///
/// An entry takes 24 bytes beside the key (up to 8 more for a key type without a niche, such as an integer). Data that only few keys have (a wait
/// while leased, the limit of a debounced wait) is in side tables of `QueueState`, because in the entry this data would cost every key 16 bytes.
#[derive(Debug)]
pub(crate) struct Entry<K> {
    /// `None` exactly when vacant.
    pub(crate) key: Option<K>,
    /// Waiting: the deadline. Ready and leased: the time at which the state began, by the last reading of the clock.
    /// Otherwise meaningless.
    pub(crate) at: Nanos,
    /// The key's hash, computed once by the add that created the entry, so that the end of a lease does not hash the key again. A limiter
    /// that forgets or counts failures hashes the key itself.
    pub(crate) hash: u32,
    /// Incremented each time the slot is vacated, so that a stale lease id has no effect.
    pub(crate) generation: u16,
    pub(crate) state: State,
    pub(crate) flags: Flags,
    /// Ready and leased: the neighbours. Waiting: the position in the heap. Vacant: the next free slot.
    pub(crate) links: [u32; 2],
}

/// The state of an entry, which also determines the meaning of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In the free list, not in the key table.
    Vacant,
    /// In the heap of deadlines.
    Waiting,
    /// In the order.
    Ready,
    /// In a list of leases.
    Leased,
    /// Like `Leased`; Ready again when the lease ends.
    LeasedDirty,
    /// Like `Leased`; Waiting again when the lease ends. The wait is in the table of postponed slots.
    LeasedWaiting,
}

impl State {
    #[inline]
    pub(crate) fn is_leased(self) -> bool {
        matches!(self, Self::Leased | Self::LeasedDirty | Self::LeasedWaiting)
    }
}

/// Flags that are set for few entries. The first two belong to a wait, the others to a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// The wait is a backoff.
    pub(crate) const BACKOFF: Self = Self(1);
    /// The wait has a limit beyond which no add moves it; the limit is in the table of limits.
    pub(crate) const LIMITED: Self = Self(2);
    /// The lease has no `Lease` guard: it is ended by key.
    pub(crate) const DETACHED: Self = Self(4);
    /// The lease has been reported as overdue.
    pub(crate) const REPORTED: Self = Self(8);

    #[inline]
    pub(crate) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flag: Self, on: bool) {
        if on {
            self.0 |= flag.0;
        } else {
            self.0 &= !flag.0;
        }
    }
}
