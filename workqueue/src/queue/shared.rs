//! SHELL. One lock around the state of the queue and its waiters.
//!
//! | what | guarded by |
//! |---|---|
//! | the state of the queue, its waiters, the alarm | `locked` |
//! | `timed` | `locked` for writes; reads need no lock, as the value is only a hint whether to read the clock |
//! | failures and backoff | a separate lock in `limiter`, which is always taken before `locked`, never while `locked` is held |
//! | the timer | called outside `locked`, by the one thread that found `alarm.arming` unset |
//!
//! User code runs outside `locked`: clocks are read before locking; wakers, timers and the `Drop` of keys run after unlocking. The only exceptions
//! are `Eq` and `Clone` of keys and groups; if one of them panics, the queue stays consistent.
//!
//! # No lost wake-up
//! A wake-up does not reserve a key; any getter may take the key first. After each change and before unlocking, [`Shared::collect_wakeups`] is
//! called, which restores three rules (see `queue/locked.rs`):
//! 1. One task is woken for each key that can be handed out. If there are fewer tasks than keys, one thread is signalled, too. That thread signals
//!    the next thread when it has taken a key or found no key. Likewise, one adder is woken for each key that the queue and the adder's class of keys
//!    have room for (`queue/adders.rs`).
//! 2. The timer is armed for the next time for which a waiter waits, or earlier, and is disarmed while no waiter waits for a time. If threads sleep,
//!    one of them sleeps at most until the next deadline.
//! 3. All waiters for a condition are woken once the condition holds, and only then. The conditions are: the queue is closed, drained, idle or empty,
//!    `shut_down` was called after a drain had begun, or there is a lease that no watcher (`next_overdue`) waits for yet. A condition is checked at the
//!    last time that was read from the clock, so that a waiter and a later change agree on it. While a drain serves delayed keys, time alone may close
//!    the queue (`QueueState::closes_at`).
//!
//! A woken waiter that leaves its wait queue decrements the count of woken waiters, so `collect_wakeups` can wake another waiter.

use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use crossbeam_utils::CachePadded;
use flyball_sync::locks::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering};
use flyball_sync::panics::{Panic, caught, keep_first, raise};
use flyball_sync::waiting::{self, Alarm, Alarmed, TimerCall, WakeBatch, arm};
use flyball_sync::{Nanos, Timer, steps};
use foldhash::fast::RandomState;

use crate::limiter::{self, Limiter, QueueLimiter};
use crate::metrics::{QueueMetrics, ReadStats, StatsReader};
use crate::queue::Key;
use crate::queue::end::GiveUp;
use crate::queue::locked::Locked;
use crate::state::metering::HandedOut;
use crate::state::order::Order;
use crate::state::order::sealed::Tag;
use crate::state::slots::fold;
use crate::state::stats::QueueStats;
use crate::state::types::NewKey;
use crate::state::{Options, QueueState};

pub(crate) struct Shared<K, O: Order<K>, L, T> {
    /// Padded to its own cache lines, because adds read the neighbouring fields, such as the hasher, before they lock.
    locked: CachePadded<Mutex<Locked<K, O::ReadyQueue>>>,
    /// Signalled for threads that wait for a key.
    pub(crate) available: Condvar,
    /// Signalled for threads that wait for the end of a drain.
    pub(crate) quiet: Condvar,
    timed: AtomicUsize,
    pub(crate) limiter: Limiter<K, L>,
    pub(crate) give_up: Option<GiveUp<K>>,
    sinks: Vec<Box<dyn QueueMetrics>>,
    pub(super) time: T,
    hasher: RandomState,
    /// The order, which creates a tag for each add.
    order: O,
    /// The waker that is passed to the timer. It calls `on_alarm` of this queue when the timer fires.
    alarm: Waker,
}

/// The parts that a queue is built from.
pub(crate) struct Parts<K, O, L, T> {
    pub(crate) order: O,
    pub(crate) policy: L,
    pub(crate) time: T,
    pub(crate) seed: u64,
    pub(crate) options: Options,
    pub(crate) give_up: Option<GiveUp<K>>,
    pub(crate) sinks: Vec<Box<dyn QueueMetrics>>,
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Shared<K, O, L, T> {
    pub(crate) fn new(parts: Parts<K, O, L, T>) -> Arc<Self> {
        let Parts { order, policy, time, seed, mut options, give_up, sinks } = parts;
        options.metered = (!sinks.is_empty()).then(|| time.now());
        let locked = Locked::new(QueueState::new(options, order.ready_queue()), !time.is_real_time());
        let timed = locked.is_noted_as_timed.into();
        let shared = Arc::new_cyclic(|this| Self {
            locked: CachePadded::new(Mutex::new(locked)),
            available: Condvar::new(),
            quiet: Condvar::new(),
            timed: AtomicUsize::new(timed),
            limiter: limiter::new(policy, seed),
            give_up,
            sinks,
            time,
            hasher: RandomState::default(),
            order,
            alarm: waiting::waker(this.clone()),
        });
        shared.sinks.iter().for_each(|sink| sink.register(shared.stats_reader()));
        shared
    }

    pub(crate) fn stats_reader(self: &Arc<Self>) -> StatsReader {
        let read: Arc<dyn ReadStats> = self.clone();
        StatsReader::new(Arc::downgrade(&read))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Locked<K, O::ReadyQueue>> {
        let locked = self.locked.lock();
        steps::begin();
        locked
    }

    /// Locks the queue to check a condition such as "idle" at the time `now`. Unlocks and locks again after each piece of the work that this takes.
    pub(crate) fn lock_to_check(&self, now: Option<Nanos>) -> MutexGuard<'_, Locked<K, O::ReadyQueue>> {
        loop {
            let mut locked = self.lock();
            if locked.state.observe_to_check(now) {
                return locked;
            }
        }
    }

    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        fold(self.hasher.hash_one(key))
    }

    pub(crate) fn order(&self) -> &O {
        &self.order
    }

    /// Creates the tag for an add of `key`.
    #[inline]
    pub(crate) fn tag(&self, key: &K) -> Tag<O::ReadyQueue> {
        self.order.tag(key)
    }

    /// Locks the queue for an add. If the tag of `new` is stale, unlocks, renews the tag and locks again.
    #[inline]
    pub(crate) fn lock_to_add(
        &self,
        key: Option<&K>,
        new: &mut NewKey<K, Tag<O::ReadyQueue>>,
    ) -> MutexGuard<'_, Locked<K, O::ReadyQueue>> {
        loop {
            let locked = self.lock();
            if !locked.state.is_stale(&new.tag) {
                return locked;
            }
            drop(locked);
            self.renew(key, new);
        }
    }

    #[cold]
    pub(crate) fn renew(&self, key: Option<&K>, new: &mut NewKey<K, Tag<O::ReadyQueue>>) {
        if let Some(key) = key.or(new.key.as_ref()) {
            self.order.renew(key, &mut new.tag);
        }
    }

    #[inline]
    pub(crate) fn new_key(&self, key: K, tag: Tag<O::ReadyQueue>) -> NewKey<K, Tag<O::ReadyQueue>> {
        let hash = self.hash(&key);
        NewKey { key: Some(key), hash, tag }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.time.now()
    }

    /// Reads the clock if a key has a deadline, ages are tracked, or a drain serves delayed keys. Otherwise returns `None` without reading the clock.
    #[inline]
    pub(crate) fn now_if_timed(&self) -> Option<Nanos> {
        self.is_timed().then(|| self.time.now())
    }

    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        // Ordering: Relaxed. This load may miss a deadline that a concurrent call has just set. Such a deadline is later than the last time that was
        // passed to the queue's state, so it is correct to treat it as not due. A waiter checks again before it sleeps (`NextKey::Wait`).
        self.timed.load(Ordering::Relaxed) > 0
    }

    /// Completes a change: determines the waiters to wake, unlocks, and wakes them.
    #[inline]
    pub(crate) fn finish(&self, mut locked: MutexGuard<'_, Locked<K, O::ReadyQueue>>, now: Option<Nanos>) {
        self.note_timed(&mut locked, now);
        // If no waiter needs to be woken, for example because all workers are busy, no `Effects` are built, moved and dropped.
        if locked.needs_wakeups() {
            self.finish_and_wake(locked, now);
        }
    }

    #[inline(never)]
    fn finish_and_wake(&self, mut locked: MutexGuard<'_, Locked<K, O::ReadyQueue>>, now: Option<Nanos>) {
        let effects = locked.collect_wakeups(now);
        drop(locked);
        self.perform(effects);
    }

    /// Like [`finish`](Self::finish), but also wakes every task that waits for a key, because such a task may also react to the shutdown: the
    /// controller's worker that collects a batch runs the batch.
    pub(crate) fn finish_for_all(
        &self,
        mut locked: MutexGuard<'_, Locked<K, O::ReadyQueue>>,
        now: Option<Nanos>,
    ) {
        self.note_timed(&mut locked, now);
        let mut effects = locked.collect_wakeups(now);
        locked.wake_tasks(&mut effects);
        drop(locked);
        self.perform(effects);
    }

    /// The first half of [`finish`](Self::finish), for callers that have work to do between unlocking and waking.
    #[inline]
    pub(crate) fn collect_wakeups(
        &self,
        locked: &mut Locked<K, O::ReadyQueue>,
        now: Option<Nanos>,
    ) -> Option<Effects> {
        self.note_timed(locked, now);
        if locked.needs_wakeups() { Some(locked.collect_wakeups(now)) } else { None }
    }

    /// Sets `timed`. An operation that has not read the clock sets no deadline before a shutdown (after it, a retried key gets one that has passed and
    /// is never served), so it has nothing to note, apart from a last deadline that it has removed; the next operation then reads the clock once more.
    #[inline]
    fn note_timed(&self, locked: &mut Locked<K, O::ReadyQueue>, now: Option<Nanos>) {
        if now.is_none() {
            return;
        }
        // `timed` is written under the lock, and only if its value changes. A store in each operation would invalidate the cache line of all threads
        // that read `timed` without locking.
        let timed = locked.state.is_timed();
        if timed != locked.is_noted_as_timed {
            locked.is_noted_as_timed = timed;
            // Ordering: Relaxed, see `now_if_timed`.
            self.timed.store(timed.into(), Ordering::Relaxed);
        }
    }

    pub(crate) fn perform(&self, mut effects: Effects) {
        if effects.is_empty() {
            return;
        }
        let mut panicked = Ok(());
        loop {
            effects.perform(self, &mut panicked);
            effects = match effects.again {
                Some(now) => self.lock().collect_wakeups(Some(now)),
                None if !effects.more => break,
                None => {
                    let mut wakers = WakeBatch::default();
                    let more = self.lock().fill_batch(&mut wakers);
                    Effects { wakers, more, ..Effects::default() }
                }
            };
        }
        raise(panicked);
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Alarmed for Shared<K, O, L, T> {
    fn with_alarm<R>(&self, change: impl FnOnce(&mut Alarm) -> R) -> R {
        change(&mut self.lock().alarm)
    }

    fn on_alarm(&self) {
        let now = caught(|| self.now());
        let effects = self.lock().on_alarm(now);
        self.perform(effects);
    }

    /// Called if the timer could not be armed, so that no alarm is set. Wakes one getter, and all other tasks that wait for a certain time. These
    /// tasks arm the timer again when they are polled.
    fn alarm_failed(&self) {
        let mut locked = self.lock();
        locked.alarm.reset();
        let effects = locked.wake_for_time();
        drop(locked);
        self.perform(effects);
    }
}

/// The wakers to wake, the threads to signal, and the call of the timer.
#[derive(Default)]
pub(crate) struct Effects {
    pub(super) wakers: WakeBatch,
    pub(in crate::queue) signals: usize,
    pub(super) signal_all: bool,
    /// Whether to signal the threads that wait for the end of a drain.
    pub(in crate::queue) quiet: bool,
    pub(in crate::queue) arm: Option<TimerCall>,
    /// Whether more tasks must be woken than fit into `wakers`.
    pub(super) more: bool,
    /// The time at which `collect_wakeups` must be called again, because it examined as many keys as it may under one lock.
    pub(super) again: Option<Nanos>,
}

impl Effects {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
            && self.signals == 0
            && !self.signal_all
            && !self.quiet
            && self.arm.is_none()
            && self.again.is_none()
    }

    /// Performs all effects, even if a waker or the timer panics.
    pub(super) fn perform<K, O, L, T>(
        &mut self,
        shared: &Shared<K, O, L, T>,
        panicked: &mut Result<(), Panic>,
    ) where
        K: Key,
        O: Order<K>,
        L: QueueLimiter<K>,
        T: Timer,
    {
        if self.signal_all {
            shared.available.notify_all();
        } else {
            (0..self.signals).for_each(|_| shared.available.notify_one());
        }
        if self.quiet {
            shared.quiet.notify_all();
        }
        keep_first(panicked, self.wakers.wake());
        if let Some(call) = self.arm {
            let perform = |call: TimerCall| call.perform(&shared.time, &shared.alarm);
            keep_first(panicked, catch_unwind(AssertUnwindSafe(|| arm(shared, call, perform))));
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Shared<K, O, L, T> {
    /// Calls `what` with every sink. Must be called while no lock is held. A panic in a sink is caught.
    #[inline]
    pub(crate) fn report(&self, what: impl Fn(&dyn QueueMetrics)) {
        for sink in &self.sinks {
            caught(|| what(&**sink));
        }
    }

    /// Returns the data that the metrics report about the last hand-out.
    #[inline]
    pub(crate) fn handed_out(&self, locked: &Locked<K, O::ReadyQueue>) -> Option<HandedOut> {
        locked.state.handed_out()
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> ReadStats for Shared<K, O, L, T> {
    fn read(&self) -> QueueStats {
        let now = self.now_if_timed();
        self.lock().state.stats(now)
    }
}
