//! What holds after every step of a simulation.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use flyball_sync::{Clock, Nanos};
use flyball_workqueue::{DrainOptions, KeyState, Lease};
use testkit::queue_setup::SmallKey;
use testkit::wakers::poll_at_once;

use super::Simulation;
use super::op::SimOp;
use super::waiter::{Task, Wait};
use crate::queue::limiters::Changeable;
use crate::queue::orders::Kind;

impl<O: Kind, L: Changeable> Simulation<O, L> {
    /// Checks everything that holds after every step.
    pub(super) fn check(&mut self, op: &SimOp) {
        let step = self.step;
        self.queue.check().unwrap_or_else(|broken| panic!("step {step}: {broken}"));
        let stats = self.queue.stats();
        assert!((stats.adds, stats.delayed_adds) >= self.counted, "step {step}: a counter has decreased");
        self.counted = (stats.adds, stats.delayed_adds);
        self.check_limits();
        self.check_alarm();
        if !self.tasks.iter().any(Task::is_woken) && (self.probes || matches!(op, SimOp::Settle)) {
            self.probe();
            self.note_wakes();
            self.check_alarm();
        }
    }

    /// A future whose time limit has passed has been woken.
    fn check_limits(&self) {
        let now = self.clock.now();
        for task in self.tasks.iter().filter(|task| !task.is_woken()) {
            for waiter in task.pending() {
                let step = self.step;
                assert!(
                    waiter.until.is_none_or(|until| until > now),
                    "step {step}: liveness: the limit of {:?} has passed",
                    waiter.wait
                );
            }
        }
    }

    /// An alarm is armed only if a future waits for a time.
    fn check_alarm(&self) {
        let step = self.step;
        let stats = self.queue.stats();
        let pending = || self.tasks.iter().chain(&self.leaked).flat_map(Task::pending);
        let waiting = SmallKey::all().filter_map(|key| match self.queue.state(&key) {
            KeyState::Waiting(at) => Some(at),
            _ => None,
        });
        let deadline = waiting.min();
        let alarm = self.clock.next_alarm();
        if let Some(alarm) = alarm {
            let waits_for_time = deadline.is_some() || O::rate_limited(&self.queue) > 0;
            let getter = waits_for_time && !stats.paused && pending().any(|waiter| waiter.wait.is_getter());
            // A drain that serves delayed keys ends at its horizon, and the getters, drains and watchers of the queue with it.
            let ends = stats.shutting_down
                && !self.closed
                && pending().any(|waiter| {
                    waiter.wait.is_getter()
                        || waiter.wait.is_drain()
                        || matches!(waiter.wait, Wait::Overdue(_))
                });
            let limit = pending().any(|waiter| waiter.until.is_some());
            // Without a lease, too: the alarm is that of a lease that has ended, so that a watcher is not woken by each lease that begins.
            let watcher = pending().any(|waiter| matches!(waiter.wait, Wait::Overdue(_)));
            assert!(
                getter || ends || limit || watcher,
                "step {step}: alarm: armed for {}, and no waiter waits for it",
                alarm.get()
            );
        }
        let asleep =
            self.tasks.iter().chain(&self.leaked).filter(|task| !task.is_woken()).flat_map(Task::pending);
        let next = asleep.filter_map(|waiter| waiter.until).filter(|until| *until > self.clock.now()).min();
        let woken = self.tasks.iter().any(Task::is_woken) || !self.leaked.is_empty();
        let getter = self.tasks.iter().flat_map(Task::pending).any(|waiter| waiter.wait.is_getter());
        let key = deadline
            .filter(|at| getter && !woken && !stats.paused && !stats.shutting_down && *at > self.clock.now());
        for at in next.into_iter().chain(key).filter(|at| *at < Nanos::MAX) {
            assert!(
                alarm.is_some_and(|alarm| alarm <= at),
                "step {step}: liveness: no alarm is armed for {}, but for {alarm:?}",
                at.get()
            );
        }
    }

    /// From the end of a drain on, a getter waits only for a key that is Ready, or that will be when its lease ends.
    fn check_end_of_drain(&self, pending: &[Wait]) {
        let step = self.step;
        let over = self.horizon.is_some_and(|horizon| horizon <= self.clock.now());
        let runs = |key| matches!(self.queue.state(&key), KeyState::Ready | KeyState::LeasedDirty);
        if over && !SmallKey::all().any(runs) {
            let getter = pending.iter().find(|wait| wait.is_getter());
            assert!(getter.is_none(), "step {step}: liveness: {getter:?} pends, and the drain is over");
        }
    }

    /// For each pending future, a new future of the same kind is pending, too.
    fn probe(&mut self) {
        let step = self.step;
        let pending: Vec<_> = self.tasks.iter().flat_map(Task::pending).map(|waiter| waiter.wait).collect();
        let queue = self.queue.clone();
        self.check_end_of_drain(&pending);
        let has = |is: fn(&Wait) -> bool| pending.iter().any(is);
        // A wake-up that was given to a task that is not polled is not passed on.
        let withheld = |is: fn(Wait) -> bool| {
            let woken = self.leaked.iter().filter(|task| task.is_woken());
            woken.flat_map(|task| &task.waiters).any(|waiter| is(waiter.wait))
        };
        if has(|wait| wait.is_getter()) {
            let found = poll_at_once(pin!(queue.get())).map(|lease| lease.map(Lease::detach));
            match found {
                Poll::Pending => {}
                Poll::Ready(None) => panic!("step {step}: liveness: {pending:?} pend on a closed queue"),
                Poll::Ready(Some(key)) if withheld(Wait::is_getter) => {
                    queue.done(&key).expect("it was detached");
                    self.changes += 1;
                    return;
                }
                Poll::Ready(Some(key)) => {
                    panic!("step {step}: liveness: {key:?} is Ready, and no getter of {pending:?} was woken")
                }
            }
        }
        if has(|wait| matches!(wait, Wait::Idle | Wait::IdleTimeout(_))) {
            let idle = poll_at_once(pin!(queue.wait_idle())).is_ready();
            if idle && self.has_jumped_back {
                // Keys that were due wait again, but a jump is no operation: the next operation wakes the waiters.
                self.changes += 1;
                if queue.stats().paused { queue.pause() } else { queue.resume() }
            }
            let is_woken = self.has_jumped_back && self.tasks.iter().any(Task::is_woken);
            assert!(
                !idle || is_woken,
                "step {step}: liveness: the queue is idle, and a waiter was not woken"
            );
        }
        if has(|wait| matches!(wait, Wait::Empty | Wait::EmptyTimeout(_))) {
            let empty = poll_at_once(pin!(queue.wait_empty())).is_ready();
            assert!(!empty, "step {step}: liveness: the queue is empty, and a waiter was not woken");
        }
        for wait in &pending {
            match *wait {
                // After a jump, a lease that began later may be older, and is then reported late.
                Wait::Overdue(bound) if !self.has_jumped_back => {
                    let overdue = poll_at_once(pin!(queue.next_overdue(bound)));
                    assert!(overdue.is_pending(), "step {step}: liveness: {overdue:?} was not reported");
                }
                // An adder waits for room. It is not woken when another add has added its key.
                Wait::Add(key) | Wait::AddTimeout(key, _)
                    if !withheld(Wait::is_adder) && queue.state(&key) == KeyState::Absent =>
                {
                    let added = poll_at_once(pin!(queue.add_when_room(key)));
                    assert!(added.is_pending(), "step {step}: liveness: {added:?}: an adder was not woken");
                }
                _ => {}
            }
        }
        // A drain resumes the queue, so a new one shows nothing if the queue was paused after it had begun.
        if has(|wait| wait.is_drain()) && !queue.stats().paused {
            self.changes += 1;
            let drained =
                poll_at_once(pin!(queue.drain(DrainOptions::serve_waiting(Duration::MAX)))).is_ready();
            assert!(!drained, "step {step}: liveness: the queue is drained, and a drain was not woken");
        }
    }
}
