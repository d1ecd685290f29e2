//! PURE. What can be asked of the state machine, and its `check`.

use flyball_ratelimit::Nanos;

use super::{Core, Leftovers, Phase};
use crate::entry::Place;
use crate::order::Order;

/// The state of a key. A wait whose deadline has passed shows as what it has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyState {
    /// The queue does not know the key.
    Absent,
    /// It becomes Ready then.
    Waiting(Nanos),
    /// It can be handed out.
    Ready,
    /// A lease holds it.
    Leased,
    /// A lease holds it, and it is Ready again when that ends.
    LeasedDirty,
    /// A lease holds it, and it comes back then.
    LeasedWaiting(Nanos),
}

/// How many keys are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Keys that can be handed out.
    pub ready: usize,
    /// Keys that wait for a deadline.
    pub waiting: usize,
    /// Keys held by a lease, marked or not.
    pub leased: usize,
    /// Leased keys that are Ready again when their lease ends.
    pub dirty: usize,
}

impl<K, O: Order> Core<K, O> {
    /// How many keys have a deadline; where there are none, no clock is needed.
    #[inline]
    pub(crate) fn timed(&self) -> usize {
        self.deadlines.len() + self.postponed
    }

    /// Keys in the order, without those whose deadline has passed.
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        if self.phase == Phase::Stopped { 0 } else { self.order.count() }
    }

    /// The earliest deadline that will make a key Ready.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let (at, _) = self.deadlines.first()?;
        self.is_open().then_some(at)
    }

    /// Whether a key is Ready because its deadline has passed; while it is open, by `now`, if that is known.
    #[inline]
    pub(crate) fn has_due(&self, now: Option<Nanos>) -> bool {
        let by = match self.phase {
            Phase::Open => now,
            Phase::ShutDown => Some(self.horizon),
            Phase::Stopped => None,
        };
        self.deadlines.first().is_some_and(|(at, _)| by.is_some_and(|by| at <= by))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Nothing is Ready, and nothing can become so.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::ShutDown => self.dirty == 0 && self.next_slot(self.horizon).is_none(),
            Phase::Stopped => true,
        }
    }

    /// Shut down, and nothing is Ready or leased; or stopped, when nobody waits for the leases any more.
    pub(crate) fn is_drained(&self) -> bool {
        self.phase == Phase::Stopped || (self.is_closed() && self.leased == 0)
    }

    /// Keys that can be handed out at `now`. O(due waits).
    pub(crate) fn len(&self, now: Option<Nanos>) -> usize {
        self.queued() + self.deadlines.count_due(self.due_by(now.unwrap_or(self.seen)))
    }

    /// O(due waits), and O(keys) while a lease waits.
    pub(crate) fn counts(&self, now: Option<Nanos>) -> Counts {
        let ready = self.len(now);
        let due = self.due_by(now.unwrap_or(self.seen));
        let passed = |place, at| matches!(place, Place::LeasedWaiting { .. }) && at <= due;
        let dirty = match self.postponed {
            0 => 0,
            _ => self.slab.iter().filter(|(_, entry)| passed(entry.place, entry.at)).count(),
        };
        Counts {
            ready,
            waiting: self.slab.live() - self.leased - ready,
            leased: self.leased,
            dirty: self.dirty + dirty,
        }
    }

    pub(crate) fn state(&self, key: &K, hash: u64, now: Option<Nanos>) -> KeyState
    where
        K: Eq,
    {
        let Some(slot) = self.find(key, hash) else { return KeyState::Absent };
        let entry = self.slab.get(slot);
        let due = entry.at <= self.due_by(now.unwrap_or(self.seen));
        match entry.place {
            Place::Vacant { .. } => KeyState::Absent,
            Place::Waiting { .. } if !due => KeyState::Waiting(entry.at),
            Place::Waiting { .. } | Place::Ready { .. } => KeyState::Ready,
            Place::Leased => KeyState::Leased,
            Place::LeasedWaiting { .. } if !due => KeyState::LeasedWaiting(entry.at),
            Place::LeasedWaiting { .. } | Place::LeasedDirty => KeyState::LeasedDirty,
        }
    }

    /// Everything in the queue, by key. O(n log n).
    ///
    /// `left` is the caller's, so that clones die outside every lock also when a later one panics.
    pub(crate) fn leftovers(&self, now: Option<Nanos>, left: &mut Leftovers<K>)
    where
        K: Clone,
    {
        let (ready, waiting, leased) = self.slots(now);
        self.clone_keys(ready, &mut left.ready);
        self.clone_keys(waiting, &mut left.waiting);
        self.clone_keys(leased, &mut left.leased);
    }

    pub(super) fn clone_keys(&self, slots: Vec<u32>, keys: &mut Vec<K>)
    where
        K: Clone,
    {
        keys.extend(slots.into_iter().filter_map(|slot| self.slab.get(slot).key.clone()));
    }

    /// The slots that are Ready, in the order in which `get` would take them, that wait, and that are leased.
    pub(super) fn slots(&self, now: Option<Nanos>) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
        let now = now.unwrap_or(self.seen);
        let due = self.due_by(now);
        let at = |slot: &u32| self.slab.get(*slot).at;
        let mut waiting = self.deadlines.slots();
        let mut passed = waiting.drain(..waiting.partition_point(|slot| at(slot) <= due)).peekable();
        let mut ready = Vec::new();
        for slot in self.order.slots(&self.slab) {
            while let Some(earlier) = passed.next_if(|other| !self.precedes(slot, at(other), now)) {
                ready.push(earlier);
            }
            ready.push(slot);
        }
        ready.extend(passed);
        (ready, waiting, self.leased_slots())
    }

    pub(super) fn leased_slots(&self) -> Vec<u32> {
        self.slab.iter().filter(|(_, entry)| entry.place.is_leased()).map(|(slot, _)| slot).collect()
    }

    /// A deadline at or before this has passed.
    #[inline]
    pub(super) fn due_by(&self, now: Nanos) -> Nanos {
        if self.phase == Phase::Open { now } else { self.horizon }
    }

    /// Walks everything and names the first invariant that does not hold. O(n).
    pub(crate) fn check(&self) -> Result<(), String> {
        self.slab.check()?;
        self.deadlines.check(&self.slab)?;
        let ready = self.order.slots(&self.slab);
        if ready.len() != self.order.count() {
            return Err(format!("core 2: the order links {} of {} slots", ready.len(), self.order.count()));
        }
        let (mut leased, mut dirty, mut postponed, mut linked) = (0, 0, 0, 0);
        for (slot, entry) in self.slab.iter() {
            if self.keys.find(entry.hash, |&other| other == slot).is_none() {
                return Err(format!("core 1: slot {slot} is not in the key table"));
            }
            leased += usize::from(entry.place.is_leased());
            match entry.place {
                Place::LeasedDirty => dirty += 1,
                Place::LeasedWaiting { .. } => postponed += 1,
                Place::Ready { .. } => linked += 1,
                _ => {}
            }
        }
        if self.keys.len() != self.slab.live() {
            return Err(format!("core 1: {} keys in the table, {} live", self.keys.len(), self.slab.live()));
        }
        if linked != ready.len() || linked + self.deadlines.len() + leased != self.slab.live() {
            return Err(format!("core 2: {linked} ready, {} in order", ready.len()));
        }
        if (leased, dirty, postponed) != (self.leased, self.dirty, self.postponed) {
            let counted = (self.leased, self.dirty, self.postponed);
            return Err(format!("core 3: found {:?}, counted {counted:?}", (leased, dirty, postponed)));
        }
        Ok(())
    }
}
