//! SHELL. The pending waits for versions of a store. The lock `published` of the store guards the list of waits. The outcome of each wait has its own
//! lock, under which no other lock is taken, so that a future can read the outcome after the store was dropped.
//!
//! # Invariants
//! 1. A wait in the list has no outcome yet.
//! 2. The version of every wait in the list is greater than the store's version.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use flyball_sync::locks::Mutex;

use crate::signal::wakers::Wakers;
use crate::{Version, WaitForError};

/// The pending waits for versions of one store.
#[derive(Default)]
pub(crate) struct Waiters {
    next: u64,
    /// Ordered by version, so that [`reached`](Self::reached) visits only the waits that it ends.
    waiting: BTreeMap<(Version, u64), (Waker, Ended)>,
}

/// The handle of one wait, which the waiting future owns.
pub(crate) struct Ticket {
    number: u64,
    ended: Ended,
}

/// The outcome of a wait. The waiting future shares it, so the outcome outlives the store. It is set once, under the store's lock `published`.
type Ended = Arc<Mutex<Option<Result<Version, WaitForError>>>>;

impl Ticket {
    /// Returns the outcome of the wait; `None` while the wait is pending.
    pub(crate) fn outcome(&self) -> Option<Result<Version, WaitForError>> {
        *self.ended.lock()
    }
}

impl Waiters {
    /// Registers a wait for a version. If `ticket` is set, the wait is registered already: the call then replaces the waker of the wait, and returns
    /// the old one.
    pub(crate) fn wait(
        &mut self,
        ticket: &mut Option<Ticket>,
        version: Version,
        waker: Waker,
    ) -> Option<Waker> {
        let ticket = ticket.get_or_insert_with(|| {
            self.next += 1;
            Ticket { number: self.next, ended: Ended::default() }
        });
        let replaced = self.waiting.insert((version, ticket.number), (waker, ticket.ended.clone()));
        replaced.map(|(waker, _)| waker)
    }

    /// Ends the waits for this version and for older versions, because the store has reached this version.
    pub(crate) fn reached(&mut self, version: Version, wakers: &mut Wakers) {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= version) {
            let (waker, ended) = first.remove();
            *ended.lock() = Some(Ok(version));
            wakers.extend([waker]);
        }
    }

    /// Ends every wait with an error.
    pub(crate) fn end_all(&mut self, error: WaitForError, wakers: &mut Wakers) {
        for (waker, ended) in std::mem::take(&mut self.waiting).into_values() {
            *ended.lock() = Some(Err(error));
            wakers.extend([waker]);
        }
    }

    /// Removes a wait whose future is dropped. Returns its waker.
    pub(crate) fn forget(&mut self, ticket: &Ticket, version: Version) -> Option<Waker> {
        self.waiting.remove(&(version, ticket.number)).map(|(waker, _)| waker)
    }

    /// Checks the invariants.
    pub(crate) fn check(&self, version: Version) -> Result<(), String> {
        if self.waiting.values().any(|(_, ended)| ended.lock().is_some()) {
            return Err("waiters invariant 1: an ended wait is still waiting".into());
        }
        match self.waiting.keys().any(|(wanted, _)| *wanted <= version) {
            true => Err("waiters invariant 2: a wait for a version that the store has reached".into()),
            false => Ok(()),
        }
    }
}
