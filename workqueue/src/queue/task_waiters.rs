//! PURE. The wait queue of tasks, with their wakers.

use std::task::Waker;

use flyball_sync::waiting::{Place, Released, WaitList, WakeBatch};

/// Wakers in FIFO order. A waker is removed before it is woken.
///
/// # Invariants
/// 1. `notified` is at most the number of tasks that were woken and have not been polled since.
/// 2. `to_notify` is at most the number of tasks that wait.
#[derive(Debug)]
pub(crate) struct TaskWaiters {
    tasks: WaitList<Waker, ()>,
    notified: usize,
    /// How many of the oldest wakers are to be woken.
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

    /// Limits the count of notified tasks (woken, and not polled since) to `at_most`, and returns the count.
    ///
    /// A task that was woken and is never polled again must not count for ever. As soon as another waiter has taken the key that the task
    /// was woken for, the task no longer counts as notified, and the next key wakes the next task.
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

    /// Removes the oldest waker, for the caller to wake outside the lock.
    fn take_one(&mut self) -> Option<Waker> {
        let waker = self.tasks.serve_first(())?;
        self.notified += 1;
        self.to_notify = self.to_notify.saturating_sub(1);
        Some(waker)
    }

    /// Marks the `tasks` oldest waiters to be woken by [`fill_batch`](Self::fill_batch), or all waiters if there are
    /// fewer. Returns their number.
    pub(crate) fn notify(&mut self, tasks: usize) -> usize {
        let tasks = tasks.min(self.waiting());
        self.to_notify = self.to_notify.max(tasks);
        tasks
    }

    /// Marks every waiting task to be woken by [`fill_batch`](Self::fill_batch).
    pub(crate) fn notify_all(&mut self) {
        self.to_notify = self.waiting();
    }

    /// Moves the wakers of the tasks to notify into the batch. Returns whether there are more wakers than fit.
    ///
    /// The tasks were counted by [`notify`](Self::notify). Counting again after each batch would repeatedly wake tasks
    /// that were polled meanwhile, found no key and parked again.
    pub(crate) fn fill_batch(&mut self, batch: &mut WakeBatch) -> bool {
        while self.to_notify > 0 && !batch.is_full() {
            self.take_one().into_iter().for_each(|waker| batch.push(waker));
        }
        self.to_notify > 0
    }
}
