//! SHELL. The external effects of a change of the queue. They are determined under the lock and performed after unlocking.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flyball_sync::Timer;
use flyball_sync::panics::{Panic, keep_first};
use flyball_sync::waiting::{TimerCall, WakeBatch, arm};

use super::Shared;
use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::state::order::Order;

/// The wakers to wake, the threads to signal, and the call of the timer.
#[derive(Default)]
pub(crate) struct Effects {
    pub(super) wakers: WakeBatch,
    pub(in crate::queue) signals: usize,
    pub(super) signal_all: bool,
    /// Whether to signal the threads that wait for the end of a drain.
    pub(in crate::queue) quiet: bool,
    pub(in crate::queue) arm: Option<TimerCall>,
    /// Whether more tasks must be woken than fit into `wakers`.
    pub(super) more: bool,
}

impl Effects {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.wakers.is_empty() && self.signals == 0 && !self.signal_all && !self.quiet && self.arm.is_none()
    }

    /// Performs all effects, even if a waker or the timer panics.
    pub(super) fn perform<K, O, L, T>(
        &mut self,
        shared: &Shared<K, O, L, T>,
        panicked: &mut Result<(), Panic>,
    ) where
        K: Key,
        O: Order<K>,
        L: QueueLimiter<K>,
        T: Timer,
    {
        if self.signal_all {
            shared.available.notify_all();
        } else {
            (0..self.signals).for_each(|_| shared.available.notify_one());
        }
        if self.quiet {
            shared.quiet.notify_all();
        }
        keep_first(panicked, self.wakers.wake());
        if let Some(call) = self.arm {
            let perform = |call: TimerCall| call.perform(&shared.time, &shared.alarm);
            keep_first(panicked, catch_unwind(AssertUnwindSafe(|| arm(shared, call, perform))));
        }
    }
}
