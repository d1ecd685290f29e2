//! PURE. What holds for a group, and what an add brings of it.

use crate::state::entry::NIL;

/// What holds for a group of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Hand-outs in a turn, at least one.
    pub(super) weight: u32,
    /// None: the group is suspended.
    pub(super) max_leased: u32,
    /// Keys it has at most; more, if there were more before.
    pub(super) capacity: usize,
}

impl Limits {
    /// A group of no weight has no turn: that is a group of which nothing is leased.
    pub(super) fn new(weight: u32, max_leased: u32, capacity: usize) -> Self {
        let max_leased = if weight == 0 { 0 } else { max_leased };
        Self { weight: weight.max(1), max_leased, capacity }
    }

    pub(super) fn is_suspended(self) -> bool {
        self.max_leased == 0
    }
}

/// What an add brings: the name of its group, and what is to hold for it.
#[derive(Debug)]
pub struct GroupTag<G> {
    /// `None` once it has become the name of a group.
    pub(super) group: Option<G>,
    pub(super) hash: u64,
    pub(super) limits: Limits,
    /// After how many calls to ask again this was asked.
    pub(super) asked: usize,
    /// The group, if there is one: as good as the lock under which it was found.
    pub(super) found: u32,
}

impl<G> GroupTag<G> {
    pub(super) fn new(group: G, hash: u64, limits: Limits, asked: usize) -> Self {
        Self { group: Some(group), hash, limits, asked, found: NIL }
    }
}
