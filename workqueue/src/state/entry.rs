//! PURE. The entry of a key, and its states.
//!
//! # State table
//!
//! The table shows the effect of each operation on a key in each state. `=` means no effect; a blank cell means that the operation cannot occur in
//! that state. Once the deadline of a key has passed, the key counts as being in the state that the last column gives, even if the queue has not
//! processed the deadline yet.
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
//! Strict backoff changes two things. An add does not shorten a wait that is a backoff. And if a lease ends as a failure, the key waits for its
//! backoff, even if the key is dirty or has a wait with an earlier deadline.

use flyball_sync::Nanos;

/// The value of a link that refers to no slot, at the end of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// The entry of a key, from its first add until it leaves the queue.
///
/// Besides the key, an entry takes 24 bytes (up to 8 more for a key type without a niche, such as an integer). Data that only few keys have, namely a
/// wait while leased and the limit of a debounced wait, is in side tables of `QueueState`; in the entry, this data would cost 16 bytes for every key.
#[derive(Debug)]
pub(crate) struct Entry<K> {
    /// `None` exactly when vacant.
    pub(crate) key: Option<K>,
    /// If waiting, the deadline. If Ready or leased, the time at which that state began, according to the last reading of the clock. Otherwise
    /// meaningless.
    pub(crate) at: Nanos,
    /// The hash of the key. The add that created the entry computed it, so that the queue need not hash the key again when a lease ends. (A limiter
    /// that forgets or counts failures does hash the key.)
    pub(crate) hash: u32,
    /// Incremented each time the slot is vacated, so that a stale lease id has no effect.
    pub(crate) generation: u16,
    pub(crate) state: State,
    pub(crate) flags: Flags,
    /// If Ready or leased, the neighbours in the list. If waiting, the position in the heap. If vacant, the next free slot.
    pub(crate) links: [u32; 2],
}

/// The state of an entry, which also determines the meaning of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The entry is in the free list, and not in the key table.
    Vacant,
    /// The entry is in a heap of deadlines.
    Waiting,
    /// The entry is in a line of the order.
    Ready,
    /// The entry is in a list of leases.
    Leased,
    /// Like `Leased`, but the key becomes Ready when the lease ends.
    LeasedDirty,
    /// Like `Leased`, but the key becomes Waiting when the lease ends. The wait is in `QueueState::postponed`.
    LeasedWaiting,
}

impl State {
    #[inline]
    pub(crate) fn is_leased(self) -> bool {
        matches!(self, Self::Leased | Self::LeasedDirty | Self::LeasedWaiting)
    }
}

/// Flags that are set for only a few entries. The first two describe a wait, the others a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// The wait is a backoff.
    pub(crate) const BACKOFF: Self = Self(1);
    /// The wait has a limit, beyond which no add moves its deadline. The limit is in `QueueState::limits`.
    pub(crate) const LIMITED: Self = Self(2);
    /// The lease was detached: it has no `Lease` guard, and a caller ends it by passing the key.
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
