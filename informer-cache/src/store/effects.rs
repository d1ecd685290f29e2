//! SHELL. What a write is to those who follow the store: found before it commits, merged after it, told when no lock is held.
//!
//! The steps that are numbered here are those of a write ([`Inner`](crate::store::inner::Inner)); each function takes one feed's lock after the other.

use std::slice;
use std::sync::Arc;

use crate::Change;
use crate::changes::buffer::{Feeds, Merging};
use crate::changes::due::Due;
use crate::changes::pending::State;
use crate::changes::selection::{Findings, Own};
use crate::changes::step::{Last, Step};
use crate::signal::wakers::Wakers;
use crate::store::inner::Inner;
use crate::table::record::Record;
use crate::table::{Garbage, Side, Table};
use crate::watch::observer::{self, Listeners};

/// What a write leaves to be done without locks and after its turn: telling, waking, and dropping what is the user's.
pub(crate) struct Effects<K, V> {
    pub(crate) wakers: Wakers,
    pub(crate) garbage: Garbage,
    /// What nobody will hear of any more.
    pub(crate) dropped: Vec<Last<V>>,
    /// Whether a consumer turned out to be gone.
    pub(crate) detached: bool,
    pub(crate) steps: Steps<K, V>,
    /// What the indexes said.
    pub(crate) side: Option<Side>,
    pub(crate) sides: Vec<Side>,
    pub(crate) listeners: Option<Listeners<K, V>>,
    /// What may be the last to hold a feed, a former table, an object that was stale, a key that is stored already.
    pub(crate) feeds: Vec<Feeds<K, V>>,
    pub(crate) tables: Vec<Arc<Table<K, V>>>,
    pub(crate) stale: Option<Record<K, V>>,
    pub(crate) key: Option<K>,
}

/// What a write did to the keys.
pub(crate) enum Steps<K, V> {
    None,
    One(Step<K, V>),
    Many(Vec<Step<K, V>>),
}

impl<K, V> Steps<K, V> {
    pub(crate) fn as_slice(&self) -> &[Step<K, V>] {
        match self {
            Self::None => &[],
            Self::One(step) => slice::from_ref(step),
            Self::Many(steps) => steps,
        }
    }
}

// Not derived: nothing is asked of the types.
impl<K, V> Default for Effects<K, V> {
    fn default() -> Self {
        Self {
            wakers: Wakers::default(),
            garbage: Garbage::default(),
            dropped: Vec::new(),
            detached: false,
            steps: Steps::None,
            side: None,
            sides: Vec::new(),
            listeners: None,
            feeds: Vec::new(),
            tables: Vec::new(),
            stale: None,
            key: None,
        }
    }
}

impl<K: Clone, V> Effects<K, V> {
    /// Step 5 but for the drops, which are whoever owns this: they may panic. This does not.
    pub(crate) fn finish(&mut self, inner: &Inner<K, V>) {
        if let Some(listeners) = self.listeners.take() {
            observer::tell(listeners, self.steps.as_slice(), &inner.reading.schema);
        }
        if self.detached {
            self.feeds.push(inner.remove_detached());
        }
        std::mem::take(&mut self.wakers).wake();
    }

    /// What the caller is told of a write of many keys, once everybody else was. Clones keys and asks for identities.
    pub(crate) fn into_changes(self, inner: &Inner<K, V>) -> Vec<Change<K, V>> {
        let told = |step| Due::Changed(State::first(step)).changes(&inner.reading.schema, None);
        let mut changes: Vec<_> = self.steps.as_slice().iter().flat_map(told).flatten().collect();
        Change::sort(&mut changes);
        // Here, because what panics in its drop while this function returns would take the return value with it.
        drop(self);
        changes
    }
}

/// Step 2: what the steps, which are to be done to this table, are to each feed, and one ticket per feed and step. Compares keys and index values, and
/// changes nothing.
pub(crate) fn find<K: Eq, V>(
    feeds: &Feeds<K, V>,
    steps: &[Step<K, V>],
    sides: &[Side],
    table: &Table<K, V>,
) -> Findings<K, V> {
    let mut found = Findings::default();
    for (at, feed) in feeds.iter().enumerate() {
        match feed.interest() {
            Some(interest) => {
                let steps = interest.steps(steps, sides, table);
                let mut tickets = Vec::with_capacity(steps.len());
                feed.find(&steps, &mut tickets);
                found.own.push(Own { at, steps, tickets });
            }
            None => feed.find(steps, &mut found.tickets),
        }
    }
    found
}

/// Step 4, with what was found for these very feeds.
pub(crate) fn fan_out<K, V>(
    feeds: &Feeds<K, V>,
    steps: &[Step<K, V>],
    found: &Findings<K, V>,
    merging: Merging,
    effects: &mut Effects<K, V>,
) {
    for (at, feed) in feeds.iter().enumerate() {
        let (steps, tickets) = found.of(at, steps);
        let (wakers, dropped) = (&mut effects.wakers, &mut effects.dropped);
        let there = feed.merge(steps, tickets.iter().copied(), merging, wakers, dropped);
        effects.detached |= !there;
    }
}
