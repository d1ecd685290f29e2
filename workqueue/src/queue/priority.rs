//! SHELL. What only queues of a certain order can say.

use std::hash::Hash;

use super::Queue;
use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::state::order::{Fair, Priority, PriorityStats, TopGroups};
use crate::time_mode::TimeMode;

impl<K: Key, L: QueueLimiter<K>, T: TimeMode> Queue<K, Priority, L, T> {
    /// The priority of a key: of what it was added for while leased, if it was, or else of what it is leased for, is Ready
    /// for or waits for. `None` where the queue does not know the key.
    #[must_use]
    pub fn priority(&self, key: &K) -> Option<i8> {
        let hash = self.shared.hash(key);
        self.shared.lock().state.priority(key, hash)
    }

    /// Gives a key another priority, higher or lower; says whether the queue knows it.
    ///
    /// It is the key's own from now on: what it comes back with. A Ready key that is raised is handed out no later than it
    /// would have been: it keeps its place, and takes another at the end of the higher priority. One that is lowered keeps the place
    /// in which it became Ready if that is at its new priority or below, and goes to the end of its new priority otherwise.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{Priority, PriorityStats, Queue};
    ///
    /// let queue = Queue::builder().order(Priority::new()).build();
    /// queue.with_priority(5).add_many(["a", "b"]);
    /// assert!(queue.set_priority(&"a", -5)); // an add could only raise it
    /// let levels: Vec<PriorityStats> = queue.stats_by_priority();
    /// assert_eq!((levels[0].priority, levels[0].ready), (5, 1));
    /// assert_eq!((levels[1].priority, levels[1].ready), (-5, 1));
    /// assert_eq!(*queue.try_get()?, "b");
    /// assert!(!queue.set_priority(&"c", 5)); // absent
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_priority(&self, key: &K, priority: i8) -> bool {
        let hash = self.shared.hash(key);
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock();
        let known = locked.state.set_priority(key, hash, priority, now);
        self.shared.finish(locked, now);
        known
    }

    /// How many keys of each priority are Ready, from the highest; without priorities of which none is. O(priorities),
    /// plus the waits that are over.
    #[must_use]
    pub fn stats_by_priority(&self) -> Vec<PriorityStats> {
        let now = self.shared.now_if_timed();
        self.shared.lock().state.levels(now)
    }
}

impl<K, G, L, T> Queue<K, Fair<K, G>, L, T>
where
    K: Key,
    G: Clone + Eq + Hash + Send + 'static,
    L: QueueLimiter<K>,
    T: TimeMode,
{
    /// How many keys there are of the `most` groups that have the most Ready ones, and of the others together: as data for
    /// a metric, which wants a bound on how many names it sees. O(groups · log groups), plus the waits that are over.
    ///
    /// # Panics
    /// When `Clone` of a group does, or the clock.
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
        // Declared before the guard: clones die after it.
        let mut groups = Vec::new();
        let others = self.shared.lock().state.groups(now, most, &mut groups);
        TopGroups { groups, others }
    }

    /// Asks again for the weight and the limits of all groups: for who has changed what the functions of [`Fair`] answer, such as to
    /// [suspend](Fair::max_leased_by) a group, to resume it, or to give it room. Adds that wait for room ask again, too.
    ///
    /// Without it a change holds with the next add of a key of the group. An add that runs at the same time brings nothing older than
    /// what was answered when this was called. Once the queue is closed nothing is resumed. O(groups).
    ///
    /// # Panics
    /// When a function does, or `Clone` of a group, or the clock; all groups go on as before then.
    ///
    /// # Examples
    /// See [`Fair::max_leased_by`].
    pub fn refresh_groups(&self) {
        let shared = &self.shared;
        let asked = shared.order().ask_again();
        // Declared before the guards: names die after them.
        let mut names = Vec::new();
        shared.lock().state.ask_again(asked, &mut names);
        // New groups bring what is asked from now on.
        let limits = shared.order().limits_of(names);
        let now = shared.now_if_timed();
        let mut locked = shared.lock();
        locked.state.limit_groups(&limits, asked, now);
        let signals = locked.wake_hopeless_adders();
        shared.finish_with(locked, now, signals);
    }
}
