//! EDGE. Sleeping in simulated time.
//!
//! Cancel safety: dropping a sleep removes its alarm.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use flyball_sync::{Clock, ManualClock, Nanos, Timer};

/// The time of a [`Simulation`](super::Simulation). Clone it into reconciles.
#[derive(Clone, Debug)]
pub struct SimulatedTime {
    clock: ManualClock,
}

impl SimulatedTime {
    pub(super) fn new(clock: ManualClock) -> Self {
        Self { clock }
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Waits for `time` to pass. Even if `time` is zero, the first poll is pending, so that other tasks can run.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send + 'static {
        let timer = self.clock.timer();
        let mut due = None;
        poll_fn(move |cx| match due {
            Some(due) if timer.now() >= due => Poll::Ready(()),
            _ => {
                let due = *due.get_or_insert_with(|| timer.now() + time);
                timer.wake_at(due, cx.waker());
                Poll::Pending
            }
        })
    }
}
