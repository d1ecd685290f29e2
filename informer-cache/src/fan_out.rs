//! SHELL. What a write is to the feeds: found before it commits, and told after it.
//!
//! The locks, and the steps that are numbered here, are those of a write ([`Inner`](crate::inner::Inner)); each function takes one feed's lock after the
//! other.

use std::sync::Arc;

use crate::Version;
use crate::feed::Feeds;
use crate::interest::{Findings, Own};
use crate::step::{Last, Step};
use crate::table::{Garbage, Side, Table};
use crate::wakers::Wakers;

/// What a write leaves to be done without locks.
pub(crate) struct Effects<V> {
    pub(crate) wakers: Wakers,
    pub(crate) garbage: Garbage,
    /// What nobody will hear of any more.
    pub(crate) dropped: Vec<Last<V>>,
    /// Whether a consumer turned out to be gone.
    pub(crate) detached: bool,
}

// Not derived: nothing is asked of `V`.
impl<V> Default for Effects<V> {
    fn default() -> Self {
        Self { wakers: Wakers::default(), garbage: Garbage::default(), dropped: Vec::new(), detached: false }
    }
}

/// Step 2 for the feeds that are not of everything: what the steps, which are to be done to this table, are to each.
pub(crate) fn narrow<K: Eq, V>(
    feeds: &Feeds<K, V>,
    steps: &[Step<K, V>],
    sides: &[Side<V>],
    table: &Table<K, V>,
    found: &mut Findings<K, V>,
) {
    for (at, feed) in feeds.iter().enumerate() {
        if let Some(interest) = feed.interest() {
            let steps = interest.steps(steps, sides, table);
            found.own.push(Own { at, steps, tickets: Vec::new() });
        }
    }
}

/// Step 2 for the feeds: one ticket per feed and step.
pub(crate) fn find<K: Eq, V>(feeds: &Feeds<K, V>, steps: &[Step<K, V>], found: &mut Findings<K, V>) {
    for feed in feeds.iter().filter(|feed| feed.interest().is_none()) {
        feed.find(steps, &mut found.tickets);
    }
    for own in &mut found.own {
        feeds[own.at].find(&own.steps, &mut own.tickets);
    }
}

/// Step 4. `found` belongs to the `known` feeds. A feed registered since begins with a snapshot from before the commit, and has heard of
/// nothing: there is nothing to be found in it.
pub(crate) fn fan_out<K, V>(
    known: &Feeds<K, V>,
    feeds: &Feeds<K, V>,
    steps: &[Step<K, V>],
    found: &Findings<K, V>,
    version: Version,
    first_list: bool,
    effects: &mut Effects<V>,
) {
    for (at, feed) in feeds.iter().enumerate() {
        let place = match known.get(at) {
            Some(same) if Arc::ptr_eq(same, feed) => Some(at),
            _ => known.iter().position(|known| Arc::ptr_eq(known, feed)),
        };
        let (steps, found) = found.of(place, steps);
        let (wakers, dropped) = (&mut effects.wakers, &mut effects.dropped);
        let there = feed.merge(steps, found.iter().copied(), version, first_list, wakers, dropped);
        effects.detached |= !there;
    }
}
