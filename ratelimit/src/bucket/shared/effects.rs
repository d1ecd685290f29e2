//! SHELL. What a change does to the outside, decided under the lock and done after it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flyball_sync::panics::{Panic, keep_first};
use flyball_sync::waiting::{WakeBatch, arm};

use super::{Shared, WakeAt};
use crate::{Clock, Nanos};

/// Wakers to wake, a timer to set.
pub(crate) struct Effects<T> {
    pub(super) wake: WakeBatch,
    /// There is more to wake than the batch has room for: settling goes on after it.
    pub(super) more: bool,
    pub(super) arm: Option<(WakeAt<T>, Nanos)>,
}

impl<T: Clock> Effects<T> {
    pub(super) fn none() -> Self {
        Self { wake: WakeBatch::new(), more: false, arm: None }
    }

    /// Does all of it even where a waker or the timer panics.
    pub(super) fn perform(mut self, shared: &Shared<T>, result: &mut Result<(), Panic>) {
        keep_first(result, self.wake.wake());
        if let Some((wake_at, at)) = self.arm {
            let wake_at = |at| wake_at(&shared.time, at, &shared.alarm);
            keep_first(result, catch_unwind(AssertUnwindSafe(|| arm(shared, at, wake_at))));
        }
    }
}
