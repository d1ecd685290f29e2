//! PURE. The arguments and results of the state machine.

use flyball_sync::Nanos;

use crate::state::wait::Wait;

/// The result of an add.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Added, Queue};
/// use std::time::Duration;
///
/// let queue = Queue::new();
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
    /// The key was absent, and is now Ready or waiting.
    New,
    /// The key was Ready, waiting or dirty already, and the add coalesced with the pending run of the key.
    Merged,
    /// The key was waiting for a deadline and is now Ready.
    Promoted,
    /// The key is leased and runs again when its lease has ended, immediately or after the delay.
    Dirty,
}

/// A key to add, with its hash and tag. Hash and tag are computed before the queue is locked, because this runs user code.
#[derive(Debug)]
pub(crate) struct NewKey<K, T> {
    /// `None` once the key is inserted. If the queue already holds an equal key, this one stays here, and is dropped outside every lock, even if `Eq`
    /// panics.
    pub(crate) key: Option<K>,
    pub(crate) hash: u32,
    /// The order's tag of the add.
    pub(crate) tag: T,
}

/// Identifies a lease by its slot and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseId {
    pub(super) slot: u32,
    pub(super) generation: u16,
}

/// The result of a `get`.
pub(crate) enum NextKey<K> {
    /// The next key, which is now leased.
    Key(LeaseId, K),
    /// No key is Ready, and none becomes Ready before this deadline unless a key is added or a lease ends.
    Wait(Nanos),
    /// No key is Ready, and none becomes Ready unless a key is added or a lease ends.
    Empty,
    /// No key is Ready, and none can become Ready.
    Closed,
    /// More deadlines have passed than one operation gathers, and no gathered key can be handed out. The caller must unlock the queue, so that others
    /// do not wait for so long, read the clock, and call `get` again.
    GatherMore,
}

/// What happens to a key at the end of its lease, unless the key is dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The key leaves the queue.
    Leave,
    /// The key waits.
    Wait(Wait),
    /// The key becomes Ready, at the tail of the order.
    Ready,
    /// The key becomes Ready, at the tail of the order. The lease does not count as a hand-out, because no worker has started on the key.
    NotBegun,
}

/// The keys that were not finished when a drain ended or the queue was stopped, by state.
///
/// Ready keys are in the order in which they would have been handed out; waiting keys are ordered by deadline.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Leftovers, Queue};
/// use std::time::Duration;
///
/// let queue = Queue::new();
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
    /// Ready keys that were not handed out.
    pub ready: Vec<K>,
    /// Keys that were still waiting for the deadline of a delayed add, a requeue or a retry.
    pub waiting: Vec<K>,
    /// Leased keys.
    pub leased: Vec<K>,
}

impl<K> Leftovers<K> {
    pub(crate) fn new() -> Self {
        Self { ready: Vec::new(), waiting: Vec::new(), leased: Vec::new() }
    }

    /// Returns whether all keys were finished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.waiting.is_empty() && self.leased.is_empty()
    }
}
