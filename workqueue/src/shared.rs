//! SHELL. One lock around the core, and everybody who waits for it.
//!
//! | what | guarded by |
//! |---|---|
//! | the core, the parked tasks, the sleeping threads, the alarm | `state` |
//! | `timed` | written under `state`; read without it, as a hint whether a clock is needed |
//! | failures and backoff | a lock of its own in `limiter`, never taken together with `state` |
//! | the timer | called outside `state`, by the one thread that found `alarm.arming` unset |
//!
//! User code runs outside `state`: clocks are read before locking; wakers, timers and the `Drop` of keys run from
//! [`Effects`] after unlocking. `Eq` and `Clone` of a key are the exceptions, and run before anything is changed.
//!
//! # No lost wake-up
//! A wake-up is a hint that any getter may use. Whoever changes anything calls [`State::settle`] before unlocking. It
//! restores, for every state in which somebody waits:
//! 1. as many getters are on their way as keys are Ready, or all of them are;
//! 2. while a deadline is ahead, the timer is armed for it, and a thread attends to it (if threads sleep);
//! 3. everybody is woken once the queue is closed.
//!
//! A getter that leaves, with or without a key, takes its hint back, so `settle` passes the hint on.

mod effects;

use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use flyball_ratelimit::{Nanos, Policy};
use foldhash::fast::RandomState;

pub(crate) use effects::Effects;

use crate::core::{Core, Handle, Outcome};
use crate::limiter::Limiter;
use crate::order::Order;
use crate::parked::Parked;
use crate::sleepers::Sleepers;
use crate::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering};
use crate::time::Time;

/// What a key must be able to do: any cheap-to-clone, hashable value. Implemented for all of them.
///
/// The queue clones a key once for each lease: free for ids and `Arc<str>`, an allocation for a `String`. `Eq` and
/// `Clone` run under the queue's lock and must not call back into it.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<K: Clone + Eq + Hash + Send + 'static> Key for K {}

pub(crate) struct Shared<K, O, L, T> {
    state: Mutex<State<K, O>>,
    /// Getters that block.
    pub(crate) available: Condvar,
    /// Drainers that block.
    pub(crate) drained: Condvar,
    timed: AtomicUsize,
    pub(crate) limiter: Limiter<K, L>,
    time: T,
    hasher: RandomState,
    /// Wakes this queue; handed to the timer.
    alarm: Waker,
}

pub(crate) struct State<K, O> {
    pub(crate) core: Core<K, O>,
    pub(crate) getters: Parked,
    pub(crate) sleepers: Sleepers,
    pub(crate) drainers: Parked,
    pub(crate) blocked_drainers: usize,
    alarm: Alarm,
}

/// The queue's one alarm.
#[derive(Default)]
struct Alarm {
    /// An alarm is set, or being set, for this moment.
    armed: Option<Nanos>,
    /// A thread is in the timer. It alone calls it, so a slower thread cannot overwrite an earlier alarm.
    arming: bool,
    /// `armed` was set anew meanwhile; that thread calls the timer once more.
    again: bool,
}

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> Shared<K, O, L, T> {
    pub(crate) fn new(policy: L, time: T, seed: u64) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            state: Mutex::new(State {
                core: Core::new(),
                getters: Parked::new(),
                sleepers: Sleepers::default(),
                drainers: Parked::new(),
                blocked_drainers: 0,
                alarm: Alarm::default(),
            }),
            available: Condvar::new(),
            drained: Condvar::new(),
            timed: AtomicUsize::new(0),
            limiter: Limiter::new(policy, seed),
            time,
            hasher: RandomState::default(),
            // Weak: an alarm set for next year must not keep the queue alive.
            alarm: Waker::from(Arc::new(Ring(this.clone()))),
        })
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<K, O>> {
        self.state.lock()
    }

    #[inline]
    pub(crate) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(crate) fn now(&self) -> Nanos {
        self.time.now()
    }

    /// The time, where a key has a deadline; nothing, and no clock read, where none has.
    #[inline]
    pub(crate) fn now_if_timed(&self) -> Option<Nanos> {
        // Ordering: Relaxed. A deadline missed here was set by a concurrent call and lies ahead of the time that the
        // core has seen, so to take it for not yet due is right; who sleeps on it looks again (`Wait`).
        (T::DELAYS && self.timed.load(Ordering::Relaxed) > 0).then(|| self.time.now())
    }

    /// The end of every change: says who is to be woken, unlocks, and wakes them.
    #[inline]
    pub(crate) fn finish(&self, mut state: MutexGuard<'_, State<K, O>>, now: Option<Nanos>) {
        let effects = self.settle(&mut state, now);
        drop(state);
        self.perform(effects);
    }

    #[inline]
    pub(crate) fn settle(&self, state: &mut State<K, O>, now: Option<Nanos>) -> Effects {
        if T::DELAYS {
            // Ordering: Relaxed, see `now_if_timed`.
            self.timed.store(state.core.timed(), Ordering::Relaxed);
        }
        if state.nobody_waits() { Effects::default() } else { state.settle(now, T::TIMER) }
    }

    pub(crate) fn perform(&self, effects: Effects) {
        if !effects.is_empty() {
            effects.perform(self);
        }
    }

    /// Ends a lease. Whatever user code does, the lease ends: if it panics, the key is Ready again.
    pub(crate) fn end(&self, handle: Handle, key: &K, verdict: Verdict) {
        let decided = catch_unwind(AssertUnwindSafe(|| self.decide(key, verdict)));
        let (outcome, now, panic) = match decided {
            Ok((outcome, now)) => (outcome, now, None),
            Err(panic) => (Outcome::Tail, None, Some(panic)),
        };
        let mut state = self.lock();
        let gone = state.core.end(handle, outcome, now);
        self.finish(state, now);
        drop(gone);
        match panic {
            // A second panic while one unwinds would abort the process.
            Some(panic) if !std::thread::panicking() => resume_unwind(panic),
            _ => {}
        }
    }

    /// All user code of a lease's end: the clock and the policy.
    #[inline]
    fn decide(&self, key: &K, verdict: Verdict) -> (Outcome, Option<Nanos>) {
        match verdict {
            Verdict::Done => {}
            Verdict::Succeed => self.limiter.forget(key),
            Verdict::After(delay) => {
                self.limiter.forget(key);
                let now = self.time.now();
                return (Self::at(now + delay, now), Some(now));
            }
            Verdict::Retry if Limiter::<K, L>::limits() => {
                let now = self.time.now();
                return (Self::at(self.limiter.failed(key, now), now), Some(now));
            }
            Verdict::Retry => return (Outcome::Tail, self.now_if_timed()),
        }
        (Outcome::Done, self.now_if_timed())
    }

    fn at(at: Nanos, now: Nanos) -> Outcome {
        if at > now { Outcome::At(at) } else { Outcome::Tail }
    }

    /// The timer fired, on time or early: the next getter looks, and arms it again if need be.
    ///
    /// Not from here: tokio's timer wakes at once and makes no progress when the budget of the running task is used
    /// up, so arming it again before that task has yielded would spin.
    fn ring(&self) {
        let mut effects = Effects::default();
        let mut state = self.lock();
        state.alarm.armed = None;
        if state.core.next_deadline().is_some() {
            state.hint_one(&mut effects);
        }
        drop(state);
        self.perform(effects);
    }

    /// Sets the timer, outside the lock, as long as somebody wants it earlier.
    fn arm(&self, mut at: Nanos) {
        loop {
            let armed = catch_unwind(AssertUnwindSafe(|| self.time.wake_at(at, &self.alarm)));
            let mut state = self.lock();
            if let Err(panic) = armed {
                // Nobody's alarm is set, whoever asked for it: the next getter sees to it, in its own turn.
                state.alarm = Alarm::default();
                let mut effects = Effects::default();
                state.hint_one(&mut effects);
                drop(state);
                self.perform(effects);
                resume_unwind(panic);
            }
            let alarm = &mut state.alarm;
            match alarm.armed {
                Some(wanted) if alarm.again => at = wanted,
                _ => {
                    alarm.arming = false;
                    return;
                }
            }
            alarm.again = false;
        }
    }
}

/// How a lease ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    Done,
    Succeed,
    After(Duration),
    Retry,
}

impl<K, O: Order> State<K, O> {
    #[inline]
    fn nobody_waits(&self) -> bool {
        self.getters.waiting() == 0
            && self.sleepers.asleep == 0
            && self.drainers.waiting() == 0
            && self.blocked_drainers == 0
    }

    /// Restores the three rules of the file's head; changes nothing but who is awake.
    fn settle(&mut self, now: Option<Nanos>, timer: bool) -> Effects {
        let mut effects = Effects::default();
        if self.core.is_closed() {
            while let Some(waker) = self.getters.take_one() {
                effects.wake(waker);
            }
            effects.signal_all = self.sleepers.asleep > 0;
        } else {
            let deadline = self.core.next_deadline();
            // Also after shutdown: what was due then is Ready, and nothing else will say so.
            let due = self.core.has_due(now);
            let ready = self.core.queued() + usize::from(due);
            while self.getters.owed(ready) + self.sleepers.signalled < ready {
                if !self.hint_one(&mut effects) {
                    break;
                }
            }
            if let Some(at) = deadline.filter(|_| !due) {
                self.attend(at, timer, &mut effects);
            }
        }
        if self.core.is_drained() {
            while let Some(waker) = self.drainers.take_one() {
                effects.wake(waker);
            }
            effects.drained = self.blocked_drainers > 0;
        }
        effects
    }

    /// Wakes one getter, tasks first: a thread costs a system call.
    fn hint_one(&mut self, effects: &mut Effects) -> bool {
        if let Some(waker) = self.getters.take_one() {
            effects.wake(waker);
            return true;
        }
        let sleeps = self.sleepers.signalled < self.sleepers.asleep;
        if sleeps {
            self.sleepers.signalled += 1;
            effects.signals += 1;
        }
        sleeps
    }

    /// Somebody looks when `at` comes: the timer, and one of the sleeping threads. A thread needs no timer; but its
    /// clock may be one that is moved by hand, and then only the timer knows.
    fn attend(&mut self, at: Nanos, timer: bool, effects: &mut Effects) {
        let waits = self.getters.waiting() > 0 || self.sleepers.asleep > 0;
        if timer && waits && self.alarm.armed.is_none_or(|armed| at < armed) {
            self.alarm.armed = Some(at);
            if self.alarm.arming {
                self.alarm.again = true;
            } else {
                self.alarm.arming = true;
                effects.arm = Some(at);
            }
        }
        let sleepers = &mut self.sleepers;
        let unattended = sleepers.attended.is_none_or(|attended| at < attended);
        // A signalled thread looks at the deadline before it sleeps again.
        if unattended && sleepers.signalled == 0 && sleepers.asleep > 0 {
            sleepers.signalled += 1;
            effects.signals += 1;
        }
    }
}

/// The waker that the timer gets.
struct Ring<K, O, L, T>(Weak<Shared<K, O, L, T>>);

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> Wake for Ring<K, O, L, T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(shared) = self.0.upgrade() {
            shared.ring();
        }
    }
}
