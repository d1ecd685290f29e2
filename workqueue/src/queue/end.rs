//! SHELL. Ending a lease, by its guard or by its key. First, the clock and the limiter's policy (user code) determine the transition of the key; then
//! the lease ends in one step under the lock.

use std::borrow::Borrow;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use flyball_sync::panics::{DropContained, Panic, forget};
use flyball_sync::{Nanos, Timer};

use crate::error::NotDetached;
use crate::lease::LeaseOutcome;
use crate::limiter::{self, AfterFailure, QueueLimiter};
use crate::queue::Key;
use crate::queue::Queue;
use crate::queue::locked::Locked;
use crate::queue::shared::{Effects, Shared};
use crate::state::memory::Memory;
use crate::state::order::Order;
use crate::state::types::{LeaseId, Transition};
use crate::state::wait::Wait;

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Shared<K, O, L, T> {
    /// Ends a lease. The lease ends even if user code panics; the key is Ready again in that case.
    #[inline]
    pub(crate) fn end(&self, id: LeaseId, key: &K, outcome: LeaseOutcome) {
        if self.ends_at_once(outcome) {
            // In this case, ending the lease runs no user code and needs no decision.
            let mut locked = self.lock();
            let gone = DropContained::new(locked.state.end(id, Transition::Leave, None));
            let memory = locked.state.take_memory();
            self.finish(locked, None);
            if let Some(memory) = memory {
                drop_memory(memory);
            }
            drop(gone);
        } else {
            self.end_decided(id, key, outcome);
        }
    }

    /// Ends the detached lease of a key with the outcome `Done`. The lease is found and ended under one lock, so only one of two such calls ends it.
    pub(crate) fn end_detached<Q>(&self, key: &Q) -> Result<(), NotDetached>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let now = self.now_if_timed();
        let ending = Ending::new(LeaseOutcome::Done, Decision { now, ..Decision::of(Transition::Leave) });
        let mut locked = self.lock();
        let id = locked.state.take_detached(key, hash).ok_or(NotDetached)?;
        let ended = self.end_locked(&mut locked, id, &ending);
        let effects = self.collect_wakeups(&mut locked, now);
        drop(locked);
        raise_unless_panicking(self.finish_end(None, ending, ended, effects));
        Ok(())
    }

    #[inline(never)]
    fn end_decided(&self, id: LeaseId, key: &K, outcome: LeaseOutcome) {
        self.end_by(id, key, self.decided(key, outcome));
    }

    /// Counts a failure of `key` and returns how the lease of the key ends; `None` if this was failure number `most`, or if the
    /// policy gives the key up. If the limit of `give_up_after`
    /// is lower than `most`, it applies instead of `most`, and a key that reaches it is given up. If the clock or the policy panics, the key becomes
    /// Ready.
    pub(crate) fn fail_up_to(&self, key: &K, most: u32, at_least: Duration) -> Option<Ending> {
        let outcome = LeaseOutcome::Failed { at_least };
        match catch_unwind(AssertUnwindSafe(|| self.decide_up_to(key, most, at_least))) {
            Ok(decision) => Some(Ending::new(outcome, decision?)),
            Err(panic) => {
                Some(Ending { outcome, decision: Decision::of(Transition::Ready), panic: Some(panic) })
            }
        }
    }

    fn decide_up_to(&self, key: &K, most: u32, at_least: Duration) -> Option<Decision> {
        if !limiter::limits::<L>() {
            return Some(self.decide(key, LeaseOutcome::Failed { at_least }));
        }
        let now = self.now();
        let own = self.give_up.as_ref().map(GiveUp::most).filter(|own| *own < most);
        let failure = self.count_failure(key, now, Some(own.unwrap_or(most)));
        // Below `own`, the policy gives the key up.
        let gave_up = match failure {
            AfterFailure::GaveUp { failures } => {
                Some(failures).filter(|failures| own.is_none_or(|own| *failures < own))
            }
            AfterFailure::Backoff { .. } => None,
        };
        if let Some(failures) = gave_up {
            // This is reported here, because the caller ends the lease with an outcome that need not be a failure.
            self.report(|sink| sink.failure_counted());
            self.report(|sink| sink.gave_up(failures));
            return None;
        }
        Some(Decision::on(failure, now, at_least))
    }

    /// Counts a failure of `key`, with the limit of `give_up_after`, if there is one.
    pub(crate) fn fail(&self, key: &K, now: Nanos) -> AfterFailure {
        self.count_failure(key, now, self.give_up.as_ref().map(GiveUp::most))
    }

    fn count_failure(&self, key: &K, now: Nanos, most: Option<u32>) -> AfterFailure {
        limiter::count_failure(&self.limiter, key, now, most, |other| self.holds(other))
    }

    /// Returns whether a key is in the queue. Called by the policy, under the limiter's lock.
    pub(crate) fn holds(&self, key: &K) -> bool {
        let hash = self.hash(key);
        self.lock().state.contains(key, hash)
    }

    /// Decides how a lease with this outcome ends. Called before locking, because it runs user code, namely the clock and the policy.
    #[inline]
    fn decide(&self, key: &K, outcome: LeaseOutcome) -> Decision {
        let transition = match outcome {
            LeaseOutcome::Done => Transition::Leave,
            LeaseOutcome::Succeeded => {
                self.limiter.forget(key);
                Transition::Leave
            }
            LeaseOutcome::DoneAndRequeueAfter(delay) => return self.wait(delay),
            LeaseOutcome::SucceededAndRequeueAfter(delay) => {
                self.limiter.forget(key);
                return self.wait(delay);
            }
            LeaseOutcome::Failed { at_least } if !at_least.is_zero() => {
                return self.back_off(key, at_least);
            }
            LeaseOutcome::Failed { .. } if limiter::limits::<L>() => {
                return self.back_off(key, Duration::ZERO);
            }
            LeaseOutcome::Dropped if limiter::limits::<L>() => return self.back_off(key, Duration::ZERO),
            LeaseOutcome::Failed { .. } | LeaseOutcome::Dropped => Transition::Ready,
            LeaseOutcome::Requeued => Transition::NotBegun,
        };
        Decision { now: self.now_if_timed(), ..Decision::of(transition) }
    }

    fn wait(&self, delay: Duration) -> Decision {
        let now = self.now();
        Decision { now: Some(now), ..Decision::of(Transition::Wait(Wait::fixed(now + delay))) }
    }

    /// Decides what happens after a failure: the key waits for the longer of `at_least` and the limiter's delay, or is given up. Without a limiter,
    /// the key waits for `at_least`.
    fn back_off(&self, key: &K, at_least: Duration) -> Decision {
        let now = self.now();
        let failure = if limiter::limits::<L>() {
            self.fail(key, now)
        } else {
            AfterFailure::Backoff { until: now, counted: false }
        };
        Decision::on(failure, now, at_least)
    }

    /// Ends the lease in one step under the lock. Then, outside the lock, performs the wake-ups, calls the give-up hook and reports to the metrics.
    pub(crate) fn end_by(&self, id: LeaseId, key: &K, ending: Ending) {
        let now = ending.now();
        let mut locked = self.lock();
        let ended = self.end_locked(&mut locked, id, &ending);
        let effects = self.collect_wakeups(&mut locked, now);
        drop(locked);
        raise_unless_panicking(self.finish_end(Some(key), ending, ended, effects));
    }

    /// Returns whether there is no user code to run and nothing to decide for the end of a lease: the key leaves the queue, unless it is dirty.
    #[inline]
    fn ends_at_once(&self, outcome: LeaseOutcome) -> bool {
        let leaves = matches!(outcome, LeaseOutcome::Done)
            || matches!(outcome, LeaseOutcome::Succeeded) && self.limiter.is_empty();
        leaves && !self.is_timed()
    }

    /// Runs the user code that decides how the lease ends. Called before locking. If the user code panics, the key becomes Ready.
    fn decided(&self, key: &K, outcome: LeaseOutcome) -> Ending {
        match catch_unwind(AssertUnwindSafe(|| self.decide(key, outcome))) {
            Ok(decision) => Ending { outcome, decision, panic: None },
            Err(panic) => Ending { outcome, decision: Decision::of(Transition::Ready), panic: Some(panic) },
        }
    }

    /// Ends the lease, under the lock.
    #[inline]
    fn end_locked(
        &self,
        locked: &mut Locked<K, O::ReadyQueue>,
        id: LeaseId,
        ending: &Ending,
    ) -> Ended<K, O::ReadyQueue> {
        let Decision { transition, now, .. } = ending.decision;
        let begun = ending.outcome != LeaseOutcome::Requeued;
        let worked = locked.state.meter_end(id, now, begun);
        let gone = locked.state.end(id, transition, now);
        let memory = locked.state.take_memory();
        Ended { gone, memory, worked }
    }

    /// Does the rest of the work, after unlocking: wake-ups, drops, the give-up hook and reports. If a part of it panics, the other parts still run.
    /// Returns the first panic. `key` is for the give-up hook, so it may be `None` if the outcome is not a failure.
    fn finish_end(
        &self,
        key: Option<&K>,
        ending: Ending,
        ended: Ended<K, O::ReadyQueue>,
        effects: Option<Effects>,
    ) -> Option<Panic> {
        let Ending { outcome, decision, panic } = ending;
        let woken = effects.and_then(|effects| panic_of(|| self.perform(effects)));
        let dropped = panic_of(|| drop((ended.gone, ended.memory)));
        // The give-up hook runs even if a waker panicked.
        let reported = match (decision.given_up_after, &self.give_up, key) {
            (Some(failures), Some(give_up), Some(key)) => panic_of(|| give_up.notify(key, failures)),
            _ => None,
        };
        if let Some(worked) = ended.worked {
            self.report_end(outcome, worked, &decision);
        }
        first(first(panic, woken), first(dropped, reported))
    }

    /// Reports the end of the lease to the metrics. Called after the lease has ended and all wake-ups are done.
    fn report_end(&self, outcome: LeaseOutcome, worked: Duration, decision: &Decision) {
        if outcome != LeaseOutcome::Requeued {
            self.report(|sink| sink.lease_ended(outcome, worked));
        }
        if decision.counted {
            self.report(|sink| sink.failure_counted());
        }
        if let Some(failures) = decision.given_up_after {
            self.report(|sink| sink.gave_up(failures));
        }
    }
}

/// Out of line: it is rare, and its code would be in each end of a lease.
#[cold]
fn drop_memory<K, O>(memory: Box<Memory<K, O>>) {
    drop(memory);
}

/// How a lease is about to end: its outcome, the decision, and the panic of the user code that decided, if any.
pub(crate) struct Ending {
    outcome: LeaseOutcome,
    decision: Decision,
    panic: Option<Panic>,
}

impl Ending {
    pub(crate) fn new(outcome: LeaseOutcome, decision: Decision) -> Self {
        Self { outcome, decision, panic: None }
    }

    #[inline]
    fn now(&self) -> Option<Nanos> {
        self.decision.now
    }
}

/// The result of `end_locked`, for the work that is left after unlocking.
struct Ended<K, O> {
    /// The key, if it has left the queue. It is dropped outside the lock, as is `memory`.
    gone: Option<K>,
    /// Memory that the queue does not need any more.
    memory: Option<Box<Memory<K, O>>>,
    /// How long the lease was held; `None` unless the queue measures it for metrics.
    worked: Option<Duration>,
}

/// Raises a panic, unless the thread is unwinding: a second panic would abort the process.
fn raise_unless_panicking(panic: Option<Panic>) {
    match panic {
        Some(panic) if std::thread::panicking() => forget(panic),
        Some(panic) => resume_unwind(panic),
        None => {}
    }
}

/// Runs `user` and returns its panic, if any.
#[inline]
fn panic_of(user: impl FnOnce()) -> Option<Panic> {
    catch_unwind(AssertUnwindSafe(user)).err()
}

/// Returns the first of two panics. If there are two, the second is dropped; if its drop panics in turn, that panic is caught.
///
/// The arguments are two options instead of a slice, because iterating over a slice of `Option<Panic>` would cost a fifth of the time of a worker's
/// cycle, although panics are rare.
#[inline]
fn first(one: Option<Panic>, other: Option<Panic>) -> Option<Panic> {
    match (one, other) {
        (None, other) => other,
        (one, None) => one,
        (one, Some(other)) => {
            forget(other);
            one
        }
    }
}

/// What happens to the key when its lease ends. This is decided before locking.
pub(crate) struct Decision {
    transition: Transition,
    now: Option<Nanos>,
    /// Whether the limiter counted a failure.
    counted: bool,
    /// The number of failures of the key, if the key is given up.
    given_up_after: Option<u32>,
}

impl Decision {
    fn of(transition: Transition) -> Self {
        Self { transition, now: None, counted: false, given_up_after: None }
    }

    /// Decides what happens after a failure: the key waits for the longer of `at_least` and the limiter's delay, or is given up.
    fn on(failure: AfterFailure, now: Nanos, at_least: Duration) -> Self {
        match failure {
            AfterFailure::Backoff { until, counted } => {
                let wait = Wait::backoff(until.max(now + at_least));
                Self { now: Some(now), counted, ..Self::of(Transition::Wait(wait)) }
            }
            AfterFailure::GaveUp { failures } => Self {
                now: Some(now),
                counted: true,
                given_up_after: Some(failures),
                ..Self::of(Transition::Leave)
            },
        }
    }
}

/// The number of failures after which a key is given up, and the hook that is then called.
pub(crate) struct GiveUp<K> {
    most: u32,
    hook: Box<OnGiveUp<K>>,
}

type OnGiveUp<K> = dyn Fn(&K, u32) + Send + Sync;

impl<K> GiveUp<K> {
    pub(crate) fn new(most: u32, hook: impl Fn(&K, u32) + Send + Sync + 'static) -> Self {
        Self { most, hook: Box::new(hook) }
    }

    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Calls the hook. The hook is user code, so call this outside every lock.
    pub(crate) fn notify(&self, key: &K, failures: u32) {
        (self.hook)(key, failures);
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Ends the detached lease of a key, like [`Lease::done`](crate::Lease::done) (client-go's `Done`). As in client-go, forget the failures of the key before it if the work
    /// succeeded, or add the key with [`add_rate_limited`](Self::add_rate_limited) before it if the work failed.
    ///
    /// Takes a borrowed form of the key, such as `&str` for a `String`, as the other methods do that find a key.
    ///
    /// # Errors
    /// Returns [`NotDetached`] if the key has no [detached](crate::Lease::detach) lease; in that case the queue is unchanged.
    ///
    /// # Panics
    /// Panics if `Hash` or `Eq` of the key or the clock panics; the lease stays detached in that case. Otherwise panics like the end of a [lease](crate::Lease#panics).
    ///
    /// # Examples
    /// For a framework that passes keys instead of leases:
    /// ```
    /// use flyball_workqueue::{NotDetached, Queue};
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// let key = queue.try_get()?.detach();
    ///
    /// let worked = false;
    /// if worked { queue.forget(&key) } else { drop(queue.add_rate_limited(key)?) }
    /// queue.done(&key)?;
    /// assert_eq!(queue.done(&key), Err(NotDetached)); // the lease has ended
    /// assert!(queue.has_ready());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn done<Q>(&self, key: &Q) -> Result<(), NotDetached>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.shared.end_detached(key)
    }

    /// Forgets the failures of a key. If the key waits for a deadline, the deadline does not change.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::Exponential;
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let backoff = Exponential::new(Duration::from_secs(1)..=Duration::from_secs(60));
    /// let queue = Queue::builder().limiter(backoff).build();
    /// queue.add_rate_limited("a")?;
    /// assert_eq!(queue.num_requeues(&"a"), 1);
    /// queue.forget(&"a");
    /// assert_eq!(queue.num_requeues(&"a"), 0);
    /// assert_eq!(queue.stats().waiting, 1); // its deadline is unchanged
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget(&self, key: &K) {
        self.shared.limiter.forget(key);
    }

    /// Changes the limiter while the queue is in use, for example its backoff after a change of the configuration.
    ///
    /// `change` receives the limiter that the queue was built with, and the time of the queue's clock. It runs under the limiter's lock: it must be short,
    /// and must not use this queue, which would deadlock. To drop an old limiter after unlocking, return it. It takes its counts of failures with it. Keys
    /// that wait already keep their deadlines, also if they fail again before: at most one failure is counted in a backoff. [`forget`](Self::forget) ends a
    /// key's backoff.
    ///
    /// # Panics
    /// Panics if `change` or the clock panics. The limiter is then as `change` left it, and the queue goes on with it.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::Exponential;
    /// use flyball_workqueue::{KeyState, ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let seconds = Duration::from_secs;
    /// let queue = Queue::builder()
    ///     .timer(ManualClock::new().timer())
    ///     .limiter(Exponential::new(seconds(1)..=seconds(60)))
    ///     .build();
    /// queue.add_rate_limited("a")?;
    /// let slower = Exponential::new(seconds(5)..=seconds(600));
    /// drop(queue.update_limiter(|backoff, _now| std::mem::replace(backoff, slower)));
    /// queue.add_rate_limited("b")?;
    /// assert_eq!(queue.state(&"a"), KeyState::Waiting(queue.now() + seconds(1)));
    /// assert_eq!(queue.state(&"b"), KeyState::Waiting(queue.now() + seconds(5)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update_limiter<R>(&self, change: impl FnOnce(&mut L, Nanos) -> R) -> R {
        let now = self.shared.now();
        self.shared.limiter.record_failure_with(|limiter, _| change(limiter.get_mut(), now))
    }

    /// Returns the number of counted failures of a key since they were last forgotten.
    #[must_use]
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.shared.limiter.num_requeues(key)
    }
}
