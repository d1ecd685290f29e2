//! PURE. The operations that pause, shut down and stop the queue.

use std::time::Duration;

use flyball_sync::Nanos;

use super::{LAST, Phase, QueueState};
use crate::state::order::sealed::ReadyQueue;
use crate::state::slots::State;
use crate::state::types::Leftovers;

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// Pauses or resumes hand-outs.
    pub(crate) fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// From now on, adds are refused and leased keys do not become dirty. Keys that are due now are still handed out; keys with a later deadline stay
    /// in the queue. If a drain is still serving delayed keys, it serves no more of them.
    pub(crate) fn shut_down(&mut self, now: Option<Nanos>) {
        let now = self.observe(now).min(LAST);
        self.horizon = match self.phase {
            Phase::Open => now,
            Phase::DrainingDelays => self.horizon.min(now),
            Phase::ShutDown | Phase::Stopped => return,
        };
        self.close_at_horizon();
    }

    /// Ends the service of delayed keys once the last observed time has reached the horizon. Called before a waiter is notified that the queue is closed:
    /// a closed queue must stay closed even if the clock jumps back.
    pub(super) fn pass_horizon(&mut self) {
        if self.phase == Phase::DrainingDelays && self.seen >= self.horizon {
            self.close_at_horizon();
        }
    }

    fn close_at_horizon(&mut self) {
        self.phase = Phase::ShutDown;
        // If the deadline of a leased key has passed, the key becomes dirty, so that the queue does not close before the lease ends.
        let horizon = self.horizon;
        let due: Vec<u32> =
            self.postponed.iter().filter(|(_, own)| own.wait.at <= horizon).map(|(slot, _)| slot).collect();
        for slot in due {
            self.meter_pending(slot, self.postponed_of(slot).wait.at, true);
            self.forget_wait(slot);
            self.slab.get_mut(slot).state = State::LeasedDirty;
            self.dirty += 1;
        }
    }

    /// From now on, adds are refused, and delayed keys are served for `time`. If the queue is shut down already, this has no effect.
    pub(crate) fn drain_delays(&mut self, now: Nanos, time: Duration) {
        if self.phase == Phase::Open {
            self.observe(Some(now));
            self.horizon = (now + time).min(LAST);
            self.phase = Phase::DrainingDelays;
        }
    }

    /// Empties the queue: moves the Ready and the waiting keys into `left`, and clones the leased keys into it. From now on, the end of a lease only
    /// removes the key.
    ///
    /// The caller passes `left` in, so that keys are dropped outside every lock, even if a `Clone` panics.
    pub(crate) fn stop(&mut self, now: Option<Nanos>, left: &mut Leftovers<K>)
    where
        K: Clone,
    {
        // Only the leased keys are cloned. They are cloned before anything in the queue changes, so that the queue is not stopped if a `Clone`
        // panics.
        self.clone_keys(self.leased_slots(), &mut left.leased);
        self.shut_down(now);
        let (ready, waiting, leased) = self.slots(now);
        // `meter_stop` is called after `slots`: `slots` gathers the due keys and stores the times at which they became pending, and `meter_stop`
        // removes these times.
        self.meter_stop(now);
        self.phase = Phase::Stopped;
        for (slots, keys) in [(ready, &mut left.ready), (waiting, &mut left.waiting)] {
            for slot in slots {
                self.unlink(slot);
                keys.extend(self.remove(slot));
            }
        }
        for slot in leased {
            if self.slab.get(slot).state == State::LeasedWaiting {
                self.forget_wait(slot);
            }
            self.slab.get_mut(slot).state = State::Leased;
            self.order.unmark(slot);
        }
        self.dirty = 0;
    }
}
