//! SHELL. The part of a write that runs after the store's locks are released, and the delivery of changes to subscribers and observers.
//!
//! Step numbers refer to the five steps of a write, which [`StoreInner`](crate::store::inner::StoreInner) lists. [`fan_out`] takes the locks of the
//! subscriptions one after the other.

use std::sync::Arc;

use crate::Change;
use crate::changes::buffer::{Merging, SubscriptionBuffers};
use crate::changes::findings::Findings;
use crate::changes::observer_fn::{self, ObserverFns};
use crate::changes::pending::Dropped;
use crate::signal::wakers::Wakers;
use crate::store::inner::StoreInner;
use crate::table::Garbage;
use crate::table::record::{AllValues, Record};

/// The part of a write that must run without locks: it reports changes to observers, wakes tasks, and drops the user's values.
pub(crate) struct Effects<K, V> {
    pub(crate) wakers: Wakers,
    pub(crate) garbage: Garbage,
    /// Object states that were removed from pending changes when a later change was merged into them.
    pub(crate) dropped: Vec<Dropped<K, V>>,
    /// Whether the write found a buffer whose subscriber has been dropped.
    pub(crate) detached: bool,
    pub(crate) change: Option<Change<K, V>>,
    /// The index values of the written object, some of which may not have been stored.
    pub(crate) values: AllValues,
    pub(crate) observer_fns: Option<ObserverFns<K, V>>,
    /// This field and the next three may hold the last reference to a subscription's buffer, the replaced object, an object that is not stored (because
    /// it is stale, or because it is the last state of a deleted object), or a key that is stored already.
    pub(crate) buffers: Vec<SubscriptionBuffers<K, V>>,
    pub(crate) old: Option<Arc<V>>,
    pub(crate) unused: Option<Record<K, V>>,
    pub(crate) key: Option<K>,
}

// `Default` is not derived, because a derive would require `K: Default` and `V: Default`.
impl<K, V> Default for Effects<K, V> {
    fn default() -> Self {
        Self {
            wakers: Wakers::default(),
            garbage: Garbage::default(),
            dropped: Vec::new(),
            detached: false,
            change: None,
            values: AllValues::new(),
            observer_fns: None,
            buffers: Vec::new(),
            old: None,
            unused: None,
            key: None,
        }
    }
}

impl<K, V> Effects<K, V> {
    /// Performs step 5, except that it does not drop the user's values: their destructors may panic, so these values are dropped only with this
    /// struct. Never panics.
    pub(crate) fn finish(&mut self, inner: &StoreInner<K, V>) {
        if let Some(observer_fns) = self.observer_fns.take() {
            observer_fn::report(&observer_fns, self.change.as_slice());
        }
        if self.detached {
            self.buffers.push(inner.remove_detached());
        }
        std::mem::take(&mut self.wakers).wake();
    }
}

/// Performs step 4 for all subscriptions. `findings` must have been looked up in exactly these buffers.
pub(crate) fn fan_out<K, V>(
    buffers: &SubscriptionBuffers<K, V>,
    changes: &[Change<K, V>],
    findings: &Findings,
    merging: Merging,
    effects: &mut Effects<K, V>,
) {
    for (at, buffer) in buffers.iter().enumerate() {
        let (part, unseen) =
            (0..findings.count(at, changes.len()), (&mut effects.wakers, &mut effects.dropped));
        let is_there = findings.merge((at, buffer), changes, part, (merging, true), unseen);
        effects.detached |= !is_there;
    }
}
