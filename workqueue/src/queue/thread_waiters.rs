//! PURE. Counts of blocked threads and of the signals sent to them.

use flyball_sync::Nanos;

/// Threads that sleep in a blocking `get`, or in a blocking `add`.
#[derive(Default)]
pub(crate) struct ThreadWaiters {
    pub(crate) asleep: usize,
    /// The number of signals that were sent and that no thread has consumed by waking up.
    pub(crate) signalled: usize,
    /// One of the threads sleeps at most until this deadline. The other threads sleep without a time limit.
    pub(crate) covered_deadline: Option<Nanos>,
}

impl ThreadWaiters {
    /// Counts a signal for one more thread. Returns false if there is a signal for every sleeping thread already.
    pub(crate) fn signal(&mut self) -> bool {
        let sleeps = self.signalled < self.asleep;
        self.signalled += usize::from(sleeps);
        sleeps
    }

    /// Returns whether threads sleep and no signal is pending.
    #[inline]
    pub(crate) fn all_asleep(&self) -> bool {
        self.asleep > 0 && self.signalled == 0
    }

    /// Counts a sleeping thread as awake.
    ///
    /// Every wake-up consumes one signal, even if the thread woke for another reason. So another thread may wake up
    /// spuriously, but no signal is lost.
    pub(crate) fn wake_up(&mut self, covered_deadline: Option<Nanos>) {
        self.asleep -= 1;
        self.signalled = self.signalled.saturating_sub(1);
        if covered_deadline.is_some() && self.covered_deadline == covered_deadline {
            self.covered_deadline = None;
        }
    }
}
