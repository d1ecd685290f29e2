//! SHELL. Who waits for which version of the store. The list is guarded by the store's `published`; how a wait ended, by a leaf
//! lock of its ticket, so that it can be told after the store is gone.
//!
//! # Invariants
//! 1. A ticket is waiting or ended, not both.
//! 2. Nobody waits for a version that was reached at the last [`reached`](Waiters::reached).

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
    /// By version first, so that those who are not concerned cost nothing.
    waiting: BTreeMap<(Version, u64), (Waker, Ended)>,
}

/// One wait, as its future knows it.
pub(crate) struct Ticket {
    number: u64,
    ended: Ended,
}

/// What ended a wait. Shared with its future, so that it outlives the store; set once, under the store's `published`, and this lock is
/// the last in order.
type Ended = Arc<Mutex<Option<Result<Version, WaitForError>>>>;

impl Ticket {
    /// What ended the wait.
    pub(crate) fn outcome(&self) -> Option<Result<Version, WaitForError>> {
        *self.ended.lock()
    }
}

impl Waiters {
    /// Waits for a version, again if there is a ticket. Gives back the waker that is replaced.
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

    /// The store is at this version.
    pub(crate) fn reached(&mut self, version: Version, wakers: &mut Wakers) {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= version) {
            let (waker, ended) = first.remove();
            *ended.lock() = Some(Ok(version));
            wakers.extend([waker]);
        }
    }

    /// What everybody waits for will not come.
    pub(crate) fn end_all(&mut self, error: WaitForError, wakers: &mut Wakers) {
        for (waker, ended) in std::mem::take(&mut self.waiting).into_values() {
            *ended.lock() = Some(Err(error));
            wakers.extend([waker]);
        }
    }

    /// A wait is given up. Gives back its waker.
    pub(crate) fn forget(&mut self, ticket: &Ticket, version: Version) -> Option<Waker> {
        self.waiting.remove(&(version, ticket.number)).map(|(waker, _)| waker)
    }

    /// Walks the invariants.
    pub(crate) fn check(&self, version: Version) -> Result<(), String> {
        if self.waiting.values().any(|(_, ended)| ended.lock().is_some()) {
            return Err("waiters invariant 1: a wait that ended and goes on".into());
        }
        match self.waiting.keys().any(|(wanted, _)| *wanted <= version) {
            true => Err("waiters invariant 2: a version was reached and somebody waits for it".into()),
            false => Ok(()),
        }
    }
}
