//! The operations and results of a queue that are different for each order.

use std::fmt::Display;

use flyball_sync::ManualTimer;
use flyball_workqueue::{Fair, Fifo, Order, Priority, Queue, QueueLimiter};
use testkit::oracle::queue::OracleQueue;
use testkit::queue_setup::SmallKey;

/// The group of a key.
pub(crate) fn group(key: SmallKey) -> usize {
    usize::from(key.0 % 2)
}

/// An order under test, with the operations that only some orders have.
pub(crate) trait Kind: Order<SmallKey> + Sized {
    fn set_priority<L>(_: &Queue<SmallKey, Self, L, ManualTimer>, _: SmallKey, _: i8) -> Option<bool>
    where
        L: QueueLimiter<SmallKey>,
    {
        None
    }

    /// Makes a queue with groups call the functions for the limits of its groups again.
    fn refresh<L>(_: &Queue<SmallKey, Self, L, ManualTimer>)
    where
        L: QueueLimiter<SmallKey>,
    {
    }

    /// The number of Ready keys that the rates of their groups hold back.
    fn rate_limited<L>(_: &Queue<SmallKey, Self, L, ManualTimer>) -> usize
    where
        L: QueueLimiter<SmallKey>,
    {
        0
    }

    /// Compares the results of methods that only queues with this order have.
    fn compare<L>(
        _: &Queue<SmallKey, Self, L, ManualTimer>,
        _: &mut OracleQueue<SmallKey>,
        _: &[SmallKey],
        _: u64,
        _: &impl Display,
    ) where
        L: QueueLimiter<SmallKey>,
    {
    }
}

impl Kind for Fifo {}

impl Kind for Priority {
    fn set_priority<L>(
        queue: &Queue<SmallKey, Self, L, ManualTimer>,
        key: SmallKey,
        priority: i8,
    ) -> Option<bool>
    where
        L: QueueLimiter<SmallKey>,
    {
        Some(queue.set_priority(&key, priority))
    }

    fn compare<L>(
        queue: &Queue<SmallKey, Self, L, ManualTimer>,
        model: &mut OracleQueue<SmallKey>,
        keys: &[SmallKey],
        now: u64,
        at: &impl Display,
    ) where
        L: QueueLimiter<SmallKey>,
    {
        for &key in keys {
            assert_eq!(queue.priority(&key), model.priority(key), "{at}: {key:?}");
        }
        let levels = queue.stats_by_priority();
        assert!(levels.is_sorted_by(|one, other| one.0 > other.0), "{at}: {levels:?}");
        assert_eq!(levels.iter().map(|(_, ready)| ready).sum::<usize>(), model.len(now), "{at}");
    }
}

impl Kind for Fair<SmallKey, usize> {
    fn refresh<L>(queue: &Queue<SmallKey, Self, L, ManualTimer>)
    where
        L: QueueLimiter<SmallKey>,
    {
        queue.refresh_groups();
    }

    fn rate_limited<L>(queue: &Queue<SmallKey, Self, L, ManualTimer>) -> usize
    where
        L: QueueLimiter<SmallKey>,
    {
        queue.stats_by_group(0).others.rate_limited
    }

    fn compare<L>(
        queue: &Queue<SmallKey, Self, L, ManualTimer>,
        model: &mut OracleQueue<SmallKey>,
        _: &[SmallKey],
        now: u64,
        at: &impl Display,
    ) where
        L: QueueLimiter<SmallKey>,
    {
        let (most, all, tally) = (queue.stats_by_group(1), queue.stats_by_group(9), model.tally(now));
        let sum = |of: fn(&flyball_workqueue::GroupStats<usize>) -> usize| {
            let rest = of(&most.others);
            let all: usize = all.groups.iter().map(of).sum();
            assert_eq!(most.groups.iter().map(of).sum::<usize>() + rest, all, "{at}");
            all
        };
        assert_eq!(sum(|group| group.ready), tally.ready, "{at}");
        assert_eq!(sum(|group| group.leased), tally.leased, "{at}");
        assert_eq!(sum(|group| group.suspended), model.suspended(), "{at}");
        assert_eq!(
            (sum(|group| group.lease_limited), sum(|group| group.rate_limited)),
            model.limited(),
            "{at}"
        );
        for group in &all.groups {
            assert_eq!(group.capacity_left, model.room_of(group.group), "{at}: {group:?}");
        }
        assert_eq!(sum(|group| group.total), tally.ready + tally.leased + tally.waiting, "{at}");
        assert!(all.groups.iter().all(|group| group.total > 0), "{at}: {all:?}");
    }
}
