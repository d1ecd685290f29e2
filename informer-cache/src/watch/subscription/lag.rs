//! PURE. How many objects and changes still have to be delivered to a subscriber.

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
    /// The number of objects of the snapshot that still have to be delivered.
    pub initial_remaining: usize,
    /// The number of keys whose changes still have to be delivered.
    pub pending: usize,
    /// A version of the store up to which every change has been delivered to the subscriber; [`Version::ZERO`] after a
    /// [restart](crate::SubscriptionEvent::Restarted), until the objects are delivered again.
    pub delivered_version: Version,
    /// The version of the store up to which every change has been merged into the buffer of the subscription.
    pub merged_version: Version,
}
