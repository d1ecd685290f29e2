//! SHELL. The *horizon*: the position in the trace that the cluster has reached. Watches deliver no event beyond it.
//!
//! | guarded by `gate` | |
//! |---|---|
//! | `next` | for each resource, the next position of its watch; the watch has delivered all events before this position |
//! | `horizon` | all events at lower positions have happened; after each change, the new value is sent to `moved`, without holding the lock |
//!
//! At full speed, each time all watches have reached the horizon, it advances to [`WINDOW`] positions after the slowest of them. So the watches of
//! different resources are never more than one window apart, and within a window no watch waits for the others.

use parking_lot::Mutex;
use tokio::sync::watch;

/// How many positions one resource may be ahead of the others.
const WINDOW: usize = 256;

/// The number of resources.
pub(crate) const RESOURCES: usize = 6;

#[derive(Debug)]
pub(crate) struct Horizon {
    gate: Mutex<Gate>,
    moved: watch::Sender<usize>,
}

#[derive(Debug)]
struct Gate {
    next: [usize; RESOURCES],
    horizon: usize,
    /// Whether the horizon advances by itself when all watches have reached it.
    chases: bool,
}

impl Horizon {
    /// Creates a horizon at the start of the trace.
    pub(crate) fn new() -> Self {
        let gate = Gate { next: [0; RESOURCES], horizon: 0, chases: false };
        Self { gate: Mutex::new(gate), moved: watch::Sender::new(0) }
    }

    /// Returns the horizon: all events at lower positions have happened.
    pub(crate) fn place(&self) -> usize {
        *self.moved.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<usize> {
        self.moved.subscribe()
    }

    /// From this call on, the horizon advances by itself whenever all watches have reached it.
    pub(crate) fn chase(&self) {
        let mut gate = self.gate.lock();
        gate.chases = true;
        let moved = gate.chase();
        drop(gate);
        self.announce(moved);
    }

    /// Advances the horizon to `place`. It never moves back.
    pub(crate) fn move_to(&self, place: usize) {
        self.announce(Some(place));
    }

    /// Records that the watch of a resource has delivered all events before the position `next`. Pass `usize::MAX` if the watch has no further
    /// events.
    pub(crate) fn reached(&self, resource: usize, next: usize) {
        let mut gate = self.gate.lock();
        gate.next[resource] = next;
        let moved = gate.chase();
        drop(gate);
        self.announce(moved);
    }

    fn announce(&self, place: Option<usize>) {
        if let Some(place) = place {
            // Two threads may change the horizon under the lock in one order, and get here in the other, so a value that is lower than the current
            // one is ignored.
            self.moved.send_if_modified(|now| {
                let ahead = place > *now;
                *now = place.max(*now);
                ahead
            });
        }
    }
}

impl Gate {
    fn chase(&mut self) -> Option<usize> {
        let slowest = self.next.into_iter().min().unwrap_or_default();
        if !self.chases || slowest < self.horizon {
            return None;
        }
        self.horizon = slowest.saturating_add(WINDOW);
        Some(self.horizon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_advance_before_chase() {
        let horizon = Horizon::new();
        for resource in 0..RESOURCES {
            horizon.reached(resource, 10);
        }
        assert_eq!(horizon.place(), 0);
        horizon.chase();
        assert_eq!(horizon.place(), 10 + WINDOW);
    }

    #[test]
    fn waits_for_the_slowest_resource_and_stays_a_window_ahead_of_it() {
        let horizon = Horizon::new();
        horizon.chase();
        assert_eq!(horizon.place(), WINDOW);
        for resource in 1..RESOURCES {
            horizon.reached(resource, usize::MAX);
        }
        assert_eq!(horizon.place(), WINDOW);
        horizon.reached(0, WINDOW - 1);
        assert_eq!(horizon.place(), WINDOW, "the horizon moved before every watch reached it");
        horizon.reached(0, 2 * WINDOW + 5);
        assert_eq!(horizon.place(), 3 * WINDOW + 5);
        horizon.reached(0, usize::MAX);
        assert_eq!(horizon.place(), usize::MAX);
    }

    #[test]
    fn never_moves_back() {
        let horizon = Horizon::new();
        horizon.move_to(7);
        horizon.move_to(3);
        assert_eq!(horizon.place(), 7);
    }
}
