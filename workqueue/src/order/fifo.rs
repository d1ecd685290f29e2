//! PURE. First in, first out.

use crate::list::List;
use crate::order::{Order, sealed};
use crate::slab::Slab;

/// Strict first in, first out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

/// One line of Ready keys.
#[derive(Debug, Default)]
pub struct Line(List);

impl<K> Order<K> for Fifo {}

impl<K> sealed::Order<K> for Fifo {
    type Links = Line;

    fn links(&self) -> Line {
        Line::default()
    }

    #[inline]
    fn tag(&self, _: &K) {}
}

impl sealed::Links for Line {
    const GATHERS: bool = false;

    type Tag = ();
    type Class = ();

    #[inline]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn front(&self) -> Option<u32> {
        self.0.front()
    }

    fn heads(&self) -> impl Iterator<Item = u32> {
        self.0.front().into_iter()
    }

    #[inline]
    fn class(&mut self, (): &mut ()) {}

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
