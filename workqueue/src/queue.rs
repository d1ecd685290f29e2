//! SHELL. The queue. The modules below contain its operations, grouped by purpose.

pub(crate) mod add;
pub(crate) mod adders;
mod blocking;
pub(crate) mod builder;
pub(crate) mod delay;
pub(crate) mod end;
mod get;
pub(crate) mod get_future;
pub(crate) mod inspect;
pub(crate) mod locked;
mod priority;
pub(crate) mod shared;
pub(crate) mod shutdown;
pub(crate) mod wait;
pub(crate) mod waiters;

use std::fmt;
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use flyball_sync::{ThreadTimer, Timer};

use crate::limiter::{NoLimiter, QueueLimiter};
use crate::queue::builder::QueueBuilder;
use crate::queue::shared::Shared;
use crate::state::order::Order;
use crate::state::order::fifo::Fifo;

/// A work queue of distinct keys: each key is queued once, and leased to one worker at a time.
///
/// However often a key is added, the queue holds it once, and hands it out to one [`Lease`](crate::Lease) at a time.
/// If a key is added while it is leased, it runs once more when the lease ends. Keys are handed out first in, first
/// out, unless the queue is built with another order; a delayed key enters the queue at its deadline. Clones are handles to
/// the same queue. The queue runs no background task or thread.
///
/// The type parameters of a queue are its order `O`, its limiter `L` and its timer `T`. Each has a default, so a field of a struct has the type
/// `Queue<K>`, or for example `Queue<K, Priority, Exponential<K>>`. A [`Lease`](crate::Lease) has none of them.
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
pub struct Queue<K, O: Order<K> = Fifo, L = NoLimiter, T = ThreadTimer> {
    pub(crate) shared: Arc<Shared<K, O, L, T>>,
}

impl<K: Key> Queue<K> {
    /// Creates a queue without a limiter. Its timer is a [`ThreadTimer`], so its `get` runs on any executor.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for a queue, for example one with a limiter, a timer or a capacity.
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

/// The queue stays consistent if a method of a key, a waker or a clock panics.
impl<K, O: Order<K>, L, T> UnwindSafe for Queue<K, O, L, T> {}
impl<K, O: Order<K>, L, T> RefUnwindSafe for Queue<K, O, L, T> {}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> fmt::Debug for Queue<K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// The bounds on a key: any hashable value that is cheap to clone. A blanket implementation covers all such types.
///
/// The queue clones the key once for each lease. The clone costs nothing for an integer id and little for an
/// `Arc<str>`; for a `String`, it allocates. `Eq` and `Clone` run under the queue's lock and must not call the queue.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Key, Queue};
///
/// #[derive(Clone, Debug, PartialEq, Eq, Hash)]
/// struct ObjectRef {
///     namespace: String,
///     name: String,
/// }
///
/// fn queue_of<K: Key>(keys: impl IntoIterator<Item = K>) -> Queue<K> {
///     let queue = Queue::new();
///     queue.add_many(keys);
///     queue
/// }
///
/// let queue = queue_of([ObjectRef { namespace: "default".into(), name: "web".into() }]);
/// assert_eq!(queue.try_get()?.name, "web");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<K: Clone + Eq + Hash + Send + 'static> Key for K {}
