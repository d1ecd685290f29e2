//! PURE. Tasks that wait, with the wakers to wake them.

use std::task::Waker;

use flyball_sync::waiting::{Left, Place, WaitList, WakeBatch};

/// Wakers in the order in which their tasks came. A waker is moved out before it is woken.
///
/// # Invariants
/// 1. `notified` is at most the number of tasks that were woken and were not polled again yet.
/// 2. `to_notify` is at most the number of tasks that wait.
#[derive(Debug)]
pub(crate) struct TaskWaiters {
    tasks: WaitList<Waker, ()>,
    notified: usize,
    /// How many of the oldest are to be woken.
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

    /// The number of tasks that were woken and were not polled again yet, at most `at_most`.
    ///
    /// A task that was woken and is never polled again must not count for ever: as soon as another waiter has taken
    /// what it was woken for, it does not count as notified any more, and the next key wakes the next task.
    #[inline]
    pub(crate) fn notified(&mut self, at_most: usize) -> usize {
        self.notified = self.notified.min(at_most);
        self.notified
    }

    /// Whether the task at `place` still waits for `waker`: then parking again would change nothing.
    pub(crate) fn waits_for(&self, place: &Place, waker: &Waker) -> bool {
        self.tasks.at(place.slot()).is_some_and(|own| own.will_wake(waker))
    }

    pub(crate) fn park(&mut self, waker: Waker) -> Place {
        self.tasks.join(waker)
    }

    /// The task at `place` has come back, or never will. Its waker is for the caller to drop, outside the lock.
    pub(crate) fn leave(&mut self, place: Place) -> Option<Waker> {
        match self.tasks.leave(place) {
            Left::Waiting(waker) => {
                self.to_notify = self.to_notify.min(self.waiting());
                Some(waker)
            }
            Left::Served(()) => {
                self.notified = self.notified.saturating_sub(1);
                None
            }
        }
    }

    /// Takes the waker that waits longest, to be woken outside the lock.
    fn take_one(&mut self) -> Option<Waker> {
        let waker = self.tasks.serve_first(())?;
        self.notified += 1;
        self.to_notify = self.to_notify.saturating_sub(1);
        Some(waker)
    }

    /// Has [`fill_batch`](Self::fill_batch) wake the `tasks` oldest waiters, or all if there are fewer. Returns their number.
    pub(crate) fn notify(&mut self, tasks: usize) -> usize {
        let tasks = tasks.min(self.waiting());
        self.to_notify = self.to_notify.max(tasks);
        tasks
    }

    /// Has [`fill_batch`](Self::fill_batch) wake every task that waits now.
    pub(crate) fn notify_all(&mut self) {
        self.to_notify = self.waiting();
    }

    /// Moves the wakers of tasks to notify to the batch; says whether there are more than it has room for.
    ///
    /// The tasks were counted by [`notify`](Self::notify). A second count after each batch would wake tasks that came back meanwhile and found
    /// nothing, again and again.
    pub(crate) fn fill_batch(&mut self, batch: &mut WakeBatch) -> bool {
        while self.to_notify > 0 && !batch.is_full() {
            self.take_one().into_iter().for_each(|waker| batch.push(waker));
        }
        self.to_notify > 0
    }
}
