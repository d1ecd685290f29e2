//! PURE. What is asked of the state machine, and what it answers.

use flyball_sync::Nanos;

use crate::state::wait::Wait;

/// What an add did.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Added, Queue};
/// use std::time::Duration;
///
/// let queue = Queue::builder().with_delays().build();
/// assert_eq!(queue.add("a")?, Added::New);
/// assert_eq!(queue.add("a")?, Added::Merged);
/// let _lease = queue.try_get()?;
/// assert_eq!(queue.add("a")?, Added::Dirty);
///
/// assert_eq!(queue.add_after("b", Duration::from_secs(60))?, Added::New);
/// assert_eq!(queue.add("b")?, Added::Promoted);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The key was absent and is now queued, or waiting.
    New,
    /// The key is queued, waiting or dirty already, and the two are one now.
    Merged,
    /// The key was waiting for a deadline and is now Ready.
    Promoted,
    /// The key is leased and will come again when its lease ends, at once or after the delay.
    Dirty,
}

/// A key to add, with its hash and tag, which are computed before locking, as that runs user code.
#[derive(Debug)]
pub(crate) struct NewKey<K, T> {
    /// `None` once it is in. A duplicate stays here, to die outside every lock, also when its `Eq` panics.
    pub(crate) key: Option<K>,
    pub(crate) hash: u32,
    /// What the order makes of it.
    pub(crate) tag: T,
}

/// Identifies a lease: its slot, and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseId {
    pub(super) slot: u32,
    pub(super) generation: u16,
}

/// What a `get` finds.
pub(crate) enum NextKey<K> {
    /// This key, now leased.
    Key(LeaseId, K),
    /// Nothing before this deadline, unless something is added.
    Wait(Nanos),
    /// Nothing unless something is added or a lease ends.
    Empty,
    /// Nothing, and nothing will come.
    Closed,
}

/// What becomes of a key whose lease ends and that was not added meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// It leaves the queue.
    Leave,
    /// It comes back after this wait.
    Wait(Wait),
    /// Ready, at the tail.
    Ready,
    /// Ready, at the tail; and as nobody has seen the lease, it was no hand-out.
    NotBegun,
}

/// What was not finished, by key.
///
/// Ready keys stand in the order in which they would have been handed out, waiting ones by deadline.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Leftovers, Queue};
/// use std::time::Duration;
///
/// let queue = Queue::builder().with_delays().build();
/// queue.add_many(["a", "b"]);
/// queue.add_after("c", Duration::from_secs(60))?;
/// let _lease = queue.try_get()?;
/// let left: Leftovers<&str> = queue.stop_now();
/// assert!(!left.is_empty());
/// assert_eq!((left.ready, left.waiting, left.leased), (vec!["b"], vec!["c"], vec!["a"]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Leftovers<K> {
    /// Keys nobody took.
    pub ready: Vec<K>,
    /// Delayed adds and retries that were not served.
    pub waiting: Vec<K>,
    /// Keys held by a lease.
    pub leased: Vec<K>,
}

impl<K> Leftovers<K> {
    pub(crate) fn new() -> Self {
        Self { ready: Vec::new(), waiting: Vec::new(), leased: Vec::new() }
    }

    /// Whether everything was finished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.waiting.is_empty() && self.leased.is_empty()
    }
}
