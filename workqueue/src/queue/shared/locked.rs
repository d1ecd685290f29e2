//! SHELL. What the lock guards: the state of the queue and its waiters; and which waiters to wake after a change.

use std::task::Waker;

use flyball_sync::Nanos;
use flyball_sync::waiting::{Alarm, WakeBatch};

use super::effects::Effects;
use crate::queue::adders::{AdderPlace, Adders, Signals};
use crate::queue::parked::Parked;
use crate::queue::sleepers::Sleepers;
use crate::queue::timeouts::Timeouts;
use crate::state::QueueState;
use crate::state::order::{Links, NO_ROOM};

pub(crate) struct Locked<K, O> {
    pub(crate) state: QueueState<K, O>,
    /// Tasks that wait for a key.
    pub(crate) getters: Parked,
    pub(crate) sleepers: Sleepers,
    /// Waiters for anything else.
    pub(crate) others: OtherWaiters,
    /// How many tasks were served at their first poll, since one of them gave way.
    at_once: u32,
    pub(super) alarm: Alarm,
}

/// So many tasks are served at once; the next one lets others run first. A prime, so that workers in step take it in turns, however
/// many they are.
const BUDGET: u32 = 127;

/// Waiters for something other than a key.
pub(crate) struct OtherWaiters {
    /// Whether there are any: set by a new waiter, reset by `settle` once none is left.
    pub(crate) any: bool,
    /// For room.
    pub(crate) adders: Adders,
    pub(crate) drainers: Parked,
    pub(crate) idlers: Parked,
    /// Threads that wait for the queue to be drained, or idle.
    pub(crate) blocked_drainers: usize,
    pub(crate) blocked_idlers: usize,
    /// Those threads were signalled, and none of them has begun to wait since. Without this flag, a blocked getter, which
    /// performs its effects before it sleeps, would signal them again in every loop until they have run.
    pub(crate) told: bool,
    /// No longer than until some time.
    pub(crate) timeouts: Timeouts,
    /// For a lease to be overdue.
    pub(crate) watchers: Parked,
    /// The earliest moment at which a parked watcher has something to see; `None` while it waits for a lease.
    pub(crate) watch_at: Option<Nanos>,
}

impl OtherWaiters {
    fn nobody_waits(&self) -> bool {
        self.drainers.waiting()
            + self.idlers.waiting()
            + self.blocked_drainers
            + self.blocked_idlers
            + self.watchers.waiting()
            == 0
            && self.adders.nobody_waits()
            && self.timeouts.is_empty()
    }
}

impl<K, O: Links> Locked<K, O> {
    pub(super) fn new(state: QueueState<K, O>) -> Self {
        let others = OtherWaiters {
            any: false,
            adders: Adders::default(),
            drainers: Parked::new(),
            idlers: Parked::new(),
            blocked_drainers: 0,
            blocked_idlers: 0,
            told: false,
            timeouts: Timeouts::default(),
            watchers: Parked::new(),
            watch_at: None,
        };
        let getters = Parked::new();
        Self { state, getters, sleepers: Sleepers::default(), others, at_once: 0, alarm: Alarm::default() }
    }

    /// Whether a task that would be served at its first poll is to let others run before: it wakes itself, and comes back.
    ///
    /// Without this a task that takes keys from a queue which is never empty never returns to its executor. The count is the
    /// queue's, under its lock, and not a runtime's: so it holds on every executor, needs no feature, and a run
    /// under a scheduler that a seed decides repeats exactly, which a count of the thread would spoil.
    ///
    /// Only who is served changes the count. One that has to wait says nothing of the others: they may run on other threads,
    /// or be polled next by the same task, as in a `select!`.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.at_once >= BUDGET
    }

    /// A task that has given way does not come back. The budget begins anew: one that polls each of its futures once, and drops it, would
    /// give way for ever.
    pub(crate) fn gave_way_for_good(&mut self) {
        self.at_once = 0;
    }

    /// A task was served that has not waited before; if the budget was spent, it has given way.
    #[inline]
    pub(crate) fn serve_at_once(&mut self) {
        self.at_once = if self.is_spent() { 1 } else { self.at_once + 1 };
    }

    /// A task that has just found no room waits for it.
    pub(crate) fn park_adder(&mut self, tag: &O::Tag, waker: Waker) -> AdderPlace {
        let line = self.join_adders(tag);
        self.others.adders.park(line, waker)
    }

    /// Whether a task that has just found no room waits for it already, with this waker.
    pub(crate) fn adder_waits_for(&self, place: &AdderPlace, tag: &O::Tag, waker: &Waker) -> bool {
        place.line == self.state.adder_line(tag) && self.others.adders.waits_for(place, waker)
    }

    /// The task waits no more. Its waker is for the caller to drop, outside the lock.
    pub(crate) fn unpark_adder(&mut self, place: AdderPlace) -> Option<Waker> {
        self.state.leave_line(place.line);
        self.others.adders.leave(place)
    }

    /// A thread that has just found no room is to sleep; gives its line.
    pub(crate) fn adder_sleeps(&mut self, tag: &O::Tag) -> u32 {
        let line = self.join_adders(tag);
        self.others.adders.sleep(line);
        line
    }

    pub(crate) fn adder_wakes_up(&mut self, line: u32) {
        self.state.leave_line(line);
        self.others.adders.wake_up(line);
    }

    fn join_adders(&mut self, tag: &O::Tag) -> u32 {
        let line = self.state.adder_line(tag);
        self.state.join_line(line);
        self.others.any = true;
        line
    }

    /// Those look again for whom there is no room whatever leaves the queue.
    pub(crate) fn wake_hopeless_adders(&mut self) -> Signals {
        self.others.adders.wake_line(NO_ROOM)
    }

    /// Whether `settle` might have something to do.
    ///
    /// Not while a thread is on its way and nobody else waits: it will look, and settle, itself.
    #[inline]
    pub(super) fn needs_settling(&self) -> bool {
        (self.getters.waiting() > 0) | self.others.any | self.sleepers.all_asleep()
    }

    /// Restores the three rules of `queue/shared.rs`; changes nothing but who is awake; and gathers what is due where somebody
    /// waits for the queue to be idle.
    pub(super) fn settle(&mut self, now: Option<Nanos>, timer: bool) -> Effects {
        let mut effects = Effects::default();
        let mut alarm = None;
        if self.state.is_closed() {
            self.getters.rouse_all();
            effects.signal_all = self.sleepers.asleep > 0;
        } else {
            // Also after shutdown: what was due then is Ready, and nothing else will say so.
            let lookahead = self.lookahead();
            let (wanted, next) = self.state.outlook(now, lookahead);
            let sent = self.getters.owed(wanted) + self.sleepers.signalled;
            self.hint(wanted.saturating_sub(sent), &mut effects);
            // The next deadline after those that a waiter was woken for. Set here and not by the woken waiters: a task that is
            // woken and never polled delays at most one key.
            alarm = next.filter(|_| self.waits());
            if let Some(at) = alarm {
                self.attend(at, &mut effects);
            }
        }
        if self.others.any {
            self.settle_others(now, &mut alarm, &mut effects);
            self.others.any = !self.others.nobody_waits();
        }
        effects.more = self.wake_roused(&mut effects.wakers);
        if timer {
            self.aim(alarm, &mut effects);
        }
        effects
    }

    /// The alarm rang. Its moment stands in for the time, which is not read here: the timer may ring early, and who is
    /// woken then looks at the clock, and waits again.
    ///
    /// Settling may set the alarm anew, for a later moment: a timer that rings at once and always gets through all of
    /// those, and stops.
    pub(super) fn ring(&mut self) -> Effects {
        let rang = self.alarm.rang();
        self.settle(rang, true)
    }

    /// How many deadlines that have passed are looked at: as many as there are tasks to send, woken or not, and one for a
    /// thread, which sends the next when it has looked. So either all of them are known, and the deadline that comes
    /// next, or no task is left to wake. A fixed number is not enough: tasks that were woken and are never polled
    /// may be more than that, and those behind them would get neither a wake-up nor an alarm.
    fn lookahead(&mut self) -> usize {
        if self.waits() { self.getters.owed(usize::MAX) + self.getters.waiting() + 1 } else { 0 }
    }

    /// Whether anybody waits for a key who is not on his way.
    fn waits(&self) -> bool {
        self.getters.waiting() > 0 || self.sleepers.asleep > 0
    }

    fn settle_others(&mut self, now: Option<Nanos>, alarm: &mut Option<Nanos>, effects: &mut Effects) {
        let Self { state, others, .. } = self;
        // By the time that was seen last, not by the moment at which the alarm rang: it may ring early, and asking makes keys that are due
        // Ready in an order that gathers them.
        let idle = others.idlers.waiting() + others.blocked_idlers > 0 && state.is_idle(None);
        let drained = state.is_drained();
        // Nobody waits for room in a queue that takes no more keys.
        effects.room = if state.is_open() {
            others.adders.notify(state.room(), |line| state.room_of(line))
        } else {
            others.adders.notify(usize::MAX, |_| usize::MAX)
        };
        if drained {
            others.drainers.rouse_all();
        }
        if idle {
            others.idlers.rouse_all();
        }
        let come = (drained && others.blocked_drainers > 0) || (idle && others.blocked_idlers > 0);
        effects.quiet = come && !others.told;
        others.told |= come;
        let come = |at: Option<Nanos>| at.is_some_and(|at| now.is_some_and(|now| at <= now));
        let unaimed = others.watch_at.is_none() && state.has_unreported();
        if drained || unaimed || come(others.watch_at) {
            others.watchers.rouse_all();
            others.watch_at = None;
        }
        if let Some(now) = now {
            others.timeouts.pass(now);
        }
        let watch = others.watch_at.filter(|_| others.watchers.waiting() > 0);
        *alarm = alarm.iter().copied().chain(watch).chain(others.timeouts.next()).min();
    }

    /// One of each who waits for time looks again.
    pub(super) fn wake_for_time(&mut self) -> Effects {
        let mut effects = Effects::default();
        if self.state.next_deadline().is_some() {
            self.hint(1, &mut effects);
        }
        self.others.watchers.rouse_all();
        self.others.watch_at = None;
        self.others.timeouts.pass(Nanos::MAX);
        effects.more = self.wake_roused(&mut effects.wakers);
        effects
    }

    /// Every task that waits for a key looks again, and waits again.
    pub(crate) fn wake_tasks(&mut self, effects: &mut Effects) {
        self.getters.rouse_all();
        effects.more = self.wake_roused(&mut effects.wakers);
    }

    /// Everybody who waits for a key looks again.
    pub(crate) fn wake_getters(&mut self, effects: &mut Effects) {
        self.wake_tasks(effects);
        effects.signal_all = self.sleepers.asleep > 0;
    }

    /// Moves the wakers of tasks that are to be woken to the batch; says whether there are more than it has room for.
    pub(super) fn wake_roused(&mut self, batch: &mut WakeBatch) -> bool {
        let others = &mut self.others;
        let more = others.timeouts.wake_passed(batch) | others.adders.wake_roused(batch);
        let all = [&mut self.getters, &mut others.drainers, &mut others.idlers, &mut others.watchers];
        all.into_iter().fold(more, |more, parked| parked.wake_roused(batch) | more)
    }

    /// Wakes so many getters, tasks first: a thread costs a system call. Of threads one at a time, which sends the next when it has looked.
    fn hint(&mut self, getters: usize, effects: &mut Effects) {
        let tasks = self.getters.rouse(getters);
        if tasks < getters && self.sleepers.signalled == 0 && self.sleepers.signal() {
            effects.signals += 1;
        }
    }

    /// One of the sleeping threads looks when `at` comes. It needs no timer; but its clock may be one that is moved by
    /// hand, and then only the timer knows.
    fn attend(&mut self, at: Nanos, effects: &mut Effects) {
        let sleepers = &mut self.sleepers;
        let unattended = sleepers.attended.is_none_or(|attended| at < attended);
        // A signalled thread looks at the deadline before it sleeps again.
        if unattended && sleepers.signalled == 0 && sleepers.signal() {
            effects.signals += 1;
        }
    }

    /// The timer rings at the latest at `alarm`.
    fn aim(&mut self, alarm: Option<Nanos>, effects: &mut Effects) {
        effects.arm = alarm.and_then(|at| self.alarm.aim(at));
    }
}
