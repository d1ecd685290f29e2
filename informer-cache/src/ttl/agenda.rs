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
pub(super) struct Place {
    pub(super) deadline: Nanos,
    pub(super) ticket: u64,
}

impl Place {
    /// The deadline of what lives for ever. It has no place in the agenda.
    pub(super) const NEVER: Nanos = Nanos::MAX;
}

/// The deadlines of one store.
pub(super) struct Agenda<K> {
    state: Mutex<State<K>>,
}

struct State<K> {
    places: BTreeMap<Place, Entry<K>>,
    last: u64,
}

struct Entry<K> {
    key: Arc<K>,
    /// A sweep that takes it for gone before it is published would lose it.
    settled: bool,
}

impl<K> Agenda<K> {
    /// A ticket, greater than all before.
    pub(super) fn ticket(&self) -> u64 {
        let mut state = self.state.lock();
        state.last += 1;
        state.last
    }

    /// A place for a deadline, unless that is never.
    pub(super) fn enter(&self, deadline: Nanos, key: &Arc<K>) -> Place {
        let key = key.clone();
        let mut state = self.state.lock();
        state.last += 1;
        let place = Place { deadline, ticket: state.last };
        if deadline != Place::NEVER {
            state.places.insert(place, Entry { key, settled: false });
        } else {
            drop(state);
            drop(key);
        }
        place
    }

    /// The write is over when what this returns is dropped, also by a panic.
    pub(super) fn settle_after(&self, place: Place) -> Settle<'_, K> {
        Settle { agenda: self, place }
    }

    pub(super) fn leave(&self, place: Place) {
        if place.deadline == Place::NEVER {
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
    pub(super) fn due(&self, now: Nanos, most: usize) -> Vec<(Place, Arc<K>)> {
        let now = Place { deadline: now, ticket: 0 };
        let state = self.state.lock();
        let due = state.places.range(..now).filter(|(_, entry)| entry.settled);
        due.take(most).map(|(place, entry)| (*place, entry.key.clone())).collect()
    }

    pub(super) fn is_settled(&self, place: Place) -> bool {
        self.state.lock().places.get(&place).is_some_and(|entry| entry.settled)
    }
}

/// What stored objects know of the agenda, whatever the keys are.
pub(super) trait Leave: Send + Sync {
    fn leave(&self, place: Place);
}

impl<K: Send + Sync> Leave for Agenda<K> {
    fn leave(&self, place: Place) {
        self.leave(place);
    }
}

/// A write that is not over.
pub(super) struct Settle<'a, K> {
    agenda: &'a Agenda<K>,
    place: Place,
}

impl<K> Drop for Settle<'_, K> {
    fn drop(&mut self) {
        // Gone already, where the write was stale or somebody wrote over it.
        if let Some(entry) = self.agenda.state.lock().places.get_mut(&self.place) {
            entry.settled = true;
        }
    }
}

// Not derived: nothing is asked of the keys.
impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self { state: Mutex::new(State { places: BTreeMap::new(), last: 0 }) }
    }
}
