//! PURE. How many keys an order has where, as data.

/// How many keys of a priority are Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PriorityStats {
    /// The priority.
    pub priority: i8,
    /// Keys in its line.
    pub ready: usize,
}

/// The keys of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct GroupStats<G> {
    /// The group.
    pub group: G,
    /// All its keys.
    pub total: usize,
    /// Those that are Ready.
    pub ready: usize,
    /// Those that are leased.
    pub leased: usize,
    /// Those that are Ready and that nobody gets, as the group is [suspended](crate::Fair::max_leased).
    pub suspended: usize,
    /// How many more keys there is room for, whatever room the queue has; `None` without a [capacity](crate::Fair::capacity) of the
    /// group.
    pub capacity_left: Option<usize>,
}

impl GroupStats<usize> {
    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        let room = self.capacity_left.into_iter().chain(other.capacity_left).reduce(usize::saturating_add);
        Self {
            group: self.group + other.group,
            total: self.total + other.total,
            ready: self.ready + other.ready,
            leased: self.leased + other.leased,
            suspended: self.suspended + other.suspended,
            capacity_left: room,
        }
    }
}

/// The keys of some groups by name, and those of the others together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TopGroups<G> {
    /// The groups with the most Ready keys, those with more first.
    pub groups: Vec<GroupStats<G>>,
    /// All others, added up: `group` is their number. Room is that of those with a capacity.
    pub others: GroupStats<usize>,
}
