//! SHELL. The deadlines of a store, in order.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `places` | the key of every deadline, and whether its write is complete |
//! | `last` | the last ticket |
//!
//! No user code runs under the lock: positions are ordered by numbers, and keys are shared, so they are neither cloned nor dropped under it.

use std::collections::BTreeMap;
use std::sync::Arc;

use flyball_sync::Nanos;

use flyball_sync::locks::Mutex;

/// A position in the expiry queue. The earliest deadline comes first; among equal deadlines, the earlier write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) deadline: Nanos,
    pub(super) ticket: u64,
}

impl Position {
    /// The deadline of an object that never expires. Such an object is not in the expiry queue.
    pub(super) const NEVER: Nanos = Nanos::MAX;
}

/// The deadlines of one store.
pub(super) struct ExpiryQueue<K> {
    state: Mutex<State<K>>,
}

struct State<K> {
    places: BTreeMap<Position, Entry<K>>,
    last: u64,
}

struct Entry<K> {
    key: Arc<K>,
    /// Whether the write is complete. Sweeps skip other entries, because before the object is published, a sweep would not find it and would remove
    /// the entry too early.
    complete: bool,
}

impl<K> ExpiryQueue<K> {
    /// Returns a ticket, greater than all earlier ones.
    pub(super) fn ticket(&self) -> u64 {
        let mut state = self.state.lock();
        state.last += 1;
        state.last
    }

    /// Adds a deadline to the queue, unless it is `NEVER`. Returns its position.
    pub(super) fn enter(&self, deadline: Nanos, key: &Arc<K>) -> Position {
        let key = key.clone();
        let mut state = self.state.lock();
        state.last += 1;
        let place = Position { deadline, ticket: state.last };
        if deadline != Position::NEVER {
            state.places.insert(place, Entry { key, complete: false });
        } else {
            drop(state);
            drop(key);
        }
        place
    }

    /// Returns a guard that marks the write as complete when dropped, even during a panic.
    pub(super) fn complete_after(&self, place: Position) -> CompleteOnDrop<'_, K> {
        CompleteOnDrop { expiry: self, place }
    }

    pub(super) fn leave(&self, place: Position) {
        if place.deadline == Position::NEVER {
            return;
        }
        let left = self.state.lock().places.remove(&place);
        // Dropped after unlocking, because this may be the last reference to the key.
        drop(left);
    }

    /// Returns the earliest deadline.
    pub(super) fn first(&self) -> Option<Nanos> {
        self.state.lock().places.first_key_value().map(|(place, _)| place.deadline)
    }

    /// Returns the positions and keys of the first deadlines that have passed and whose writes are complete, at most `most`.
    pub(super) fn due(&self, now: Nanos, most: usize) -> Vec<(Position, Arc<K>)> {
        let now = Position { deadline: now, ticket: 0 };
        let state = self.state.lock();
        let due = state.places.range(..now).filter(|(_, entry)| entry.complete);
        due.take(most).map(|(place, entry)| (*place, entry.key.clone())).collect()
    }

    pub(super) fn is_complete(&self, place: Position) -> bool {
        self.state.lock().places.get(&place).is_some_and(|entry| entry.complete)
    }
}

/// The expiry queue as stored objects refer to it, without the type of the keys.
pub(super) trait Leave: Send + Sync {
    fn leave(&self, place: Position);
}

impl<K: Send + Sync> Leave for ExpiryQueue<K> {
    fn leave(&self, place: Position) {
        self.leave(place);
    }
}

/// Marks a write as complete when dropped.
pub(super) struct CompleteOnDrop<'a, K> {
    expiry: &'a ExpiryQueue<K>,
    place: Position,
}

impl<K> Drop for CompleteOnDrop<'_, K> {
    fn drop(&mut self) {
        // The entry is absent if the write was stale, or if its object was replaced meanwhile.
        if let Some(entry) = self.expiry.state.lock().places.get_mut(&self.place) {
            entry.complete = true;
        }
    }
}

// Not derived, because a derive would require `Default` of the keys.
impl<K> Default for ExpiryQueue<K> {
    fn default() -> Self {
        Self { state: Mutex::new(State { places: BTreeMap::new(), last: 0 }) }
    }
}
