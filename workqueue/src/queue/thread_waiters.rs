//! PURE. Threads that sleep until there is something for one of them, counted.

use flyball_sync::Nanos;

/// Threads asleep in a blocking `get`, or a blocking `add`.
#[derive(Default)]
pub(crate) struct ThreadWaiters {
    pub(crate) asleep: usize,
    /// Signals given and not yet taken by a thread that woke up.
    pub(crate) signalled: usize,
    /// The deadline until which one of them sleeps at most, so that the others need no time limit.
    pub(crate) covered_deadline: Option<Nanos>,
}

impl ThreadWaiters {
    /// Counts a signal for one more thread; false if all of them have one.
    pub(crate) fn signal(&mut self) -> bool {
        let sleeps = self.signalled < self.asleep;
        self.signalled += usize::from(sleeps);
        sleeps
    }

    /// Whether threads sleep, and none of them is on its way.
    #[inline]
    pub(crate) fn all_asleep(&self) -> bool {
        self.asleep > 0 && self.signalled == 0
    }

    /// A thread that slept is awake, whatever woke it.
    ///
    /// Every wake-up consumes one signal, whatever its cause. Another thread may then wake up for nothing, but no signal is lost.
    pub(crate) fn wake_up(&mut self, covered_deadline: Option<Nanos>) {
        self.asleep -= 1;
        self.signalled = self.signalled.saturating_sub(1);
        if covered_deadline.is_some() && self.covered_deadline == covered_deadline {
            self.covered_deadline = None;
        }
    }
}
