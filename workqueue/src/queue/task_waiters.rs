//! PURE. A wait queue of tasks, which contains their wakers.

use std::task::Waker;

use flyball_sync::waiting::{Place, Released, WaitList, WakeBatch};

/// Wakers in FIFO order. A waker is removed from the queue before `wake` is called on it.
///
/// # Invariants
/// 1. `notified` is at most the number of tasks that were woken and have not been polled since.
/// 2. `to_notify` is at most the number of tasks that wait.
#[derive(Debug)]
pub(crate) struct TaskWaiters {
    tasks: WaitList<Waker, ()>,
    notified: usize,
    /// How many of the wakers are to be woken; the oldest are woken first.
    to_notify: usize,
}

impl Default for TaskWaiters {
    fn default() -> Self {
        Self::new()
    }
}

impl TaskWaiters {
    pub(crate) const fn new() -> Self {
        Self { tasks: WaitList::new(), notified: 0, to_notify: 0 }
    }

    #[inline]
    pub(crate) const fn waiting(&self) -> usize {
        self.tasks.waiting()
    }

    /// Limits the count of notified tasks (tasks that were woken and have not been polled since) to `at_most`, and returns the count.
    ///
    /// A task that was woken and is never polled again must not count as notified forever. As soon as another waiter has taken the key that the task
    /// was woken for, `at_most` is lower, so the task no longer counts, and the next key wakes the next task.
    #[inline]
    pub(crate) fn notified(&mut self, at_most: usize) -> usize {
        self.notified = self.notified.min(at_most);
        self.notified
    }

    /// Returns whether the task at `place` still waits with `waker`, so that parking the task again would change nothing.
    pub(crate) fn waits_for(&self, place: &Place, waker: &Waker) -> bool {
        self.tasks.at(place.slot()).is_some_and(|own| own.will_wake(waker))
    }

    pub(crate) fn park(&mut self, waker: Waker) -> Place {
        self.tasks.join(waker)
    }

    /// Removes the task at `place`, which was polled again or dropped. The caller must drop its waker outside the lock.
    pub(crate) fn leave(&mut self, place: Place) -> Option<Waker> {
        match self.tasks.leave(place) {
            Released::Waiting(waker) => {
                self.to_notify = self.to_notify.min(self.waiting());
                Some(waker)
            }
            Released::Served(()) => {
                self.notified = self.notified.saturating_sub(1);
                None
            }
        }
    }

    /// Removes and returns the oldest waker. The caller must wake it outside the lock.
    fn take_one(&mut self) -> Option<Waker> {
        let waker = self.tasks.serve_first(())?;
        self.notified += 1;
        self.to_notify = self.to_notify.saturating_sub(1);
        Some(waker)
    }

    /// Marks the `tasks` oldest waiters, or all waiters if there are fewer, so that [`fill_batch`](Self::fill_batch) takes their wakers. Returns
    /// their number.
    pub(crate) fn notify(&mut self, tasks: usize) -> usize {
        let tasks = tasks.min(self.waiting());
        self.to_notify = self.to_notify.max(tasks);
        tasks
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.tasks.check()?;
        if self.to_notify > self.waiting() {
            return Err(format!("tasks 2: {} of {} tasks are to be woken", self.to_notify, self.waiting()));
        }
        Ok(())
    }

    /// Marks all waiters, so that [`fill_batch`](Self::fill_batch) takes their wakers.
    pub(crate) fn notify_all(&mut self) {
        self.to_notify = self.waiting();
    }

    /// Moves the wakers of the marked tasks into the batch. Returns whether some wakers did not fit.
    ///
    /// The number of tasks was determined by [`notify`](Self::notify). If it were determined again after each batch, tasks that were polled
    /// meanwhile, found no key and parked again would be woken over and over.
    pub(crate) fn fill_batch(&mut self, batch: &mut WakeBatch) -> bool {
        while self.to_notify > 0 && !batch.is_full() {
            self.take_one().into_iter().for_each(|waker| batch.push(waker));
        }
        self.to_notify > 0
    }
}
