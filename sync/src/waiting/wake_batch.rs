//! SHELL. Wakers that are collected under a lock and woken after it is released; it guards nothing itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::locks::BATCH;
use crate::panics::{Panic, keep_first};

/// A bounded number of wakers, so that neither the time under the lock nor the memory grows with the number of waiters.
///
/// A caller that finds it full unlocks, wakes the batch and locks again. Waiters may join and leave in between, so the caller counts those
/// to wake before the first batch, or each of them is woken for something that it alone is given.
#[derive(Debug, Default)]
pub struct WakeBatch {
    wakers: [Option<Waker>; BATCH],
    len: usize,
}

impl WakeBatch {
    /// How many wakers fit.
    pub const CAPACITY: usize = BATCH;

    /// An empty batch.
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is nothing to wake.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no further waker fits.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == BATCH
    }

    /// Adds a waker.
    ///
    /// # Panics
    /// When the batch is full.
    #[inline]
    pub fn push(&mut self, waker: Waker) {
        self.wakers[self.len] = Some(waker);
        self.len += 1;
    }

    /// Wakes all of them, even where one panics, and empties the batch.
    ///
    /// # Errors
    /// The first panic.
    pub fn wake(&mut self) -> Result<(), Panic> {
        let mut result = Ok(());
        for waker in self.wakers.iter_mut().take(self.len).filter_map(Option::take) {
            keep_first(&mut result, catch_unwind(AssertUnwindSafe(|| waker.wake())));
        }
        self.len = 0;
        result
    }
}
