//! SHELL. A signal that a subscriber gives when it has processed the initial state. Tasks can wait for this signal. The only lock of this module is
//! in [`Synced`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::Stopped;
use crate::signal::synced::{Synced, Wait};

/// A future that completes when a subscriber has processed the initial state: the first list of the store has been published, and the subscriber has
/// received every initial object and has requested the next change. [`Subscription::initial_processed`](crate::Subscription::initial_processed)
/// creates it.
///
/// Clones wait for the same signal, and each of them is woken. The future returns an error if the subscription is dropped before the initial state is
/// processed, or if the store is closed before its first list.
///
/// # Cancel safety
/// Dropping the future only stops waiting.
#[must_use = "futures do nothing unless polled"]
pub struct InitialProcessed {
    wait: Wait<Arc<Synced>>,
}

impl InitialProcessed {
    pub(crate) fn new(signal: Arc<Synced>) -> Self {
        Self { wait: Wait::new(signal) }
    }

    /// Returns whether the initial state has been processed. After it has returned `true` once, it always returns `true`.
    ///
    /// # Examples
    /// A check that must not wait, for example in a health endpoint:
    /// ```
    /// use flyball_informer_cache::{InitialProcessed, Schema, Store, Version};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let mut changes = pods.subscribe();
    /// let ready: InitialProcessed = changes.initial_processed();
    /// pods.replace([("a", 1)], Version::new(1));
    /// assert!(changes.try_next().is_some());
    /// assert!(!ready.is_done()); // the subscriber may still be processing the object
    /// assert!(changes.try_next().is_none());
    /// assert!(ready.is_done()); // the subscriber has asked for the next change
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.wait.signal().is_set()
    }
}

impl Future for InitialProcessed {
    type Output = Result<(), Stopped>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.wait).poll(cx)
    }
}

impl Clone for InitialProcessed {
    fn clone(&self) -> Self {
        Self::new(self.wait.signal().clone())
    }
}

impl fmt::Debug for InitialProcessed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InitialProcessed").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}
