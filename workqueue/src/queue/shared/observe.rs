//! SHELL. What those are told who measure, after unlocking; and what they read.
//!
//! All of it folds away where a queue has no time, as it has no metrics then.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Locked, Shared};
use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::metrics::{QueueMetrics, ReadStats};
use crate::state::order::Order;
use crate::state::{HandedOut, QueueStats};
use crate::time_mode::TimeMode;

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Shared<K, O, L, T> {
    /// Tells every sink, outside every lock. What a sink does to itself is its own affair.
    #[inline]
    pub(crate) fn tell(&self, what: impl Fn(&dyn QueueMetrics)) {
        if T::DELAYS {
            for sink in &self.sinks {
                // A panic that is dropped may panic in turn.
                let told = catch_unwind(AssertUnwindSafe(|| what(&**sink)));
                told.unwrap_or_else(std::mem::forget);
            }
        }
    }

    /// What is to be told of the hand-out that was just made.
    #[inline]
    pub(crate) fn handed_out(&self, locked: &Locked<K, O::ReadyQueue>) -> Option<HandedOut> {
        if T::DELAYS { locked.state.handed_out() } else { None }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> ReadStats for Shared<K, O, L, T> {
    fn read(&self) -> QueueStats {
        let now = self.now_if_timed();
        self.lock().state.stats(now)
    }
}
