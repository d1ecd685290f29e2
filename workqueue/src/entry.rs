//! PURE. One key's states.
//!
//! # State table
//!
//! What each operation does to a key, and where it is found in each state. `=` is no effect; blank cannot happen.
//! A wait whose deadline has passed counts as the state in the last column, whether anybody looked or not.
//!
//! | state | `add` | delayed add (t) | `get` | lease ends | `cancel` | deadline |
//! |---|---|---|---|---|---|---|
//! | absent | → Ready (tail) | → Waiting(t) | | | = | |
//! | Waiting(t) | → Ready (tail) | earlier of the two | = | | → absent | → Ready |
//! | Ready | = | = | → Leased | | → absent | |
//! | Leased | → Leased+dirty | → Leased+Waiting(t) | = | → absent, or by outcome | = | |
//! | Leased+dirty | = | = | = | → Ready (tail) | → Leased | |
//! | Leased+Waiting(t) | → Leased+dirty | earlier of the two | = | → Waiting(earlier of t and the outcome's) | → Leased | → Leased+dirty |

use flyball_ratelimit::Nanos;

/// "No slot": the end of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// The one place where a key lives, from its first add to the end of its last lease.
#[derive(Debug)]
pub(crate) struct Entry<K> {
    /// `None` exactly when vacant.
    pub(crate) key: Option<K>,
    /// The key's hash, computed once, by the add that created the entry. Ending a lease does not hash it again; a
    /// limiter that has failures to forget or to count does.
    pub(crate) hash: u64,
    /// Ready: since when. Waiting and leased-waiting: the deadline. Otherwise meaningless.
    pub(crate) at: Nanos,
    pub(crate) place: Place,
    /// Grows each time the slot is vacated, so a stale lease ends nothing.
    pub(crate) generation: u32,
}

/// Where an entry is linked in; this is the key's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the free list, not in the key table.
    Vacant { next: u32 },
    /// In the heap of deadlines, at this position.
    Waiting { position: u32 },
    /// In the order, between these neighbours.
    Ready { prev: u32, next: u32 },
    /// Held by a lease, in no list.
    Leased,
    /// Held by a lease; Ready again when it ends.
    LeasedDirty,
    /// Held by a lease; Waiting again when it ends. Keeps the turn of its deadline among equal ones.
    LeasedWaiting { turn: u32 },
}

impl Place {
    pub(crate) fn is_leased(self) -> bool {
        matches!(self, Self::Leased | Self::LeasedDirty | Self::LeasedWaiting { .. })
    }
}
