//! PURE. One key's states.
//!
//! # State table
//!
//! What each operation does to a key, and where it is found in each state. `=` is no effect; blank cannot happen.
//! A wait whose deadline has passed counts as the state in the last column, whether anybody looked or not.
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
//! With strict backoff, a wait that is a backoff gets shorter by no add, and a lease that ends as a failure waits for
//! its backoff also where it is dirty, or would wait for less.

use flyball_sync::Nanos;

/// "No slot": the end of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// The one place where a key lives, from its first add to the end of its last lease.
///
/// 24 bytes beside the key (up to 8 more for one without a spare value, such as an integer). What only few keys have (a wait while leased, a limit of a debounced wait) lives in side
/// tables of `QueueState`: in here it would cost every key 16 bytes.
#[derive(Debug)]
pub(crate) struct Entry<K> {
    /// `None` exactly when vacant.
    pub(crate) key: Option<K>,
    /// Waiting: the deadline. Ready and leased: since when, as far as the clock was read. Otherwise meaningless.
    pub(crate) at: Nanos,
    /// The key's hash, computed once, by the add that created the entry. Ending a lease does not hash it again; a
    /// limiter that has failures to forget or to count does.
    pub(crate) hash: u32,
    /// Grows each time the slot is vacated, so a stale lease ends nothing.
    pub(crate) generation: u16,
    pub(crate) state: State,
    pub(crate) flags: Flags,
    /// Ready and leased: the neighbours. Waiting: the position in the heap. Vacant: the next free slot.
    pub(crate) links: [u32; 2],
}

/// What an entry is, and with it what its links mean.
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
    /// As `Leased`; Ready again when the lease ends.
    LeasedDirty,
    /// As `Leased`; Waiting again when the lease ends. The wait is in the table of postponed slots.
    LeasedWaiting,
}

impl State {
    #[inline]
    pub(crate) fn is_leased(self) -> bool {
        matches!(self, Self::Leased | Self::LeasedDirty | Self::LeasedWaiting)
    }
}

/// What is true of few entries. The first two concern a wait, the others a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// The wait is a backoff.
    pub(crate) const BACKOFF: Self = Self(1);
    /// The wait has a limit beyond which no add moves it, in the table of limits.
    pub(crate) const LIMITED: Self = Self(2);
    /// Nobody guards the lease: it ends by key.
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
