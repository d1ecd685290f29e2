//! PURE. In which order Ready keys are handed out.
//!
//! An order comes in two parts. What a user builds, an [`Order`], stays outside the queue's lock and says what an add
//! brings with it (its *tag*: nothing, a priority, a group): that runs user code. The [`Links`](sealed::Links) it makes are
//! under the lock, hold the Ready keys, and run none, but for `Eq` and `Clone` of groups.

mod depths;
mod fair;
pub(crate) mod fifo;
pub(crate) mod groups;
pub(crate) mod levels;
mod priority;

pub use depths::{GroupCounts, GroupDepths, LevelDepth};
pub use fair::Fair;
pub use fifo::Fifo;
pub use priority::Priority;

pub(crate) use sealed::Links;

/// An order of Ready keys: [`Fifo`], [`Priority`] or [`Fair`]. Sealed: it is part of the proof of the queue, and its
/// shape may still grow.
pub trait Order<K>: sealed::Order<K> {}

pub(crate) mod sealed {
    use crate::slab::Slab;

    /// What is outside the lock.
    pub trait Order<K>: Send + Sync + 'static {
        type Links: Links;

        /// An empty order.
        fn links(&self) -> Self::Links;

        /// What an add of `key` brings. Runs user code.
        fn tag(&self, key: &K) -> Tag<Self::Links>;
    }

    pub(crate) type Tag<O> = <O as Links>::Tag;

    /// Ready keys, linked through the entries themselves; and what is known of every other key, by slot.
    ///
    /// A slot is [admitted](Self::admit) before anything else is said of it, and [vacated](Self::vacate) at the end.
    pub trait Links: Send + 'static {
        /// Whether keys whose deadline has passed are gathered into the order, to take their place in it. If not, the
        /// core draws from whichever of the two heads is earlier, and gathers nothing.
        const GATHERS: bool;

        /// What an add brings.
        type Tag: Send;
        /// What the order has made of it. Naming a class may run `Eq`, and comes before any change.
        type Class;

        /// Keys in the order.
        fn count(&self) -> usize;

        /// How many of them could be handed out one after the other, if no lease ended.
        #[inline]
        fn available(&self) -> usize {
            self.count()
        }

        /// The slot that is handed out next, if any can be.
        fn front(&self) -> Option<u32>;

        /// The slots of which one has been in the order the longest.
        fn heads(&self) -> impl Iterator<Item = u32>;

        /// Finds out where a new key belongs. What is not needed any more stays in the tag, and dies with it.
        fn class(&mut self, tag: &mut Self::Tag) -> Self::Class;

        /// A slot is taken, by a key of this class.
        #[inline]
        fn admit(&mut self, _slot: u32, _class: Self::Class) {}

        /// An add of a key that is there, before the core acts on it; `leased` says whether a lease holds it.
        #[inline]
        fn merge<K>(&mut self, _slab: &mut Slab<K>, _slot: u32, _leased: bool, _tag: &Self::Tag) {}

        /// Links a slot in as the youngest.
        fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32);

        /// Unlinks a slot from wherever it is; its state is then for the caller to set.
        fn unlink<K>(&mut self, slab: &mut Slab<K>, slot: u32);

        /// A slot that was unlinked is handed out.
        #[inline]
        fn begin(&mut self, _slot: u32) {}

        /// Its lease has ended. `comes_back` says that the key comes back for what it was handed out for, too, not only
        /// for what it was added for meanwhile.
        #[inline]
        fn end(&mut self, _slot: u32, _comes_back: bool) {}

        /// What a leased key was added for meanwhile is taken back.
        #[inline]
        fn unmark(&mut self, _slot: u32) {}

        /// The slot, linked nowhere, is free.
        #[inline]
        fn vacate(&mut self, _slot: u32) {}

        /// Every slot, in the order of hand-out, as far as that is known, for inspection.
        fn slots<K>(&self, slab: &Slab<K>) -> Vec<u32>;

        /// Names the first invariant that does not hold.
        fn check<K>(&self, slab: &Slab<K>) -> Result<(), String>;
    }
}
