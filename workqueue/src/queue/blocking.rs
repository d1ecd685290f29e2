//! SHELL. Waiting as a thread: for a key, for room, or for the queue to run dry.

use std::time::Duration;

use flyball_sync::locks::MutexGuard;
use flyball_sync::{Clock, Monotonic, Nanos};

use crate::error::{AddError, AddErrorKind, GetTimeoutError};
use crate::key::Key;
use crate::lease::Lease;
use crate::limiter::QueueLimiter;
use crate::queue::Queue;
use crate::queue::shared::{Others, Shared, State};
use crate::queue::stop_flag::StopFlag;
use crate::state::order::Order;
use crate::state::order::sealed::Tag;
use crate::state::{Added, Core, Leftovers, Next};
use crate::time_mode::TimeMode;

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Queue<K, O, L, T> {
    /// Waits for a key, at most until then on the machine's clock, or until it is told to stop.
    pub(crate) fn block(
        &self,
        until: Option<Nanos>,
        stop: Option<&StopFlag>,
    ) -> Result<Lease<K, T>, GetTimeoutError> {
        let shared = &self.shared;
        let _passing = PassesOn(shared);
        loop {
            let now = shared.now_if_timed();
            let left = until.map(|until| until.since(Monotonic.now()));
            let mut state = shared.lock();
            if stop.is_some_and(StopFlag::is_set) {
                shared.finish(state, now);
                // To its getter the queue has ended.
                return Err(GetTimeoutError::Closed);
            }
            let deadline = match shared.next(&mut state, now) {
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
            if let Some(effects) = shared.settle(&mut state, now).filter(|effects| !effects.is_empty()) {
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

    /// Waits, at most until then on the machine's clock, until nothing is Ready or leased in a queue that is shut down.
    pub(crate) fn drain_until(&self, until: Option<Nanos>) -> Leftovers<K> {
        let mut left = Leftovers::new();
        let drained = |core: &mut Core<K, O::Links>, _| core.is_drained();
        let (mut state, now) = self.block_until(until, drained, |others| &mut others.blocked_drainers);
        state.core.leftovers(now, &mut left);
        drop(state);
        left
    }

    pub(crate) fn block_until_idle(&self, until: Option<Nanos>) -> bool {
        let (mut state, now) = self.block_until(until, Core::is_idle, |others| &mut others.blocked_idlers);
        state.core.is_idle(now)
    }

    pub(crate) fn block_until_empty(&self, until: Option<Nanos>) -> bool {
        let empty = |core: &mut Core<K, O::Links>, _| core.is_empty();
        // One that waits for an empty queue is woken whenever it is idle, and looks again.
        let (state, _) = self.block_until(until, empty, |others| &mut others.blocked_idlers);
        state.core.is_empty()
    }

    /// Waits until it has come, counted among those who wait for it.
    fn block_until(
        &self,
        until: Option<Nanos>,
        come: impl Fn(&mut Core<K, O::Links>, Option<Nanos>) -> bool,
        count: impl Fn(&mut Others) -> &mut usize,
    ) -> (MutexGuard<'_, State<K, O::Links>>, Option<Nanos>) {
        loop {
            let now = self.shared.now_if_timed();
            let rest = until.map(|until| until.since(Monotonic.now()));
            let mut state = self.shared.lock();
            if come(&mut state.core, now) || rest == Some(Duration::ZERO) {
                return (state, now);
            }
            state.others.any = true;
            state.others.told = false;
            *count(&mut state.others) += 1;
            state = match rest {
                Some(limit) => self.shared.quiet.wait_for(state, limit),
                None => self.shared.quiet.wait(state),
            };
            *count(&mut state.others) -= 1;
        }
    }

    /// Adds a key, waiting for room, at most until then on the machine's clock.
    pub(crate) fn block_for_room(
        &self,
        key: K,
        tag: Tag<O::Links>,
        until: Option<Nanos>,
    ) -> Result<Added, AddError<K>> {
        let shared = &self.shared;
        let mut new = shared.newcomer(key, tag);
        let _passing = PassesOn(shared);
        loop {
            let now = shared.now_if_timed();
            let left = until.map(|until| until.since(Monotonic.now()));
            let mut state = shared.lock_to_add(None, &mut new);
            let added = state.core.add(&mut new, now);
            if added != Err(AddErrorKind::Full) || left == Some(Duration::ZERO) {
                // A signal may have come together with the end of the time: settling passes it on.
                shared.finish(state, now);
                return shared.answer(added, new.key);
            }
            let line = state.adder_sleeps(&new.tag);
            if let Some(effects) = shared.settle(&mut state, now).filter(|effects| !effects.is_empty()) {
                // It was woken for room that is not for its class: another is woken before it sleeps.
                state.adder_wakes_up(line);
                drop(state);
                shared.perform(effects);
                continue;
            }
            state = match left {
                Some(limit) => shared.room.wait_for(state, limit),
                None => shared.room.wait(state),
            };
            state.adder_wakes_up(line);
            drop(state);
            shared.renew(None, &mut new);
        }
    }
}

/// A thread that a signal woke and whose clock, or a key, then panics has used the signal up: passes it on.
struct PassesOn<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode>(&'a Shared<K, O, L, T>);

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Drop for PassesOn<'_, K, O, L, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Without the clock, which may be what panics: a deadline that has passed rings at once.
            self.0.finish(self.0.lock(), None);
        }
    }
}
