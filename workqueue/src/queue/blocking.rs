//! SHELL. Blocking waits: for a key, and for the end of a drain. A thread waits for anything else with `block_on`.

use std::time::Duration;

use flyball_sync::{Clock, Monotonic, Nanos, Timer};

use crate::error::GetTimeoutError;
use crate::lease::Lease;
use crate::limiter::QueueLimiter;
use crate::queue::Key;
use crate::queue::Queue;
use crate::queue::shared::Shared;
use crate::state::order::Order;
use crate::state::types::{Leftovers, NextKey};

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
                NextKey::GatherMore => continue,
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
            // On a clock that does not run in real time, the alarm wakes the thread.
            let distance = deadline.filter(|_| shared.time.is_real_time()).map(|(_, distance)| distance);
            let sleep = distance.into_iter().chain(left).min();
            locked = match sleep {
                Some(limit) => shared.available.wait_for(locked, limit),
                None => shared.available.wait(locked),
            };
            locked.blocked_getters.wake_up(deadline.map(|(at, _)| at));
        }
    }

    /// Waits until the queue is shut down and no key is Ready or leased, or until the wait of a drain that began at the number `begun` has ended, but at
    /// most until the time `until` of the machine's clock. Returns the leftovers.
    pub(crate) fn drain_until(&self, begun: u64, until: Option<Nanos>) -> Leftovers<K> {
        let shared = &self.shared;
        let mut left = Leftovers::new();
        loop {
            let now = shared.now_if_timed();
            let rest = until.map(|until| until.since(Monotonic.now()));
            let mut locked = shared.lock_to_check(now);
            let over = locked.state.is_drained(now) || locked.others.has_ended(begun);
            if over || rest == Some(Duration::ZERO) {
                locked.state.leftovers(now, &mut left);
                // The timer may be armed for this thread alone.
                shared.finish(locked, now);
                return left;
            }
            locked.others.any = true;
            locked.others.quiet_notified = false;
            // The queue may be drained at a time at which no operation is called. The thread wakes up then; on a clock that is moved by hand, only
            // the timer wakes it.
            let closes_at = now.and_then(|now| locked.state.closes_at(now));
            let armed = closes_at.and_then(|at| locked.request_alarm(at));
            if let Some(effects) = armed {
                drop(locked);
                shared.perform(effects);
                continue;
            }
            let real = closes_at.filter(|_| shared.time.is_real_time());
            let closes_in = real.zip(now).map(|(at, now)| at.since(now));
            locked.others.blocked_drainers += 1;
            locked = match rest.into_iter().chain(closes_in).min() {
                Some(limit) => shared.quiet.wait_for(locked, limit),
                None => shared.quiet.wait(locked),
            };
            locked.others.blocked_drainers -= 1;
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
