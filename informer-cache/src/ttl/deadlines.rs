//! SHELL. Which deadlines there are, in order.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `places` | the key of every deadline, and whether the write that made it is over |
//! | `last` | the last ticket |
//!
//! No code of the user's runs under the lock: places are ordered by numbers, and keys are shared, so that they are neither cloned nor dropped in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use flyball_sync::Nanos;

use flyball_sync::locks::Mutex;

/// Where a deadline is: the earliest first, and of equal ones the write that came first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) deadline: Nanos,
    pub(super) ticket: u64,
}

impl Position {
    /// The deadline of what lives for ever. It has no place in the expiry queue.
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
    /// A sweep that takes it for gone before it is published would lose it.
    settled: bool,
}

impl<K> ExpiryQueue<K> {
    /// A ticket, greater than all before.
    pub(super) fn ticket(&self) -> u64 {
        let mut state = self.state.lock();
        state.last += 1;
        state.last
    }

    /// A place for a deadline, unless that is never.
    pub(super) fn enter(&self, deadline: Nanos, key: &Arc<K>) -> Position {
        let key = key.clone();
        let mut state = self.state.lock();
        state.last += 1;
        let place = Position { deadline, ticket: state.last };
        if deadline != Position::NEVER {
            state.places.insert(place, Entry { key, settled: false });
        } else {
            drop(state);
            drop(key);
        }
        place
    }

    /// The write is over when what this returns is dropped, also by a panic.
    pub(super) fn settle_after(&self, place: Position) -> Settle<'_, K> {
        Settle { expiry: self, place }
    }

    pub(super) fn leave(&self, place: Position) {
        if place.deadline == Position::NEVER {
            return;
        }
        let left = self.state.lock().places.remove(&place);
        // The last of a key, maybe.
        drop(left);
    }

    /// The earliest deadline.
    pub(super) fn first(&self) -> Option<Nanos> {
        self.state.lock().places.first_key_value().map(|(place, _)| place.deadline)
    }

    /// The first of those that have passed and whose writes are over, at most so many.
    pub(super) fn due(&self, now: Nanos, most: usize) -> Vec<(Position, Arc<K>)> {
        let now = Position { deadline: now, ticket: 0 };
        let state = self.state.lock();
        let due = state.places.range(..now).filter(|(_, entry)| entry.settled);
        due.take(most).map(|(place, entry)| (*place, entry.key.clone())).collect()
    }

    pub(super) fn is_settled(&self, place: Position) -> bool {
        self.state.lock().places.get(&place).is_some_and(|entry| entry.settled)
    }
}

/// What stored objects know of the expiry queue, whatever the keys are.
pub(super) trait Leave: Send + Sync {
    fn leave(&self, place: Position);
}

impl<K: Send + Sync> Leave for ExpiryQueue<K> {
    fn leave(&self, place: Position) {
        self.leave(place);
    }
}

/// A write that is not over.
pub(super) struct Settle<'a, K> {
    expiry: &'a ExpiryQueue<K>,
    place: Position,
}

impl<K> Drop for Settle<'_, K> {
    fn drop(&mut self) {
        // Gone already, where the write was stale or somebody wrote over it.
        if let Some(entry) = self.expiry.state.lock().places.get_mut(&self.place) {
            entry.settled = true;
        }
    }
}

// Not derived: nothing is asked of the keys.
impl<K> Default for ExpiryQueue<K> {
    fn default() -> Self {
        Self { state: Mutex::new(State { places: BTreeMap::new(), last: 0 }) }
    }
}
