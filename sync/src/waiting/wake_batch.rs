//! SHELL. Wakers that are collected under a lock and woken after it is released. Guards no state itself.

use std::task::Waker;

use crate::locks::BATCH;
use crate::panics::Panic;
use crate::waiting::wakers::wake_all;

/// A bounded number of wakers, so that neither the memory nor the time for which the lock is held grows with the number of waiters.
///
/// If the batch is full, the caller unlocks, wakes the batch and locks again. Waiters may join and leave in between, so the caller must determine
/// before the first batch how many waiters to wake. Otherwise it would also wake waiters that joined after that.
#[derive(Debug, Default)]
pub struct WakeBatch {
    wakers: [Option<Waker>; BATCH],
    len: usize,
}

impl WakeBatch {
    /// The number of wakers that fit.
    pub const CAPACITY: usize = BATCH;

    /// Creates an empty batch.
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether there is nothing to wake.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether no further waker fits.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == BATCH
    }

    /// Adds a waker.
    ///
    /// # Panics
    /// Panics if the batch is full.
    #[inline]
    pub fn push(&mut self, waker: Waker) {
        self.wakers[self.len] = Some(waker);
        self.len += 1;
    }

    /// Wakes all wakers, even if one panics, and empties the batch.
    ///
    /// # Errors
    /// Returns the first panic.
    pub fn wake(&mut self) -> Result<(), Panic> {
        let result = wake_all(self.wakers.iter_mut().take(self.len).filter_map(Option::take));
        self.len = 0;
        result
    }
}
