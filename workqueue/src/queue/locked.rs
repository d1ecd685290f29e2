//! SHELL. The data that the lock protects: the state of the queue and its waiters. After a change, this code decides which waiters to wake.

use std::task::Waker;

use flyball_sync::Nanos;
use flyball_sync::waiting::{Alarm, Place, WakeBatch};

use crate::queue::adders::{AdderPlace, Adders};
use crate::queue::shared::Effects;
use crate::queue::waiters::{TaskWaiters, ThreadWaiters, Timeout, Timeouts};
use crate::state::QueueState;
use crate::state::order::NO_ROOM;
use crate::state::order::sealed::ReadyQueue;

pub(crate) struct Locked<K, O> {
    pub(crate) state: QueueState<K, O>,
    /// Tasks that wait for a key.
    pub(crate) getters: TaskWaiters,
    pub(crate) blocked_getters: ThreadWaiters,
    /// Waiters for anything other than a key.
    pub(crate) others: OtherWaiters,
    /// How many tasks were served at their first poll since a task last yielded.
    immediate: u32,
    pub(super) alarm: Alarm,
    /// Whether the alarm is set for threads, too. It is not if the clock runs in real time: then a thread sleeps only until its deadline.
    alarm_for_threads: bool,
    /// The value of `Shared::timed`, which is written only if it changes.
    pub(super) is_noted_as_timed: bool,
}

/// How many tasks are served at their first poll before the next one must yield. The number is prime, so that workers that are polled in a fixed
/// rotation take turns at yielding, however many workers there are.
const BUDGET: u32 = 127;

/// A deadline at or after this time, such as that of a delay of `Duration::MAX`, never passes, so no alarm is set for it.
const NEVER: Nanos = Nanos::new(u64::MAX - 1);

/// Waiters for something other than a key.
pub(crate) struct OtherWaiters {
    /// Whether there may be any waiters of the kinds below. A new waiter sets it; `collect_wakeups` resets it once there are no waiters left.
    pub(crate) any: bool,
    /// Tasks that wait for room.
    pub(crate) adders: Adders,
    pub(crate) drainers: TaskWaiters,
    /// How often `shut_down` has ended the wait of all drains. A drain that began at a lower number stops waiting.
    pub(crate) drains_ended: u64,
    /// Whether the drains that wait must be woken, because `drains_ended` has changed.
    drains_end: bool,
    pub(crate) idlers: TaskWaiters,
    /// Tasks that wait until the queue is empty. An idle queue need not be empty, so these tasks are not woken with `idlers`.
    pub(crate) emptiers: TaskWaiters,
    /// Threads that wait for the end of a drain.
    pub(crate) blocked_drainers: usize,
    /// Whether these threads were signalled, and none of them has begun to wait since then. A blocking getter performs the
    /// collected effects before it sleeps. Without this flag, it would signal these threads again in each iteration of its loop until they have run.
    pub(crate) quiet_notified: bool,
    /// Tasks that wait with a time limit, or for a lease to become overdue.
    pub(crate) timeouts: Timeouts,
    /// Tasks that wait for a lease to begin, so that it can become overdue.
    pub(crate) watchers: TaskWaiters,
    /// Tasks that wait for a lease to become overdue. The time is among `timeouts`; here they wait for the end of the queue.
    timed_watchers: TaskWaiters,
    /// When the oldest unreported lease began, at the time when a task of `timed_watchers` found it; the latest, if they found several. Only after the clock
    /// has jumped back, a lease that began before it can become the oldest one.
    watched_since: Nanos,
}

impl OtherWaiters {
    /// Returns the tasks that wait until the queue is idle, or those that wait until it is empty.
    pub(crate) fn quiet(&mut self, empty: bool) -> &mut TaskWaiters {
        if empty { &mut self.emptiers } else { &mut self.idlers }
    }

    /// Ends the wait of all drains that have begun.
    pub(crate) fn end_drains(&mut self) {
        self.drains_ended += 1;
        self.drains_end = self.any;
    }

    /// Returns whether the wait of a drain that began at the number `begun` has ended.
    pub(crate) fn has_ended(&self, begun: u64) -> bool {
        self.drains_ended > begun
    }

    /// Parks a task that waits for the lease that began at `since` to become overdue. The caller also inserts the task into `timeouts`.
    pub(crate) fn park_timed_watcher(&mut self, since: Nanos, waker: Waker) -> Place {
        let none = self.timed_watchers.waiting() == 0;
        self.watched_since = if none { since } else { since.max(self.watched_since) };
        self.timed_watchers.park(waker)
    }

    /// Removes a task that waits for an overdue lease. The caller must drop its wakers outside the lock.
    #[must_use = "must be dropped after unlocking"]
    pub(crate) fn leave_watchers(
        &mut self,
        place: Option<Place>,
        timeout: Option<Timeout>,
    ) -> [Option<Waker>; 2] {
        let watchers = if timeout.is_some() { &mut self.timed_watchers } else { &mut self.watchers };
        [place.and_then(|own| watchers.leave(own)), timeout.and_then(|own| self.timeouts.remove(own))]
    }

    /// Returns whether a task waits until the queue is drained. This is the end of `next_overdue`, too.
    fn tasks_wait_for_drain(&self) -> bool {
        self.drainers.waiting() + self.watchers.waiting() + self.timed_watchers.waiting() > 0
    }

    fn has_no_waiters(&self) -> bool {
        self.drainers.waiting()
            + self.idlers.waiting()
            + self.emptiers.waiting()
            + self.blocked_drainers
            + self.watchers.waiting()
            + self.timed_watchers.waiting()
            == 0
            && self.adders.is_quiet()
            && self.timeouts.is_empty()
    }
}

impl<K, O: ReadyQueue> Locked<K, O> {
    pub(super) fn new(state: QueueState<K, O>, alarm_for_threads: bool) -> Self {
        let is_noted_as_timed = state.is_timed();
        let others = OtherWaiters {
            any: false,
            adders: Adders::default(),
            drainers: TaskWaiters::new(),
            drains_ended: 0,
            drains_end: false,
            idlers: TaskWaiters::new(),
            emptiers: TaskWaiters::new(),
            blocked_drainers: 0,
            quiet_notified: false,
            timeouts: Timeouts::default(),
            watchers: TaskWaiters::new(),
            timed_watchers: TaskWaiters::new(),
            watched_since: Nanos::ZERO,
        };
        let getters = TaskWaiters::new();
        Self {
            state,
            getters,
            blocked_getters: ThreadWaiters::default(),
            others,
            immediate: 0,
            alarm: Alarm::default(),
            alarm_for_threads,
            is_noted_as_timed,
        }
    }

    /// Returns whether a task that could be served at its first poll must yield instead. To yield, the task wakes itself and returns `Pending`, so
    /// that it is polled again after other tasks.
    ///
    /// The counter `immediate` belongs to the queue and is protected by its lock. So it works on every executor and needs no Cargo feature, unlike
    /// the budget of a runtime; and a run under a seeded scheduler stays reproducible, unlike with a thread-local counter.
    ///
    /// The counter changes only when a task is served, or when a future that has yielded is dropped. It is not reset when a task waits, because that
    /// does not mean that other tasks have run: the next getter may run on a different thread, or be polled by the same task, as in a `select!`.
    #[inline]
    pub(crate) fn must_yield(&self) -> bool {
        self.immediate >= BUDGET
    }

    /// Called when a future that has yielded is dropped before it is polled again. Resets the counter; otherwise a task that polls each of its
    /// futures only once would yield forever, and would never be served.
    pub(crate) fn cancel_yield(&mut self) {
        self.immediate = 0;
    }

    /// Counts a task that was served without waiting. If the budget was already used up, this task has yielded, and the count starts again at 1.
    #[inline]
    pub(crate) fn count_immediate(&mut self) {
        self.immediate = if self.must_yield() { 1 } else { self.immediate + 1 };
    }

    /// Parks a task that has just found no room for its key.
    pub(crate) fn park_adder(&mut self, tag: &O::Tag, waker: Waker) -> AdderPlace {
        let line = self.join_adders(tag);
        self.others.adders.park(line, waker)
    }

    /// Returns whether a task that has just found no room is already parked in the right line with this waker.
    pub(crate) fn adder_waits_for(&self, place: &AdderPlace, tag: &O::Tag, waker: &Waker) -> bool {
        place.line == self.state.adder_line(tag) && self.others.adders.waits_for(place, waker)
    }

    /// Removes a task that no longer waits. The caller must drop its waker outside the lock.
    #[must_use = "must be dropped after unlocking"]
    pub(crate) fn unpark_adder(&mut self, place: AdderPlace) -> Option<Waker> {
        self.state.leave_line(place.line);
        self.others.adders.leave(place)
    }

    fn join_adders(&mut self, tag: &O::Tag) -> u32 {
        let line = self.state.adder_line(tag);
        self.state.join_line(line);
        self.others.any = true;
        line
    }

    /// Wakes the adders in the line `NO_ROOM`, so that they check for room again.
    pub(crate) fn wake_adders_without_room(&mut self) {
        self.others.adders.wake_line(NO_ROOM);
    }

    /// Returns whether `collect_wakeups` might have something to do.
    ///
    /// If only threads wait for keys, and one of them has been signalled but has not run yet, there is nothing to do: that thread will check the
    /// queue and collect the wake-ups itself.
    #[inline]
    pub(super) fn needs_wakeups(&self) -> bool {
        // An alarm is removed once no waiter waits for a time.
        (self.getters.waiting() > 0)
            | self.others.any
            | self.blocked_getters.all_asleep()
            | self.alarm.is_set()
    }

    /// Restores the three rules of `queue/shared.rs`. This changes which waiters are awake and for which time the alarm is set. The keys do not
    /// change.
    ///
    /// Examines a number of keys that does not depend on the length of the backlog. If that is not enough, sets [`Effects::again`], and changes nothing
    /// else: [`Shared::perform`](crate::queue::shared::Shared::perform) then calls this again, after other operations had their chance to lock.
    pub(super) fn collect_wakeups(&mut self, now: Option<Nanos>) -> Effects {
        let mut effects = Effects::default();
        let mut alarm = None;
        let latest = self.state.latest(now);
        let lookahead = self.lookahead();
        let checks = self.others.any || !self.state.is_open();
        let Some((wanted, next)) = self.state.outlook(now, lookahead, checks) else {
            effects.again = Some(latest);
            return effects;
        };
        let closes_at = self.state.closes_without_operation(latest);
        if self.state.is_closed_at(latest) {
            self.getters.notify_all();
            effects.signal_all = self.blocked_getters.asleep > 0;
        } else {
            // Getters are woken for Ready keys even after a shutdown: a key that was due at the time of the shutdown counts as Ready, and no later
            // change would wake a getter for it.
            let notified = self.getters.notified(wanted) + self.blocked_getters.signalled;
            self.notify_getters(wanted.saturating_sub(notified), &mut effects);
            // `next` is the first deadline for which no waiter was woken. The alarm for it is set here, not by the woken waiters. So a task that is
            // woken and never polled delays at most one key.
            let at = next.into_iter().chain(closes_at).min();
            if let Some(at) = at.filter(|_| self.waits()) {
                self.cover_deadline(at, &mut effects);
            }
            alarm =
                at.filter(|_| self.getters.waiting() > 0 || self.wakes_threads(self.blocked_getters.asleep));
        }
        if self.others.any {
            let closes_at = closes_at.filter(|_| {
                self.others.tasks_wait_for_drain() || self.wakes_threads(self.others.blocked_drainers)
            });
            alarm = alarm.into_iter().chain(closes_at).min();
            self.collect_other_wakeups(now, &mut alarm, &mut effects);
            self.others.any = !self.others.has_no_waiters();
        }
        effects.more = self.fill_batch(&mut effects.wakers);
        self.arm_timer(alarm, &mut effects);
        effects
    }

    /// Called when the alarm has fired, at the time `now`; `None` if the clock panicked.
    ///
    /// If the timer has fired early, uses the time of the alarm as the current time. The woken waiter then reads the clock and waits again. This call may
    /// set the alarm again, for a later deadline. So even with a timer that always fires immediately, the alarm fires only once for each deadline.
    pub(super) fn on_alarm(&mut self, now: Option<Nanos>) -> Effects {
        let mut fired = self.alarm.fired();
        if let Some(now) = now.filter(|now| fired.is_some_and(|at| at <= *now)) {
            self.state.note_time(now);
            fired = Some(now);
        }
        self.collect_wakeups(fired)
    }

    /// Returns how many passed deadlines to examine: one for each task that waits or is notified, and one more for all threads together. (One is
    /// enough for all threads, because each thread signals the next after it has checked the queue.) If no more deadlines than that have passed, all
    /// of them are counted and the next deadline is found. If more have passed, the next deadline may be wrong, but then every waiting task is woken
    /// anyway. A fixed number would not be enough: if more tasks than that number are woken and never polled, the tasks behind them would get neither
    /// a wake-up nor an alarm.
    fn lookahead(&mut self) -> usize {
        if self.waits() { self.getters.notified(usize::MAX) + self.getters.waiting() + 1 } else { 0 }
    }

    /// Returns whether any thread, or any task that has not been woken, waits for a key.
    fn waits(&self) -> bool {
        self.getters.waiting() > 0 || self.blocked_getters.asleep > 0
    }

    /// Returns whether there are such threads, and only the timer wakes them at a time.
    fn wakes_threads(&self, threads: usize) -> bool {
        self.alarm_for_threads && threads > 0
    }

    fn collect_other_wakeups(
        &mut self,
        now: Option<Nanos>,
        alarm: &mut Option<Nanos>,
        effects: &mut Effects,
    ) {
        let Self { state, others, .. } = self;
        let latest = state.latest(now);
        let idle = others.idlers.waiting() > 0 && state.is_idle_at(latest);
        let empty = state.is_empty();
        let drained = state.is_drained_at(latest);
        let over = std::mem::take(&mut others.drains_end) || drained;
        // If the queue accepts no more keys, all adders are woken, so that their adds are refused.
        if state.is_open() {
            state.classes_with_room(|line| others.adders.reactivate(line));
            others.adders.notify(state.room(), |line| state.room_of(line));
        } else {
            others.adders.notify_all();
        }
        if over {
            others.drainers.notify_all();
        }
        if idle {
            others.idlers.notify_all();
        }
        if empty {
            others.emptiers.notify_all();
        }
        let signal = over && others.blocked_drainers > 0;
        effects.quiet = signal && !others.quiet_notified;
        others.quiet_notified |= signal;
        let oldest = state.oldest_unreported();
        if drained || oldest.is_some() {
            others.watchers.notify_all();
        }
        if drained || oldest.is_some_and(|oldest| oldest < others.watched_since) {
            others.timed_watchers.notify_all();
        }
        if let Some(now) = now {
            others.timeouts.pass(now);
        }
        *alarm = alarm.iter().copied().chain(others.timeouts.next()).min();
    }

    /// Wakes one getter if there is a deadline in the future, and wakes all tasks that wait with a time limit, for a lease to become overdue, or for the
    /// end of a drain that serves delayed keys.
    pub(super) fn wake_for_time(&mut self) -> Effects {
        let mut effects = Effects::default();
        if self.state.next_deadline().is_some() {
            self.notify_getters(1, &mut effects);
        }
        if self.state.closes_at(self.state.latest(None)).is_some() {
            self.others.drainers.notify_all();
        }
        self.others.timeouts.pass(Nanos::MAX);
        effects.more = self.fill_batch(&mut effects.wakers);
        effects
    }

    /// Wakes every task that waits for a key, so that it checks the queue again.
    pub(crate) fn wake_tasks(&mut self, effects: &mut Effects) {
        self.getters.notify_all();
        effects.more = self.fill_batch(&mut effects.wakers);
    }

    /// Moves the wakers of the tasks to be notified into the batch. Returns whether some wakers did not fit.
    pub(super) fn fill_batch(&mut self, batch: &mut WakeBatch) -> bool {
        let others = &mut self.others;
        let more = others.timeouts.wake_passed(batch) | others.adders.fill_batch(batch);
        let all = [
            &mut self.getters,
            &mut others.drainers,
            &mut others.idlers,
            &mut others.emptiers,
            &mut others.watchers,
            &mut others.timed_watchers,
        ];
        all.into_iter().fold(more, |more, tasks| tasks.fill_batch(batch) | more)
    }

    /// Wakes `getters` waiters for keys. Tasks come first, because waking a thread costs a system call. Only one thread is signalled at a time; it
    /// signals the next one after it has checked the queue.
    fn notify_getters(&mut self, getters: usize, effects: &mut Effects) {
        let tasks = self.getters.notify(getters);
        if tasks < getters && self.blocked_getters.signalled == 0 && self.blocked_getters.signal() {
            effects.signals += 1;
        }
    }

    /// Signals a sleeping thread, which then checks the queue again and sleeps at most until the deadline `at`. That thread needs no timer to wake up
    /// at `at`, unless the clock is moved by hand; in that case only the timer wakes it.
    fn cover_deadline(&mut self, at: Nanos, effects: &mut Effects) {
        let threads = &mut self.blocked_getters;
        let is_uncovered = threads.covered_deadline.is_none_or(|covered| at < covered);
        // A signalled thread checks the deadline before it sleeps again.
        if is_uncovered && threads.signalled == 0 && threads.signal() {
            effects.signals += 1;
        }
    }

    /// Arms the timer to fire at `alarm` or earlier. Disarms it if no waiter waits for a time: an alarm would keep the thread of a `ThreadTimer` alive,
    /// and a paused clock would advance to it.
    fn arm_timer(&mut self, alarm: Option<Nanos>, effects: &mut Effects) {
        effects.arm = match alarm.filter(|at| *at < NEVER) {
            Some(at) => self.alarm.request(at),
            None => self.alarm.release(),
        };
    }

    /// Arms the timer to fire at `at` or earlier, for a thread that is about to sleep, if only the timer wakes the thread. Returns the effects to
    /// perform, if there are any.
    pub(crate) fn request_alarm(&mut self, at: Nanos) -> Option<Effects> {
        let arm = if self.alarm_for_threads && at < NEVER { self.alarm.request(at) } else { None };
        arm.map(|call| Effects { arm: Some(call), ..Effects::default() })
    }

    /// Checks the wait queues.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { getters, others, state, .. } = self;
        others.adders.check(|line| state.has_line(line))?;
        let all = [
            getters,
            &others.drainers,
            &others.idlers,
            &others.emptiers,
            &others.watchers,
            &others.timed_watchers,
        ];
        all.into_iter().try_for_each(TaskWaiters::check)
    }
}
