//! SHELL. A one-time signal, and the futures that wait for it.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `outcome` | `Ok` if the event has happened, `Err` if it never will; set once, never changed |
//! | `waiting` | one waker for each pending wait; empty once `outcome` is set |
//!
//! One lock guards both fields, so that a waker is stored only while `outcome` is not set. So setting the outcome wakes **all** stored wakers, not
//! only the one that was stored last. Wakers are cloned, woken and dropped outside the lock.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use flyball_sync::locks::Mutex;

use crate::Stopped;
use crate::signal::wakers::Wakers;

/// A signal that is set at most once, or fails because it will never be set.
#[derive(Default)]
pub(crate) struct Synced {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    outcome: Option<Result<(), Stopped>>,
    waiting: BTreeMap<u64, Waker>,
    next: u64,
}

impl Synced {
    /// Sets the signal. Does nothing if the signal has an outcome already.
    pub(crate) fn set(&self) {
        let mut wakers = Wakers::default();
        self.end(Ok(()), &mut wakers);
        wakers.wake();
    }

    /// Sets the outcome if there is none yet, and moves the stored wakers to `wakers`. The caller wakes them after it has released its locks.
    pub(crate) fn end(&self, outcome: Result<(), Stopped>, wakers: &mut Wakers) {
        let mut state = self.state.lock();
        if state.outcome.is_none() {
            state.outcome = Some(outcome);
            wakers.extend(std::mem::take(&mut state.waiting).into_values());
        }
    }

    /// Returns whether the signal is set.
    pub(crate) fn is_set(&self) -> bool {
        self.state.lock().outcome == Some(Ok(()))
    }

    /// Waits until the signal is set.
    ///
    /// # Errors
    /// Returns an error if the signal will never be set.
    pub(crate) fn wait(&self) -> Wait<&Self> {
        Wait::new(self)
    }
}

impl fmt::Debug for Synced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Synced").field("is_set", &self.is_set()).finish_non_exhaustive()
    }
}

/// A future that waits for a signal; made by [`Synced::wait`]. `S` is a reference or a shared pointer to the signal. Dropping the future ends the
/// wait, and does not change the signal.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Wait<S: Deref<Target = Synced>> {
    synced: S,
    ticket: Option<u64>,
}

impl<S: Deref<Target = Synced>> Wait<S> {
    pub(crate) fn new(synced: S) -> Self {
        Self { synced, ticket: None }
    }

    pub(crate) fn signal(&self) -> &S {
        &self.synced
    }
}

impl<S: Deref<Target = Synced> + Unpin> Future for Wait<S> {
    type Output = Result<(), Stopped>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = cx.waker().clone();
        let mut state = self.synced.state.lock();
        if let Some(outcome) = state.outcome {
            drop(state);
            return Poll::Ready(outcome);
        }
        let ticket = self.ticket.unwrap_or(state.next);
        state.next = state.next.max(ticket + 1);
        let replaced = state.waiting.insert(ticket, waker);
        drop(state);
        self.ticket = Some(ticket);
        drop(replaced);
        Poll::Pending
    }
}

impl<S: Deref<Target = Synced>> Drop for Wait<S> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let waker = self.synced.state.lock().waiting.remove(&ticket);
        drop(waker);
    }
}
