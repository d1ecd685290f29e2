//! SHELL. Tasks that run one at a time, in an order that a seed determines.
//!
//! | guarded by `state` | |
//! |---|---|
//! | tasks, ready tasks, the random numbers | futures are polled and dropped, and wakers are woken, outside the lock |
//!
//! # Invariants
//! 1. `ready` holds only existing tasks. A task that is woken while it is polled becomes ready again.
//! 2. The next task depends on the seed and on *which* tasks are ready, not on the order in which they were woken, because
//!    tokio's channels wake several waiters in an unspecified order.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use flyball_sync::ManualClock;
use flyball_sync::locks::Mutex;
use flyball_sync::random::SplitMix64;
use flyball_sync::waiting::wake_all;
use tokio::task::coop::unconstrained;

use flyball_sync::panics;
use futures_util::future::BoxFuture;

pub(super) struct Scheduler {
    pub(super) clock: ManualClock,
    state: Mutex<State>,
}

struct State {
    random: SplitMix64,
    tasks: BTreeMap<u64, Slot>,
    ready: BTreeSet<u64>,
    spawned: u64,
    steps: u64,
    /// The wakers to wake when any task ends.
    joiners: Vec<Waker>,
}

struct Slot {
    /// `None` while the future is polled.
    future: Option<BoxFuture<'static, ()>>,
    waker: Waker,
    aborted: bool,
}

/// The average number of steps per spurious poll, if spurious polls are enabled. A spurious poll polls a random task, whether it was woken or not.
/// Only odd seeds enable them, because spurious polls hide lost wake-ups.
const SPURIOUS_POLLS: u64 = 16;

impl Scheduler {
    pub(super) fn new(seed: u64) -> Self {
        let state = State {
            random: SplitMix64::new(seed),
            tasks: BTreeMap::new(),
            ready: BTreeSet::new(),
            spawned: 0,
            steps: 0,
            joiners: Vec::new(),
        };
        Self { clock: ManualClock::new(), state: Mutex::new(state) }
    }

    pub(super) fn random(&self) -> u64 {
        self.state.lock().random.next()
    }

    pub(super) fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    pub(super) fn spawn(self: &Arc<Self>, future: BoxFuture<'static, ()>) -> u64 {
        let mut state = self.state.lock();
        state.spawned += 1;
        let id = state.spawned;
        let waker = Arc::new(TaskWaker { id, scheduler: Arc::downgrade(self) }).into();
        state.tasks.insert(id, Slot { future: Some(future), waker, aborted: false });
        state.ready.insert(id);
        id
    }

    /// Aborts the task: its next step drops its future.
    pub(super) fn abort(&self, id: u64) {
        let mut state = self.state.lock();
        if let Some(task) = state.tasks.get_mut(&id) {
            task.aborted = true;
            state.ready.insert(id);
        }
    }

    pub(super) fn is_finished(&self, id: u64) -> bool {
        !self.state.lock().tasks.contains_key(&id)
    }

    /// Returns the position in `ids` of a task that has ended. If none of these tasks has ended, stores the waker, which is woken when any task ends.
    pub(super) fn poll_finished(&self, ids: &[u64], cx: &Context<'_>) -> Poll<usize> {
        let waker = cx.waker().clone();
        let mut state = self.state.lock();
        match ids.iter().position(|id| !state.tasks.contains_key(id)) {
            Some(over) => Poll::Ready(over),
            None => {
                // A task may poll many times before a task ends.
                if !state.joiners.iter().any(|joiner| joiner.will_wake(&waker)) {
                    state.joiners.push(waker);
                }
                Poll::Pending
            }
        }
    }

    /// Runs one step of a ready task; returns `false` if no task is ready.
    pub(super) fn step(&self, spurious: bool) -> bool {
        let mut state = self.state.lock();
        let Some(id) = state.pick(spurious) else { return false };
        state.steps += 1;
        state.ready.remove(&id);
        let task = state.tasks.get_mut(&id).expect("invariant 1");
        let (mut future, waker) =
            (task.future.take().expect("the task is not being polled"), task.waker.clone());
        let aborted = task.aborted;
        drop(state);
        let ending = Ending { scheduler: self, id };
        // `unconstrained`, because the test itself may run in a tokio task, whose budget the simulation must not use up.
        let over = aborted
            || Pin::new(&mut unconstrained(future.as_mut()))
                .poll(&mut Context::from_waker(&waker))
                .is_ready();
        if over {
            drop(future);
        } else {
            std::mem::forget(ending);
            if let Some(task) = self.state.lock().tasks.get_mut(&id) {
                task.future = Some(future);
            }
        }
        true
    }

    fn ended(&self, id: u64) {
        let mut state = self.state.lock();
        let task = state.tasks.remove(&id);
        state.ready.remove(&id);
        let joiners = std::mem::take(&mut state.joiners);
        drop(state);
        drop(task);
        panics::raise(wake_all(joiners));
    }

    /// Drops all tasks, including those that are spawned during the drops.
    pub(super) fn clear(&self) {
        loop {
            let mut state = self.state.lock();
            let Some((id, task)) = state.tasks.pop_first() else { return };
            state.ready.remove(&id);
            drop(state);
            // Catches a panic of the drop, because the test may already be unwinding.
            panics::caught(|| drop(task));
        }
    }
}

impl State {
    fn pick(&mut self, spurious: bool) -> Option<u64> {
        if self.ready.is_empty() {
            return None;
        }
        if spurious && self.random.below(SPURIOUS_POLLS) == 0 {
            let nth = self.random.below(self.tasks.len() as u64) as usize;
            return self.tasks.keys().nth(nth).copied();
        }
        let nth = self.random.below(self.ready.len() as u64) as usize;
        self.ready.iter().nth(nth).copied()
    }
}

/// When dropped, marks a task as ended, because the task has completed, was aborted or has panicked.
struct Ending<'a> {
    scheduler: &'a Scheduler,
    id: u64,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.scheduler.ended(self.id);
    }
}

struct TaskWaker {
    id: u64,
    /// Weak, because a waker may outlive the simulation.
    scheduler: Weak<Scheduler>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(scheduler) = self.scheduler.upgrade() {
            let mut state = scheduler.state.lock();
            if state.tasks.contains_key(&self.id) {
                state.ready.insert(self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_polls_often_is_stored_once() {
        let scheduler = Arc::new(Scheduler::new(1));
        let id = scheduler.spawn(Box::pin(std::future::pending()));
        for _ in 0..100 {
            let context = Context::from_waker(Waker::noop());
            assert!(scheduler.poll_finished(&[id], &context).is_pending());
        }
        assert_eq!(scheduler.state.lock().joiners.len(), 1);
    }
}
