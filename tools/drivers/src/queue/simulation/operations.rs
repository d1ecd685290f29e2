//! The operations of a simulation that need no future.

use flyball_sync::block_on_timeout;
use std::pin::pin;
use std::time::Duration;

use flyball_workqueue::{
    AddOptions, Added, DelayMode, DrainOptions, KeyState, Lease, LeaseOutcome, TryGetError,
};
use testkit::queue_op::QueueOp;
use testkit::queue_setup::{LimiterChange, Mode, SmallKey};
use testkit::wakers::poll_at_once;

use super::waiter::{Task, Wait};
use super::{Backoff, Simulation};
use crate::queue::limiters::Changeable;
use crate::queue::model_answers::poll;
use crate::queue::orders::Kind;

impl<O: Kind, L: Changeable> Simulation<O, L> {
    pub(super) fn operate(&mut self, op: &QueueOp) {
        // Nothing waits for a change of the limiter, because keys that wait keep their deadlines.
        self.changes += u64::from(!matches!(op, QueueOp::UpdateLimiter(_)));
        let priority = self.priority;
        let queue = self.queue.clone();
        match *op {
            QueueOp::Add(key) => _ = queue.add_with(key, AddOptions { priority, ..AddOptions::default() }),
            QueueOp::AddMany(ref keys) => _ = queue.add_many(keys.iter().copied()),
            QueueOp::AddWhenRoom(key) => _ = poll(queue.add_when_room(key)),
            QueueOp::AddAfter(key, delay) => {
                _ = queue.add_with(key, AddOptions { priority, delay: delay.0, ..AddOptions::default() });
            }
            QueueOp::AddDelayed(key, delay, mode) => {
                let mode = match mode {
                    Mode::Earliest => DelayMode::Earliest,
                    Mode::Latest(longest) => DelayMode::Debounce { max_wait: longest.0 },
                    Mode::Replace => DelayMode::Replace,
                };
                _ = queue
                    .add_with(key, AddOptions { priority, delay: delay.0, mode, ..AddOptions::default() });
            }
            QueueOp::Postpone(key, delay) => _ = queue.postpone(&key, delay.0),
            QueueOp::AddLimited(key) => self.add_limited(key),
            QueueOp::AddFailed(key, failures) => self.add_failed(key, failures.0),
            QueueOp::UpdateLimiter(change) => self.update_limiter(change),
            QueueOp::TryGet | QueueOp::PollGet | QueueOp::PollGetTimeout(_) => {
                let taken = queue.try_get().map(|lease| vec![lease]);
                self.took(taken);
            }
            QueueOp::GetMany(most) | QueueOp::PollGetMany(most) => {
                let taken = queue.try_get_many(most);
                self.took(taken);
            }
            QueueOp::Done(index) => self.end(index, Lease::done),
            QueueOp::DoneAfter(index, delay) => {
                self.end(index, |lease| lease.end(LeaseOutcome::DoneAndRequeueAfter(delay.0)))
            }
            QueueOp::Succeed(index) => self.end(index, Lease::succeed),
            QueueOp::RequeueAfter(index, delay) => {
                self.end(index, |lease| lease.requeue_after(delay.0));
            }
            QueueOp::Retry(index) => self.end(index, Lease::retry),
            QueueOp::RetryNoSooner(index, least) => {
                self.end(index, |lease| lease.end(LeaseOutcome::Failed { at_least: least.0 }))
            }
            QueueOp::DropLease(index) => self.end(index, drop),
            QueueOp::Detach(index) => {
                self.end(index, |lease| {
                    let key = lease.detach();
                    queue.done(&key).expect("it was detached");
                });
            }
            QueueOp::DoneKey(key) => drop(queue.done(&key)),
            QueueOp::Cancel(key) => _ = queue.cancel(&key),
            QueueOp::Forget(key) => queue.forget(&key),
            QueueOp::Pause => queue.pause(),
            QueueOp::Resume => queue.resume(),
            QueueOp::Snapshot => drop(queue.keys()),
            QueueOp::WaitIdle => _ = queue.has_ready(),
            QueueOp::PollOverdue(_) => queue.track_ages(),
            QueueOp::Advance(step) => self.clock.advance(step.0),
            QueueOp::ShutDown => {
                queue.shut_down();
                // `poll` checks that such a drain completes.
                let begun = |task: &&Task| task.was_polled() && task.live().any(Wait::is_drain);
                let asleep = self.tasks.iter().filter(begun).find(|task| !task.is_woken());
                assert!(asleep.is_none(), "step {}: liveness: a shutdown has not ended a drain", self.step);
            }
            QueueOp::Drain => _ = poll_at_once(pin!(queue.drain(DrainOptions::unlimited()))),
            QueueOp::DrainWaiting(limit) => {
                self.note_horizon(Some(limit.0));
                _ = poll_at_once(pin!(queue.drain(DrainOptions::serve_waiting(limit.0))));
            }
            QueueOp::StopNow => drop(queue.stop_now()),
            QueueOp::AddPriority(priority) => {
                self.priority = priority;
                if let Some(groups) = &self.groups {
                    groups.set_limits(priority);
                    O::refresh(&queue);
                }
            }
            QueueOp::SetPriority(key, priority) => _ = O::set_priority(&queue, key, priority),
        }
    }

    /// A failure of an absent key waits as long as the limiter says.
    fn add_limited(&self, key: SmallKey) {
        let (queue, step) = (&self.queue, self.step);
        let before = queue.num_requeues(&key);
        let added = queue.add_rate_limited(key);
        let counted = queue.num_requeues(&key) > before;
        let Some(backoff) = self.backoff.filter(|_| counted && matches!(added, Ok(Added::New))) else {
            return;
        };
        let wait = match queue.state(&key) {
            KeyState::Waiting(until) => until.since(queue.now()),
            _ => Duration::ZERO,
        };
        let longest = if backoff.is_exact { backoff.curve.delay(before) } else { backoff.curve.cap };
        assert!(
            (wait >= longest || !backoff.is_exact) && (wait <= longest || backoff.has_bucket),
            "step {step}: {key:?} waits for {wait:?} after {before} failures: {backoff:?}"
        );
    }

    fn add_failed(&self, key: SmallKey, failures: u32) {
        let (queue, step) = (&self.queue, self.step);
        let before = queue.num_requeues(&key);
        let counts = self.backoff.is_some() && !queue.is_shutting_down();
        _ = queue.add_with(key, AddOptions { priority: self.priority, failures, ..AddOptions::default() });
        let expected = if counts { before.max(failures) } else { before };
        assert_eq!(queue.num_requeues(&key), expected, "step {step}: {key:?} had {before} failures");
    }

    fn update_limiter(&mut self, change: LimiterChange) {
        self.queue.update_limiter(|limiter, now| limiter.change(change, now));
        let Some(backoff) = &mut self.backoff else { return };
        if let Some(curve) = change.backoff {
            *backoff = Backoff { curve, is_exact: true, ..*backoff };
            let counted: u32 = SmallKey::all().map(|key| self.queue.num_requeues(&key)).max().unwrap_or(0);
            assert_eq!(counted, 0, "step {}: a new limiter has counted failures", self.step);
        }
        backoff.has_bucket |= change.quota.is_some();
    }

    fn took(&mut self, taken: Result<Vec<Lease<SmallKey>>, TryGetError>) {
        match taken {
            Ok(leases) => leases.into_iter().for_each(|lease| self.hold(lease)),
            Err(TryGetError::Closed) => self.closed = true,
            Err(TryGetError::Empty) => {}
        }
    }

    fn end(&mut self, index: u8, end: impl FnOnce(Lease<SmallKey>)) {
        let count = self.leases.len();
        if count > 0 {
            end(self.leases.remove(usize::from(index) % count));
        }
    }

    /// A thread that waits, with a limit of zero. For threads that wait longer see [`threads`](crate::queue::threads).
    pub(super) fn block(&mut self, kind: u8) {
        self.changes += 1;
        let queue = self.queue.clone();
        match kind % 5 {
            0 => {
                let taken = queue.blocking_get_timeout(Duration::ZERO);
                self.took(taken.map(|lease| vec![lease]).map_err(|_| TryGetError::Empty));
            }
            1 => _ = block_on_timeout(queue.wait_idle(), Duration::ZERO),
            2 => _ = block_on_timeout(queue.wait_empty(), Duration::ZERO),
            3 => _ = block_on_timeout(queue.add_when_room(SmallKey(kind % SmallKey::COUNT)), Duration::ZERO),
            _ => {
                let taken = block_on_timeout(queue.get_many(2), Duration::ZERO);
                self.took(taken.filter(|leases| !leases.is_empty()).ok_or(TryGetError::Empty));
            }
        }
    }
}
