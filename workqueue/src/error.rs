//! PURE. The errors of the queue, one small type for each kind of operation.

use std::error::Error;
use std::fmt;

/// The error that an add returns. It contains the key that was not added.
///
/// # Examples
/// ```
/// use flyball_workqueue::{AddError, AddErrorKind, Queue};
///
/// let queue = Queue::builder().capacity(1).build();
/// queue.add("a")?;
/// let refused: AddError<&str> = queue.add("b").unwrap_err();
/// assert_eq!(refused.kind(), AddErrorKind::Full);
/// assert_eq!(refused.to_string(), "the queue is full");
/// assert_eq!(refused.into_key(), "b");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AddError<K> {
    key: K,
    kind: AddErrorKind,
}

/// The reason why a key was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddErrorKind {
    /// The queue is shut down.
    ShutDown,
    /// The key is absent from the queue, and the queue or the key's group is at its capacity.
    Full,
    /// The key was given up because it failed too often, see [`give_up_after`](crate::QueueBuilder::give_up_after), or because its limiter gives it up
    /// with a wait of [`Duration::MAX`](std::time::Duration::MAX).
    GivenUp,
}

impl<K> AddError<K> {
    pub(crate) fn new(key: K, kind: AddErrorKind) -> Self {
        Self { key, kind }
    }

    /// The key that was not added.
    pub fn into_key(self) -> K {
        self.key
    }

    /// The reason why the key was not added.
    pub fn kind(&self) -> AddErrorKind {
        self.kind
    }
}

/// This implementation does not require that the key implements `Debug`.
impl<K> fmt::Debug for AddError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<K> fmt::Display for AddError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<K> Error for AddError<K> {}

impl fmt::Display for AddErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShutDown => "the queue is shut down",
            Self::Full => "the queue is full",
            Self::GivenUp => "the key has failed too often",
        })
    }
}

impl Error for AddErrorKind {}

/// The reason why `try_get` returned no lease.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Queue, TryGetError};
///
/// let queue = Queue::<&str>::new();
/// assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty); // a key may still be added
/// queue.shut_down();
/// assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryGetError {
    /// No key can be handed out now: no key is Ready, the queue is paused, or, with [`Fair`](crate::Fair), the groups of all Ready keys are suspended,
    /// at their lease limits, or without a token of their rate.
    Empty,
    /// The queue is shut down, and will hand out no more keys.
    Closed,
}

impl fmt::Display for TryGetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no key is ready",
            Self::Closed => "the queue is closed",
        })
    }
}

impl Error for TryGetError {}

/// The reason why a `get` with a time limit returned no lease.
///
/// # Examples
/// A worker that shuts the queue down when no key becomes Ready for 10 ms:
/// ```
/// use flyball_workqueue::{GetTimeoutError, Queue};
/// use std::time::Duration;
///
/// let queue = Queue::new();
/// queue.add("a")?;
/// loop {
///     match queue.blocking_get_timeout(Duration::from_millis(10)) {
///         Ok(lease) => lease.succeed(),
///         Err(GetTimeoutError::TimedOut) => queue.shut_down(),
///         Err(_) => break, // closed
///     }
/// }
/// assert!(queue.is_shutting_down());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GetTimeoutError {
    /// No key became Ready within the limit.
    TimedOut,
    /// The queue is shut down, and will hand out no more keys.
    Closed,
}

impl fmt::Display for GetTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "no key became ready in time",
            Self::Closed => "the queue is closed",
        })
    }
}

impl Error for GetTimeoutError {}

/// The error that [`Queue::done`](crate::Queue::done) returns if the key has no detached lease. The queue
/// is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotDetached;

impl fmt::Display for NotDetached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no detached lease holds the key")
    }
}

impl Error for NotDetached {}
