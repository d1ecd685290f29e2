//! SHELL. One lock around the core, and everybody who waits for it.
//!
//! | what | guarded by |
//! |---|---|
//! | the core, everybody who waits, the alarm | `state` |
//! | `timed` | written under `state`; read without it, as a hint whether a clock is needed |
//! | failures and backoff | a lock of its own in `limiter`, never taken together with `state` |
//! | the timer | called outside `state`, by the one thread that found `alarm.arming` unset |
//!
//! User code runs outside `state`: clocks are read before locking; wakers, timers and the `Drop` of keys run from
//! [`Effects`] after unlocking. `Eq` and `Clone` of a key are the exceptions, and run before anything is changed.
//!
//! # No lost wake-up
//! A wake-up is a hint that any getter may use. Whoever changes anything calls [`Shared::settle`] before unlocking. It
//! restores, for every state in which somebody waits (`shared/state.rs`):
//! 1. as many tasks are on their way as keys are Ready, or all of them are, and then one thread, which sends the next
//!    when it has looked; as many adders are as there is room;
//! 2. while a deadline is ahead, the timer is armed for it, and a thread attends to it (if threads sleep);
//! 3. everybody is woken once what they wait for has come: closed, drained, idle, a lease to watch.
//!
//! Who leaves, with or without what it came for, takes its hint back, so `settle` passes the hint on.

mod effects;
mod state;
mod telling;

use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use flyball_ratelimit::{Nanos, Policy};
use foldhash::fast::RandomState;

pub(crate) use effects::Effects;
pub(crate) use state::{Others, State};

use crate::core::{Core, Handle, Newcomer, Outcome, Rules};
use crate::dead::DeadLetters;
use crate::hash::fold;
use crate::limiter::{Failed, Limiter};
use crate::metrics::{Metrics, Watch, Watched};
use crate::order::Order;
use crate::order::sealed::Tag;
use crate::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering};
use crate::time::Time;
use crate::wait::Wait;
use state::Alarm;

/// What a key must be able to do: any cheap-to-clone, hashable value. Implemented for all of them.
///
/// The queue clones a key once for each lease: free for ids and `Arc<str>`, an allocation for a `String`. `Eq` and
/// `Clone` run under the queue's lock and must not call back into it.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<K: Clone + Eq + Hash + Send + 'static> Key for K {}

pub(crate) struct Shared<K, O: Order<K>, L, T> {
    state: Mutex<State<K, O::Links>>,
    /// Getters that block.
    pub(crate) available: Condvar,
    /// Adders that block.
    pub(crate) room: Condvar,
    /// Who blocks until the queue is drained or idle.
    pub(crate) quiet: Condvar,
    timed: AtomicUsize,
    pub(crate) limiter: Limiter<K, L>,
    pub(crate) dead: Option<DeadLetters<K>>,
    sinks: Vec<Box<dyn Metrics>>,
    time: T,
    hasher: RandomState,
    /// Says what an add brings.
    order: O,
    /// Wakes this queue; handed to the timer.
    alarm: Waker,
}

/// What a queue is made of.
pub(crate) struct Parts<K, O, L, T> {
    pub(crate) order: O,
    pub(crate) policy: L,
    pub(crate) time: T,
    pub(crate) seed: u64,
    pub(crate) rules: Rules,
    pub(crate) dead: Option<DeadLetters<K>>,
    pub(crate) sinks: Vec<Box<dyn Metrics>>,
}

impl<K: Key, O: Order<K>, L: Policy<K> + Send + 'static, T: Time> Shared<K, O, L, T> {
    pub(crate) fn new(parts: Parts<K, O, L, T>) -> Arc<Self> {
        let Parts { order, policy, time, seed, mut rules, dead, sinks } = parts;
        rules.metered = (!sinks.is_empty()).then(|| time.now());
        let shared = Arc::new_cyclic(|this: &Weak<Self>| Self {
            state: Mutex::new(State::new(Core::new(rules, order.links()))),
            available: Condvar::new(),
            room: Condvar::new(),
            quiet: Condvar::new(),
            timed: AtomicUsize::new(rules.metered.is_some().into()),
            limiter: Limiter::new(policy, seed),
            dead,
            sinks,
            time,
            hasher: RandomState::default(),
            order,
            // Weak: an alarm set for next year must not keep the queue alive.
            alarm: Waker::from(Arc::new(Ring(this.clone()))),
        });
        let watched: Arc<dyn Watched> = shared.clone();
        let watch = Watch::new(Arc::downgrade(&watched));
        shared.sinks.iter().for_each(|sink| sink.watch(watch.clone()));
        shared
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<K, O::Links>> {
        self.state.lock()
    }

    #[inline]
    pub(crate) fn hash(&self, key: &K) -> u32 {
        fold(self.hasher.hash_one(key))
    }

    /// What an add of `key` brings.
    #[inline]
    pub(crate) fn tag(&self, key: &K) -> Tag<O::Links> {
        self.order.tag(key)
    }

    #[inline]
    pub(crate) fn newcomer(&self, key: K, tag: Tag<O::Links>) -> Newcomer<K, Tag<O::Links>> {
        let hash = self.hash(&key);
        Newcomer { key: Some(key), hash, tag }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.time.now()
    }

    /// The time, where a key has a deadline or ages are kept; nothing, and no clock read, otherwise.
    #[inline]
    pub(crate) fn now_if_timed(&self) -> Option<Nanos> {
        self.is_timed().then(|| self.time.now())
    }

    #[inline]
    fn is_timed(&self) -> bool {
        // Ordering: Relaxed. A deadline missed here was set by a concurrent call and lies ahead of the time that the
        // core has seen, so to take it for not yet due is right; who sleeps on it looks again (`Wait`).
        T::DELAYS && self.timed.load(Ordering::Relaxed) > 0
    }

    /// The end of every change: says who is to be woken, unlocks, and wakes them.
    #[inline]
    pub(crate) fn finish(&self, state: MutexGuard<'_, State<K, O::Links>>, now: Option<Nanos>) {
        self.note_timed(&state);
        // Nothing is built, moved, tested and dropped where nobody waits, as in a queue whose workers are all busy.
        if state.needs_settling() {
            self.finish_and_wake(state, now);
        }
    }

    #[inline(never)]
    fn finish_and_wake(&self, mut state: MutexGuard<'_, State<K, O::Links>>, now: Option<Nanos>) {
        let effects = state.settle(now, T::TIMER);
        drop(state);
        self.perform(effects);
    }

    /// The first half of [`finish`](Self::finish), for who has something to do between unlocking and waking.
    #[inline]
    pub(crate) fn settle(&self, state: &mut State<K, O::Links>, now: Option<Nanos>) -> Option<Effects> {
        self.note_timed(state);
        if state.needs_settling() { Some(state.settle(now, T::TIMER)) } else { None }
    }

    #[inline]
    fn note_timed(&self, state: &State<K, O::Links>) {
        if T::DELAYS {
            // Ordering: Relaxed, see `now_if_timed`.
            self.timed.store(state.core.is_timed().into(), Ordering::Relaxed);
        }
    }

    pub(crate) fn perform(&self, effects: Effects) {
        if !effects.is_empty() {
            effects.perform(self);
        }
    }

    /// Ends a lease. Whatever user code does, the lease ends: if it panics, the key is Ready again.
    #[inline]
    pub(crate) fn end(&self, handle: Handle, key: &K, verdict: Verdict) {
        let done = matches!(verdict, Verdict::Done)
            || matches!(verdict, Verdict::Succeed) && self.limiter.is_empty();
        if done && !self.is_timed() {
            // No user code at all, and nothing to decide.
            let mut state = self.lock();
            let gone = state.core.end(handle, Outcome::Done, None);
            self.finish(state, None);
            drop(gone);
        } else {
            self.end_by(handle, key, verdict);
        }
    }

    fn end_by(&self, handle: Handle, key: &K, verdict: Verdict) {
        let seen = verdict != Verdict::Untouched;
        let decided = catch_unwind(AssertUnwindSafe(|| self.decide(key, verdict)));
        let (ruling, mut panic) = match decided {
            Ok(ruling) => (ruling, None),
            Err(panic) => {
                (Ruling { counted: false, outcome: Outcome::Tail, now: None, died_after: None }, Some(panic))
            }
        };
        let mut state = self.lock();
        let worked = if T::DELAYS { state.core.meter_end(handle, ruling.now, seen) } else { None };
        let gone = state.core.end(handle, ruling.outcome, ruling.now);
        let mut also = |result: std::thread::Result<()>| {
            if let Err(other) = result {
                panic.get_or_insert(other);
            }
        };
        also(catch_unwind(AssertUnwindSafe(|| self.finish(state, ruling.now))));
        also(catch_unwind(AssertUnwindSafe(|| drop(gone))));
        // Whoever's waker panicked: a key that is given up is told of.
        if let (Some(failures), Some(dead)) = (ruling.died_after, &self.dead) {
            also(catch_unwind(AssertUnwindSafe(|| dead.tell(key, failures))));
        }
        if let Some(worked) = worked {
            self.tell_end(verdict, worked, &ruling);
        }
        match panic {
            // A second panic while one unwinds would abort the process.
            Some(panic) if !std::thread::panicking() => resume_unwind(panic),
            _ => {}
        }
    }

    /// All user code of a lease's end: the clock and the policy.
    #[inline]
    fn decide(&self, key: &K, verdict: Verdict) -> Ruling {
        let (outcome, now) = match verdict {
            Verdict::Done => (Outcome::Done, self.now_if_timed()),
            Verdict::Succeed => {
                self.limiter.forget(key);
                (Outcome::Done, self.now_if_timed())
            }
            Verdict::After(delay) => {
                self.limiter.forget(key);
                self.after(delay)
            }
            Verdict::DoneAfter(delay) => self.after(delay),
            Verdict::Retry | Verdict::Dropped if Limiter::<K, L>::limits() => {
                return self.back_off(key, Duration::ZERO);
            }
            Verdict::RetryNoSooner(least) if Limiter::<K, L>::limits() || !least.is_zero() => {
                return self.back_off(key, least);
            }
            Verdict::Retry | Verdict::RetryNoSooner(_) | Verdict::Dropped | Verdict::Untouched => {
                (Outcome::Tail, self.now_if_timed())
            }
        };
        Ruling { outcome, now, died_after: None, counted: false }
    }

    /// A failure, whose wait is `least` or what the limiter says, if there is one.
    fn back_off(&self, key: &K, least: Duration) -> Ruling {
        let now = self.time.now();
        let failed = if Limiter::<K, L>::limits() {
            self.fail(key, now)
        } else {
            Failed::Until { at: now, counted: false }
        };
        let (outcome, died_after, counted) = match failed {
            Failed::Until { at, counted } => (Outcome::At(Wait::backoff(at.max(now + least))), None, counted),
            Failed::Died { failures } => (Outcome::Done, Some(failures), true),
        };
        Ruling { outcome, now: Some(now), died_after, counted }
    }

    fn after(&self, delay: Duration) -> (Outcome, Option<Nanos>) {
        let now = self.time.now();
        (Outcome::At(Wait::fixed(now + delay)), Some(now))
    }

    /// Counts a failure of `key`.
    pub(crate) fn fail(&self, key: &K, now: Nanos) -> Failed {
        self.limiter.failed(key, now, self.dead.as_ref().map(DeadLetters::most))
    }

    /// The timer fired, on time or early.
    fn ring(&self) {
        let effects = self.lock().ring();
        self.perform(effects);
    }

    /// Sets the timer, outside the lock, as long as somebody wants it earlier.
    fn arm(&self, mut at: Nanos) {
        loop {
            let armed = catch_unwind(AssertUnwindSafe(|| self.time.wake_at(at, &self.alarm)));
            let mut state = self.lock();
            if let Err(panic) = armed {
                // Nobody's alarm is set, whoever asked for it: who waits for time sees to it, in its own turn. Not by
                // settling, which would call the timer again.
                state.alarm = Alarm::default();
                let effects = state.wake_for_time();
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    Succeed,
    After(Duration),
    DoneAfter(Duration),
    Retry,
    RetryNoSooner(Duration),
    /// As a failure: nobody said how.
    Dropped,
    /// It never began.
    Untouched,
}

/// What a lease's end comes to.
struct Ruling {
    outcome: Outcome,
    now: Option<Nanos>,
    /// So many failures were one too many.
    died_after: Option<u32>,
    /// The limiter counted a failure.
    counted: bool,
}

/// The waker that the timer gets.
struct Ring<K, O: Order<K>, L, T>(Weak<Shared<K, O, L, T>>);

impl<K: Key, O: Order<K>, L: Policy<K> + Send + 'static, T: Time> Wake for Ring<K, O, L, T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(shared) = self.0.upgrade() {
            shared.ring();
        }
    }
}
