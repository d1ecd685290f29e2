//! Applies operations to a queue and to its model, and stores the leases.

use std::sync::{Arc, Mutex};

use flyball_sync::{Clock, ManualClock};
use flyball_workqueue::{
    AddOptions, DelayMode, DrainOptions, Lease, LeaseOutcome, ManualTimer, Queue, TryGetError,
};
use testkit::coverage::states::Cells;
use testkit::oracle::queue::OracleQueue;
use testkit::queue_answers::{Ending, Overdue};
use testkit::queue_op::QueueOp;
use testkit::queue_setup::{Mode, SmallKey};

use crate::queue::groups::Groups;
use crate::queue::limiters::Changeable;
use crate::queue::metrics_sink::{Reports, read, without_delay};
use crate::queue::model_answers::{
    added, added_many, dequeue_order, in_order, nanos, nothing, oldest, poll, same, seen, snapshot, taken,
    tally,
};
use crate::queue::orders::Kind;
use crate::queue::step::Step;

/// The keys that the queue has given up, each with the number of its failures.
pub(crate) type GivenUp = Arc<Mutex<Vec<(SmallKey, u32)>>>;

/// A queue and its model, to which the same operations are applied.
pub(crate) struct QueueRun<O: Kind, L: Changeable> {
    queue: Queue<SmallKey, O, L, ManualTimer>,
    /// The groups, if an operation that sets a priority changes their limits.
    groups: Option<Groups>,
    /// The priority of adds.
    priority: i8,
    pub(crate) model: OracleQueue<SmallKey>,
    clock: ManualClock,
    leases: Vec<Lease<SmallKey>>,
    keys: Vec<SmallKey>,
    dead: GivenUp,
    /// The reports of the queue, if it has a metrics sink.
    reports: Option<Reports>,
}

impl<O: Kind, L: Changeable> QueueRun<O, L> {
    pub(crate) fn new(
        queue: Queue<SmallKey, O, L, ManualTimer>,
        model: OracleQueue<SmallKey>,
        clock: ManualClock,
        keys: Vec<SmallKey>,
        dead: GivenUp,
    ) -> Self {
        Self { queue, groups: None, priority: 0, model, clock, leases: Vec::new(), keys, dead, reports: None }
    }

    pub(crate) fn grouped(mut self, groups: Option<Groups>) -> Self {
        self.groups = groups;
        self
    }

    fn step(&mut self, op: &QueueOp, at: &Step<'_>) {
        let now = self.now();
        let Self { queue, model, .. } = self;
        let priority = self.priority;
        match *op {
            QueueOp::Add(key) => {
                assert_eq!(
                    added(queue.add_with(key, AddOptions { priority, ..AddOptions::default() })),
                    model.add(key, now),
                    "{at}"
                );
            }
            QueueOp::AddPriority(priority) => {
                self.priority = priority;
                model.with_priority(priority);
                if let Some(groups) = &self.groups {
                    model.limit(0, groups.set_limits(priority), now);
                    O::refresh(queue);
                }
            }
            QueueOp::SetPriority(key, priority) => {
                if let Some(known) = O::set_priority(queue, key, priority) {
                    assert_eq!(known, model.set_priority(key, priority, now), "{at}");
                }
            }
            QueueOp::AddFailed(key, failures) => {
                let options = AddOptions { priority, failures: failures.0, ..AddOptions::default() };
                assert_eq!(
                    added(queue.add_with(key, options)),
                    model.add_failed(key, failures.0, now),
                    "{at}"
                );
            }
            QueueOp::UpdateLimiter(change) => {
                queue.update_limiter(|limiter, now| limiter.change(change, now));
                model.update_limiter(change, now);
            }
            QueueOp::AddMany(ref keys) => {
                let answer = model.with_priority(0).add_many(keys, now);
                model.with_priority(priority);
                assert_eq!(added_many(queue.add_many(keys.iter().copied())), answer, "{at}");
            }
            QueueOp::AddWhenRoom(key) => {
                let answer = poll(queue.add_when_room(key)).map(added);
                assert_eq!(answer, model.with_priority(0).add_when_room(key, now), "{at}");
                model.with_priority(priority);
            }
            QueueOp::TryGet => self.take(|queue| queue.try_get().map(|lease| vec![lease]), 1, at),
            QueueOp::GetMany(most) => self.take(|queue| queue.try_get_many(most), most, at),
            QueueOp::PollGet => self.take(|queue| taken(poll(queue.get()).map(Vec::from_iter)), 1, at),
            QueueOp::PollGetMany(most) => self.take(|queue| taken(poll(queue.get_many(most))), most, at),
            QueueOp::PollGetTimeout(limit) => {
                self.take(
                    |queue| taken(poll(queue.timeout(limit.0, queue.get())).flatten().map(Vec::from_iter)),
                    1,
                    at,
                );
            }
            QueueOp::Done(index) => self.end(index, Ending::Done, Lease::done),
            QueueOp::Succeed(index) => self.end(index, Ending::Succeed, Lease::succeed),
            QueueOp::Retry(index) => self.end(index, Ending::Retry, Lease::retry),
            QueueOp::DropLease(index) => self.end(index, Ending::Dropped, drop),
            QueueOp::Detach(index) => {
                if let Some(lease) = self.pick(index) {
                    let key = *lease;
                    self.model.detach(key, now);
                    assert_eq!(lease.detach(), key, "{at}");
                }
            }
            QueueOp::DoneKey(key) => {
                assert_eq!(queue.done(&key).is_ok(), model.done(key, now).is_ok(), "{at}");
            }
            QueueOp::Cancel(key) => assert_eq!(queue.cancel(&key), model.cancel(key, now), "{at}"),
            QueueOp::Forget(key) => {
                queue.forget(&key);
                model.forget(key);
            }
            QueueOp::Pause => {
                queue.pause();
                model.pause();
            }
            QueueOp::Resume => {
                queue.resume();
                model.resume();
            }
            QueueOp::Snapshot => {
                let (shown, last) = (queue.keys(), model.last_deadline());
                assert_eq!(
                    snapshot(&shown, &queue.stats()).timely(last),
                    model.snapshot(now).timely(last),
                    "{at}"
                );
                let (ready, waiting) = in_order(&shown);
                assert_eq!(dequeue_order(ready, model.able()), model.dequeue_order(), "{at}");
                // After the shutdown, the order of retried keys is not defined.
                if !model.is_shutting_down() {
                    assert_eq!(waiting, model.left().waiting, "{at}");
                }
            }
            QueueOp::WaitIdle => {
                assert_eq!(poll(queue.wait_idle()).is_some(), model.is_idle(now), "{at}");
            }
            QueueOp::ShutDown => {
                queue.shut_down();
                model.shut_down(now);
            }
            QueueOp::Drain => same(poll(queue.drain(DrainOptions::unlimited())), model.drain(now), at),
            QueueOp::StopNow => same(Some(queue.stop_now()), Some(model.stop_now(now)), at),
            QueueOp::AddAfter(..)
            | QueueOp::AddDelayed(..)
            | QueueOp::Postpone(..)
            | QueueOp::AddLimited(_)
            | QueueOp::RequeueAfter(..)
            | QueueOp::DoneAfter(..)
            | QueueOp::RetryNoSooner(..)
            | QueueOp::PollOverdue(_)
            | QueueOp::Advance(_)
            | QueueOp::DrainWaiting(_) => panic!("{at}: this queue has no timer"),
        }
    }

    fn compare(&mut self, at: &Step<'_>) {
        let now = self.now();
        let Self { queue, model, .. } = self;
        queue.check().unwrap_or_else(|broken| panic!("{at}: {broken}"));
        assert_eq!(queue.ready_len(), model.len(now), "{at}");
        assert_eq!(queue.has_ready(), model.tally(now).ready > model.suspended(), "{at}");
        assert_eq!(tally(queue.stats()), model.tally(now), "{at}");
        assert_eq!(queue.is_shutting_down(), model.is_shutting_down(), "{at}");
        assert_eq!(queue.stats().paused, model.is_paused(), "{at}");
        assert_eq!(*self.dead.lock().expect("the lock is not poisoned"), model.dead, "{at}");
        O::compare(queue, model, &self.keys[..self.keys.len().min(4)], now, at);
        let last = model.last_deadline();
        // If there are many keys, checking all of them after each operation would take longer than the operations. Therefore each call checks only
        // the next few keys.
        let count = self.keys.len().min(4);
        for &key in &self.keys[..count] {
            assert_eq!(
                seen(queue.state(&key)).timely(last),
                model.seen(key, now).timely(last),
                "{at}: {key:?}"
            );
        }
        let key = self.keys[0];
        assert_eq!(queue.num_requeues(&key), model.requeues(key), "{at}: {key:?}");
        self.keys.rotate_left(count - 1);
    }

    /// Stops the queue. Checks that the queue returns all remaining keys, and that it is empty when their leases have ended.
    fn check_end(&mut self) {
        let now = self.now();
        same(Some(self.queue.stop_now()), Some(self.model.stop_now(now)), &"at the end");
        self.leases.clear();
        for key in &self.keys {
            assert_eq!(
                self.queue.done(key).is_ok(),
                self.model.done(*key, now).is_ok(),
                "at the end: {key:?}"
            );
        }
        let left = self.queue.stop_now();
        assert_eq!((left.ready, left.waiting, left.leased), (vec![], vec![], vec![]), "after the end");
        self.queue.check().unwrap_or_else(|broken| panic!("at the end: {broken}"));
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now().get()
    }

    pub(crate) fn take(
        &mut self,
        take: impl FnOnce(&Queue<SmallKey, O, L, ManualTimer>) -> Result<Vec<Lease<SmallKey>>, TryGetError>,
        most: usize,
        at: &Step<'_>,
    ) {
        let taken = take(&self.queue);
        let answer = match &taken {
            Ok(leases) => Ok(leases.iter().map(|lease| **lease).collect()),
            Err(why) => Err(nothing(*why)),
        };
        let now = self.now();
        assert_eq!(answer, self.model.try_get_many(most, now), "{at}");
        self.leases.extend(taken.into_iter().flatten());
    }

    pub(crate) fn pick(&mut self, index: u8) -> Option<Lease<SmallKey>> {
        let count = self.leases.len();
        (count > 0).then(|| self.leases.remove(usize::from(index) % count))
    }

    fn end(&mut self, index: u8, ending: Ending, end: impl FnOnce(Lease<SmallKey>)) {
        let now = self.now();
        if let Some(lease) = self.pick(index) {
            self.model.end(*lease, ending, now);
            end(lease);
        }
    }
}

impl<O: Kind, L: Changeable> QueueRun<O, L> {
    /// If `reports` is a metrics sink, the run also compares the reports of the queue with those of the model.
    pub(crate) fn measured(mut self, reports: Option<Reports>) -> Self {
        self.reports = reports;
        if self.reports.is_some() {
            self.model.track_ages(0);
        }
        self
    }

    /// Applies an operation sequence to the queue and its model.
    pub(crate) fn run(mut self, ops: Vec<QueueOp>, aged: bool) -> Cells {
        if aged {
            self.queue.track_ages();
            self.model.track_ages(self.now());
        }
        for (number, op) in ops.iter().enumerate() {
            let at = Step { number, op };
            at.trace();
            self.step_in_time(op, &at);
            self.compare(&at);
            self.compare_ages(&at);
            self.compare_metrics(&at);
        }
        self.check_end();
        self.model.cells
    }

    fn step_in_time(&mut self, op: &QueueOp, at: &Step<'_>) {
        let now = self.now();
        let Self { queue, model, .. } = self;
        let priority = self.priority;
        match *op {
            QueueOp::AddAfter(key, delay) | QueueOp::AddDelayed(key, delay, Mode::Earliest)
                if priority == 0 =>
            {
                let answer = model.add_after(key, delay.0, now);
                assert_eq!(added(queue.add_after(key, delay.0)), answer, "{at}");
            }
            QueueOp::AddAfter(key, delay) => {
                let options = AddOptions { priority, delay: delay.0, ..AddOptions::default() };
                let answer = model.add_with(key, delay.0, Mode::Earliest, now);
                assert_eq!(added(queue.add_with(key, options)), answer, "{at}");
            }
            QueueOp::AddDelayed(key, delay, mode) => {
                let answer = model.add_with(key, delay.0, mode, now);
                let mode = match mode {
                    Mode::Earliest => DelayMode::Earliest,
                    Mode::Latest(longest) => DelayMode::Debounce { max_wait: longest.0 },
                    Mode::Replace => DelayMode::Replace,
                };
                let options = AddOptions { priority, delay: delay.0, mode, ..AddOptions::default() };
                assert_eq!(added(queue.add_with(key, options)), answer, "{at}");
            }
            QueueOp::Postpone(key, delay) => {
                assert_eq!(queue.postpone(&key, delay.0), model.postpone(key, delay.0, now), "{at}");
            }
            QueueOp::AddLimited(key) => {
                let answer = model.with_priority(0).add_rate_limited(key, now);
                model.with_priority(priority);
                assert_eq!(added(queue.add_rate_limited(key)), answer, "{at}");
            }
            QueueOp::RequeueAfter(index, delay) => {
                let ending = Ending::RequeueAfter(delay.0);
                self.end(index, ending, |lease| lease.requeue_after(delay.0));
            }
            QueueOp::DoneAfter(index, delay) => {
                let ending = Ending::DoneAfter(delay.0);
                self.end(index, ending, |lease| lease.end(LeaseOutcome::DoneAndRequeueAfter(delay.0)));
            }
            QueueOp::RetryNoSooner(index, least) => {
                let ending = Ending::RetryNoSooner(least.0);
                self.end(index, ending, |lease| lease.end(LeaseOutcome::Failed { at_least: least.0 }));
            }
            QueueOp::PollOverdue(bound) => {
                let found = match poll(queue.next_overdue(bound.0)) {
                    Some(Some(overdue)) => Overdue::Lease(overdue.key, nanos(overdue.age)),
                    Some(None) => Overdue::Never,
                    None => Overdue::NotYet,
                };
                assert_eq!(found, model.next_overdue(bound.0, now), "{at}");
            }
            QueueOp::Advance(step) => {
                self.clock.advance(step.0);
            }
            QueueOp::DrainWaiting(limit) => {
                same(
                    poll(queue.drain(DrainOptions::serve_waiting(limit.0))),
                    model.drain_all_timeout(limit.0, now),
                    at,
                );
            }
            _ => self.step(op, at),
        }
    }

    fn compare_metrics(&mut self, at: &Step<'_>) {
        let now = self.now();
        let model: Vec<_> = self.model.reports().into_iter().map(without_delay).collect();
        let Some(reports) = &self.reports else {
            assert_eq!(self.queue.stats().adds, 0, "{at}: a queue without metrics counted adds");
            return;
        };
        assert_eq!(reports.take(), model, "{at}");
        assert_eq!(read(self.queue.stats()), self.model.read(now), "{at}");
    }

    fn compare_ages(&mut self, at: &Step<'_>) {
        let now = self.now();
        assert_eq!(oldest(&self.queue.stats()), self.model.ages(now), "{at}");
        if let Some(lease) = self.leases.last() {
            assert_eq!(lease.age().map(nanos), self.model.lease_age(**lease, now), "{at}: {lease:?}");
        }
    }
}
