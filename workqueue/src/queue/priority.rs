//! SHELL. Operations that only queues with the order `Priority` or `Fair` have.

use std::borrow::Borrow;
use std::hash::Hash;

use flyball_sync::Timer;
use flyball_sync::panics::drop_each;

use super::Queue;
use crate::limiter::QueueLimiter;
use crate::queue::Key;
use crate::state::order::fair::Fair;
use crate::state::order::priority::Priority;
use crate::state::stats::TopGroups;

impl<K: Key, L: QueueLimiter<K>, T: Timer> Queue<K, Priority, L, T> {
    /// Returns the priority of a key that is Ready or waiting. For a leased key that was added again, this is the highest priority of these adds; for
    /// any other leased key, the priority with which it was handed out. `None` if the key is not in the queue.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{AddOptions, Added, Priority, Queue};
    ///
    /// let queue = Queue::builder().order(Priority::new()).build();
    /// queue.add("a")?;
    /// let urgent = AddOptions { priority: 5, ..AddOptions::default() };
    /// assert_eq!(queue.add_with("a", urgent)?, Added::Merged);
    /// assert_eq!(queue.priority("a"), Some(5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn priority<Q>(&self, key: &Q) -> Option<i8>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.shared.hash(key);
        self.shared.lock().state.priority(key, hash)
    }

    /// Raises or lowers the priority of a key. Returns whether the key is in the queue.
    ///
    /// The new priority becomes the key's own priority, which also applies when the key is retried or requeued. Raising the priority of a Ready key
    /// never delays it: the key keeps its position, and gets a second one at the tail of the higher priority. If the priority of a Ready key is
    /// lowered, the key keeps the position that it got when it became Ready, unless that position belongs to a priority above the new one. In that
    /// case, the key moves to the tail of the new priority.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{AddOptions, Priority, Queue};
    ///
    /// let queue = Queue::builder().order(Priority::new()).build();
    /// for key in ["a", "b"] {
    ///     queue.add_with(key, AddOptions { priority: 5, ..AddOptions::default() })?;
    /// }
    /// assert!(queue.set_priority(&"a", -5)); // an add could only raise it
    /// assert_eq!(queue.stats_by_priority(), [(5, 1), (-5, 1)]);
    /// assert_eq!(*queue.try_get()?, "b");
    /// assert!(!queue.set_priority(&"c", 5)); // absent
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_priority<Q>(&self, key: &Q, priority: i8) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.shared.hash(key);
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock();
        let known = locked.state.set_priority(key, hash, priority, now);
        self.shared.finish(locked, now);
        known
    }

    /// Returns each priority that has Ready keys, and the number of these keys, highest priority first. O(priorities + deadlines that have passed).
    #[must_use]
    pub fn stats_by_priority(&self) -> Vec<(i8, usize)> {
        let now = self.shared.now_if_timed();
        self.shared.lock().state.levels(now)
    }
}

impl<K, G, L, T> Queue<K, Fair<K, G>, L, T>
where
    K: Key,
    G: Clone + Eq + Hash + Send + 'static,
    L: QueueLimiter<K>,
    T: Timer,
{
    /// Returns the key counts of the groups with the most Ready keys, for at most `most` groups, and the sums of the counts of all other groups. A
    /// metric can use this to bound its number of labels. O(groups · log groups + deadlines that have passed), and a scan of the
    /// groups' hash table, as in [`stats`](Self::stats).
    ///
    /// # Panics
    /// Panics if the clock or `Clone` of a group panics.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{Fair, GroupStats, Queue, TopGroups};
    ///
    /// let queue = Queue::builder().order(Fair::by_group(|key: &(char, u32)| key.0)).build();
    /// queue.add_many([('a', 1), ('a', 2), ('b', 1), ('c', 1)]);
    /// let TopGroups { groups, others, .. } = queue.stats_by_group(1);
    /// let most: &GroupStats<char> = &groups[0];
    /// assert_eq!((most.group, most.ready), ('a', 2));
    /// assert_eq!((others.group, others.ready), (2, 2)); // two groups, with two keys
    /// ```
    #[must_use]
    pub fn stats_by_group(&self, most: usize) -> TopGroups<G> {
        let now = self.shared.now_if_timed();
        // `groups` is declared before the guard, so that the cloned names of groups are dropped after unlocking.
        let mut groups = Vec::new();
        let others = self.shared.lock().state.groups(now, most, &mut groups);
        TopGroups { groups, others }
    }

    /// Calls the weight, limit and rate functions of [`Fair`] again, for all groups, also for those without keys whose rate is remembered. Call this
    /// after the values that they return have changed, for example to [suspend](Fair::max_leased) a group, to resume it, or to raise its capacity. Adds that wait for room then call the functions again, too.
    ///
    /// Without this call, a changed value takes effect for a group only with the next add of one of its keys. After this call, a concurrent add does
    /// not bring back values that it read before the call. An add that waits for room in a group whose capacity was 0 notices a new capacity only after
    /// this call. If two calls overlap, only the one that began last has an effect. If the queue is closed, groups stay suspended. O(groups).
    ///
    /// # Panics
    /// Panics if the clock, one of the functions, or `Eq` or `Clone` of a group panics; in that case the limits of all groups stay the same.
    ///
    /// # Examples
    /// See [`Fair::max_leased`].
    pub fn refresh_groups(&self) {
        let shared = &self.shared;
        let refresh = shared.order().start_refresh();
        // `names` is declared before the guards, so that the names of groups are dropped after unlocking.
        let mut names = Vec::new();
        shared.lock().state.start_refresh(refresh, &mut names);
        // Tags that were created before this point are now stale, so an add with such a tag calls the functions again, even for a group that is not
        // in `names`.
        let limits = shared.order().limits_of(names);
        let now = shared.now_if_timed();
        let mut locked = shared.lock();
        locked.state.limit_groups(&limits, refresh, now);
        locked.wake_adders_without_room();
        shared.finish(locked, now);
        // Each name by itself: two that panic would otherwise abort the process.
        drop_each(limits.into_iter());
    }
}
