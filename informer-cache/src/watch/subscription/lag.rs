//! PURE. The number of objects and changes that are still to be delivered to a subscriber.

use crate::Version;

/// How far a subscriber is behind.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Lag, Schema, Store, Version};
///
/// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
/// pods.upsert(("a", 1));
/// let mut changes = pods.subscribe();
/// pods.upsert(("b", 2));
/// pods.upsert(("b", 3)); // one key
/// let Lag { initial_remaining, pending, .. } = changes.lag();
/// assert_eq!((initial_remaining, pending, changes.pending()), (1, 1, 2));
///
/// while changes.try_next().is_some() {}
/// let lag = changes.lag();
/// assert_eq!((lag.pending, lag.delivered_version, lag.merged_version), (0, Version::new(3), Version::new(3)));
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Objects of the snapshot that are still to be delivered.
    pub initial_remaining: usize,
    /// Keys with changes still to be delivered.
    pub pending: usize,
    /// The store's version up to which every change has been delivered.
    pub delivered_version: Version,
    /// The store's version up to which every change has been merged.
    pub merged_version: Version,
}
