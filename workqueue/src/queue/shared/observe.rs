//! SHELL. Reports to the metrics sinks after unlocking, and reads the statistics.
//!
//! A queue without a clock has no metrics; for such a queue, the reports compile to nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flyball_sync::Timer;

use super::Shared;
use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::metrics::QueueMetrics;
use crate::metrics::stats_reader::ReadStats;
use crate::queue::shared::locked::Locked;
use crate::state::metering::HandedOut;
use crate::state::order::Order;
use crate::state::stats::QueueStats;

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Shared<K, O, L, T> {
    /// Calls `what` with every sink. Must be called while no lock is held. A panic in a sink is caught.
    #[inline]
    pub(crate) fn report(&self, what: impl Fn(&dyn QueueMetrics)) {
        for sink in &self.sinks {
            // The payload of a caught panic is leaked, because dropping it may panic in turn.
            let reported = catch_unwind(AssertUnwindSafe(|| what(&**sink)));
            reported.unwrap_or_else(std::mem::forget);
        }
    }

    /// Returns the data that the metrics report about the last hand-out.
    #[inline]
    pub(crate) fn handed_out(&self, locked: &Locked<K, O::ReadyQueue>) -> Option<HandedOut> {
        locked.state.handed_out()
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> ReadStats for Shared<K, O, L, T> {
    fn read(&self) -> QueueStats {
        let now = self.now_if_timed();
        self.lock().state.stats(now)
    }
}
