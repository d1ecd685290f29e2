//! PURE. Who waits for which version of the store.
//!
//! # Invariants
//! 1. A ticket is waiting or ended, not both.
//! 2. Nobody waits for a version that was reached at the last [`reached`](Waiters::reached).

use std::collections::{BTreeMap, HashMap};
use std::task::Waker;

use crate::wakers::Wakers;
use crate::{Version, WaitForError};

/// The waits for versions of one store.
#[derive(Default)]
pub(crate) struct Waiters {
    next: u64,
    /// By version first, so that those who are not concerned cost nothing.
    waiting: BTreeMap<(Version, u64), Waker>,
    /// What ended a wait whose future has not looked since.
    ended: HashMap<u64, Result<Version, WaitForError>>,
}

impl Waiters {
    /// Waits for a version, again if there is a ticket. Gives back the waker that is replaced.
    pub(crate) fn wait(&mut self, ticket: &mut Option<u64>, version: Version, waker: Waker) -> Option<Waker> {
        let ticket = *ticket.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.waiting.insert((version, ticket), waker)
    }

    /// What ended a wait, once.
    pub(crate) fn outcome(&mut self, ticket: u64) -> Option<Result<Version, WaitForError>> {
        self.ended.remove(&ticket)
    }

    /// The store is at this version.
    pub(crate) fn reached(&mut self, version: Version, wakers: &mut Wakers) {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= version) {
            let ((_, ticket), waker) = first.remove_entry();
            self.ended.insert(ticket, Ok(version));
            wakers.extend([waker]);
        }
    }

    /// What everybody waits for will not come.
    pub(crate) fn end_all(&mut self, error: WaitForError, wakers: &mut Wakers) {
        for ((_, ticket), waker) in std::mem::take(&mut self.waiting) {
            self.ended.insert(ticket, Err(error));
            wakers.extend([waker]);
        }
    }

    /// A wait is given up. Gives back its waker.
    pub(crate) fn forget(&mut self, ticket: u64, version: Version) -> Option<Waker> {
        self.ended.remove(&ticket);
        self.waiting.remove(&(version, ticket))
    }

    /// Walks the invariants.
    pub(crate) fn check(&self, version: Version) -> Result<(), String> {
        if self.waiting.keys().any(|(_, ticket)| self.ended.contains_key(ticket)) {
            return Err("waiters invariant 1: a wait that ended and goes on".into());
        }
        match self.waiting.keys().any(|(wanted, _)| *wanted <= version) {
            true => Err("waiters invariant 2: a version was reached and somebody waits for it".into()),
            false => Ok(()),
        }
    }
}
