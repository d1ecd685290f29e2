//! SHELL. The wait for one change.
//!
//! Nothing is held between two polls but the subscription itself.
//!
//! Cancel safety: a change is handed over in the very poll that takes it; a future that is dropped has taken nothing.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Subscription;
use crate::Change;

/// Waits for the next change; made by [`Subscription::next`].
#[must_use = "futures do nothing unless polled"]
pub struct NextChange<'a, K, V> {
    pub(super) subscription: &'a mut Subscription<K, V>,
}

impl<K, V> Future for NextChange<'_, K, V>
where
    K: Clone + Eq + Hash,
{
    type Output = Option<Change<K, V>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.subscription.poll_next(cx)
    }
}

impl<K, V> fmt::Debug for NextChange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextChange").finish_non_exhaustive()
    }
}
