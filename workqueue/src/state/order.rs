//! PURE. The order in which Ready keys are handed out.
//!
//! An order has two parts. The [`Order`] that a user builds is used outside the queue's lock. For each add it computes the *tag* (nothing, a
//! priority, or a group); computing the tag runs user code. The order creates a [`ReadyQueue`](sealed::ReadyQueue), which is used under the lock. The
//! ready queue holds the Ready and the waiting keys, and runs no user code except `Eq` and `Clone` of groups.

mod credits;
pub(crate) mod fair;
pub(crate) mod fifo;
pub(crate) mod groups;
mod level;
pub(crate) mod levels;
pub(crate) mod priority;
mod rates;

/// The line number of adders that need room in the queue, but not in a group.
pub(crate) const ANY_ROOM: u32 = 0;
/// The line number of adders whose group has no keys and a capacity of 0. No key of such a group can leave the queue and make room for them.
pub(crate) const NO_ROOM: u32 = 1;

/// The order in which a queue hands out its Ready keys: [`Fifo`](crate::Fifo), [`Priority`](crate::Priority) or [`Fair`](crate::Fair). This trait is sealed for two reasons: a wrong
/// implementation would make the queue incorrect, and methods can be added later without breaking users.
///
/// # Examples
/// A function that accepts any order:
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
/// You cannot implement an order yourself, so this does not compile:
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

    use super::{ANY_ROOM, NO_ROOM};
    use crate::state::deadlines::Deadlines;
    use crate::state::slots::Slab;
    use crate::state::slots::State;
    use crate::state::types::Transition;

    /// The part of an order that is used outside the queue's lock.
    pub trait Order<K>: Send + Sync + 'static {
        type ReadyQueue: ReadyQueue;

        /// Creates an empty ready queue.
        fn ready_queue(&self) -> Self::ReadyQueue;

        /// Computes the tag of an add of `key`. Runs user code.
        fn tag(&self, key: &K) -> Tag<Self::ReadyQueue>;

        /// Computes the tag of an add with a priority. An order without priorities ignores the priority.
        #[inline]
        fn tag_at(&self, key: &K, _priority: i8) -> Tag<Self::ReadyQueue> {
            self.tag(key)
        }

        /// Computes a stale tag again. Runs user code.
        #[inline]
        fn renew(&self, _key: &K, _tag: &mut Tag<Self::ReadyQueue>) {}
    }

    pub(crate) type Tag<O> = <O as Admission>::Tag;

    /// The part of an order that is used under the queue's lock to let keys in: whether there is room for a key, where an adder waits for room, and to which class
    /// each key in the queue belongs. An order without classes, such as groups, has room for every key.
    ///
    /// For each slot, [`admit`](Self::admit) is called before all other methods of the order, and [`vacate`](Self::vacate) after them.
    pub trait Admission: Send + 'static {
        /// The data that [`Order::tag`] computes for an add.
        type Tag: Send;
        /// The data about a new key, which the order derives from the tag of its add.
        type Class;

        /// Returns whether a tag was computed before the last refresh of the limits. The caller must [renew](Order::renew) such a tag before it uses
        /// it.
        #[inline]
        fn is_stale(&self, _tag: &Self::Tag) -> bool {
            false
        }

        /// Finds the class of an absent key, and returns whether the class has room for one more key. May run `Eq` of a group, but only before it
        /// changes anything.
        #[inline]
        fn has_room(&mut self, _tag: &mut Self::Tag) -> bool {
            true
        }

        /// Returns the line in which an adder waits after [`has_room`](Self::has_room) has returned false for its tag.
        #[inline]
        fn adder_line(&self, _tag: &Self::Tag) -> u32 {
            ANY_ROOM
        }

        /// Called when an adder starts to wait in a line.
        #[inline]
        fn join_line(&mut self, _line: u32) {}

        /// Called when an adder stops waiting in a line.
        #[inline]
        fn leave_line(&mut self, _line: u32) {}

        /// Calls `each` with the lines whose classes may have got room since the last call.
        #[inline]
        fn classes_with_room(&mut self, _each: impl FnMut(u32)) {}

        /// Returns whether there is a class for this line, for inspection.
        fn has_line(&self, line: u32) -> bool {
            line <= NO_ROOM
        }

        /// Returns how many more keys the adders in a line could add now, without regard to the capacity of the queue.
        #[inline]
        fn room(&self, _line: u32) -> usize {
            usize::MAX
        }

        /// Returns the class of a new key, after [`has_room`](Self::has_room) has returned true for its tag. Parts of the tag that the class
        /// does not need stay in the tag, and are dropped with it.
        fn class(&mut self, tag: &mut Self::Tag) -> Self::Class;

        /// Called when a new key of this class has been stored in a slot.
        #[inline]
        fn admit(&mut self, _slot: u32, _class: Self::Class) {}

        /// Called before a slot is vacated. The slot is not linked.
        #[inline]
        fn vacate(&mut self, _slot: u32) {}
    }

    /// The part of an order that is used under the queue's lock. It holds the Ready keys, linked through their entries; the waiting keys, in one or
    /// several heaps; and the order's own data on each slot.
    ///
    /// In all methods, `by` is the time up to which deadlines have passed.
    pub trait ReadyQueue: Admission {
        /// Whether due keys are gathered from the heaps into the order. If not, [`next`](Self::next) takes them
        /// directly from the heaps; this suits an order that hands out the due keys of each heap by deadline.
        const GATHERS: bool;
        /// Whether an add of a key that is already queued may change the key's position.
        const RAISES: bool;

        /// The reason why [`next`](Self::next) has chosen a slot.
        type Pick: Copy;

        /// The number of keys in the order.
        fn count(&self) -> usize;

        /// The number of keys in the order that can be handed out even if no lease ends and no token arrives in the meantime.
        #[inline]
        fn available(&self) -> usize {
            self.count()
        }

        /// The number of keys in the order that cannot be handed out even if all leases end. Such keys neither keep a
        /// queue open nor prevent it from being idle.
        #[inline]
        fn suspended(&self) -> usize {
            0
        }

        /// Returns whether groups have rates, so that each hand-out needs the time.
        #[inline]
        fn has_rates(&self) -> bool {
            false
        }

        /// Gives groups the tokens that have arrived up to `now`. Each group that gets tokens decrements `most`. At 0 this stops as soon as a key can be
        /// handed out.
        #[inline]
        fn pass_time(&mut self, _now: Nanos, _most: &mut usize) {}

        /// Returns how many more keys than [`available`](Self::available) can be handed out at `now`, because their tokens arrive up to then, and the
        /// time of the first later token that lets a key be handed out. Examines at most `most` + 1 groups whose tokens have arrived; if there are
        /// more, the second result may be wrong.
        #[inline]
        fn tokens(&self, _now: Nanos, _most: usize) -> (usize, Option<Nanos>) {
            (0, None)
        }

        /// Returns whether the slot cannot be handed out even if all leases end, because its group is suspended.
        #[inline]
        fn is_suspended(&self, _slot: u32) -> bool {
            false
        }

        /// Returns whether the slot cannot be handed out at `now`, because its group is suspended, has as many leases as it may have, or waits for a
        /// token.
        #[inline]
        fn is_held_back(&self, _slot: u32, _now: Nanos) -> bool {
            false
        }

        /// Returns the slot to hand out next, and the reason for the choice; `None` if no slot can be handed out. The slot is in the order, or waits
        /// and is due.
        fn next<K>(
            &self,
            slab: &Slab<K>,
            now: Nanos,
            by: impl FnOnce() -> Nanos,
        ) -> Option<(u32, Self::Pick)>;

        /// Called before the slot returned by `next` is handed out, while the slot is still in the order.
        #[inline]
        fn on_hand_out(&mut self, _pick: Self::Pick, _by: impl FnOnce() -> Nanos) {}

        /// Returns some slots, among them the slot that has been in the order for the longest time, except for slots whose priority was lowered. Due
        /// slots may be among them, too.
        fn heads(&self, now: Nanos, by: Nanos) -> impl Iterator<Item = u32>;

        /// Returns the heaps of all waiting keys.
        fn heaps(&self) -> impl Iterator<Item = &Deadlines>;

        /// Like [`heaps`](Self::heaps), but mutable, so that the caller can renumber the waiting keys.
        fn heaps_mut(&mut self) -> impl Iterator<Item = &mut Deadlines>;

        /// Makes a slot wait.
        fn wait<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32);

        /// Ends the wait of a slot. The caller must then set the state of the slot.
        fn unwait<K>(&mut self, slab: &mut Slab<K>, slot: u32);

        /// Changes the deadline of a waiting slot.
        fn rewait<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32);

        /// Called when a key in this state is added again, before the state changes.
        #[inline]
        fn merge(&mut self, _slot: u32, _state: State, _tag: &Self::Tag) {}

        /// Called after [`merge`](Self::merge) if the state of the key has not changed: moves the key to the position
        /// that its priority requires.
        #[inline]
        fn reposition<K>(&mut self, _slab: &mut Slab<K>, _slot: u32, _now: Nanos, _by: Nanos) {}

        /// Called when the clock has jumped back: deadlines after `by` count as not passed, even if a previous call passed a later time. O(n log n) in the keys
        /// that were raised after their deadline, which is now in the future.
        #[cold]
        fn clock_jumped_back<K>(&mut self, _slab: &mut Slab<K>, _by: Nanos) {}

        /// Appends a slot to the order.
        fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32);

        /// Removes a Ready slot from the order. The caller must then set the state of the slot.
        fn unlink<K>(&mut self, slab: &mut Slab<K>, slot: u32);

        /// Called when a slot is handed out, after the slot has been unlinked.
        #[inline]
        fn begin(&mut self, _slot: u32) {}

        /// Called when the lease of a slot has ended. Unless the key is dirty, the transition is applied afterwards.
        #[inline]
        fn end(&mut self, _slot: u32, _transition: Transition) {}

        /// Called when the adds that made a leased key dirty or waiting are cancelled.
        #[inline]
        fn unmark(&mut self, _slot: u32) {}

        /// Returns whether an order without keys has much memory to give back, besides that for keys.
        #[inline]
        fn is_oversized(&self) -> bool {
            false
        }

        /// Moves the memory for keys out of an order without keys, and whatever else is unused.
        fn take_memory(&mut self) -> Self
        where
            Self: Sized;

        /// Returns all slots in the order, for inspection.
        fn linked<K>(&self, slab: &Slab<K>) -> Vec<u32>;

        /// Returns all Ready slots, including due ones, in the order in which they will be handed out, as far as it can be predicted.
        fn slots<K>(&self, slab: &Slab<K>, now: Nanos, by: Nanos) -> Vec<u32>;

        /// Checks all invariants, and returns a description of the first one that is violated.
        fn check<K>(&self, slab: &Slab<K>) -> Result<(), String>;
    }
}
