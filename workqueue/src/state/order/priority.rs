//! PURE. An order that shares the workers among priorities.

use std::num::NonZeroU32;

use crate::state::order::levels::Levels;
use crate::state::order::{Order, sealed};

/// Hands out keys of higher priorities first, without starving lower ones.
///
/// A priority is a number from −128 to 127, by default 0; higher is more urgent.
/// [`Queue::add_with`](crate::Queue::add_with) adds a key with a priority that you choose;
/// [`set_priority`](crate::Queue::set_priority) sets the priority of a key to a higher or a lower value. Keys of one
/// priority are handed out in the order in which they become Ready; a waiting key keeps its priority. A key that was added while it was leased becomes
/// Ready when its lease ends, and a waiting key at its deadline, or when an add ends its wait.
///
/// # Raises
/// If a key is added with several priorities, the highest one applies. When an add raises the priority of a key, the raise lasts for one hand-out. If
/// the key is then retried or requeued, it has its own priority again: the one of its first add, or the one that was last set. If the key is added
/// while it is leased, the priority of that add applies to the next run.
///
/// A raise never postpones a key: the key keeps its position, gets a second one at the tail of its new priority, and is handed out as soon as one of
/// its two positions is next.
///
/// # Share
/// The highest priority with Ready keys is served first, however many keys wait below it. Each time a key of the highest priority is handed out, each
/// lower priority with Ready keys earns one credit. A lower priority that has 4 credits, or the number that you set with [`share`](Self::share), is
/// served once, and loses its credits. If L is the number of lower priorities that have Ready keys in the meantime:
/// - a key of the highest priority waits for the keys of that priority before it, and for at most one key of each lower priority before each of those
///   keys and before the key itself;
/// - a key of a lower priority, with n keys of the same priority before it, is handed out within (share + L) · (n + 1) hand-outs.
///
/// The order does not read the clock. A hand-out takes O(p), where p ≤ 256 is the number of priorities that were ever in use.
///
/// # Examples
/// ```
/// use flyball_workqueue::{AddOptions, Priority, Queue};
///
/// let queue = Queue::builder().order(Priority::new()).build();
/// let at = |priority| AddOptions { priority, ..AddOptions::default() };
/// queue.add_with("resync", at(-100))?;
/// queue.add("event")?;
/// queue.add_with("user", at(10))?;
/// for expected in ["user", "event", "resync"] {
///     let lease = queue.try_get()?;
///     assert_eq!(*lease, expected);
///     lease.done();
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Priority {
    share: Option<NonZeroU32>,
}

/// With a share of 4, a single lower priority gets a fifth of the hand-outs. In a simulation (`workqueue/tests/it/starvation.rs`), a restart lists
/// 2000 keys with a low priority, while keys that have already run keep ten workers busy. With a share of 4 each of the 2000 keys runs within a
/// minute; with a share of 6 some do not. Strict priorities are not the default, because with them three keys starved a production queue for half an
/// hour (home-operations/miroir#122).
const DEFAULT_SHARE: NonZeroU32 = NonZeroU32::new(4).unwrap();

impl Priority {
    /// Creates the order with the default share: each lower priority is served once per 4 hand-outs of the highest priority.
    #[must_use]
    pub const fn new() -> Self {
        Self { share: Some(DEFAULT_SHARE) }
    }

    /// Serves each lower priority once per `hand_outs` hand-outs of the highest priority. With 1, lower priorities get at least half of the hand-outs
    /// while they have Ready keys.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{AddOptions, Priority, Queue};
    /// use std::num::NonZeroU32;
    ///
    /// let served = |order| {
    ///     let queue = Queue::builder().order(order).build();
    ///     for key in ["high 1", "high 2"] {
    ///         queue.add_with(key, AddOptions { priority: 10, ..AddOptions::default() }).unwrap();
    ///     }
    ///     queue.add_many(["low 1", "low 2"]);
    ///     std::iter::from_fn(|| queue.try_get().ok().map(|lease| { let key = *lease; lease.done(); key })).collect::<Vec<_>>()
    /// };
    /// assert_eq!(served(Priority::new().share(NonZeroU32::MIN)), ["high 1", "low 1", "high 2", "low 2"]);
    /// assert_eq!(served(Priority::new().strict()), ["high 1", "high 2", "low 1", "low 2"]);
    /// ```
    #[must_use]
    pub const fn share(self, hand_outs: NonZeroU32) -> Self {
        Self { share: Some(hand_outs) }
    }

    /// Removes the share: a key is handed out only while no key of a higher priority is Ready, so keys of lower priorities may wait for ever.
    #[must_use]
    pub const fn strict(self) -> Self {
        Self { share: None }
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Order<K> for Priority {}

impl<K> sealed::Order<K> for Priority {
    type ReadyQueue = Levels;

    fn ready_queue(&self) -> Levels {
        Levels::new(self.share)
    }

    #[inline]
    fn tag(&self, _: &K) -> i8 {
        0
    }

    #[inline]
    fn tag_at(&self, _: &K, priority: i8) -> i8 {
        priority
    }
}
