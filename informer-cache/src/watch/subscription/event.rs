//! PURE. The items of a subscription: changes, and for a subscription with a bound also restarts.

use std::fmt;

use crate::Change;

/// An item of a subscription with a [bound](crate::SubscriptionBuilder::max_pending). The items of other subscriptions are [`Change`]s.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, SubscriptionEvent, Version};
///
/// let mut pods = Store::builder(Schema::new(|pod: &(u8, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
/// let mut changes = pods.subscription().max_pending(1.try_into()?).subscribe();
/// pods.upsert((1, 1));
/// pods.upsert((1, 2)); // the same key
/// assert!(matches!(changes.try_next(), Some(SubscriptionEvent::Change(change)) if change.object().1 == 2));
///
/// pods.upsert((1, 3));
/// pods.upsert((2, 3)); // two keys are too many
/// assert!(matches!(changes.try_next(), Some(SubscriptionEvent::Restarted)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub enum SubscriptionEvent<K, V> {
    /// A change.
    Change(Change<K, V>),
    /// More keys than the bound were pending, so the subscription has discarded their changes and has restarted. Discard all state that you derived
    /// from earlier changes: the subscription now delivers all stored objects as [initial](Change::is_initial) additions, and then every later
    /// change. If the store was dropped meanwhile, there are no objects, and the subscription ends.
    Restarted,
}

/// The item type of a subscription: [`Change`], or with a bound [`SubscriptionEvent`]. The trait is `pub`, but unreachable, so it is sealed.
pub trait SubscriptionItem<K, V>: Sized {
    #[doc(hidden)]
    fn change(change: Change<K, V>) -> Self;

    /// Returns the item for a restart. Called only if the subscription has a bound.
    #[doc(hidden)]
    fn restarted() -> Self;
}

impl<K, V> SubscriptionItem<K, V> for Change<K, V> {
    fn change(change: Change<K, V>) -> Self {
        change
    }

    fn restarted() -> Self {
        unreachable!("a subscription without a bound does not restart")
    }
}

impl<K, V> SubscriptionItem<K, V> for SubscriptionEvent<K, V> {
    fn change(change: Change<K, V>) -> Self {
        Self::Change(change)
    }

    fn restarted() -> Self {
        Self::Restarted
    }
}

impl<K: fmt::Debug, V> fmt::Debug for SubscriptionEvent<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change(change) => change.fmt(f),
            Self::Restarted => f.write_str("Restarted"),
        }
    }
}
