//! PURE. Pausing, shutting down, stopping.

use std::time::Duration;

use flyball_sync::Nanos;

use super::{LAST, Leftovers, Phase, QueueState};
use crate::state::entry::State;
use crate::state::order::ReadyQueue;

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// Whether anything is handed out.
    pub(crate) fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Refuses adds and marks from now on. What is due now still comes out; what waits longer stays. So it also ends
    /// the serving of what waits.
    pub(crate) fn shut_down(&mut self, now: Option<Nanos>) {
        let now = self.observe(now).min(LAST);
        self.horizon = match self.phase {
            Phase::Open => now,
            Phase::DrainingDelays => self.horizon.min(now),
            Phase::ShutDown | Phase::Stopped => return,
        };
        self.phase = Phase::ShutDown;
        // A lease whose wait is over is dirty, so that the queue does not close before it ends.
        let horizon = self.horizon;
        let due: Vec<u32> =
            self.postponed.iter().filter(|(_, own)| own.wait.at <= horizon).map(|(slot, _)| slot).collect();
        for slot in due {
            self.meter_asked(slot, self.postponed_of(slot).wait.at, true);
            self.forget_wait(slot);
            self.slab.get_mut(slot).state = State::LeasedDirty;
            self.dirty += 1;
        }
    }

    /// Refuses adds and marks from now on, and serves what waits for as long as this. A queue that is shut down stays so.
    pub(crate) fn drain_delays(&mut self, now: Nanos, time: Duration) {
        if self.phase == Phase::Open {
            self.observe(Some(now));
            self.horizon = (now + time).min(LAST);
            self.phase = Phase::DrainingDelays;
        }
    }

    /// Empties the queue: what nobody holds goes into `left`, what is held ends into nothing.
    ///
    /// `left` is the caller's, so that keys die outside every lock also when a `Clone` panics.
    pub(crate) fn stop(&mut self, now: Option<Nanos>, left: &mut Leftovers<K>)
    where
        K: Clone,
    {
        // The only clones, and before anything changes: a panic of `Clone` stops nothing.
        self.clone_keys(self.leased_slots(), &mut left.leased);
        self.shut_down(now);
        let (ready, waiting, leased) = self.slots(now);
        // After that, which gathers what is due, and notes since when it is.
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
