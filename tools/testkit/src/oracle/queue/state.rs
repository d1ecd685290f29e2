//! The observable state of the queue.

use std::fmt::Debug;

use super::{OracleQueue, Phase, State};
use crate::queue_answers::{OracleKeyState, OracleLeftovers, QueueSnapshot, Tally, Time};
use crate::queue_setup::LimiterChange;

impl<K: Copy + Ord + Debug> OracleQueue<K> {
    /// The number of Ready keys.
    pub fn len(&mut self, now: Time) -> usize {
        self.tally(now).ready
    }

    /// The number of keys in each state.
    pub fn tally(&mut self, now: Time) -> Tally {
        self.pass_deadlines(now);
        let mut tally = Tally::default();
        for (_, state) in &self.records {
            match state {
                State::Waiting(_) => tally.waiting += 1,
                State::Ready { .. } => tally.ready += 1,
                State::Leased | State::LeasedWaiting(_) => tally.leased += 1,
                State::LeasedDirty => {
                    tally.leased += 1;
                    tally.dirty += 1;
                }
            }
        }
        tally
    }

    /// The state of a key.
    pub fn seen(&mut self, key: K, now: Time) -> OracleKeyState {
        self.pass_deadlines(now);
        match self.state(key) {
            None => OracleKeyState::Absent,
            Some(State::Waiting(wait)) => OracleKeyState::Waiting(wait.until),
            Some(State::Ready { .. }) => OracleKeyState::Ready,
            Some(State::Leased) => OracleKeyState::Leased,
            Some(State::LeasedDirty) => OracleKeyState::LeasedDirty,
            Some(State::LeasedWaiting(wait)) => OracleKeyState::LeasedWaiting(wait.until),
        }
    }

    /// The complete state: the state of every key, and that of the queue.
    pub fn snapshot(&mut self, now: Time) -> QueueSnapshot<K> {
        let mut keys: Vec<_> = self.records.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        QueueSnapshot {
            keys: keys.into_iter().map(|key| (key, self.seen(key, now), self.requeues(key))).collect(),
            paused: self.paused,
            shut_down: self.is_shutting_down(),
        }
    }

    /// The number of failures of a key that were counted and not forgotten.
    #[must_use]
    pub fn requeues(&self, key: K) -> u32 {
        self.backoffs.failures(key)
    }

    /// Whether the queue is shut down.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Changes the limiter, if there is one.
    pub fn update_limiter(&mut self, change: LimiterChange, now: Time) {
        self.backoffs.change(change, now);
    }

    /// Forgets the failures of a key, so that its next failure counts as the first.
    pub fn forget(&mut self, key: K) {
        self.backoffs.forget(key);
    }

    /// The Ready keys: first those that can be handed out, in the order of hand-out, then the others, sorted by key.
    #[must_use]
    pub fn dequeue_order(&self) -> Vec<K> {
        let (mut line, able) = self.lines.dequeue_order();
        line[able..].sort_unstable();
        line
    }

    /// The number of Ready keys that can be handed out.
    #[must_use]
    pub fn able(&self) -> usize {
        self.lines.dequeue_order().1
    }

    /// The number of Ready keys that cannot be handed out, because their group is suspended.
    #[must_use]
    pub fn suspended(&self) -> usize {
        self.lines.suspended()
    }

    /// The number of Ready keys that cannot be handed out now because of the lease limit of their group, and because of its rate.
    #[must_use]
    pub fn limited(&self) -> (usize, usize) {
        self.lines.limited()
    }

    /// The remaining capacity of a group, or `None` if the group has no capacity limit.
    #[must_use]
    pub fn room_of(&self, group: usize) -> Option<usize> {
        self.lines.room_of(group)
    }

    /// The priority of a key. If the key was added while it was leased, this is the highest priority of these adds.
    #[must_use]
    pub fn priority(&self, key: K) -> Option<i8> {
        self.lines.priority(key)
    }

    /// Sets the priority of a key. Returns whether the key is in the queue.
    pub fn set_priority(&mut self, key: K, priority: i8, now: Time) -> bool {
        self.pass_deadlines(now);
        self.lines.set_priority(key, priority)
    }

    /// The leftovers: all keys that are in the queue.
    #[must_use]
    pub fn left(&self) -> OracleLeftovers<K> {
        let waiting = self.sorted(|state| match state {
            State::Waiting(wait) => Some((wait.until, wait.order)),
            _ => None,
        });
        let (mut late, waiting): (Vec<_>, _) = waiting.into_iter().partition(|key| self.late.contains(key));
        late.sort_unstable();
        let mut leased = self.sorted(|state| match state {
            State::Leased | State::LeasedDirty | State::LeasedWaiting(_) => Some((0, 0)),
            _ => None,
        });
        leased.sort_unstable();
        let (ready, able) = (self.dequeue_order(), self.able());
        OracleLeftovers { ready, able, waiting, late, leased }
    }

    fn sorted(&self, place: impl Fn(State) -> Option<(Time, u64)>) -> Vec<K> {
        let mut keys: Vec<_> =
            self.records.iter().filter_map(|(key, state)| Some((place(*state)?, *key))).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, key)| key).collect()
    }
}
