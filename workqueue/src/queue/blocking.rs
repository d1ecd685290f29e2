//! SHELL. Blocking waits: for a key, for room, and for the queue to be drained or idle.

use std::time::Duration;

use flyball_sync::locks::MutexGuard;
use flyball_sync::{Clock, Monotonic, Nanos, Timer};

use crate::error::{AddError, AddErrorKind, GetTimeoutError};
use crate::key::Key;
use crate::lease::Lease;
use crate::limiter::QueueLimiter;
use crate::queue::Queue;
use crate::queue::shared::Shared;
use crate::queue::shared::locked::{Locked, OtherWaiters};
use crate::state::order::Order;
use crate::state::order::sealed::Tag;
use crate::state::types::{Added, Leftovers, NextKey};

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Waits for a key, but at most until the time `until` of the machine's clock.
    pub(crate) fn block(&self, until: Option<Nanos>) -> Result<Lease<K>, GetTimeoutError> {
        let shared = &self.shared;
        let _pass_signal = PassSignal(shared);
        loop {
            let now = shared.now_if_timed();
            let left = until.map(|until| until.since(Monotonic.now()));
            let mut locked = shared.lock();
            let deadline = match shared.next(&mut locked, now) {
                NextKey::Key(id, key) => return Ok(self.lease(locked, now, id, key)),
                NextKey::Closed => {
                    shared.finish(locked, now);
                    return Err(GetTimeoutError::Closed);
                }
                _ if left == Some(Duration::ZERO) => {
                    // This thread may have been signalled at the moment when its time limit ran out. `finish` then signals another thread.
                    shared.finish(locked, now);
                    return Err(GetTimeoutError::TimedOut);
                }
                NextKey::Wait(at) => match now {
                    // `now_if_timed` did not read the clock, because there was no deadline yet; this one was set afterwards. The next iteration reads
                    // the clock, to compute how long to sleep.
                    None => continue,
                    Some(now) => Some((at, at.since(now))),
                },
                NextKey::Empty => None,
            };
            locked.blocked_getters.asleep += 1;
            let covered = &mut locked.blocked_getters.covered_deadline;
            // Only one thread sleeps until the deadline; the others sleep until they are signalled. This avoids a thundering herd at the deadline.
            let deadline = deadline.filter(|(at, _)| covered.is_none_or(|covered| *at < covered));
            if let Some((at, _)) = deadline {
                *covered = Some(at);
            }
            if let Some(effects) =
                shared.collect_wakeups(&mut locked, now).filter(|effects| !effects.is_empty())
            {
                // A thread does not sleep before it has performed the collected wake-ups. It cancels its registration as a sleeper, performs the
                // wake-ups, and checks again.
                locked.blocked_getters.wake_up(deadline.map(|(at, _)| at));
                drop(locked);
                shared.perform(effects);
                continue;
            }
            let sleep = deadline.map(|(_, distance)| distance).into_iter().chain(left).min();
            locked = match sleep {
                Some(limit) => shared.available.wait_for(locked, limit),
                None => shared.available.wait(locked),
            };
            locked.blocked_getters.wake_up(deadline.map(|(at, _)| at));
        }
    }

    /// Waits until the queue is shut down and no key is Ready or leased, or the drain that began at the number `begun` was ended, but at most until
    /// the time `until` of the machine's clock. Returns the leftovers.
    pub(crate) fn drain_until(&self, begun: u64, until: Option<Nanos>) -> Leftovers<K> {
        let mut left = Leftovers::new();
        let over = |locked: &mut Locked<K, O::ReadyQueue>, now| {
            locked.state.is_drained(now) || locked.others.has_ended(begun)
        };
        let (mut locked, now) = self.block_until(until, over, |others| &mut others.blocked_drainers);
        locked.state.leftovers(now, &mut left);
        // The timer may be armed for this thread alone.
        self.shared.finish(locked, now);
        left
    }

    pub(crate) fn block_until_idle(&self, until: Option<Nanos>) -> bool {
        let idle = |locked: &mut Locked<K, O::ReadyQueue>, now| locked.state.is_idle(now);
        let (mut locked, now) = self.block_until(until, idle, |others| &mut others.blocked_idlers);
        let idle = locked.state.is_idle(now);
        self.shared.finish(locked, now);
        idle
    }

    pub(crate) fn block_until_empty(&self, until: Option<Nanos>) -> bool {
        let empty = |locked: &mut Locked<K, O::ReadyQueue>, _| locked.state.is_empty();
        let (locked, now) = self.block_until(until, empty, |others| &mut others.blocked_emptiers);
        let empty = locked.state.is_empty();
        self.shared.finish(locked, now);
        empty
    }

    /// Waits until the condition holds, but at most until `until`. While the thread waits, it is counted in the counter that `count` returns. Returns
    /// with the queue locked.
    fn block_until(
        &self,
        until: Option<Nanos>,
        condition: impl Fn(&mut Locked<K, O::ReadyQueue>, Option<Nanos>) -> bool,
        count: impl Fn(&mut OtherWaiters) -> &mut usize,
    ) -> (MutexGuard<'_, Locked<K, O::ReadyQueue>>, Option<Nanos>) {
        loop {
            let now = self.shared.now_if_timed();
            let rest = until.map(|until| until.since(Monotonic.now()));
            let mut locked = self.shared.lock();
            if condition(&mut locked, now) || rest == Some(Duration::ZERO) {
                return (locked, now);
            }
            locked.others.any = true;
            locked.others.quiet_notified = false;
            // The queue may be drained at a time at which no operation is called. The thread wakes up then; on a clock that is moved by hand, only
            // the timer wakes it.
            let closes_at = now.and_then(|now| locked.state.closes_at(now));
            let armed = closes_at.and_then(|at| locked.request_alarm(at));
            if let Some(effects) = armed {
                drop(locked);
                self.shared.perform(effects);
                continue;
            }
            let closes_in = closes_at.zip(now).map(|(at, now)| at.since(now));
            *count(&mut locked.others) += 1;
            locked = match rest.into_iter().chain(closes_in).min() {
                Some(limit) => self.shared.quiet.wait_for(locked, limit),
                None => self.shared.quiet.wait(locked),
            };
            *count(&mut locked.others) -= 1;
        }
    }

    /// Adds a key; waits for room, but at most until the time `until` of the machine's clock.
    pub(crate) fn block_for_room(
        &self,
        key: K,
        tag: Tag<O::ReadyQueue>,
        until: Option<Nanos>,
    ) -> Result<Added, AddError<K>> {
        let shared = &self.shared;
        let mut new = shared.new_key(key, tag);
        let _pass_signal = PassSignal(shared);
        loop {
            let now = shared.now_if_timed();
            let left = until.map(|until| until.since(Monotonic.now()));
            let mut locked = shared.lock_to_add(None, &mut new);
            let added = locked.state.add(&mut new, now);
            if added != Err(AddErrorKind::Full) || left == Some(Duration::ZERO) {
                // This thread may have been signalled at the moment when its time limit ran out. `finish` then signals another thread.
                shared.finish(locked, now);
                return shared.answer(added, new.key);
            }
            let line = locked.adder_sleeps(&new.tag);
            if let Some(effects) =
                shared.collect_wakeups(&mut locked, now).filter(|effects| !effects.is_empty())
            {
                // The thread was woken for room that keys of its class cannot use, so it wakes another adder before it sleeps again.
                locked.adder_wakes_up(line);
                drop(locked);
                shared.perform(effects);
                continue;
            }
            locked = match left {
                Some(limit) => shared.room.wait_for(locked, limit),
                None => shared.room.wait(locked),
            };
            locked.adder_wakes_up(line);
            drop(locked);
            shared.renew(None, &mut new);
        }
    }
}

/// A guard for a thread that may have been woken by a signal. If the clock or a method of a key panics before the thread has acted on the signal, the
/// guard signals another thread.
struct PassSignal<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer>(&'a Shared<K, O, L, T>);

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drop for PassSignal<'_, K, O, L, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // `drop` does not read the clock, because the clock may be what panicked. If a deadline has passed already, the alarm that `finish` sets
            // for it fires immediately.
            self.0.finish(self.0.lock(), None);
        }
    }
}
