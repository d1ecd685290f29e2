//! PURE. The limits of a group, and the tag of an add.

use flyball_ratelimit::Quota;

use crate::state::entry::NIL;

/// The weight and the limits of a group of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The number of hand-outs in a turn, at least one.
    pub(super) weight: u32,
    /// The maximum number of leased keys; with 0 the group is suspended.
    pub(super) max_leased: u32,
    /// The maximum number of keys; the group may hold more if it did before the limit was lowered.
    pub(super) capacity: usize,
}

impl Limits {
    /// Creates the limits. A group of weight 0 gets no hand-outs, so its limit of leased keys is 0.
    pub(super) fn new(weight: u32, max_leased: u32, capacity: usize) -> Self {
        let max_leased = if weight == 0 { 0 } else { max_leased };
        Self { weight: weight.max(1), max_leased, capacity }
    }

    pub(super) fn is_suspended(self) -> bool {
        self.max_leased == 0
    }
}

/// The limits of a group, and its rate. The rate is separate, because the record of a group does not store it: it is in the group's bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupLimits {
    pub(super) limits: Limits,
    pub(super) rate: Option<Quota>,
}

/// The tag of an add: the name and the limits of the key's group.
#[derive(Debug)]
pub struct GroupTag<G> {
    /// The name of the group; `None` once the name has been moved into the record of a new group.
    pub(super) group: Option<G>,
    pub(super) hash: u64,
    pub(super) limits: GroupLimits,
    /// The number of the latest refresh that started before these limits were computed.
    pub(super) refresh: usize,
    /// The group's index; `NIL` if the group does not exist. Valid only until the queue is unlocked.
    pub(super) found: u32,
}

impl<G> GroupTag<G> {
    pub(super) fn new(group: G, hash: u64, limits: GroupLimits, refresh: usize) -> Self {
        Self { group: Some(group), hash, limits, refresh, found: NIL }
    }
}
