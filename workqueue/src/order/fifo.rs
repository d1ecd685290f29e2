//! PURE. First in, first out.

use crate::list::List;
use crate::order::Order;
use crate::order::sealed::Links;
use crate::slab::Slab;

/// Strict first in, first out.
#[derive(Debug, Default)]
pub struct Fifo(List);

impl Order for Fifo {}

impl Links for Fifo {
    #[inline]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn front(&self) -> Option<u32> {
        self.0.front()
    }

    #[inline]
    fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        self.0.push(slab, slot);
    }

    #[inline]
    fn unlink<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        self.0.unlink(slab, slot);
    }

    fn slots<K>(&self, slab: &Slab<K>) -> Vec<u32> {
        self.0.iter(slab).collect()
    }

    fn check<K>(&self, slab: &Slab<K>) -> Result<(), String> {
        self.0.check(slab)
    }
}
