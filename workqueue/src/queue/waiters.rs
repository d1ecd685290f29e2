//! PURE. What waits in a queue: wait queues of tasks, blocked threads, and the timeouts of tasks.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::task::Waker;

use flyball_sync::Nanos;
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

    /// Returns whether no task waits, and every task that was woken has been polled since or dropped.
    pub(crate) const fn is_unused(&self) -> bool {
        self.tasks.is_unused()
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
    #[must_use = "must be dropped after unlocking"]
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

/// Wakers, ordered by the times of their timeouts. A waker is woken only once its time has passed.
///
/// # Invariants
/// 1. A waker whose time is at or before `passed` is due; [`wake_passed`](Self::wake_passed) removes the wakers that are due.
#[derive(Debug, Default)]
pub(crate) struct Timeouts {
    waiting: BTreeMap<Timeout, Waker>,
    passed: Nanos,
    turn: u64,
}

/// The key under which a task's timeout is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timeout {
    at: Nanos,
    /// A unique number, which distinguishes timeouts that expire at the same time.
    turn: u64,
}

impl Timeouts {
    /// Inserts a waker to be woken at `at`, which is later than `now`.
    pub(crate) fn insert(&mut self, at: Nanos, now: Nanos, waker: Waker) -> Timeout {
        // `passed` is ahead of the clock if the alarm fired early or the clock jumped back. In these cases `passed` is set back to `now`. Otherwise
        // the task would be woken immediately, wait again and be woken again, over and over.
        if at <= self.passed {
            self.passed = now;
        }
        self.turn += 1;
        let place = Timeout { at, turn: self.turn };
        self.waiting.insert(place, waker);
        place
    }

    /// Removes the timeout of a task that no longer waits. The caller must drop the waker outside the lock.
    #[must_use = "must be dropped after unlocking"]
    pub(crate) fn remove(&mut self, place: Timeout) -> Option<Waker> {
        self.waiting.remove(&place)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the time of the earliest timeout that has not passed.
    pub(crate) fn next(&self) -> Option<Nanos> {
        let passed = Timeout { at: self.passed, turn: u64::MAX };
        self.waiting.range((Excluded(passed), Unbounded)).next().map(|(place, _)| place.at)
    }

    /// Advances `passed` to `now`, if `now` is later.
    pub(crate) fn pass(&mut self, now: Nanos) {
        self.passed = self.passed.max(now);
    }

    /// Moves the wakers whose time has passed into the batch. Returns whether some wakers did not fit.
    pub(crate) fn wake_passed(&mut self, batch: &mut WakeBatch) -> bool {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().at <= self.passed) {
            if batch.is_full() {
                return true;
            }
            batch.push(first.remove());
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(timeouts: &mut Timeouts) -> usize {
        let before = timeouts.waiting.len();
        loop {
            let mut batch = WakeBatch::default();
            let more = timeouts.wake_passed(&mut batch);
            let _ = batch.wake();
            if !more {
                return before - timeouts.waiting.len();
            }
        }
    }

    #[test]
    fn wakes_exactly_the_getters_with_an_expired_timeout() {
        let mut timeouts = Timeouts::default();
        let at = Nanos::new;
        let places: Vec<_> =
            (0..100).map(|task| timeouts.insert(at(1 + task / 10), at(0), Waker::noop().clone())).collect();
        assert_eq!((timeouts.next(), woken(&mut timeouts)), (Some(at(1)), 0));
        timeouts.pass(at(3));
        assert_eq!((timeouts.next(), woken(&mut timeouts)), (Some(at(4)), 30));
        assert!(timeouts.remove(places[0]).is_none(), "it was woken");
        assert!(timeouts.remove(places[99]).is_some());
        timeouts.pass(Nanos::MAX);
        assert_eq!((timeouts.next(), woken(&mut timeouts)), (None, 69));
        assert!(timeouts.is_empty());
    }

    #[test]
    fn one_that_comes_back_before_its_time_waits() {
        let mut timeouts = Timeouts::default();
        let at = Nanos::new;
        timeouts.insert(at(9), at(0), Waker::noop().clone());
        timeouts.pass(at(9));
        assert_eq!(woken(&mut timeouts), 1);
        timeouts.insert(at(9), at(8), Waker::noop().clone());
        assert_eq!((timeouts.next(), woken(&mut timeouts)), (Some(at(9)), 0));
    }
}
