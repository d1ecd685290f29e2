//! EDGE. Cooperative yielding: a task whose futures are always ready yields from time to time.
//!
//! Cancel safety: a future that yields has not run its operation yet, so dropping it loses nothing. The future has woken its task, and
//! continues at the next poll.
//!
//! The count is per thread: a task stays on its thread until it returns to its executor. Rejected: the runtime's own
//! count, such as tokio's, which works only on that runtime and needs a feature; and a count in the bucket, which would
//! add a second word that all threads write to the lock-free path.
//!
//! A pending poll does not reset the count, because another future of the same task may be ready in the same poll: with
//! a reset, a `select!` in a loop would never end its poll. A poll that yields does not reset the count either, because its
//! future might have been pending anyway. The count is reset when a future that has yielded is polled again.

use std::cell::Cell;
use std::task::{Poll, Waker};

use flyball_sync::locks::thread_local;

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "the model checkers' macros do not support `const`")]
    static LEFT: Cell<u32> = Cell::new(BUDGET);
}

/// The number of ready polls after which a poll yields.
const BUDGET: u32 = 127;

/// The yield state of a future. The future yields at most once, at its first poll; otherwise a future that is always polled
/// after many others would never be served. A future that has waited does not use the budget, because its task has yielded already.
#[derive(Debug, Default)]
pub(crate) enum CoopBudget {
    #[default]
    New,
    Yielded,
    Waited,
}

impl CoopBudget {
    /// Polls with `work`, unless the budget is spent: in that case the task is woken and yields.
    pub(crate) fn poll<T>(&mut self, waker: &Waker, work: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let spent = LEFT.with(Cell::get) == 0;
        match self {
            Self::New if spent => {
                *self = Self::Yielded;
                waker.wake_by_ref();
                return Poll::Pending;
            }
            Self::Yielded if spent => LEFT.with(|left| left.set(BUDGET)),
            _ => {}
        }
        let polled = work();
        if polled.is_pending() {
            *self = Self::Waited;
        } else if !matches!(std::mem::take(self), Self::Waited) {
            LEFT.with(|left| left.set(left.get().saturating_sub(1)));
        }
        polled
    }
}
