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
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// The keys of some groups by name, and those of the others together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TopGroups<G> {
    /// The groups with the most Ready keys, those with more first.
    pub groups: Vec<GroupStats<G>>,
    /// All others: `group` is their number.
    pub others: GroupStats<usize>,
}
