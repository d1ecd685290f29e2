//! The callbacks of a hostile run: each may panic.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use flyball_ratelimit::{Exponential, Failure, Policy};
use flyball_sync::{Clock, ManualTimer, Nanos, Timer};
use flyball_workqueue::{LeaseOutcome, QueueMetrics};
use testkit::random::Random;

pub(super) type Call = Box<dyn Fn(u64)>;

thread_local! {
    pub(super) static CALLBACKS: RefCell<Random> = RefCell::new(Random::new(0));
    /// One of so many callbacks panics; none does if this is 0.
    pub(super) static ONE_OF: Cell<u64> = const { Cell::new(0) };
    /// The number of keys and of names of groups.
    pub(super) static LIVE: Cell<i64> = const { Cell::new(0) };
    /// Called by some wakers.
    pub(super) static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
}

/// Called by every callback.
pub(super) fn may_panic() {
    if chance(ONE_OF.get()) && !std::thread::panicking() {
        // Without the panic hook, which would print each of many thousand panics.
        resume_unwind(Box::new("a callback panics"));
    }
}

/// Returns true in one of `of` calls; never if `of` is 0.
fn chance(of: u64) -> bool {
    of > 0 && CALLBACKS.with_borrow_mut(|random| random.below(of)) == 0
}

/// Runs a step of the harness itself, in which no callback panics.
pub(super) fn calm<R>(step: impl FnOnce() -> R) -> R {
    let one_of = ONE_OF.replace(0);
    let result = step();
    ONE_OF.set(one_of);
    result
}

/// A key, or the name of a group.
pub(super) struct Name(pub(super) u8);

impl Name {
    pub(super) fn new(id: u8) -> Self {
        LIVE.set(LIVE.get() + 1);
        Self(id)
    }
}

impl Clone for Name {
    fn clone(&self) -> Self {
        may_panic();
        Self::new(self.0)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        LIVE.set(LIVE.get() - 1);
        may_panic();
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        may_panic();
        self.0 == other.0
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        may_panic();
        self.0.hash(state);
    }
}

/// A timer that panics before or after it does what it is asked to, and sometimes fires at once.
pub(super) struct Hostile(pub(super) ManualTimer);

impl Clock for Hostile {
    fn now(&self) -> Nanos {
        may_panic();
        self.0.now()
    }
}

impl Timer for Hostile {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        may_panic();
        if ONE_OF.get() > 0 && chance(6) {
            return waker.wake_by_ref();
        }
        self.0.wake_at(at, waker);
        may_panic();
    }

    fn disarm(&self) {
        may_panic();
        self.0.disarm();
        may_panic();
    }
}

pub(super) struct HostilePolicy(pub(super) Exponential<Name>);

impl Policy<Name> for HostilePolicy {
    fn record_failure(
        &mut self,
        key: &Name,
        now: Nanos,
        random: u64,
        in_use: &mut dyn FnMut(&Name) -> bool,
    ) -> Failure {
        may_panic();
        let failure = self.0.record_failure(key, now, random, in_use);
        may_panic();
        failure
    }

    fn forget(&mut self, key: &Name) {
        may_panic();
        self.0.forget(key);
    }

    fn num_requeues(&self, key: &Name) -> u32 {
        self.0.num_requeues(key)
    }

    fn tracked_keys(&self) -> usize {
        self.0.tracked_keys()
    }

    fn take_evicted(&mut self, evicted: &mut Vec<Name>) {
        self.0.take_evicted(evicted);
    }
}

pub(super) struct Sink;

impl QueueMetrics for Sink {
    fn dequeued(&self, _: Duration, _: bool) {
        may_panic();
    }

    fn lease_ended(&self, _: LeaseOutcome, _: Duration) {
        may_panic();
    }
}

/// A waker that panics when it is woken or dropped, and sometimes calls the queue.
pub(super) struct HostileWaker(pub(super) Arc<AtomicBool>);

impl Wake for HostileWaker {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
        if ONE_OF.get() > 0 && chance(8) {
            let n = CALLBACKS.with_borrow_mut(|random| random.below(12));
            CALL.with_borrow(|call| call.iter().for_each(|call| call(n)));
        }
        may_panic();
    }
}

impl Drop for HostileWaker {
    fn drop(&mut self) {
        may_panic();
    }
}
