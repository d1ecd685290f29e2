//! PURE. The wait queues of the adders, which are the tasks that wait to add a key. A class is a set of keys that has its own capacity,
//! such as a group; each class has its own wait queue, called a line.
//!
//! Without such classes there is one line, [`ANY_ROOM`](crate::state::order::ANY_ROOM). With groups, an adder waits in the line of its group if the
//! group has a record. If the group has no record, the adder waits in [`NO_ROOM`](crate::state::order::NO_ROOM) if the capacity of the group is 0,
//! and otherwise in `ANY_ROOM`: a group without a record has no keys, so not the group but the queue is full.
//!
//! # Invariants
//! 1. `active` contains each line that has waiting or notified adders exactly once.
//! 2. *No lost wake-up.* After [`notify`](Adders::notify), one of two conditions holds. Either the number of notified adders of each line is min(room
//!    in its class, adders in the line), or the number of notified adders of all lines together equals the number of keys that the queue has room
//!    for.
//! 3. *Independence.* If a class has no room, the adders in its line are not notified, and do not reduce the number of adders that are notified in
//!    other lines.
//! 4. *No endless wake-ups.* A notified adder that finds no room waits again in the line of its class. At that time either the class or the queue is
//!    full, so the adder is notified again only after a key has left or a limit has been raised.

use std::collections::VecDeque;
use std::task::Waker;

use flyball_sync::waiting::{Place, WakeBatch};

use crate::queue::task_waiters::TaskWaiters;

/// Tasks that wait to add a key.
#[derive(Default)]
pub(crate) struct Adders {
    lines: Vec<Line>,
    /// The lines with waiting or notified adders. The line that `notify` checked least recently is first.
    active: VecDeque<u32>,
}

#[derive(Default)]
struct Line {
    tasks: TaskWaiters,
    is_active: bool,
}

/// The line of a task that waits for room, and the place of the task in that line.
pub(crate) struct AdderPlace {
    pub(crate) line: u32,
    place: Place,
}

impl Line {
    fn waiting(&self) -> usize {
        self.tasks.waiting()
    }
}

impl Adders {
    pub(crate) fn has_no_waiters(&self) -> bool {
        self.active.iter().all(|line| self.lines[*line as usize].waiting() == 0)
    }

    pub(crate) fn park(&mut self, line: u32, waker: Waker) -> AdderPlace {
        AdderPlace { line, place: self.join(line).tasks.park(waker) }
    }

    /// Returns whether the task at `place` waits with `waker` and has not been woken.
    pub(crate) fn waits_for(&self, place: &AdderPlace, waker: &Waker) -> bool {
        self.lines[place.line as usize].tasks.waits_for(&place.place, waker)
    }

    /// Removes a task that was polled again or dropped. The caller must drop the waker outside the lock.
    pub(crate) fn leave(&mut self, place: AdderPlace) -> Option<Waker> {
        self.lines[place.line as usize].tasks.leave(place.place)
    }

    fn join(&mut self, line: u32) -> &mut Line {
        let index = line as usize;
        if index >= self.lines.len() {
            self.lines.resize_with(index + 1, Line::default);
        }
        let own = &mut self.lines[index];
        if !own.is_active {
            own.is_active = true;
            self.active.push_back(line);
        }
        own
    }

    /// Restores invariant 2. `room` is the number of keys that the queue has room for, and `room_of(line)` the number of keys that the class of the
    /// line has room for. The caller wakes the tasks with [`fill_batch`](Self::fill_batch).
    pub(crate) fn notify(&mut self, room: usize, room_of: impl Fn(u32) -> usize) {
        let mut left = room;
        let lines = &mut self.lines;
        self.active.retain(|line| {
            let own = &mut lines[*line as usize];
            // Room for which an adder was already notified is reserved for that adder, so it is subtracted from `left`.
            let notified = own.tasks.notified(room.min(room_of(*line)));
            left = left.saturating_sub(notified);
            own.is_active = own.waiting() + notified > 0;
            own.is_active
        });
        for _ in 0..self.active.len() {
            if left == 0 {
                break;
            }
            let Some(line) = self.active.pop_front() else { break };
            self.active.push_back(line);
            let own = &mut lines[line as usize];
            let notified = own.tasks.notified(usize::MAX);
            let most = room_of(line).saturating_sub(notified).min(left);
            left -= own.tasks.notify(most);
        }
    }

    /// Wakes all adders of a line, so that they check for room again.
    pub(crate) fn wake_line(&mut self, line: u32) {
        if let Some(own) = self.lines.get_mut(line as usize) {
            own.tasks.notify_all();
        }
    }

    /// Moves the wakers of the tasks to be notified into the batch. Returns whether some wakers did not fit.
    pub(crate) fn fill_batch(&mut self, batch: &mut WakeBatch) -> bool {
        let lines = &mut self.lines;
        self.active.iter().fold(false, |more, line| lines[*line as usize].tasks.fill_batch(batch) | more)
    }
}
