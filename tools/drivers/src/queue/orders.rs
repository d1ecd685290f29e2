//! The operations and results of a queue that are different for each order.

use std::fmt::Display;
use std::time::Duration;

use flyball_workqueue::{
    AddError, Added, AddedMany, DelayMode, Fair, Fifo, Order, Priority, Queue, QueueLimiter, SupportsDelays,
    TimeMode,
};
use testkit::oracle::queue::OracleQueue;
use testkit::queue_setup::SmallKey;

use crate::queue::model_answers::poll;

type AddResult = Result<Added, AddError<SmallKey>>;

/// The group of a key.
pub(crate) fn group(key: SmallKey) -> usize {
    usize::from(key.0 % 2)
}

/// An order under test. An order without priorities ignores the priority of an add.
pub(crate) trait Kind: Order<SmallKey> + Sized {
    fn add<L, T>(queue: &Queue<SmallKey, Self, L, T>, key: SmallKey, _: i8) -> AddResult
    where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
    {
        queue.add(key)
    }

    fn add_many<L, T>(queue: &Queue<SmallKey, Self, L, T>, keys: &[SmallKey], _: i8) -> AddedMany<SmallKey>
    where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
    {
        queue.add_many(keys.iter().copied())
    }

    fn add_when_room<L, T>(queue: &Queue<SmallKey, Self, L, T>, key: SmallKey, _: i8) -> Option<AddResult>
    where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
    {
        poll(queue.add_when_room(key))
    }

    fn add_after_with<L, T>(
        queue: &Queue<SmallKey, Self, L, T>,
        key: SmallKey,
        delay: Duration,
        mode: DelayMode,
        _: i8,
    ) -> AddResult
    where
        L: QueueLimiter<SmallKey>,
        T: SupportsDelays,
    {
        queue.add_after_with(key, delay, mode)
    }

    fn add_rate_limited<L, T>(queue: &Queue<SmallKey, Self, L, T>, key: SmallKey, _: i8) -> AddResult
    where
        L: QueueLimiter<SmallKey>,
        T: SupportsDelays,
    {
        queue.add_rate_limited(key)
    }

    fn set_priority<L, T>(_: &Queue<SmallKey, Self, L, T>, _: SmallKey, _: i8) -> Option<bool>
    where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
    {
        None
    }

    /// Makes a queue with groups call the functions for the limits of its groups again.
    fn refresh<L, T>(_: &Queue<SmallKey, Self, L, T>)
    where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
    {
    }

    /// Compares the results of methods that only queues with this order have.
    fn compare<L, T>(
        _: &Queue<SmallKey, Self, L, T>,
        _: &mut OracleQueue<SmallKey>,
        _: &[SmallKey],
        _: u64,
        _: &impl Display,
    ) where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
    {
    }
}

impl Kind for Fifo {}

impl Kind for Priority {
    fn add<L, T>(queue: &Queue<SmallKey, Self, L, T>, key: SmallKey, priority: i8) -> AddResult
    where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
    {
        queue.with_priority(priority).add(key)
    }

    fn add_many<L, T>(
        queue: &Queue<SmallKey, Self, L, T>,
        keys: &[SmallKey],
        priority: i8,
    ) -> AddedMany<SmallKey>
    where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
    {
        queue.with_priority(priority).add_many(keys.iter().copied())
    }

    fn add_when_room<L, T>(
        queue: &Queue<SmallKey, Self, L, T>,
        key: SmallKey,
        priority: i8,
    ) -> Option<AddResult>
    where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
    {
        poll(queue.with_priority(priority).add_when_room(key))
    }

    fn add_after_with<L, T>(
        queue: &Queue<SmallKey, Self, L, T>,
        key: SmallKey,
        delay: Duration,
        mode: DelayMode,
        priority: i8,
    ) -> AddResult
    where
        L: QueueLimiter<SmallKey>,
        T: SupportsDelays,
    {
        queue.with_priority(priority).add_after_with(key, delay, mode)
    }

    fn add_rate_limited<L, T>(queue: &Queue<SmallKey, Self, L, T>, key: SmallKey, priority: i8) -> AddResult
    where
        L: QueueLimiter<SmallKey>,
        T: SupportsDelays,
    {
        queue.with_priority(priority).add_rate_limited(key)
    }

    fn set_priority<L, T>(queue: &Queue<SmallKey, Self, L, T>, key: SmallKey, priority: i8) -> Option<bool>
    where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
    {
        Some(queue.set_priority(&key, priority))
    }

    fn compare<L, T>(
        queue: &Queue<SmallKey, Self, L, T>,
        model: &mut OracleQueue<SmallKey>,
        keys: &[SmallKey],
        now: u64,
        at: &impl Display,
    ) where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
    {
        for &key in keys {
            assert_eq!(queue.priority(&key), model.priority(key), "{at}: {key:?}");
        }
        let levels = queue.stats_by_priority();
        assert!(levels.is_sorted_by(|one, other| one.priority > other.priority), "{at}: {levels:?}");
        assert_eq!(levels.iter().map(|level| level.ready).sum::<usize>(), model.len(now), "{at}");
    }
}

impl Kind for Fair<SmallKey, usize> {
    fn refresh<L, T>(queue: &Queue<SmallKey, Self, L, T>)
    where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
    {
        queue.refresh_groups();
    }

    fn compare<L, T>(
        queue: &Queue<SmallKey, Self, L, T>,
        model: &mut OracleQueue<SmallKey>,
        _: &[SmallKey],
        now: u64,
        at: &impl Display,
    ) where
        L: QueueLimiter<SmallKey>,
        T: TimeMode,
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
        for group in &all.groups {
            assert_eq!(group.capacity_left, model.room_of(group.group), "{at}: {group:?}");
        }
        assert_eq!(sum(|group| group.total), tally.ready + tally.leased + tally.waiting, "{at}");
        assert!(all.groups.iter().all(|group| group.total > 0), "{at}: {all:?}");
    }
}
