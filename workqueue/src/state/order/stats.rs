//! PURE. Statistics of orders.

/// The number of Ready keys of a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PriorityStats {
    /// The priority.
    pub priority: i8,
    /// The number of Ready keys.
    pub ready: usize,
}

/// The numbers of keys of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct GroupStats<G> {
    /// The group.
    pub group: G,
    /// The number of all its keys.
    pub total: usize,
    /// The number of its Ready keys.
    pub ready: usize,
    /// The number of its leased keys.
    pub leased: usize,
    /// The number of its Ready keys that cannot be handed out because the group is
    /// [suspended](crate::Fair::max_leased).
    pub suspended: usize,
    /// The number of its Ready keys that cannot be handed out before a lease of the group ends, because the group is at its
    /// [limit of leases](crate::Fair::max_leased).
    pub lease_limited: usize,
    /// The number of its Ready keys that cannot be handed out before more tokens of the group's [rate](crate::Fair::rate) arrive.
    pub rate_limited: usize,
    /// How many more keys the group has room for, without regard to the capacity of the queue; `None` if the group has no
    /// [capacity](crate::Fair::capacity).
    pub capacity_left: Option<usize>,
}

impl GroupStats<usize> {
    /// Returns the sum of `self` and `other`.
    pub(super) fn and(self, other: Self) -> Self {
        let room = self.capacity_left.into_iter().chain(other.capacity_left).reduce(usize::saturating_add);
        Self {
            group: self.group + other.group,
            total: self.total + other.total,
            ready: self.ready + other.ready,
            leased: self.leased + other.leased,
            suspended: self.suspended + other.suspended,
            lease_limited: self.lease_limited + other.lease_limited,
            rate_limited: self.rate_limited + other.rate_limited,
            capacity_left: room,
        }
    }
}

/// The statistics of the groups with the most Ready keys, and the sum of the statistics of all other groups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TopGroups<G> {
    /// The groups with the most Ready keys, in descending order of the number of these keys.
    pub groups: Vec<GroupStats<G>>,
    /// The sum of the statistics of all other groups. `group` is the number of these groups, and `capacity_left` is the sum over those that have a
    /// capacity.
    pub others: GroupStats<usize>,
}
