//! SHELL. A future that waits for a version of a store. The store holds the list of waits, under the lock `published`. The outcome of a wait is in
//! its ticket, because the store may be dropped before the future reads the outcome.
//!
//! The future checks the version and registers its wait in one critical section. The writer publishes a version and collects the wakers in one
//! critical section, too. So no wake-up is lost.
//!
//! Cancel safety: dropping the future only stops waiting.

use std::future::Future;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};

use crate::store::inner::StoreInner;
use crate::store::waiters::Ticket;
use crate::{Version, WaitForError};

/// The future of [`Store::wait_for_version`](crate::Store::wait_for_version).
pub(crate) struct WaitForVersion<K, V> {
    /// A weak reference, so that a future that is not polled does not keep the objects of the store alive.
    inner: Weak<StoreInner<K, V>>,
    version: Version,
    ticket: Option<Ticket>,
}

impl<K, V> WaitForVersion<K, V> {
    pub(crate) fn new(inner: Weak<StoreInner<K, V>>, version: Version) -> Self {
        Self { inner, version, ticket: None }
    }
}

impl<K, V> Future for WaitForVersion<K, V> {
    type Output = Result<Version, WaitForError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let waker = cx.waker().clone();
        let Some(inner) = this.inner.upgrade() else {
            // The outcome is read after the upgrade has failed. So if an outcome was recorded before the store was dropped, this line reads it.
            let ended = this.ticket.as_ref().and_then(Ticket::outcome);
            return Poll::Ready(ended.unwrap_or(Err(WaitForError::Closed)));
        };
        let mut published = inner.published.write_lists();
        let now = published.table.version;
        let ended = this.ticket.as_ref().and_then(Ticket::outcome);
        let outcome = match ended {
            Some(outcome) => outcome,
            None if now >= this.version => Ok(now),
            None if published.closed => Err(WaitForError::Closed),
            None => {
                let replaced = published.waiters.wait(&mut this.ticket, this.version, waker);
                drop(published);
                drop(replaced);
                return Poll::Pending;
            }
        };
        drop(published);
        Poll::Ready(outcome)
    }
}

impl<K, V> Drop for WaitForVersion<K, V> {
    fn drop(&mut self) {
        let (Some(ticket), Some(inner)) = (&self.ticket, self.inner.upgrade()) else { return };
        let waker = inner.published.write_lists().waiters.forget(ticket, self.version);
        drop(waker);
    }
}
