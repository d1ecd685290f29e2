//! PURE. Who waits for room, in a line for each class of keys that has room of its own.
//!
//! Without such classes there is one line, [`ANY_ROOM`](crate::state::order::ANY_ROOM). With groups who finds no room in the queue alone waits there, too, unless
//! the group has a line: so in the line of a group wait those for whose group there was no room, and those who came after it had a line.
//!
//! # Invariants
//! 1. `active` names each line in which somebody waits, or is on his way, once.
//! 2. *No lost wake-up.* After [`notify`](Adders::notify), of each line so many are on their way as there is room for in its class, or
//!    all of them; unless as many are on their way in all as there is room for in the queue.
//! 3. *Nobody in the way.* Who is in a line without room in its class is not woken, and counts for nothing elsewhere.
//! 4. *No endless wake-ups.* Who was woken and finds no room waits in the line of its class, and that has no room then; or
//!    the queue has none. Either way he is woken again only once a key has left.

use std::collections::VecDeque;
use std::task::Waker;

use flyball_sync::waiting::{Place, WakeBatch};

use crate::queue::parked::Parked;
use crate::queue::sleepers::Sleepers;

/// Tasks and threads that wait to add a key.
#[derive(Default)]
pub(crate) struct Adders {
    lines: Vec<Line>,
    /// Those that were looked at the longest ago first.
    active: VecDeque<u32>,
}

#[derive(Default)]
struct Line {
    tasks: Parked,
    threads: Sleepers,
    is_active: bool,
}

/// The place of a task that waits for room.
pub(crate) struct AdderPlace {
    pub(crate) line: u32,
    place: Place,
}

/// Threads to signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    /// So many of the one line there is.
    pub(crate) some: usize,
    /// All, as a signal reaches any of them, whatever line it is for.
    pub(crate) all: bool,
}

impl Line {
    fn waiting(&self) -> usize {
        self.tasks.waiting() + self.threads.asleep
    }
}

impl Adders {
    pub(crate) fn nobody_waits(&self) -> bool {
        self.active.iter().all(|line| self.lines[*line as usize].waiting() == 0)
    }

    pub(crate) fn park(&mut self, line: u32, waker: Waker) -> AdderPlace {
        AdderPlace { line, place: self.join(line).tasks.park(waker) }
    }

    /// Whether the task at `place` waits for `waker`, not woken yet.
    pub(crate) fn waits_for(&self, place: &AdderPlace, waker: &Waker) -> bool {
        self.lines[place.line as usize].tasks.waits_for(&place.place, waker)
    }

    /// The task has come back, or never will. Its waker is for the caller to drop, outside the lock.
    pub(crate) fn leave(&mut self, place: AdderPlace) -> Option<Waker> {
        self.lines[place.line as usize].tasks.leave(place.place)
    }

    /// A thread goes to sleep.
    pub(crate) fn sleep(&mut self, line: u32) {
        self.join(line).threads.asleep += 1;
    }

    pub(crate) fn wake_up(&mut self, line: u32) {
        self.lines[line as usize].threads.wake_up(None);
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

    /// Restores invariant 2, where there is room for so many keys, and in the class of each line for so many. Tasks that are to be woken are so
    /// by [`wake_roused`](Self::wake_roused).
    pub(crate) fn notify(&mut self, room: usize, room_of: impl Fn(u32) -> usize) -> Signals {
        let mut signals = Signals::default();
        let mut left = room;
        let lines = &mut self.lines;
        self.active.retain(|line| {
            let own = &mut lines[*line as usize];
            // Also who is on his way: what he was woken for is not for another line.
            let sent = own.tasks.owed(room.min(room_of(*line))) + own.threads.signalled;
            left = left.saturating_sub(sent);
            own.is_active = own.waiting() + sent > 0;
            own.is_active
        });
        for _ in 0..self.active.len() {
            if left == 0 {
                break;
            }
            let Some(line) = self.active.pop_front() else { break };
            self.active.push_back(line);
            let own = &mut lines[line as usize];
            let sent = own.tasks.owed(usize::MAX) + own.threads.signalled;
            let most = room_of(line).saturating_sub(sent).min(left);
            let mut woken = own.tasks.rouse(most);
            while woken < most && own.threads.signal() {
                woken += 1;
                signals.some += 1;
            }
            left -= woken;
        }
        signals.all = signals.some > 0 && lines.len() > 1;
        signals
    }

    /// Everybody in a line looks again.
    pub(crate) fn wake_line(&mut self, line: u32) -> Signals {
        let Some(own) = self.lines.get_mut(line as usize) else { return Signals::default() };
        own.tasks.rouse_all();
        let all = own.threads.signalled < own.threads.asleep;
        own.threads.signalled = own.threads.asleep;
        Signals { some: 0, all }
    }

    /// Moves wakers of tasks that are to be woken to the batch; says whether there are more than it has room for.
    pub(crate) fn wake_roused(&mut self, batch: &mut WakeBatch) -> bool {
        let lines = &mut self.lines;
        self.active.iter().fold(false, |more, line| lines[*line as usize].tasks.wake_roused(batch) | more)
    }
}
