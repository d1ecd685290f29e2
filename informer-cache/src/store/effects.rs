//! SHELL. The part of a write that runs after the store's locks are released, and the delivery of changes to subscribers and observers.
//!
//! Step numbers refer to the five steps of a write, which [`StoreInner`](crate::store::inner::StoreInner) lists. [`fan_out`] takes the locks of the
//! subscriptions one after the other.

use std::sync::Arc;

use flyball_sync::panics::DropContained;

use crate::Change;
use crate::changes::buffer::{Merging, SubscriptionBuffer};
use crate::changes::findings::Findings;
use crate::changes::observer_fn::{self, ObserverFns};
use crate::changes::pending::Dropped;
use crate::changes::subscribers::SubscriptionBuffers;
use crate::signal::wakers::Wakers;
use crate::store::inner::StoreInner;
use crate::table::record::{AllValues, Object, Record};
use crate::table::{Garbage, KeyWrite};

/// The part of a write that must run without locks: it wakes tasks, reports changes to observers, and drops the user's values.
pub(crate) struct Effects<K, V> {
    pub(crate) wakers: Wakers,
    pub(crate) garbage: Garbage,
    /// Object states that were removed from pending changes when a later change was merged into them.
    pub(crate) dropped: Vec<Dropped<K, V>>,
    /// Whether the write found a buffer whose subscriber has been dropped.
    pub(crate) detached: bool,
    pub(crate) change: Option<Change<K, V>>,
    pub(crate) observer_fns: Option<ObserverFns<K, V>>,
    /// Lists that may hold the last reference to the buffer of a subscription.
    pub(crate) buffers: Vec<SubscriptionBuffers<K, V>>,
    /// Single buffers to which this may be the last reference.
    pub(crate) awaited: Vec<Arc<SubscriptionBuffer<K, V>>>,
    /// The write until its commit. It stays here if user code panics before the commit, or if the write is stale.
    pub(crate) write: Option<KeyWrite<K, V>>,
    /// The row of the object that was written or deleted; `None` if the write changed nothing.
    pub(crate) row: Option<u32>,
    /// The key of the written object, if the store has an equal one already.
    pub(crate) key: Option<DropContained<K>>,
    /// The index values of the written object, some of which may not have been stored.
    pub(crate) values: AllValues,
    /// The replaced or deleted object, if no change holds it.
    pub(crate) old: Option<Object<V>>,
    /// The record of a deletion.
    pub(crate) unused: Option<Record<K, V>>,
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
            observer_fns: None,
            buffers: Vec::new(),
            awaited: Vec::new(),
            write: None,
            row: None,
            key: None,
            values: AllValues::new(),
            old: None,
            unused: None,
        }
    }
}

impl<K, V> Effects<K, V> {
    /// Performs step 5, except that it does not drop the user's values: their destructors may panic, so these values are dropped only with this
    /// struct. Never panics.
    pub(crate) fn finish(&mut self, inner: &StoreInner<K, V>) {
        // Tasks are woken first, so that a slow observer does not delay them: readers can see the change already.
        std::mem::take(&mut self.wakers).wake();
        if let Some(observer_fns) = self.observer_fns.take() {
            observer_fn::report(&observer_fns, self.change.as_slice());
        }
        if self.detached {
            self.awaited.extend(inner.remove_detached());
        }
    }
}

/// Performs step 4 for all subscriptions. `findings` must have been looked up in exactly these buffers.
pub(crate) fn fan_out<K, V>(
    inner: &StoreInner<K, V>,
    buffers: &SubscriptionBuffers<K, V>,
    changes: &[Change<K, V>],
    findings: &Findings<K, V>,
    merging: Merging,
    effects: &mut Effects<K, V>,
) {
    for (at, buffer) in buffers.all.iter().enumerate() {
        let unseen = (&mut effects.wakers, &mut effects.dropped);
        let is_there = findings.merge((at, buffer), changes, 0..changes.len(), (merging, true), unseen);
        effects.detached |= !is_there;
    }
    for at in 0..findings.selecting() {
        let unseen = (&mut effects.wakers, &mut effects.dropped);
        findings.merge_selecting(at, changes, 0..findings.count(at), (merging, true), unseen);
    }
    if buffers.has_selecting() {
        effects.awaited.extend(inner.progress.merged(merging, &mut effects.wakers));
    }
}
