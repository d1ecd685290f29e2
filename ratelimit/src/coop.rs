//! EDGE. Cooperative yielding: a task whose futures are always ready yields from time to time.
//!
//! Cancel safety: a future that yields has not run its operation yet, so dropping it loses nothing. The future has woken its task, and
//! continues at the next poll.
//!
//! Ready polls are counted per thread, because a task stays on its thread until it returns to its executor. Rejected: the runtime's own count, such
//! as tokio's (it works only on that runtime, and needs a feature), and a count in the bucket (all threads would write a second word even when they
//! take no lock).
//!
//! A pending poll does not reset the count, because another future of the same task may be ready in the same poll: with
//! a reset, a `select!` in a loop might never return from its poll. A poll that yields does not reset the count either,
//! because its future might have been pending even without yielding. The count is reset when a future that has yielded is
//! polled again.
//!
//! A future that has yielded may also be dropped instead of being polled again. If such drops never reset the count, a thread that
//! polls each future only once, as `now_or_never` does, would eventually get no more results. A single drop does not reset the
//! count, because the dropped future may have been polled in the same poll as a future that was ready; [`DROPS`] drops do.

use std::cell::Cell;
use std::mem;
use std::task::{Poll, Waker};

use flyball_sync::locks::thread_local;

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "the model checkers' macros do not support `const`")]
    static LEFT: Cell<u32> = Cell::new(BUDGET);
    #[allow(clippy::missing_const_for_thread_local, reason = "the model checkers' macros do not support `const`")]
    static DROPPED: Cell<u32> = Cell::new(0);
}

/// The number of ready polls after which a poll yields.
const BUDGET: u32 = 127;

/// How many futures that have yielded must be dropped before the count is reset.
const DROPS: u32 = 8;

/// Resets the count.
fn reset() {
    // While the thread ends, its thread-local values may be gone already.
    let _ = LEFT.try_with(|left| left.set(BUDGET));
    let _ = DROPPED.try_with(|dropped| dropped.set(0));
}

/// The yield state of a future. The future yields at most once, at its first poll; otherwise a future that is always polled
/// after many others would never be served. A future that has waited does not use the budget, because its task has yielded already.
#[derive(Debug, Default)]
pub(crate) struct CoopBudget(Stage);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    New,
    Yielded,
    Waited,
}

impl CoopBudget {
    /// Calls `work` and returns its result. If the budget is spent and the future has neither yielded nor waited yet, does not call `work`, but wakes
    /// the task and returns `Pending`, so that the task yields.
    pub(crate) fn poll<T>(&mut self, waker: &Waker, work: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let spent = LEFT.with(Cell::get) == 0;
        match self.0 {
            Stage::New if spent => {
                self.0 = Stage::Yielded;
                waker.wake_by_ref();
                return Poll::Pending;
            }
            Stage::Yielded if spent => reset(),
            _ => {}
        }
        let polled = work();
        let stage = if polled.is_pending() { Stage::Waited } else { Stage::New };
        if mem::replace(&mut self.0, stage) != Stage::Waited && polled.is_ready() {
            LEFT.with(|left| left.set(left.get().saturating_sub(1)));
        }
        polled
    }
}

impl Drop for CoopBudget {
    fn drop(&mut self) {
        if self.0 == Stage::Yielded {
            let dropped = DROPPED.try_with(|dropped| dropped.replace(dropped.get() + 1) + 1);
            if dropped.is_ok_and(|dropped| dropped >= DROPS) {
                reset();
            }
        }
    }
}
