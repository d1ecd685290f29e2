//! SHELL. An order that shares the workers among groups of keys.
//!
//! | what | guarded by |
//! |---|---|
//! | the number of refreshes | an atomic: incremented after the results of the functions of `Fair` have changed, and read before they are called |

use std::fmt;
use std::hash::{BuildHasher, Hash};

use flyball_ratelimit::Quota;
use flyball_sync::locks::{AtomicUsize, Ordering};
use foldhash::fast::RandomState;

use crate::state::order::groups::Groups;
use crate::state::order::{Order, sealed};
use crate::state::slots::NIL;

/// Serves groups of keys in weighted round robin, for example one group for each namespace or tenant.
///
/// A function computes the group of a key. The groups with Ready keys are served one after the other; each time a group is served, it gets as many
/// hand-outs as its [weight](Self::weight), by default one. So a group that has Ready keys and is below its lease limit waits for at most as many
/// hand-outs as the sum of the weights of the other groups, however many keys those groups have. When a group without Ready keys gets one, the group
/// is placed behind all other groups with Ready keys. Keys of one group are handed out in FIFO order.
///
/// [`max_leased`](Self::max_leased) limits how many keys of a group are leased at the same time: with 1 they run one after the other. If a group
/// reaches the limit, or has no more Ready keys, the next group is served; with a limit of 1 this happens after each hand-out, whatever the weight.
/// The other queued keys of a group at its limit are Ready, but cannot be handed out until a lease of the group ends. Such groups do not slow down
/// the hand-outs of other groups.
///
/// [`rate`](Self::rate) limits how often keys of a group are handed out: a group whose rate is used up is passed over until its next token.
///
/// *A group with a lease limit or a weight of 0 is suspended*: its keys stay Ready, and are not handed out. [`wait_idle`](crate::Queue::wait_idle)
/// does not wait for these keys, they do not keep a queue open after its shutdown, and a drain returns them as leftovers.
///
/// [`capacity`](Self::capacity) limits how many keys of a group the queue holds, so that one tenant cannot fill the
/// queue. If a group is full, an add of an absent key is refused as [`Full`](crate::AddErrorKind::Full), or waits in
/// [`add_when_room`](crate::Queue::add_when_room) without holding up adds of other groups; no other operation is
/// refused. The [capacity of the queue](crate::QueueBuilder::capacity) applies as well.
///
/// Every add calls the functions that you have passed to `Fair`, outside every lock; if one of them panics, nothing is added. A key's group must not
/// change while the key is queued. The weight and the limits of a group may change: the queue uses the values that the functions returned at the last
/// add of a key of the group (new, merged or refused), or at a later [`Queue::refresh_groups`](crate::Queue::refresh_groups). `Eq` of a group runs
/// under the queue's lock. Adds, hand-outs and lease ends take O(1), however many groups and keys there are, and O(log groups) with
/// [rates](Self::rate); while adders wait for room, each change
/// also checks the groups of those that were woken and not polled since. A group with neither keys nor waiting adders is removed; its memory is kept for reuse.
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
/// At most one leased key for each group:
/// ```
/// use flyball_workqueue::{Fair, Queue, TryGetError};
///
/// let queue = Queue::builder().order(Fair::by_group(|key: &(&str, u32)| key.0).max_leased(|_| 1)).build();
/// queue.add_many([("a", 1), ("a", 2)]);
/// let first = queue.try_get()?;
/// assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
/// first.done();
/// assert_eq!(*queue.try_get()?, ("a", 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// At most two keys in the queue for each group:
/// ```
/// use flyball_workqueue::{AddErrorKind, Fair, Queue};
///
/// let queue = Queue::builder().order(Fair::by_group(|key: &(&str, u32)| key.0).capacity(|_| 2)).build();
/// queue.add_many([("big", 1), ("big", 2)]);
/// assert_eq!(queue.add(("big", 3)).unwrap_err().kind(), AddErrorKind::Full);
/// queue.add(("small", 1))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Fair<K, G> {
    group: Box<dyn Fn(&K) -> G + Send + Sync>,
    weight: Option<ByGroup<G, u32>>,
    max_leased: Option<ByGroup<G, u32>>,
    capacity: Option<ByGroup<G, usize>>,
    rate: Option<ByGroup<G, Option<Quota>>>,
    refresh: RefreshCount,
    hasher: RandomState,
}

type ByGroup<G, N> = Box<dyn Fn(&G) -> N + Send + Sync>;

impl<K, G> Fair<K, G> {
    /// Creates the order. The function `group` computes the group of a key. All groups have weight 1 and no limits.
    #[must_use]
    pub fn by_group(group: impl Fn(&K) -> G + Send + Sync + 'static) -> Self {
        Self {
            group: Box::new(group),
            weight: None,
            max_leased: None,
            capacity: None,
            rate: None,
            refresh: RefreshCount::default(),
            hasher: RandomState::default(),
        }
    }

    /// Sets how many hand-outs a group gets each time it is served, by default 1. If `weight` returns 0, the group is suspended, as
    /// with a limit of 0 in [`max_leased`](Self::max_leased).
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{Fair, Queue};
    ///
    /// let order = Fair::by_group(|key: &(&'static str, u32)| key.0).weight(|tenant| if *tenant == "paid" { 2 } else { 1 });
    /// let queue = Queue::builder().order(order).build();
    /// queue.add_many([("free", 1), ("free", 2), ("paid", 1), ("paid", 2)]);
    /// let mut served = Vec::new();
    /// while let Ok(lease) = queue.try_get() {
    ///     served.push(*lease);
    ///     lease.done();
    /// }
    /// assert_eq!(served, [("free", 1), ("paid", 1), ("paid", 2), ("free", 2)]);
    /// ```
    #[must_use]
    pub fn weight(mut self, weight: impl Fn(&G) -> u32 + Send + Sync + 'static) -> Self {
        self.weight = Some(Box::new(weight));
        self
    }

    /// Limits how many keys of a group are leased at the same time, to the number that `leases` returns for the group. A limit of 0 suspends the group;
    /// `u32::MAX` means no limit.
    ///
    /// When the function's result changes, call [`Queue::refresh_groups`](crate::Queue::refresh_groups).
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{Fair, Queue, TryGetError};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// let suspended = Arc::new(AtomicBool::new(true));
    /// let flag = suspended.clone();
    /// let order = Fair::by_group(|key: &(&'static str, u32)| key.0)
    ///     .max_leased(move |tenant| if *tenant == "a" && flag.load(Ordering::Relaxed) { 0 } else { u32::MAX });
    /// let queue = Queue::builder().order(order).build();
    /// queue.add_many([("a", 1), ("b", 1)]);
    /// queue.try_get()?.done(); // that was ("b", 1)
    /// assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    ///
    /// suspended.store(false, Ordering::Relaxed);
    /// queue.refresh_groups();
    /// assert_eq!(*queue.try_get()?, ("a", 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn max_leased(mut self, leases: impl Fn(&G) -> u32 + Send + Sync + 'static) -> Self {
        self.max_leased = Some(Box::new(leases));
        self
    }

    /// Limits how many keys of a group the queue holds, Ready, waiting and leased, to the number that `keys` returns for the group. With 0 no key is
    /// accepted; `usize::MAX` means no limit.
    ///
    /// Lowering the limit removes no keys. An add that waits although its group has no keys, because the limit is 0,
    /// is woken only by [`Queue::refresh_groups`](crate::Queue::refresh_groups) or a shutdown.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{AddErrorKind, Fair, Queue};
    ///
    /// let order = Fair::by_group(|key: &(&'static str, u32)| key.0)
    ///     .capacity(|tenant| if *tenant == "system" { usize::MAX } else { 1 });
    /// let queue = Queue::builder().order(order).build();
    /// queue.add_many([("system", 1), ("system", 2), ("user", 1)]);
    /// assert_eq!(queue.add(("user", 2)).unwrap_err().kind(), AddErrorKind::Full);
    /// ```
    #[must_use]
    pub fn capacity(mut self, keys: impl Fn(&G) -> usize + Send + Sync + 'static) -> Self {
        self.capacity = Some(Box::new(keys));
        self
    }

    /// Limits how often keys of a group are handed out: the quota's `burst_size()` times at once, and then at the quota's rate. `None` means no limit, the
    /// default.
    ///
    /// A rate counts hand-outs, whether the key then succeeds, fails or is [requeued](crate::LeaseOutcome::Requeued), and so retries, too. No token is given
    /// back. The rate is exact: in any time `t`, at most burst + rate × `t` keys of a group are handed out. A group without a token is passed over until
    /// its next token, and then a waiting getter is woken; so if a worker is free, a key is handed out no later than its token. Keys that the rate holds
    /// back are Ready, not suspended: [`wait_idle`](crate::Queue::wait_idle) and drains wait for them, without a limit perhaps for hours.
    /// A [drain with a limit](crate::DrainOptions::within) returns the others as leftovers.
    ///
    /// A group without keys keeps its bucket until it is full, so that it gets no second burst; its memory (about 200 bytes, and the group) is reused by
    /// later groups, and freed when the queue is empty. So the queue remembers all groups that were served within the time that fills a bucket: the burst divided by the rate. That is
    /// two seconds for a burst of 100 at 50 per second, but a whole day for a burst of 1000 per day.
    ///
    /// A queue with rates reads its clock in every operation. If the clock jumps back, tokens are late by the jump, and never early.
    ///
    /// When the function's result changes, call [`Queue::refresh_groups`](crate::Queue::refresh_groups). The tokens that have arrived stay available, up to
    /// the new burst, and a full bucket stays full. The limit of hand-outs in a time then applies to times that begin after the change. After `None`, a rate begins with a full
    /// bucket.
    ///
    /// # Examples
    /// At most 4 keys of each tenant at the same time, and 50 per second, with a burst of 100:
    /// ```
    /// use flyball_ratelimit::Quota;
    /// use flyball_workqueue::{Fair, ManualClock, Queue, TryGetError};
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// const FIFTY: NonZeroU32 = NonZeroU32::new(50).unwrap();
    /// const HUNDRED: NonZeroU32 = NonZeroU32::new(100).unwrap();
    /// let quota = Quota::per_second(FIFTY).allow_burst(HUNDRED);
    /// let clock = ManualClock::new();
    /// let order = Fair::by_group(|key: &(&'static str, u32)| key.0).max_leased(|_| 4).rate(move |_| Some(quota));
    /// let queue = Queue::builder().order(order).timer(clock.timer()).build();
    /// queue.add_many((0..200).map(|object| ("acme", object)));
    /// for _ in 0..100 {
    ///     queue.try_get()?.done();
    /// }
    /// assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    /// assert_eq!(queue.stats_by_group(1).groups[0].rate_limited, 4);
    /// clock.advance(Duration::from_millis(20));
    /// assert_eq!(*queue.try_get()?, ("acme", 100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Groups with different rates:
    /// ```
    /// use flyball_ratelimit::Quota;
    /// use flyball_workqueue::{Fair, ManualClock, Queue, TryGetError};
    /// use std::num::NonZeroU32;
    ///
    /// let slow = Quota::per_minute(NonZeroU32::MIN);
    /// let order = Fair::by_group(|key: &(&'static str, u32)| key.0).rate(move |tenant| (*tenant == "free").then_some(slow));
    /// let queue = Queue::builder().order(order).timer(ManualClock::new().timer()).build();
    /// queue.add_many([("free", 1), ("free", 2), ("paid", 1), ("paid", 2)]);
    /// let mut served = Vec::new();
    /// while let Ok(lease) = queue.try_get() {
    ///     served.push(*lease);
    ///     lease.done();
    /// }
    /// assert_eq!(served, [("free", 1), ("paid", 1), ("paid", 2)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn rate(mut self, rate: impl Fn(&G) -> Option<Quota> + Send + Sync + 'static) -> Self {
        self.rate = Some(Box::new(rate));
        self
    }

    #[inline]
    fn limits(&self, group: &G) -> GroupLimits {
        let weight = self.weight.as_ref().map_or(1, |weight| weight(group));
        let max_leased = self.max_leased.as_ref().map_or(u32::MAX, |leases| leases(group));
        let capacity = self.capacity.as_ref().map_or(usize::MAX, |keys| keys(group));
        let rate = self.rate.as_ref().and_then(|rate| rate(group));
        GroupLimits { limits: Limits::new(weight, max_leased, capacity), rate }
    }

    /// Starts a refresh, and returns its number. All limits that were computed before this call are now stale.
    pub(crate) fn start_refresh(&self) -> usize {
        self.refresh.start_refresh()
    }

    /// Computes the limits of these groups.
    pub(crate) fn limits_of(&self, names: Vec<(u64, G)>) -> Vec<(u64, G, GroupLimits)> {
        let limited = |(hash, name)| {
            let limits = self.limits(&name);
            (hash, name, limits)
        };
        names.into_iter().map(limited).collect()
    }
}

impl<K: 'static, G: Eq + Hash + Send + 'static> Order<K> for Fair<K, G> {}

impl<K: 'static, G: Eq + Hash + Send + 'static> sealed::Order<K> for Fair<K, G> {
    type ReadyQueue = Groups<G>;

    fn ready_queue(&self) -> Groups<G> {
        Groups::new(self.rate.is_some())
    }

    #[inline]
    fn tag(&self, key: &K) -> GroupTag<G> {
        let refresh = self.refresh.number();
        let group = (self.group)(key);
        let limits = self.limits(&group);
        let hash = self.hasher.hash_one(&group);
        GroupTag::new(group, hash, limits, refresh)
    }

    fn renew(&self, key: &K, tag: &mut GroupTag<G>) {
        *tag = self.tag(key);
    }
}

impl<K, G> fmt::Debug for Fair<K, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { weight, max_leased, capacity, rate, .. } = self;
        f.debug_struct("Fair")
            .field("weighted", &weight.is_some())
            .field("max_leased", &max_leased.is_some())
            .field("capacity", &capacity.is_some())
            .field("rate", &rate.is_some())
            .finish_non_exhaustive()
    }
}

/// Counts the refreshes. Limits that are computed after a refresh have a higher number than those computed before it.
struct RefreshCount(AtomicUsize);

impl Default for RefreshCount {
    fn default() -> Self {
        Self(AtomicUsize::new(0))
    }
}

impl RefreshCount {
    /// Returns the current number. Call this before the functions of `Fair`, so that their results are no older than
    /// the number.
    #[inline]
    fn number(&self) -> usize {
        // Ordering: Acquire, see `start_refresh`.
        self.0.load(Ordering::Acquire)
    }

    /// Starts a refresh, and returns its number. All limits that were computed before this call are now stale.
    fn start_refresh(&self) -> usize {
        // Ordering: AcqRel. Release: an add that reads this number and then calls the functions of `Fair` sees the changes that the caller made
        // before the refresh. Acquire: a later refresh, which increments this number, sees those changes, too.
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// The weight and the limits of a group of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The number of hand-outs in a turn, at least one.
    pub(super) weight: u32,
    /// The maximum number of leased keys; with 0 the group is suspended.
    pub(super) max_leased: u32,
    /// The maximum number of keys; the group may hold more if it did before the limit was lowered.
    pub(super) capacity: usize,
}

impl Limits {
    /// Creates the limits. A group of weight 0 gets no hand-outs, so its limit of leased keys is 0.
    pub(super) fn new(weight: u32, max_leased: u32, capacity: usize) -> Self {
        let max_leased = if weight == 0 { 0 } else { max_leased };
        Self { weight: weight.max(1), max_leased, capacity }
    }

    pub(super) fn is_suspended(self) -> bool {
        self.max_leased == 0
    }
}

/// The limits of a group, and its rate. The rate is separate, because the record of a group does not store it: it is in the group's bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupLimits {
    pub(super) limits: Limits,
    pub(super) rate: Option<Quota>,
}

/// The tag of an add: the name and the limits of the key's group.
#[derive(Debug)]
pub struct GroupTag<G> {
    /// The name of the group; `None` once the name has been moved into the record of a new group.
    pub(super) group: Option<G>,
    pub(super) hash: u64,
    pub(super) limits: GroupLimits,
    /// The number of the latest refresh that started before these limits were computed.
    pub(super) refresh: usize,
    /// The group's index; `NIL` if the group does not exist. Valid only until the queue is unlocked.
    pub(super) found: u32,
}

impl<G> GroupTag<G> {
    pub(super) fn new(group: G, hash: u64, limits: GroupLimits, refresh: usize) -> Self {
        Self { group: Some(group), hash, limits, refresh, found: NIL }
    }
}
