//! EDGE. A task that is served at once, again and again, lets others run now and then.
//!
//! Cancel safety: a future that has given way has taken nothing. It has woken its task, and goes on at the next poll.
//!
//! The count is the thread's: a task stays on its thread until it returns to its executor. Rejected: a runtime's count of its
//! own, as that of tokio, which holds on that runtime alone and needs a feature; a count in the bucket, which would cost
//! those who take a token without its lock another word that all of them write.
//!
//! What has to wait does not begin the count anew, as another future of the same task may be served at once in the same poll: a
//! `select!` in a loop would never end its poll. Nor does what gives way, which may be the one that would have had to wait.
//! The count begins anew when a future is polled again that has given way.

use std::cell::Cell;
use std::task::{Poll, Waker};

use flyball_sync::locks::thread_local;

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "the model checkers' macros know no `const`")]
    static LEFT: Cell<u32> = Cell::new(BUDGET);
}

/// So many polls may end at once, until one gives way.
const BUDGET: u32 = 127;

/// How far one future is. It gives way at its first poll if at all, or one that is always polled after many others would
/// never be served; and what has waited has let others run.
#[derive(Debug, Default)]
pub(crate) enum CoopBudget {
    #[default]
    New,
    GaveWay,
    Waits,
}

impl CoopBudget {
    /// Polls by `work`, unless the budget is spent: then the task is woken, and comes back.
    pub(crate) fn poll<T>(&mut self, waker: &Waker, work: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let spent = LEFT.with(Cell::get) == 0;
        match self {
            Self::New if spent => {
                *self = Self::GaveWay;
                waker.wake_by_ref();
                return Poll::Pending;
            }
            Self::GaveWay if spent => LEFT.with(|left| left.set(BUDGET)),
            _ => {}
        }
        let polled = work();
        if polled.is_pending() {
            *self = Self::Waits;
        } else if !matches!(std::mem::take(self), Self::Waits) {
            LEFT.with(|left| left.set(left.get().saturating_sub(1)));
        }
        polled
    }
}
