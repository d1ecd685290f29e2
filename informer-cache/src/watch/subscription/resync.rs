//! EDGE. How often a consumer wants everything told again.
//!
//! Cancel safety: nothing is taken by waiting. The alarm wakes whoever polled last; dropped, it wakes nobody.

use std::task::Waker;
use std::time::Duration;

use flyball_sync::{Nanos, Timer};

/// The period of one subscription, on a timer of its own. No write, relist or other subscription moves it.
pub(super) struct ResyncTimer {
    timer: Box<dyn Timer>,
    period: Duration,
    next: Nanos,
}

impl ResyncTimer {
    /// The first one is due a period from now. None for a period of no time, which would never end.
    pub(super) fn new(timer: Box<dyn Timer>, period: Duration) -> Option<Self> {
        let next = timer.now() + period;
        (!period.is_zero()).then_some(Self { timer, period, next })
    }

    /// Whether one is due; then the next one is due a period from now. What was missed is not made up for.
    pub(super) fn is_due(&mut self) -> bool {
        let now = self.timer.now();
        let due = now >= self.next;
        if due {
            self.next = now + self.period;
        }
        due
    }

    /// Wakes once the next one is due.
    pub(super) fn arm(&self, waker: &Waker) {
        self.timer.wake_at(self.next, waker);
    }
}
