//! SHELL. The external effects of a change, which are decided under the lock and performed after unlocking.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flyball_sync::Timer;
use flyball_sync::panics::{Panic, keep_first};
use flyball_sync::waiting::{TimerCall, WakeBatch, arm};

use super::Shared;

/// The wakers to wake, and the timer to arm.
pub(crate) struct Effects {
    pub(super) wake: WakeBatch,
    /// Whether there are more wakers than fit into the batch; in that case `settle` runs again after the batch is woken.
    pub(super) more: bool,
    pub(super) arm: Option<TimerCall>,
}

impl Effects {
    pub(super) fn none() -> Self {
        Self { wake: WakeBatch::new(), more: false, arm: None }
    }

    /// Performs all effects, even if a waker or the timer panics.
    pub(super) fn perform<T: Timer>(mut self, shared: &Shared<T>, result: &mut Result<(), Panic>) {
        keep_first(result, self.wake.wake());
        if let Some(call) = self.arm {
            let perform = |call: TimerCall| call.perform(&shared.time, &shared.alarm);
            keep_first(result, catch_unwind(AssertUnwindSafe(|| arm(shared, call, perform))));
        }
    }
}
