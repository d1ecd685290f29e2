//! SHELL. The queue itself. What it does is in the files below, by what it is for.

mod add;
pub(crate) mod adders;
mod blocking;
mod builder;
mod by_key;
pub(crate) mod consumer;
mod delay;
pub(crate) mod end;
mod end_and_get;
mod get;
pub(crate) mod give_up;
mod idle;
mod inspect;
mod priority;
pub(crate) mod shared;
mod shutdown;
pub(crate) mod stop_flag;
pub(crate) mod task_waiters;
pub(crate) mod thread_waiters;
pub(crate) mod timeouts;
mod with_priority;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

pub use add::AddedMany;
pub use builder::QueueBuilder;
pub use inspect::KeyInfo;
pub use with_priority::WithPriority;

use crate::key::Key;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::queue::shared::Shared;
use crate::state::order::{Fifo, Order};
use crate::time_mode::{NoDelays, TimeMode};

/// Which key runs next, and never twice at once.
///
/// A key is held once, however often it is added. It is handed out to one [`Lease`](crate::Lease) at a time; added
/// meanwhile, it comes once more when the lease ends. Keys come first in, first out, unless it is built with another order; a delayed key takes its place at
/// its deadline. Clones are handles to the same queue. Nothing runs in the background.
///
/// The type says what the queue can do: its order `O`, its limiter `L` and what it knows of time `T` (see
/// [`TimeMode`]). [`Queue::new`] has neither limiter nor delays; [`Queue::builder`] adds them.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Added, Queue};
///
/// let queue = Queue::new();
/// assert_eq!(queue.add("a")?, Added::New);
/// assert_eq!(queue.add("a")?, Added::Merged);
/// queue.try_get()?.done();
/// assert!(!queue.has_ready());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queue<K, O: Order<K> = Fifo, L = NoLimiter, T = NoDelays> {
    pub(crate) shared: Arc<Shared<K, O, L, T>>,
}

impl<K: Key> Queue<K> {
    /// A queue without delays and without a limiter. It has no clock, and its `get` runs on any executor.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A queue with a limiter, a clock or a timer, or with bounds.
    pub fn builder() -> QueueBuilder<K> {
        QueueBuilder::new()
    }
}

impl<K: Key> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, O: Order<K>, L, T> Clone for Queue<K, O, L, T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

/// A panic in a key, a waker or a clock leaves a queue whole.
impl<K, O: Order<K>, L, T> UnwindSafe for Queue<K, O, L, T> {}
impl<K, O: Order<K>, L, T> RefUnwindSafe for Queue<K, O, L, T> {}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> fmt::Debug for Queue<K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
