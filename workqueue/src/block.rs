//! SHELL. Waiting as a thread: for a key, or for the queue to run dry.

use std::time::Duration;

use flyball_ratelimit::{Clock, Monotonic, Nanos, Policy};

use crate::core::{Leftovers, Next};
use crate::error::GetTimeoutError;
use crate::lease::Lease;
use crate::order::Order;
use crate::queue::Queue;
use crate::shared::{Key, Shared};
use crate::time::Time;

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> Queue<K, O, L, T> {
    /// Waits for a key, at most until then on the machine's clock.
    pub(crate) fn block(&self, until: Option<Nanos>) -> Result<Lease<K, T>, GetTimeoutError> {
        let shared = &self.shared;
        let _passing = PassesOn(shared);
        loop {
            let now = shared.now_if_timed();
            let left = until.map(|until| until.since(Monotonic.now()));
            let mut state = shared.lock();
            let deadline = match state.core.get(now) {
                Next::Key(handle, key) => return Ok(self.lease(state, now, handle, key)),
                Next::Closed => {
                    shared.finish(state, now);
                    return Err(GetTimeoutError::Closed);
                }
                _ if left == Some(Duration::ZERO) => {
                    // A signal may have come together with the end of the time: settling passes it on.
                    shared.finish(state, now);
                    return Err(GetTimeoutError::TimedOut);
                }
                Next::Wait(at) => match now {
                    // The deadline was set after we looked whether there is one: how far it is, only the clock says.
                    None => continue,
                    Some(now) => Some((at, at.since(now))),
                },
                Next::Empty => None,
            };
            state.sleepers.asleep += 1;
            let attended = &mut state.sleepers.attended;
            // One thread sleeps until the deadline, the others until they are signalled: no herd when it comes.
            let deadline = deadline.filter(|(at, _)| attended.is_none_or(|attended| *at < attended));
            if let Some((at, _)) = deadline {
                *attended = Some(at);
            }
            let effects = shared.settle(&mut state, now);
            if !effects.is_empty() {
                // Never sleeps with a duty: undo, do it, look again.
                state.sleepers.wake_up(deadline.map(|(at, _)| at));
                drop(state);
                shared.perform(effects);
                continue;
            }
            let sleep = deadline.map(|(_, distance)| distance).into_iter().chain(left).min();
            state = match sleep {
                Some(limit) => shared.available.wait_for(state, limit),
                None => shared.available.wait(state),
            };
            state.sleepers.wake_up(deadline.map(|(at, _)| at));
        }
    }

    /// Shuts down and waits, at most until then on the machine's clock, until nothing is Ready or leased.
    pub(crate) fn drain_until(&self, until: Option<Nanos>) -> Leftovers<K> {
        self.shut_down();
        let mut left = Leftovers::new();
        let mut state = self.shared.lock();
        while !state.core.is_drained() {
            let rest = until.map(|until| until.since(Monotonic.now()));
            if rest == Some(Duration::ZERO) {
                break;
            }
            state.blocked_drainers += 1;
            state = match rest {
                Some(limit) => self.shared.drained.wait_for(state, limit),
                None => self.shared.drained.wait(state),
            };
            state.blocked_drainers -= 1;
        }
        state.core.leftovers(None, &mut left);
        drop(state);
        left
    }
}

/// A thread that a signal woke and whose clock, or `Clone` of a key, then panics has used the signal up: passes it on.
struct PassesOn<'a, K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time>(&'a Shared<K, O, L, T>);

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> Drop for PassesOn<'_, K, O, L, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Without the clock, which may be what panics: a deadline that has passed rings at once.
            self.0.finish(self.0.lock(), None);
        }
    }
}
