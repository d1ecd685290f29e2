//! PURE. Tasks that wait, with the wakers to wake them.

use std::task::Waker;

use flyball_sync::waiting::{Left, Place, WaitList, WakeBatch};

/// Wakers in the order in which their tasks came. A waker is moved out before it is woken.
///
/// # Invariants
/// 1. `owed` is at most the number of tasks that were woken and have not come back yet.
/// 2. `roused` is at most the number of tasks that wait.
#[derive(Debug)]
pub(crate) struct Parked {
    tasks: WaitList<Waker, ()>,
    owed: usize,
    /// So many of the oldest are to be woken.
    roused: usize,
}

impl Default for Parked {
    fn default() -> Self {
        Self::new()
    }
}

impl Parked {
    pub(crate) const fn new() -> Self {
        Self { tasks: WaitList::new(), owed: 0, roused: 0 }
    }

    #[inline]
    pub(crate) const fn waiting(&self) -> usize {
        self.tasks.waiting()
    }

    /// The number of tasks that were woken and have not come back yet, at most `at_most`.
    ///
    /// A task that was woken and is never polled again must not count for ever: as soon as somebody else has taken
    /// what it was woken for, nothing is owed to it, and the next key wakes the next task.
    #[inline]
    pub(crate) fn owed(&mut self, at_most: usize) -> usize {
        self.owed = self.owed.min(at_most);
        self.owed
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
                self.roused = self.roused.min(self.waiting());
                Some(waker)
            }
            Left::Served(()) => {
                self.owed = self.owed.saturating_sub(1);
                None
            }
        }
    }

    /// Takes the waker that waits longest, to be woken outside the lock.
    fn take_one(&mut self) -> Option<Waker> {
        let waker = self.tasks.serve_first(())?;
        self.owed += 1;
        self.roused = self.roused.saturating_sub(1);
        Some(waker)
    }

    /// So many tasks, those that wait longest, are to be woken by [`wake_roused`](Self::wake_roused), if there are so many. Gives their number.
    pub(crate) fn rouse(&mut self, tasks: usize) -> usize {
        let tasks = tasks.min(self.waiting());
        self.roused = self.roused.max(tasks);
        tasks
    }

    /// Every task that waits now is to be woken.
    pub(crate) fn rouse_all(&mut self) {
        self.roused = self.waiting();
    }

    /// Moves wakers of roused tasks to the batch; says whether there are more than it has room for.
    ///
    /// They were counted when they were roused. To look again, after a batch, what there is for them would wake those who have come back
    /// meanwhile and found nothing, again and again.
    pub(crate) fn wake_roused(&mut self, batch: &mut WakeBatch) -> bool {
        while self.roused > 0 && !batch.is_full() {
            self.take_one().into_iter().for_each(|waker| batch.push(waker));
        }
        self.roused > 0
    }
}
