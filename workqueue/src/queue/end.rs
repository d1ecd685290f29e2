//! SHELL. How a lease ends: what user code decides about its key, then one step under the lock.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use flyball_sync::Nanos;
use flyball_sync::panics::{Panic, forget};

use super::give_up::GiveUp;
use super::shared::{Effects, Locked, Shared};
use crate::key::Key;
use crate::lease::outcome::LeaseOutcome;
use crate::limiter::{Failure, Limiter, QueueLimiter};
use crate::state::order::Order;
use crate::state::wait::Wait;
use crate::state::{LeaseId, Transition};
use crate::time_mode::TimeMode;

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Shared<K, O, L, T> {
    /// Ends a lease. Whatever user code does, the lease ends: if it panics, the key is Ready again.
    #[inline]
    pub(crate) fn end(&self, id: LeaseId, key: &K, outcome: LeaseOutcome) {
        if let Some(ending) = self.begin_end(key, outcome) {
            self.end_by(id, key, ending);
        } else {
            // No user code at all, and nothing to decide.
            let mut locked = self.lock();
            let gone = locked.state.end(id, Transition::Leave, None);
            self.finish(locked, None);
            drop(gone);
        }
    }

    /// Counts a failure of `key`, and says how its lease is to end: `None` if it was number `most`. The queue's own limit goes
    /// first where it is lower.
    pub(crate) fn fail_up_to(&self, key: &K, most: u32, at_least: Duration) -> Option<Decision> {
        let now = self.now();
        let own = self.give_up.as_ref().map(GiveUp::most).filter(|own| *own < most);
        let failure = self.count_failure(key, now, Some(own.unwrap_or(most)));
        if own.is_none() && matches!(failure, Failure::Last { .. }) {
            // The outcome that ends this lease does not report the failure.
            self.tell(|sink| sink.failure_counted());
            return None;
        }
        Some(Decision::on(failure, now, at_least))
    }

    /// Counts a failure of `key`, by the queue's own limit.
    pub(crate) fn fail(&self, key: &K, now: Nanos) -> Failure {
        self.count_failure(key, now, self.give_up.as_ref().map(GiveUp::most))
    }

    fn count_failure(&self, key: &K, now: Nanos, most: Option<u32>) -> Failure {
        self.limiter.failed(key, now, most, |other| {
            let hash = self.hash(other);
            self.lock().state.contains(other, hash)
        })
    }

    /// All user code before the lock: the clock and the policy.
    #[inline]
    fn decide(&self, key: &K, outcome: LeaseOutcome) -> Decision {
        let transition = match outcome {
            LeaseOutcome::Done => Transition::Leave,
            LeaseOutcome::Succeeded => {
                self.limiter.forget(key);
                Transition::Leave
            }
            LeaseOutcome::DoneAndRequeueAfter(delay) if T::DELAYS => return self.wait(delay),
            LeaseOutcome::SucceededAndRequeueAfter(delay) if T::DELAYS => {
                self.limiter.forget(key);
                return self.wait(delay);
            }
            LeaseOutcome::Failed { at_least } if T::DELAYS && !at_least.is_zero() => {
                return self.back_off(key, at_least);
            }
            LeaseOutcome::Failed { .. } if Limiter::<K, L>::limits() => {
                return self.back_off(key, Duration::ZERO);
            }
            LeaseOutcome::Dropped if Limiter::<K, L>::limits() => return self.back_off(key, Duration::ZERO),
            LeaseOutcome::Failed { .. } | LeaseOutcome::Dropped => Transition::Ready,
            // A queue without delays reads no clock, so the key is Ready at once.
            LeaseOutcome::DoneAndRequeueAfter(_) | LeaseOutcome::SucceededAndRequeueAfter(_) => {
                Transition::Ready
            }
            LeaseOutcome::Requeued => Transition::NotBegun,
        };
        Decision { now: self.now_if_timed(), ..Decision::of(transition) }
    }

    fn wait(&self, delay: Duration) -> Decision {
        let now = self.now();
        Decision { now: Some(now), ..Decision::of(Transition::Wait(Wait::fixed(now + delay))) }
    }

    /// A failure, whose wait is `at_least` or what the limiter says, if there is one.
    fn back_off(&self, key: &K, at_least: Duration) -> Decision {
        let now = self.now();
        let failure = if Limiter::<K, L>::limits() {
            self.fail(key, now)
        } else {
            Failure::Backoff { until: now, counted: false }
        };
        Decision::on(failure, now, at_least)
    }

    /// One step under the lock; then the wake-ups, the give-up hook and the metrics, outside it.
    pub(crate) fn end_by(&self, id: LeaseId, key: &K, ending: Ending) {
        let now = ending.now();
        let mut locked = self.lock();
        let ended = self.end_locked(&mut locked, id, &ending);
        let effects = self.collect_wakeups(&mut locked, now);
        drop(locked);
        match self.finish_end(key, ending, ended, effects) {
            // A second panic while one unwinds would abort the process.
            Some(panic) if std::thread::panicking() => forget(panic),
            Some(panic) => resume_unwind(panic),
            None => {}
        }
    }

    /// What comes before the lock: all user code that decides. If it panics, the key is to be Ready.
    ///
    /// Nothing where there is no user code and nothing to decide: the key leaves, unless it was added meanwhile.
    #[inline]
    pub(crate) fn begin_end(&self, key: &K, outcome: LeaseOutcome) -> Option<Ending> {
        let leaves = matches!(outcome, LeaseOutcome::Done)
            || matches!(outcome, LeaseOutcome::Succeeded) && self.limiter.is_empty();
        if leaves && !self.is_timed() { None } else { Some(self.decided(key, outcome)) }
    }

    fn decided(&self, key: &K, outcome: LeaseOutcome) -> Ending {
        match catch_unwind(AssertUnwindSafe(|| self.decide(key, outcome))) {
            Ok(decision) => Ending { outcome, decision, panic: None },
            Err(panic) => Ending { outcome, decision: Decision::of(Transition::Ready), panic: Some(panic) },
        }
    }

    /// The step itself.
    #[inline]
    pub(super) fn end_locked(
        &self,
        locked: &mut Locked<K, O::ReadyQueue>,
        id: LeaseId,
        ending: &Ending,
    ) -> Ended<K> {
        let Decision { transition, now, .. } = ending.decision;
        let begun = ending.outcome != LeaseOutcome::Requeued;
        let worked = if T::DELAYS { locked.state.meter_end(id, now, begun) } else { None };
        let gone = locked.state.end(id, transition, now);
        Ended { gone, worked }
    }

    /// What comes after the lock; all of it, whatever panics. Gives the first panic.
    pub(super) fn finish_end(
        &self,
        key: &K,
        ending: Ending,
        ended: Ended<K>,
        effects: Option<Effects>,
    ) -> Option<Panic> {
        let Ending { outcome, decision, panic } = ending;
        let woken = effects.and_then(|effects| panic_of(|| self.perform(effects)));
        let dropped = panic_of(|| drop(ended.gone));
        // The give-up hook runs even if a waker panicked.
        let told = match (decision.given_up_after, &self.give_up) {
            (Some(failures), Some(give_up)) => panic_of(|| give_up.notify(key, failures)),
            _ => None,
        };
        if let Some(worked) = ended.worked {
            self.tell_end(outcome, worked, &decision);
        }
        first(first(panic, woken), first(dropped, told))
    }

    /// Once it has ended, and everybody is woken.
    fn tell_end(&self, outcome: LeaseOutcome, worked: Duration, decision: &Decision) {
        if outcome != LeaseOutcome::Requeued {
            self.tell(|sink| sink.lease_ended(outcome, worked));
        }
        if decision.counted {
            self.tell(|sink| sink.failure_counted());
        }
        if let Some(failures) = decision.given_up_after {
            self.tell(|sink| sink.gave_up(failures));
        }
    }
}

/// A lease that is about to end.
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
    pub(super) fn now(&self) -> Option<Nanos> {
        self.decision.now
    }
}

/// What the step under the lock found.
pub(super) struct Ended<K> {
    /// The key, if it has left the queue: it is dropped outside the lock.
    gone: Option<K>,
    /// For how long it was held, if that is measured.
    worked: Option<Duration>,
}

/// What `user` panics with.
#[inline]
pub(super) fn panic_of(user: impl FnOnce()) -> Option<Panic> {
    catch_unwind(AssertUnwindSafe(user)).err()
}

/// The first of two panics. The other is dropped here, which may panic in turn.
///
/// Two and no slice: an iterator over `Option<Panic>` costs a fifth of a worker's cycle, and there is hardly ever one.
#[inline]
pub(super) fn first(one: Option<Panic>, other: Option<Panic>) -> Option<Panic> {
    match (one, other) {
        (None, other) => other,
        (one, None) => one,
        (one, Some(other)) => {
            forget(other);
            one
        }
    }
}

/// What a lease's end comes to, before the lock.
pub(crate) struct Decision {
    transition: Transition,
    now: Option<Nanos>,
    /// The limiter counted a failure.
    counted: bool,
    /// So many failures were one too many.
    given_up_after: Option<u32>,
}

impl Decision {
    fn of(transition: Transition) -> Self {
        Self { transition, now: None, counted: false, given_up_after: None }
    }

    /// On a failure whose wait is `at_least` or what the limiter says.
    fn on(failure: Failure, now: Nanos, at_least: Duration) -> Self {
        match failure {
            Failure::Backoff { until, counted } => {
                let wait = Wait::backoff(until.max(now + at_least));
                Self { now: Some(now), counted, ..Self::of(Transition::Wait(wait)) }
            }
            Failure::Last { failures } => Self {
                now: Some(now),
                counted: true,
                given_up_after: Some(failures),
                ..Self::of(Transition::Leave)
            },
        }
    }
}
