//! PURE. How groups of keys share the workers.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;

use crate::state::order::groups::{GroupTag, Groups};
use crate::state::order::{Order, sealed};

/// Groups of keys take turns, such as one for each namespace or tenant.
///
/// A function of the key names its group. Groups with Ready keys take turns; in its turn a group has as many hand-outs as
/// its [weight](Self::weight_by), by default one. So a group with Ready keys, and below its cap, waits for at most as many
/// hand-outs as the weights of the other groups in turn add up to, however many keys those have. A group that comes into
/// turn, or back, goes to the end. Within a group keys are first in, first out.
///
/// A [cap](Self::max_leased) bounds how many keys of a group are leased at the same time: 1 makes them run one after the other.
/// A group that reaches its cap, or runs out of Ready keys, ends its turn; with a cap of 1 a turn is one
/// hand-out, whatever the weight.
/// Keys that only wait for a lease of their group to end are Ready, but handed out by none; a capped group costs
/// nothing to pass over.
///
/// The functions are called by every add, outside every lock; if one panics, nothing was added. A key's group must not
/// change while the key is queued; weight and cap of a group are those that its last new key brought, so they may
/// change. `Eq` of a group runs under the lock of the queue. Adds, hand-outs and
/// ends of leases are O(1) in groups and keys. Memory is kept for as many groups as there were at once.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Fair, Queue};
///
/// let queue = Queue::builder().order(Fair::by_group(|key: &(&str, u32)| key.0)).build();
/// queue.add_many([("big", 1), ("big", 2), ("big", 3), ("small", 1)]);
/// for expected in [("big", 1), ("small", 1), ("big", 2), ("big", 3)] {
///     let lease = queue.try_get()?;
///     assert_eq!(*lease, expected);
///     lease.done();
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// One at a time for each group:
/// ```
/// use flyball_workqueue::{Fair, Queue, TryGetError};
///
/// let queue = Queue::builder().order(Fair::by_group(|key: &(&str, u32)| key.0).max_leased(1)).build();
/// queue.add_many([("a", 1), ("a", 2)]);
/// let first = queue.try_get()?;
/// assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
/// first.done();
/// assert_eq!(*queue.try_get()?, ("a", 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Fair<K, G> {
    group: Box<dyn Fn(&K) -> G + Send + Sync>,
    weight: Option<ByGroup<G>>,
    cap: Option<ByGroup<G>>,
    hasher: RandomState,
}

type ByGroup<G> = Box<dyn Fn(&G) -> u32 + Send + Sync>;

impl<K, G> Fair<K, G> {
    /// Groups named by this function, all of weight 1 and without a cap.
    #[must_use]
    pub fn by_group(group: impl Fn(&K) -> G + Send + Sync + 'static) -> Self {
        Self { group: Box::new(group), weight: None, cap: None, hasher: RandomState::default() }
    }

    /// How many hand-outs a group has in its turn: at least 1.
    #[must_use]
    pub fn weight_by(mut self, weight: impl Fn(&G) -> u32 + Send + Sync + 'static) -> Self {
        self.weight = Some(Box::new(weight));
        self
    }

    /// How many keys of any one group are leased at the same time, at most: at least 1.
    #[must_use]
    pub fn max_leased(self, leases: u32) -> Self {
        self.max_leased_by(move |_| leases)
    }

    /// How many keys of each group are leased at the same time, at most: at least 1. `u32::MAX` is no cap.
    #[must_use]
    pub fn max_leased_by(mut self, leases: impl Fn(&G) -> u32 + Send + Sync + 'static) -> Self {
        self.cap = Some(Box::new(leases));
        self
    }
}

impl<K: 'static, G: Eq + Hash + Send + 'static> Order<K> for Fair<K, G> {}

impl<K: 'static, G: Eq + Hash + Send + 'static> sealed::Order<K> for Fair<K, G> {
    type Links = Groups<G>;

    fn links(&self) -> Groups<G> {
        Groups::new()
    }

    fn tag(&self, key: &K) -> GroupTag<G> {
        let group = (self.group)(key);
        let weight = self.weight.as_ref().map_or(1, |weight| weight(&group).max(1));
        let cap = self.cap.as_ref().map_or(u32::MAX, |cap| cap(&group).max(1));
        GroupTag { hash: self.hasher.hash_one(&group), group: Some(group), weight, cap }
    }
}

impl<K, G> fmt::Debug for Fair<K, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (weighted, capped) = (self.weight.is_some(), self.cap.is_some());
        f.debug_struct("Fair").field("weighted", &weighted).field("capped", &capped).finish_non_exhaustive()
    }
}
