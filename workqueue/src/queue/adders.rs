//! PURE. The wait queues of the adders, which are the tasks that wait to add a key. A class is a set of keys that has its own capacity,
//! such as a group; each class has its own wait queue, called a line.
//!
//! Without such classes there is one line, [`ANY_ROOM`](crate::state::order::ANY_ROOM). With groups, an adder waits in the line of its group if the
//! group has a record. If the group has no record, the adder waits in [`NO_ROOM`](crate::state::order::NO_ROOM) if the capacity of the group is 0,
//! and otherwise in `ANY_ROOM`: a group without a record has no keys, so not the group but the queue is full.
//!
//! # Invariants
//! 1. `active` contains only lines with waiting adders, each at most once. A line that is not in it has no waiting adders, or no room in its class besides
//!    that for its notified adders. So an operation looks at no line whose class is full, however many there are; the caller
//!    [reactivates](Adders::reactivate) a line when its class gets room. `notified` contains each line with notified adders, and perhaps others until
//!    the next [`notify`](Adders::notify). So while the queue is full, an operation looks at no line at all.
//! 2. *No lost wake-up.* After [`notify`](Adders::notify), one of two conditions holds. Either the number of notified adders of each line is min(room
//!    in its class, adders in the line), or the number of notified adders of all lines together equals the number of keys that the queue has room
//!    for.
//! 3. *Independence.* If a class has no room, the adders in its line are not notified, and do not reduce the number of adders that are notified in
//!    other lines.
//! 4. *No endless wake-ups.* A notified adder that finds no room waits again in the line of its class. At that time either the class or the queue is
//!    full, so the adder is notified again only after a key has left or a limit has been raised.
//! 5. `to_wake` contains each line with adders that are notified and not woken yet exactly once, and `waiting` is the number of waiting adders.
//! 6. `lines` contains the lines in which an adder waits, or was woken and has not left yet, those in `active` and `to_wake`, and perhaps the lines without a
//!    group, which are reused. So an adder of the last of a million groups costs no more than one of the first, and a line is gone with its adders.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;

use flyball_sync::steps;
use flyball_sync::waiting::{Place, WakeBatch};

use crate::queue::waiters::TaskWaiters;
use crate::state::order::NO_ROOM;

/// Tasks that wait to add a key.
#[derive(Default)]
pub(crate) struct Adders {
    lines: BTreeMap<u32, Line>,
    /// The line that `notify` looked at least recently is first: lines by the turn that they took when they became active.
    active: BTreeMap<u64, u32>,
    turn: u64,
    notified: BTreeSet<u32>,
    to_wake: VecDeque<u32>,
    waiting: usize,
    /// Whether all adders have been notified, because the queue accepts no more keys. None waits after that.
    all_notified: bool,
}

#[derive(Default)]
struct Line {
    tasks: TaskWaiters,
    /// The turn of the line in `active`.
    turn: Option<u64>,
    is_to_wake: bool,
}

impl Line {
    fn is_unused(&self) -> bool {
        self.tasks.is_unused() && !self.is_to_wake
    }

    /// If adders wait in this line, adds it to `active`, unless it is there.
    fn activate(&mut self, line: u32, active: &mut BTreeMap<u64, u32>, turn: &mut u64) {
        if self.turn.is_none() && self.tasks.waiting() > 0 {
            *turn += 1;
            self.turn = Some(*turn);
            active.insert(*turn, line);
        }
    }

    /// If no adders wait in this line any more, removes it from `active`.
    fn deactivate_if_empty(&mut self, active: &mut BTreeMap<u64, u32>) {
        if self.tasks.waiting() == 0 {
            self.turn.take().map(|turn| active.remove(&turn));
        }
    }
}

/// The line of a task that waits for room, and the place of the task in that line.
pub(crate) struct AdderPlace {
    pub(crate) line: u32,
    place: Place,
}

impl Adders {
    /// Returns whether there is nothing to [`notify`](Self::notify).
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting == 0
    }

    /// Checks invariants 1, 5 and 6, as far as the room of the classes does not matter. `exists` returns whether there is a class for a line.
    pub(crate) fn check(&self, exists: impl Fn(u32) -> bool) -> Result<(), String> {
        let waiting = self.lines.values().map(|line| line.tasks.waiting()).sum::<usize>();
        for (&index, line) in &self.lines {
            line.tasks.check()?;
            if index > NO_ROOM && line.is_unused() {
                return Err(format!("adders 6: line {index} is not used"));
            }
            let is_active = line.turn.is_some_and(|turn| self.active.get(&turn) == Some(&index));
            if line.turn.is_some() && (!is_active || line.tasks.waiting() == 0) {
                return Err(format!("adders 1: line {index} is active: {:?}", line.turn));
            }
            if line.is_to_wake != self.to_wake.contains(&index) {
                return Err(format!("adders 5: line {index} is to be woken: {}", line.is_to_wake));
            }
        }
        let active = self.lines.values().filter(|line| line.turn.is_some()).count();
        if active != self.active.len() || !self.active.values().all(|line| exists(*line)) {
            return Err(format!("adders 1: {active} of {:?} are active", self.active));
        }
        if waiting != self.waiting {
            return Err(format!("adders 5: {waiting} wait, counted {}", self.waiting));
        }
        Ok(())
    }

    pub(crate) fn park(&mut self, line: u32, waker: Waker) -> AdderPlace {
        self.waiting += 1;
        let place = self.lines.entry(line).or_default().tasks.park(waker);
        self.reactivate(line);
        AdderPlace { line, place }
    }

    /// Returns whether the task at `place` waits with `waker` and has not been woken.
    pub(crate) fn waits_for(&self, place: &AdderPlace, waker: &Waker) -> bool {
        self.lines[&place.line].tasks.waits_for(&place.place, waker)
    }

    /// Removes a task that was polled again or dropped. The caller must drop the waker outside the lock.
    #[must_use = "must be dropped after unlocking"]
    pub(crate) fn leave(&mut self, place: AdderPlace) -> Option<Waker> {
        let own = self.lines.get_mut(&place.line)?;
        let waker = own.tasks.leave(place.place);
        own.deactivate_if_empty(&mut self.active);
        // A notified task that leaves may leave room for another one.
        own.activate(place.line, &mut self.active, &mut self.turn);
        self.remove_if_unused(place.line);
        // A task that was woken is not among the waiting ones any more, and has no waker.
        self.waiting -= usize::from(waker.is_some());
        waker
    }

    fn remove_if_unused(&mut self, line: u32) {
        if line > NO_ROOM && self.lines.get(&line).is_some_and(Line::is_unused) {
            self.lines.remove(&line);
        }
    }

    /// Lets the next [`notify`](Self::notify) look at a line, because its class may have room.
    pub(crate) fn reactivate(&mut self, line: u32) {
        let Some(own) = self.lines.get_mut(&line) else { return };
        own.activate(line, &mut self.active, &mut self.turn);
    }

    /// Restores invariant 2. `room` is the number of keys that the queue has room for, and `room_of(line)` the number of keys that the class of the
    /// line has room for. The caller wakes the tasks with [`fill_batch`](Self::fill_batch). O(lines with notified adders + lines that became active since the
    /// queue was last full).
    pub(crate) fn notify(&mut self, room: usize, room_of: impl Fn(u32) -> usize) {
        let mut left = room;
        let Self { lines, active, turn, .. } = self;
        self.notified.retain(|line| {
            steps::count();
            let Some(own) = lines.get_mut(line) else { return false };
            let before = own.tasks.notified(usize::MAX);
            // Room for which an adder was already notified is reserved for that adder, so it is subtracted from `left`.
            let notified = own.tasks.notified(room.min(room_of(*line)));
            left = left.saturating_sub(notified);
            if notified < before {
                own.activate(*line, active, turn);
            }
            notified > 0 || own.is_to_wake
        });
        for _ in 0..self.active.len() {
            if left == 0 {
                break;
            }
            steps::count();
            let Some((_, line)) = self.active.pop_first() else { break };
            let Some(own) = self.lines.get_mut(&line) else { continue };
            own.turn = None;
            let most = room_of(line).saturating_sub(own.tasks.notified(usize::MAX));
            let woken = own.tasks.notify(most.min(left));
            left -= woken;
            if most > woken && own.tasks.waiting() > woken {
                own.activate(line, &mut self.active, &mut self.turn);
            }
            if woken > 0 {
                self.notified.insert(line);
                self.mark_to_wake(line);
            }
        }
    }

    /// Notifies all adders, because the queue accepts no more keys. Later calls have no effect. O(lines with adders).
    pub(crate) fn notify_all(&mut self) {
        if std::mem::replace(&mut self.all_notified, true) {
            return;
        }
        self.active.clear();
        self.notified.clear();
        self.lines.retain(|&line, own| {
            steps::count();
            own.turn = None;
            own.tasks.notify_all();
            if own.tasks.waiting() > 0 && !std::mem::replace(&mut own.is_to_wake, true) {
                self.to_wake.push_back(line);
            }
            line <= NO_ROOM || !own.is_unused()
        });
    }

    /// Wakes all adders of a line, so that they check for room again.
    pub(crate) fn wake_line(&mut self, line: u32) {
        if let Some(own) = self.lines.get_mut(&line).filter(|own| own.tasks.waiting() > 0) {
            own.tasks.notify_all();
            self.mark_to_wake(line);
        }
    }

    fn mark_to_wake(&mut self, line: u32) {
        let Some(own) = self.lines.get_mut(&line) else { return };
        if !std::mem::replace(&mut own.is_to_wake, true) {
            self.to_wake.push_back(line);
        }
    }

    /// Moves the wakers of the tasks to be notified into the batch. Returns whether some wakers did not fit.
    pub(crate) fn fill_batch(&mut self, batch: &mut WakeBatch) -> bool {
        // Lines behind the one with which the batch becomes full are not looked at: to wake the adders of n lines would otherwise take O(n²).
        while let Some(&line) = self.to_wake.front() {
            steps::count();
            if let Some(own) = self.lines.get_mut(&line) {
                let before = own.tasks.waiting();
                own.is_to_wake = own.tasks.fill_batch(batch);
                own.deactivate_if_empty(&mut self.active);
                self.waiting -= before - own.tasks.waiting();
                if own.is_to_wake {
                    return true;
                }
            }
            self.to_wake.pop_front();
            self.remove_if_unused(line);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::Waker;

    use flyball_sync::steps;
    use flyball_sync::waiting::WakeBatch;

    use super::Adders;

    /// A batch looks at the lines that it wakes, and at no line behind them.
    #[test]
    fn a_batch_looks_at_few_lines() {
        let mut adders = Adders::default();
        for line in 0..1_000 {
            _ = adders.park(line, Waker::noop().clone());
        }
        adders.notify_all();
        steps::take();
        while adders.fill_batch(&mut WakeBatch::default()) {
            assert!(steps::take() <= WakeBatch::CAPACITY as u64 + 1);
            steps::begin();
        }
    }

    /// However many classes are full, `notify` looks at none of them; once one of them gets room, only at that one.
    #[test]
    fn lines_of_full_classes_cost_nothing() {
        let mut adders = Adders::default();
        let (looks, with_room) = (Cell::new(0), Cell::new(u32::MAX));
        let room_of = |line| {
            looks.set(looks.get() + 1);
            usize::from(line == with_room.get())
        };
        for line in 2..1_002 {
            _ = adders.park(line, Waker::noop().clone());
        }
        adders.notify(9, room_of);
        looks.set(0);
        adders.notify(9, room_of);
        assert_eq!(looks.get(), 0);
        with_room.set(7);
        adders.reactivate(7);
        adders.notify(9, room_of);
        assert_eq!((looks.get(), Vec::from(adders.to_wake)), (1, vec![7]));
    }

    /// While the queue is full, an operation looks at no line, however many classes have room; when a key has left, at one of them.
    #[test]
    fn lines_with_room_cost_nothing_while_the_queue_is_full() {
        let mut adders = Adders::default();
        let looks = Cell::new(0);
        let room_of = |_| {
            looks.set(looks.get() + 1);
            usize::MAX
        };
        let places: Vec<_> = (2..1_002).map(|line| adders.park(line, Waker::noop().clone())).collect();
        adders.notify(0, room_of);
        assert_eq!(looks.get(), 0);
        for round in 1..=3 {
            adders.notify(1, room_of);
            adders.check(|_| true).unwrap();
            assert!(!adders.fill_batch(&mut WakeBatch::default()));
            assert_eq!((looks.get(), adders.waiting), (2 * round - 1, 1_000 - round));
            adders.notify(0, room_of); // the key of another adder took the room
        }
        // All others are woken once.
        adders.notify(usize::MAX, room_of);
        while adders.fill_batch(&mut WakeBatch::default()) {}
        adders.check(|_| true).unwrap();
        assert_eq!(adders.waiting, 0);
        places.into_iter().for_each(|place| drop(adders.leave(place)));
        assert!(adders.is_quiet() && adders.lines.is_empty());
    }

    /// After a shutdown, each operation notifies all adders, but looks at each line once, also while the adders are woken in batches.
    #[test]
    fn all_adders_are_notified_once() {
        let mut adders = Adders::default();
        let places: Vec<_> = (2..1_002).map(|line| adders.park(line, Waker::noop().clone())).collect();
        adders.notify_all();
        let mut woken = 0;
        loop {
            steps::begin();
            steps::take();
            adders.notify_all();
            let mut batch = WakeBatch::default();
            let more = adders.fill_batch(&mut batch);
            assert!(steps::take() <= WakeBatch::CAPACITY as u64 + 1);
            woken += usize::from(!batch.is_empty());
            if !more {
                break;
            }
        }
        assert_eq!(woken, 1_000_usize.div_ceil(WakeBatch::CAPACITY));
        places.into_iter().for_each(|place| drop(adders.leave(place)));
        adders.check(|_| false).unwrap();
        assert!(adders.is_quiet() && adders.lines.is_empty());
    }

    /// After a shutdown, no line is looked at any more.
    #[test]
    fn no_line_is_active_after_all_are_notified() {
        let mut adders = Adders::default();
        let places: Vec<_> = [0, 2, 5].map(|line| adders.park(line, Waker::noop().clone())).into();
        adders.notify(1, |_| 1);
        adders.notify_all();
        adders.check(|_| false).unwrap();
        places.into_iter().for_each(|place| drop(adders.leave(place)));
        assert!(adders.is_quiet());
    }
}
