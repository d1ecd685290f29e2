//! SHELL. The waiters for versions of the store. The store's `published` guards their list. A lock in each ticket, the last in order, guards the
//! outcome of its wait, so that a future can read the outcome after the store was dropped.
//!
//! # Invariants
//! 1. A ticket is waiting or ended, not both.
//! 2. Every ticket that is waiting waits for a version that is greater than the store's version.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use flyball_sync::locks::Mutex;

use crate::signal::wakers::Wakers;
use crate::{Version, WaitForError};

/// The waits for versions of one store.
#[derive(Default)]
pub(crate) struct Waiters {
    next: u64,
    /// Ordered by version, so that [`reached`](Self::reached) visits only the waits that it ends.
    waiting: BTreeMap<(Version, u64), (Waker, Ended)>,
}

/// The handle of one wait, owned by its future.
pub(crate) struct Ticket {
    number: u64,
    ended: Ended,
}

/// The outcome of a wait. Shared with the future, so that it outlives the store; set once, under the store's `published`. This lock is the
/// last in order.
type Ended = Arc<Mutex<Option<Result<Version, WaitForError>>>>;

impl Ticket {
    /// Returns the outcome of the wait; `None` while it lasts.
    pub(crate) fn outcome(&self) -> Option<Result<Version, WaitForError>> {
        *self.ended.lock()
    }
}

impl Waiters {
    /// Registers a wait for a version. If the wait is registered already, so that `ticket` is set, replaces its waker and returns the replaced one.
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

    /// Ends the waits for this version and older ones, because the store has reached it.
    pub(crate) fn reached(&mut self, version: Version, wakers: &mut Wakers) {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= version) {
            let (waker, ended) = first.remove();
            *ended.lock() = Some(Ok(version));
            wakers.extend([waker]);
        }
    }

    /// Ends every wait with an error, because the store will not reach its version.
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
