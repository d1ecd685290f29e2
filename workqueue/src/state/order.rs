//! PURE. In which order Ready keys are handed out.
//!
//! An order comes in two parts. What a user builds, an [`Order`], stays outside the queue's lock and says what an add
//! brings with it (its *tag*: nothing, a priority, a group): that runs user code. The [`ReadyQueue`](sealed::ReadyQueue) it makes is
//! under the lock, holds the keys that are Ready and those that wait, and runs none, but for `Eq` and `Clone` of groups.

mod asked;
mod credits;
mod fair;
pub(crate) mod fifo;
pub(crate) mod groups;
mod level;
pub(crate) mod levels;
pub(crate) mod limits;
mod priority;
mod stats;

pub use fair::Fair;
pub use fifo::Fifo;
pub use priority::Priority;
pub use stats::{GroupStats, PriorityStats, TopGroups};

pub(crate) use sealed::ReadyQueue;

/// Where those wait for room who wait for nothing but room in the queue.
pub(crate) const ANY_ROOM: u32 = 0;
/// Where those wait for whose class there is no room, whatever leaves the queue.
pub(crate) const NO_ROOM: u32 = 1;

/// An order of Ready keys: [`Fifo`], [`Priority`] or [`Fair`]. Sealed: it is part of the proof of the queue, and its
/// shape may still grow.
///
/// # Examples
/// A function for queues of any order:
/// ```
/// use flyball_workqueue::{Fair, Key, Order, Priority, Queue};
///
/// fn filled<O: Order<u32>>(order: O) -> Queue<u32, O> {
///     let queue = Queue::builder().order(order).build();
///     queue.add_many([1, 2, 3]);
///     queue
/// }
///
/// assert_eq!(filled(Priority::new()).ready_len(), 3);
/// assert_eq!(filled(Fair::by_group(|key| key % 2)).ready_len(), 3);
/// ```
///
/// No other type is one:
/// ```compile_fail,E0277
/// # use flyball_workqueue::Queue;
/// struct ShortestFirst;
/// let queue = Queue::<&str>::builder().order(ShortestFirst).build();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an order of keys of type `{K}`",
    note = "the orders are `Fifo`, `Priority` and `Fair`; the groups of `Fair` are `Eq + Hash + Send + 'static`"
)]
pub trait Order<K>: sealed::Order<K> {}

pub(crate) mod sealed {
    use flyball_sync::Nanos;

    use super::ANY_ROOM;
    use crate::state::Transition;
    use crate::state::deadlines::Deadlines;
    use crate::state::entry::State;
    use crate::state::slab::Slab;

    /// What is outside the lock.
    pub trait Order<K>: Send + Sync + 'static {
        type ReadyQueue: ReadyQueue;

        /// An empty order.
        fn ready_queue(&self) -> Self::ReadyQueue;

        /// What an add of `key` brings. Runs user code.
        fn tag(&self, key: &K) -> Tag<Self::ReadyQueue>;

        /// Brings a tag up to date. Runs user code.
        #[inline]
        fn renew(&self, _key: &K, _tag: &mut Tag<Self::ReadyQueue>) {}
    }

    pub(crate) type Tag<O> = <O as ReadyQueue>::Tag;

    /// Ready keys, linked through the entries themselves; keys that wait, in one heap or in several; and what is known of
    /// every other key, by slot.
    ///
    /// A slot is [admitted](Self::admit) before anything else is said of it, and [vacated](Self::vacate) at the end. `by` is
    /// the time up to which deadlines have passed.
    pub trait ReadyQueue: Send + 'static {
        /// Whether keys whose deadline has passed are gathered into the order, to take their place in it. If not,
        /// [`next`](Self::next) draws them from the heaps, and nothing is gathered: for an order in which, of all keys that are due, the
        /// earliest of a heap is next.
        const GATHERS: bool;
        /// Whether adds of a queued key may change its place.
        const RAISES: bool;

        /// What an add brings.
        type Tag: Send;
        /// What the order has made of it.
        type Class;
        /// Why a slot is next.
        type Pick: Copy;

        /// Keys in the order.
        fn count(&self) -> usize;

        /// How many of them could be handed out one after the other, if no lease ended.
        #[inline]
        fn available(&self) -> usize {
            self.count()
        }

        /// How many of them nobody can be handed, whatever lease ends: they keep nothing open, and nobody from being idle.
        #[inline]
        fn suspended(&self) -> usize {
            0
        }

        /// The slot that is handed out next, if any can be: in the order, or due.
        fn next<K>(
            &self,
            slab: &Slab<K>,
            now: Nanos,
            by: impl FnOnce() -> Nanos,
        ) -> Option<(u32, Self::Pick)>;

        /// Called before the hand-out of what is next, which is still in the order.
        #[inline]
        fn on_hand_out(&mut self, _pick: Self::Pick, _by: impl FnOnce() -> Nanos) {}

        /// The slots of which one has been in the order the longest; due ones may be among them.
        fn heads(&self, now: Nanos, by: Nanos) -> impl Iterator<Item = u32>;

        /// Everything that waits.
        fn heaps(&self) -> impl Iterator<Item = &Deadlines>;

        /// The same, to give it new turns.
        fn heaps_mut(&mut self) -> impl Iterator<Item = &mut Deadlines>;

        /// A slot waits from now on.
        fn wait<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, turn: u32);

        /// It waits no more; its state is then for the caller to set.
        fn unwait<K>(&mut self, slab: &mut Slab<K>, slot: u32);

        /// It waits for another deadline.
        fn rewait<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, turn: u32);

        /// Whether a tag was made before what it says was asked again, and is to be renewed before it is used.
        #[inline]
        fn is_stale(&self, _tag: &Self::Tag) -> bool {
            false
        }

        /// Finds the class of a key that is not there, and whether there is room for one more of it. May run `Eq`, before any change.
        #[inline]
        fn has_room(&mut self, _tag: &mut Self::Tag) -> bool {
            true
        }

        /// The line in which who has just found that there is no room is to wait for it.
        #[inline]
        fn adder_line(&self, _tag: &Self::Tag) -> u32 {
            ANY_ROOM
        }

        /// One more waits there.
        #[inline]
        fn join_line(&mut self, _line: u32) {}

        /// One of those who wait there does so no longer.
        #[inline]
        fn leave_line(&mut self, _line: u32) {}

        /// For how many keys of those who wait there the order has room.
        #[inline]
        fn room(&self, _line: u32) -> usize {
            usize::MAX
        }

        /// The class of a new key, for which there [is room](Self::has_room). What the class does not need stays in the tag, and
        /// is dropped with it.
        fn class(&mut self, tag: &mut Self::Tag) -> Self::Class;

        /// A slot is taken, by a key of this class.
        #[inline]
        fn admit(&mut self, _slot: u32, _class: Self::Class) {}

        /// An add of a key that is there and in this state, before that changes.
        #[inline]
        fn merge(&mut self, _slot: u32, _state: State, _tag: &Self::Tag) {}

        /// Called after [`merge`](Self::merge) if the state of the key has not changed: moves it to the place that its priority asks for.
        #[inline]
        fn reposition<K>(&mut self, _slab: &mut Slab<K>, _slot: u32, _now: Nanos, _by: Nanos) {}

        /// The clock has jumped back: deadlines after `by` have not passed, whatever was seen before.
        #[cold]
        fn clock_jumped_back<K>(&mut self, _slab: &mut Slab<K>, _by: Nanos) {}

        /// Links a slot in as the youngest.
        fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32);

        /// Unlinks a slot from wherever it is; its state is then for the caller to set.
        fn unlink<K>(&mut self, slab: &mut Slab<K>, slot: u32);

        /// A slot that was unlinked is handed out.
        #[inline]
        fn begin(&mut self, _slot: u32) {}

        /// Its lease has ended, and this becomes of the key, unless it comes back for what it was added for meanwhile.
        #[inline]
        fn end(&mut self, _slot: u32, _transition: Transition) {}

        /// What a leased key was added for meanwhile is taken back.
        #[inline]
        fn unmark(&mut self, _slot: u32) {}

        /// The slot, linked nowhere, is free.
        #[inline]
        fn vacate(&mut self, _slot: u32) {}

        /// Every slot in the order, for inspection.
        fn linked<K>(&self, slab: &Slab<K>) -> Vec<u32>;

        /// Every slot that is Ready, due ones included, in the order of hand-out, as far as that is known.
        fn slots<K>(&self, slab: &Slab<K>, now: Nanos, by: Nanos) -> Vec<u32>;

        /// Names the first invariant that does not hold.
        fn check<K>(&self, slab: &Slab<K>) -> Result<(), String>;
    }
}
