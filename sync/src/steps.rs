//! PURE. Counts the steps that run under a lock, so that tests can assert a bound. A step is a visit of a stored entry.
//!
//! Only builds with debug assertions count, because a counter on the hot paths would cost more than it shows. The counts belong to the thread, so the
//! steps of other threads are not included.

use std::cell::Cell;

thread_local! {
    /// The number of steps since the lock was last taken, and the largest such number before.
    static STEPS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Begins a new count, because a lock was taken.
#[inline]
pub fn begin() {
    if cfg!(debug_assertions) {
        let (steps, most) = STEPS.get();
        STEPS.set((0, most.max(steps)));
    }
}

/// Counts a step.
#[inline]
pub fn count() {
    if cfg!(debug_assertions) {
        let (steps, most) = STEPS.get();
        STEPS.set((steps + 1, most));
    }
}

/// Returns the largest number of steps under one lock since the last call on this thread.
pub fn take() -> u64 {
    let (steps, most) = STEPS.take();
    most.max(steps)
}
