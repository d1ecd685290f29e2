//! SHELL. The queue of the deadlines of a store.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `places` | the key of every deadline, and whether its write is complete |
//! | `last` | the last ticket |
//!
//! No user code runs under the lock: positions are compared as numbers, and keys are in an `Arc`, so no key is cloned or dropped under the lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use flyball_sync::Nanos;

use flyball_sync::locks::Mutex;

/// A position in the expiry queue. Positions are ordered by deadline and, if the deadlines are equal, by the order of the writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) deadline: Nanos,
    pub(super) ticket: u64,
}

impl Position {
    /// Used as the deadline of an object that never expires. Such an object is not in the expiry queue.
    pub(super) const NEVER: Nanos = Nanos::MAX;
}

/// The queue of the deadlines of one store.
pub(super) struct ExpiryQueue<K> {
    state: Mutex<State<K>>,
}

struct State<K> {
    places: BTreeMap<Position, Entry<K>>,
    last: u64,
}

struct Entry<K> {
    key: Arc<K>,
    /// Whether the write of the object is complete. Sweeps skip an entry whose write is not complete: its object may not be published yet, so a sweep
    /// would not find the object and would remove the entry too early.
    complete: bool,
}

impl<K> ExpiryQueue<K> {
    /// Returns a ticket, which is greater than all earlier ones.
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

    /// Returns a guard that marks the write as complete when it is dropped, even if a panic drops it.
    pub(super) fn complete_after(&self, place: Position) -> CompleteOnDrop<'_, K> {
        CompleteOnDrop { expiry: self, place }
    }

    pub(super) fn leave(&self, place: Position) {
        if place.deadline == Position::NEVER {
            return;
        }
        let left = self.state.lock().places.remove(&place);
        // The entry is dropped after the lock is released, because it may have the last reference to the key.
        drop(left);
    }

    /// Returns the earliest deadline.
    pub(super) fn first(&self) -> Option<Nanos> {
        self.state.lock().places.first_key_value().map(|(place, _)| place.deadline)
    }

    /// Returns the positions and keys of the earliest deadlines that have passed, at most `most` of them. Skips deadlines whose writes are not
    /// complete.
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

/// The expiry queue without the type of its keys, so that a stored object can refer to it.
pub(super) trait Leave: Send + Sync {
    fn leave(&self, place: Position);
}

impl<K: Send + Sync> Leave for ExpiryQueue<K> {
    fn leave(&self, place: Position) {
        self.leave(place);
    }
}

/// A guard that marks a write as complete when it is dropped.
pub(super) struct CompleteOnDrop<'a, K> {
    expiry: &'a ExpiryQueue<K>,
    place: Position,
}

impl<K> Drop for CompleteOnDrop<'_, K> {
    fn drop(&mut self) {
        // There is no entry if the write was stale or if its object has already been replaced.
        if let Some(entry) = self.expiry.state.lock().places.get_mut(&self.place) {
            entry.complete = true;
        }
    }
}

// This impl is not derived, because a derived one would require that `K` implements `Default`.
impl<K> Default for ExpiryQueue<K> {
    fn default() -> Self {
        Self { state: Mutex::new(State { places: BTreeMap::new(), last: 0 }) }
    }
}
