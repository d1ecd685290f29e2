//! PURE. What a consumer is told next, from what is pending: where identity and the consumer's filter are asked for.
//!
//! Runs the user's functions and clones keys, so it belongs outside every lock. A due item stays with its
//! subscription until its changes exist; a panic on the way costs nothing.
//!
//! | an object the filter | passed when it was told last | did not, or there was none |
//! |---|---|---|
//! | passes now | Updated | Added |
//! | does not, or it is gone | Deleted | nothing |
//!
//! This is exact, as `old` is what the consumer was told last: it holds that object if, and only if, the filter passes it.

use crate::changes::pending::{Gone, State};
use crate::changes::step::Last;
use crate::table::record::Record;
use crate::{Change, Schema};

/// Something taken out of a feed that its consumer has not been told yet.
pub(crate) enum Due<K, V> {
    /// An object of the first snapshot, with what has happened to it meanwhile.
    Initial { record: Record<K, V>, since: Option<State<K, V>> },
    /// A pending change.
    Changed(State<K, V>),
    /// An object to be told again.
    Resync(Record<K, V>),
}

/// Says which objects a consumer wants to know of.
pub(crate) type Filter<V> = dyn Fn(&V) -> bool + Send + Sync;

impl<K: Clone, V> Due<K, V> {
    /// The changes to tell, in order: none for an object that went before it was told, two where an object was replaced by
    /// another one.
    pub(crate) fn changes(
        &self,
        schema: &Schema<K, V>,
        filter: Option<&Filter<V>>,
    ) -> [Option<Change<K, V>>; 2] {
        let shown = |record: &Record<K, V>| filter.is_none_or(|filter| filter(&record.object));
        let key = |record: &Record<K, V>| record.key().clone();
        let added = |new: &Record<K, V>, initial| {
            shown(new).then(|| Change::added(key(new), new.object.clone(), initial))
        };
        let deleted = |old: &Record<K, V>, last: &Last<V>| {
            shown(old).then(|| Change::deleted(key(old), last.object.clone(), last.missed))
        };
        let updated = |old: &Record<K, V>, new: &Record<K, V>| match (shown(old), shown(new)) {
            (true, true) => Some(Change::updated(key(new), old.object.clone(), new.object.clone())),
            (false, true) => Some(Change::added(key(new), new.object.clone(), false)),
            (true, false) => Some(Change::deleted(key(old), old.object.clone(), false)),
            (false, false) => None,
        };
        match self {
            Self::Initial { record, since: None } => [added(record, true), None],
            Self::Initial { since: Some(State::Deleted { .. }), .. } => [None, None],
            Self::Initial {
                since:
                    Some(State::Added { new, .. } | State::Updated { new, .. } | State::Replaced { new, .. }),
                ..
            } => [added(new, true), None],
            Self::Resync(record) => [updated(record, record), None],
            Self::Changed(State::Added { new, initial }) => [added(new, *initial), None],
            Self::Changed(State::Updated { old, new }) => [updated(old, new), None],
            Self::Changed(State::Deleted { old, gone }) => [deleted(old, gone.of(old, schema)), None],
            Self::Changed(State::Replaced { old, gone, new }) => {
                match schema.same(&old.object, &new.object) {
                    true => [updated(old, new), None],
                    false => [deleted(old, gone.of(old, schema)), added(new, false)],
                }
            }
        }
    }
}

impl<V> Gone<V> {
    /// The last known state of `old`: the latest end under its key, if that was still its own.
    fn of<K>(&self, old: &Record<K, V>, schema: &Schema<K, V>) -> &Last<V> {
        match &self.latest {
            Some(latest) if schema.same(&old.object, &latest.object) => latest,
            _ => &self.first,
        }
    }
}
