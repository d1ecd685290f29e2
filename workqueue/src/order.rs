//! PURE. In which order Ready keys are handed out.

mod fifo;

pub use fifo::Fifo;

/// An order of Ready keys. Sealed: it is part of the proof of the queue, and its shape may still grow.
pub trait Order: sealed::Links {}

pub(crate) mod sealed {
    use crate::slab::Slab;

    /// Ready keys, linked through the entries themselves.
    pub trait Links: Default + Send + 'static {
        /// Keys in the order.
        fn count(&self) -> usize;

        /// The slot that is handed out next.
        fn front(&self) -> Option<u32>;

        /// Links a slot in as the youngest.
        fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32);

        /// Unlinks a slot from wherever it is; its state is then for the caller to set.
        fn unlink<K>(&mut self, slab: &mut Slab<K>, slot: u32);

        /// Every slot, in the order of hand-out, for inspection.
        fn slots<K>(&self, slab: &Slab<K>) -> Vec<u32>;

        /// Names the first invariant that does not hold.
        fn check<K>(&self, slab: &Slab<K>) -> Result<(), String>;
    }
}
