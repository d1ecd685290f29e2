//! PURE. Counts of blocked threads and of the signals sent to them.

use flyball_sync::Nanos;

/// Counts the threads that sleep in a blocking `get`.
#[derive(Default)]
pub(crate) struct ThreadWaiters {
    pub(crate) asleep: usize,
    /// The number of pending signals: they were sent, and no thread has consumed them by waking up.
    pub(crate) signalled: usize,
    /// One of the threads sleeps at most until this deadline, so the other threads need not wake up for it.
    pub(crate) covered_deadline: Option<Nanos>,
}

impl ThreadWaiters {
    /// Counts one more signal, and returns true, if there is a sleeping thread without a pending signal. Otherwise returns false.
    pub(crate) fn signal(&mut self) -> bool {
        let sleeps = self.signalled < self.asleep;
        self.signalled += usize::from(sleeps);
        sleeps
    }

    /// Returns whether there are sleeping threads, and none of them has a pending signal.
    #[inline]
    pub(crate) fn all_asleep(&self) -> bool {
        self.asleep > 0 && self.signalled == 0
    }

    /// Counts a sleeping thread as awake.
    ///
    /// Every wake-up consumes one signal, even if the thread woke up for a different reason. So a different thread may wake up spuriously later, but
    /// no signal is lost.
    pub(crate) fn wake_up(&mut self, covered_deadline: Option<Nanos>) {
        self.asleep -= 1;
        self.signalled = self.signalled.saturating_sub(1);
        if covered_deadline.is_some() && self.covered_deadline == covered_deadline {
            self.covered_deadline = None;
        }
    }
}
