//! SHELL. What the lock guards: the state of the queue and its waiters; and which waiters to wake after a change.

use std::task::Waker;

use flyball_sync::Nanos;
use flyball_sync::waiting::{Alarm, WakeBatch};

use super::effects::Effects;
use crate::queue::adders::{AdderPlace, Adders, Signals};
use crate::queue::task_waiters::TaskWaiters;
use crate::queue::thread_waiters::ThreadWaiters;
use crate::queue::timeouts::Timeouts;
use crate::state::QueueState;
use crate::state::order::{NO_ROOM, ReadyQueue};

pub(crate) struct Locked<K, O> {
    pub(crate) state: QueueState<K, O>,
    /// Tasks that wait for a key.
    pub(crate) getters: TaskWaiters,
    pub(crate) blocked_getters: ThreadWaiters,
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
    /// Whether there are any: set by a new waiter, reset by `collect_wakeups` once none is left.
    pub(crate) any: bool,
    /// For room.
    pub(crate) adders: Adders,
    pub(crate) drainers: TaskWaiters,
    pub(crate) idlers: TaskWaiters,
    /// Threads that wait for the queue to be drained, or idle.
    pub(crate) blocked_drainers: usize,
    pub(crate) blocked_idlers: usize,
    /// Those threads were signalled, and none of them has begun to wait since. Without this flag, a blocked getter, which
    /// performs its effects before it sleeps, would signal them again in every loop until they have run.
    pub(crate) quiet_notified: bool,
    /// No longer than until some time.
    pub(crate) timeouts: Timeouts,
    /// For a lease to be overdue.
    pub(crate) watchers: TaskWaiters,
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

impl<K, O: ReadyQueue> Locked<K, O> {
    pub(super) fn new(state: QueueState<K, O>) -> Self {
        let others = OtherWaiters {
            any: false,
            adders: Adders::default(),
            drainers: TaskWaiters::new(),
            idlers: TaskWaiters::new(),
            blocked_drainers: 0,
            blocked_idlers: 0,
            quiet_notified: false,
            timeouts: Timeouts::default(),
            watchers: TaskWaiters::new(),
            watch_at: None,
        };
        let getters = TaskWaiters::new();
        Self {
            state,
            getters,
            blocked_getters: ThreadWaiters::default(),
            others,
            at_once: 0,
            alarm: Alarm::default(),
        }
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

    /// Whether `collect_wakeups` might have something to do.
    ///
    /// Not while a thread was signalled and there is no other waiter: that thread looks, and collects the wake-ups itself.
    #[inline]
    pub(super) fn needs_wakeups(&self) -> bool {
        (self.getters.waiting() > 0) | self.others.any | self.blocked_getters.all_asleep()
    }

    /// Restores the three rules of `queue/shared.rs`; changes nothing but which waiters are awake; and gathers due keys if there
    /// are waiters for an idle queue.
    pub(super) fn collect_wakeups(&mut self, now: Option<Nanos>, timer: bool) -> Effects {
        let mut effects = Effects::default();
        let mut alarm = None;
        if self.state.is_closed() {
            self.getters.notify_all();
            effects.signal_all = self.blocked_getters.asleep > 0;
        } else {
            // Also after shutdown: what was due then is Ready, and nothing else will say so.
            let lookahead = self.lookahead();
            let (wanted, next) = self.state.outlook(now, lookahead);
            let notified = self.getters.notified(wanted) + self.blocked_getters.signalled;
            self.notify_getters(wanted.saturating_sub(notified), &mut effects);
            // The next deadline after those that a waiter was woken for. Set here and not by the woken waiters: a task that is
            // woken and never polled delays at most one key.
            alarm = next.filter(|_| self.waits());
            if let Some(at) = alarm {
                self.cover_deadline(at, &mut effects);
            }
        }
        if self.others.any {
            self.collect_other_wakeups(now, &mut alarm, &mut effects);
            self.others.any = !self.others.nobody_waits();
        }
        effects.more = self.fill_batch(&mut effects.wakers);
        if timer {
            self.arm_timer(alarm, &mut effects);
        }
        effects
    }

    /// The alarm rang. Its moment stands in for the time, which is not read here: the timer may ring early, and who is
    /// woken then looks at the clock, and waits again.
    ///
    /// This may set the alarm anew, for a later moment: a timer that rings at once and always gets through all of
    /// those, and stops.
    pub(super) fn ring(&mut self) -> Effects {
        let rang = self.alarm.rang();
        self.collect_wakeups(rang, true)
    }

    /// How many deadlines that have passed are looked at: as many as there are tasks to notify, woken or not, and one for a
    /// thread, which signals the next when it has looked. So either all of them are known, and the deadline that comes
    /// next, or no task is left to wake. A fixed number is not enough: tasks that were woken and are never polled
    /// may be more than that, and those behind them would get neither a wake-up nor an alarm.
    fn lookahead(&mut self) -> usize {
        if self.waits() { self.getters.notified(usize::MAX) + self.getters.waiting() + 1 } else { 0 }
    }

    /// Whether a task that was not notified, or any thread, waits for a key.
    fn waits(&self) -> bool {
        self.getters.waiting() > 0 || self.blocked_getters.asleep > 0
    }

    fn collect_other_wakeups(
        &mut self,
        now: Option<Nanos>,
        alarm: &mut Option<Nanos>,
        effects: &mut Effects,
    ) {
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
            others.drainers.notify_all();
        }
        if idle {
            others.idlers.notify_all();
        }
        let come = (drained && others.blocked_drainers > 0) || (idle && others.blocked_idlers > 0);
        effects.quiet = come && !others.quiet_notified;
        others.quiet_notified |= come;
        let come = |at: Option<Nanos>| at.is_some_and(|at| now.is_some_and(|now| at <= now));
        let has_unwatched = others.watch_at.is_none() && state.has_unreported();
        if drained || has_unwatched || come(others.watch_at) {
            others.watchers.notify_all();
            others.watch_at = None;
        }
        if let Some(now) = now {
            others.timeouts.pass(now);
        }
        let watch = others.watch_at.filter(|_| others.watchers.waiting() > 0);
        *alarm = alarm.iter().copied().chain(watch).chain(others.timeouts.next()).min();
    }

    /// Wakes one waiter of each kind that waits for a deadline.
    pub(super) fn wake_for_time(&mut self) -> Effects {
        let mut effects = Effects::default();
        if self.state.next_deadline().is_some() {
            self.notify_getters(1, &mut effects);
        }
        self.others.watchers.notify_all();
        self.others.watch_at = None;
        self.others.timeouts.pass(Nanos::MAX);
        effects.more = self.fill_batch(&mut effects.wakers);
        effects
    }

    /// Every task that waits for a key looks again, and waits again.
    pub(crate) fn wake_tasks(&mut self, effects: &mut Effects) {
        self.getters.notify_all();
        effects.more = self.fill_batch(&mut effects.wakers);
    }

    /// Wakes every waiter for a key.
    pub(crate) fn wake_getters(&mut self, effects: &mut Effects) {
        self.wake_tasks(effects);
        effects.signal_all = self.blocked_getters.asleep > 0;
    }

    /// Moves the wakers of tasks that are to be woken to the batch; says whether there are more than it has room for.
    pub(super) fn fill_batch(&mut self, batch: &mut WakeBatch) -> bool {
        let others = &mut self.others;
        let more = others.timeouts.wake_passed(batch) | others.adders.fill_batch(batch);
        let all = [&mut self.getters, &mut others.drainers, &mut others.idlers, &mut others.watchers];
        all.into_iter().fold(more, |more, tasks| tasks.fill_batch(batch) | more)
    }

    /// Wakes so many getters, tasks first: a thread costs a system call. Of threads one at a time, which signals the next when it has looked.
    fn notify_getters(&mut self, getters: usize, effects: &mut Effects) {
        let tasks = self.getters.notify(getters);
        if tasks < getters && self.blocked_getters.signalled == 0 && self.blocked_getters.signal() {
            effects.signals += 1;
        }
    }

    /// Has one of the sleeping threads look when `at` comes. It needs no timer; but its clock may be one that is moved by
    /// hand, and then only the timer knows.
    fn cover_deadline(&mut self, at: Nanos, effects: &mut Effects) {
        let threads = &mut self.blocked_getters;
        let is_uncovered = threads.covered_deadline.is_none_or(|covered| at < covered);
        // A signalled thread looks at the deadline before it sleeps again.
        if is_uncovered && threads.signalled == 0 && threads.signal() {
            effects.signals += 1;
        }
    }

    /// The timer rings at the latest at `alarm`.
    fn arm_timer(&mut self, alarm: Option<Nanos>, effects: &mut Effects) {
        effects.arm = alarm.and_then(|at| self.alarm.aim(at));
    }
}
