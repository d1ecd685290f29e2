//! SHELL. Adds with a priority.

use std::fmt;
use std::time::Duration;

use super::{AddedMany, Queue};
use crate::error::{AddError, AddErrorKind};
use crate::futures::add_when_room::AddWhenRoom;
use crate::key::Key;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::state::Added;
use crate::state::order::Priority;
use crate::state::wait::DelayMode;
use crate::time_mode::{NoDelays, SupportsDelays, TimeMode};

/// The add operations of a queue, with a given priority, see [`Queue::with_priority`]. Each method works like the
/// method of the same name on [`Queue`].
///
/// # Examples
/// Keys from an initial list are added with a lower priority than keys from events:
/// ```
/// use flyball_ratelimit::Exponential;
/// use flyball_workqueue::{Priority, Queue, WithPriority};
/// use std::time::Duration;
///
/// let seconds = Duration::from_secs;
/// let backoff = Exponential::new(seconds(1)..=seconds(60));
/// let queue = Queue::builder().order(Priority::new()).limiter(backoff).build();
/// let initial: WithPriority<'_, &str, _, _> = queue.with_priority(-100);
/// for key in &["a", "b"] {
///     initial.add_ref(key)?;
/// }
/// initial.blocking_add_when_room("c")?;
/// initial.add_after("d", seconds(5))?;
/// initial.add_rate_limited("e")?; // becomes Ready with the same priority
/// queue.add("event")?;
/// assert_eq!(*queue.try_get()?, "event");
/// assert_eq!(queue.priority(&"e"), Some(-100));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WithPriority<'a, K, L = NoLimiter, T = NoDelays> {
    queue: &'a Queue<K, Priority, L, T>,
    priority: i8,
}

impl<K: Key, L: QueueLimiter<K>, T: TimeMode> Queue<K, Priority, L, T> {
    /// Returns a handle whose adds have the given priority, from −128 to 127. A higher number is more urgent. Adds
    /// through the queue itself have priority 0.
    ///
    /// If a key is added several times before it is handed out, the highest of the priorities counts. After the
    /// hand-out the key has its own priority again, see [`Priority`]. An add that raises the priority of a Ready key
    /// gives the key a second position, at the tail of the higher priority.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{Added, Priority, Queue};
    ///
    /// let queue = Queue::builder().order(Priority::new()).build();
    /// queue.with_priority(-100).add("a")?;
    /// assert_eq!(queue.with_priority(5).add("a")?, Added::Merged);
    /// assert_eq!(queue.priority(&"a"), Some(5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_priority(&self, priority: i8) -> WithPriority<'_, K, L, T> {
        WithPriority { queue: self, priority }
    }
}

impl<'a, K: Key, L: QueueLimiter<K>, T: TimeMode> WithPriority<'a, K, L, T> {
    /// Like [`Queue::add`], with this priority.
    ///
    /// # Errors
    /// Like `Queue::add`.
    ///
    /// # Panics
    /// Panics like `Queue::add`.
    #[inline]
    pub fn add(&self, key: K) -> Result<Added, AddError<K>> {
        self.queue.add_tagged(key, self.priority)
    }

    /// Like [`Queue::add_ref`], with this priority.
    ///
    /// # Errors
    /// Like `Queue::add_ref`.
    ///
    /// # Panics
    /// Panics like `Queue::add_ref`.
    #[inline]
    pub fn add_ref(&self, key: &K) -> Result<Added, AddErrorKind> {
        self.queue.add_ref_tagged(key, self.priority)
    }

    /// Like [`Queue::add_many`], with this priority.
    ///
    /// # Panics
    /// Panics like `Queue::add_many`.
    pub fn add_many(&self, keys: impl IntoIterator<Item = K>) -> AddedMany<K> {
        self.queue.add_many_tagged(keys, |_| self.priority)
    }

    /// Like [`Queue::add_when_room`], with this priority.
    ///
    /// # Errors
    /// Like `Queue::add_when_room`.
    ///
    /// # Panics
    /// Panics like `Queue::add_when_room`.
    ///
    /// # Cancel safety
    /// Like `Queue::add_when_room`.
    pub fn add_when_room(&self, key: K) -> AddWhenRoom<'a, K, Priority, L, T> {
        AddWhenRoom::new(self.queue, key, self.priority)
    }

    /// Like [`Queue::blocking_add_when_room`], with this priority.
    ///
    /// # Errors
    /// Like `Queue::blocking_add_when_room`.
    ///
    /// # Panics
    /// Panics like `Queue::blocking_add_when_room`.
    pub fn blocking_add_when_room(&self, key: K) -> Result<Added, AddError<K>> {
        self.queue.block_for_room(key, self.priority, None)
    }
}

impl<K: Key, L: QueueLimiter<K>, T: SupportsDelays> WithPriority<'_, K, L, T> {
    /// Like [`Queue::add_after`], with this priority.
    ///
    /// # Errors
    /// Like `Queue::add_after`.
    ///
    /// # Panics
    /// Panics like `Queue::add_after`.
    pub fn add_after(&self, key: K, delay: Duration) -> Result<Added, AddError<K>> {
        self.add_after_with(key, delay, DelayMode::Earliest)
    }

    /// Like [`Queue::add_after_with`], with this priority.
    ///
    /// # Errors
    /// Like `Queue::add_after_with`.
    ///
    /// # Panics
    /// Panics like `Queue::add_after_with`.
    pub fn add_after_with(&self, key: K, delay: Duration, mode: DelayMode) -> Result<Added, AddError<K>> {
        self.queue.add_delayed_tagged(key, self.priority, delay, mode)
    }

    /// Like [`Queue::add_rate_limited`], with this priority.
    ///
    /// # Errors
    /// Like `Queue::add_rate_limited`.
    ///
    /// # Panics
    /// Panics like `Queue::add_rate_limited`.
    pub fn add_rate_limited(&self, key: K) -> Result<Added, AddError<K>> {
        self.queue.add_rate_limited_tagged(key, self.priority)
    }
}

impl<K, L, T> fmt::Debug for WithPriority<'_, K, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithPriority").field("priority", &self.priority).finish_non_exhaustive()
    }
}
