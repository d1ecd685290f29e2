//! PURE. First in, first out.

use flyball_sync::Nanos;

use crate::state::deadlines::Deadlines;
use crate::state::order::level::goes_before;
use crate::state::order::{Order, sealed};
use crate::state::slots::{List, Slab};

/// Strict first in, first out.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Fifo, Queue};
///
/// let queue: Queue<&str, Fifo> = Queue::new();
/// queue.add_many(["a", "b", "a"]);
/// let first = queue.try_get()?;
/// assert_eq!(*first, "a");
/// queue.add("a")?;
/// first.done(); // "a" goes to the end
/// assert_eq!(*queue.try_get()?, "b");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

/// The Ready keys in one list, and the waiting keys.
#[derive(Debug, Default)]
pub struct FifoList {
    ready: List,
    waits: Deadlines,
}

impl<K> Order<K> for Fifo {}

impl<K> sealed::Order<K> for Fifo {
    type ReadyQueue = FifoList;

    fn ready_queue(&self) -> FifoList {
        FifoList::default()
    }

    #[inline]
    fn tag(&self, _: &K) {}
}

impl sealed::Admission for FifoList {
    type Tag = ();
    type Class = ();

    #[inline]
    fn class(&mut self, (): &mut ()) {}
}

impl sealed::ReadyQueue for FifoList {
    const GATHERS: bool = false;
    const RAISES: bool = false;

    type Pick = ();

    #[inline]
    fn count(&self) -> usize {
        self.ready.len()
    }

    /// Returns the head of the list or the head of the heap, whichever became Ready earlier.
    #[inline]
    fn next<K>(&self, slab: &Slab<K>, now: Nanos, by: impl FnOnce() -> Nanos) -> Option<(u32, ())> {
        let front = self.ready.front();
        let next = match self.waits.first() {
            Some((at, slot)) if at <= by() => match front {
                Some(front) if goes_before(slab.get(front).at, at, now) => Some(front),
                _ => Some(slot),
            },
            _ => front,
        };
        next.map(|slot| (slot, ()))
    }

    fn heads(&self, _: Nanos, _: Nanos) -> impl Iterator<Item = u32> {
        self.ready.front().into_iter()
    }

    #[inline]
    fn heaps(&self) -> impl Iterator<Item = &Deadlines> {
        std::iter::once(&self.waits)
    }

    #[inline]
    fn heaps_mut(&mut self) -> impl Iterator<Item = &mut Deadlines> {
        std::iter::once(&mut self.waits)
    }

    #[inline]
    fn wait<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32) {
        self.waits.push(slab, slot, at, sequence);
    }

    #[inline]
    fn unwait<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        self.waits.remove(slab, slot);
    }

    #[inline]
    fn rewait<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32) {
        self.waits.set(slab, slot, at, sequence);
    }

    #[inline]
    fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        self.ready.push(slab, slot);
    }

    #[inline]
    fn unlink<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        self.ready.unlink(slab, slot);
    }

    fn take_memory(&mut self) -> Self {
        std::mem::take(self)
    }

    fn linked<K>(&self, slab: &Slab<K>) -> Vec<u32> {
        self.ready.iter(slab).collect()
    }

    fn slots<K>(&self, slab: &Slab<K>, now: Nanos, by: Nanos) -> Vec<u32> {
        let at = |slot: &u32| slab.get(*slot).at;
        let mut due = self.waits.slots().into_iter().take_while(|slot| at(slot) <= by).peekable();
        let mut slots = Vec::with_capacity(self.ready.len());
        for slot in self.ready.iter(slab) {
            while let Some(earlier) = due.next_if(|other| !goes_before(at(&slot), at(other), now)) {
                slots.push(earlier);
            }
            slots.push(slot);
        }
        slots.extend(due);
        slots
    }

    fn check<K>(&self, slab: &Slab<K>) -> Result<(), String> {
        self.waits.check(slab)?;
        self.ready.check(slab)
    }
}
