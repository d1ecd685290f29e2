//! PURE. What a consumer is told next, from what is pending: where identity is asked for.
//!
//! Runs the user's identity function and clones keys, so it belongs outside every lock. A due item stays with its
//! subscription until its changes exist; a panic on the way costs nothing.

use crate::pending::{Gone, State};
use crate::record::Record;
use crate::step::Last;
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

impl<K: Clone, V> Due<K, V> {
    /// The changes to tell, in order: none for an object that went before it was told, two where an object was replaced by
    /// another one.
    pub(crate) fn changes(&self, schema: &Schema<K, V>) -> [Option<Change<K, V>>; 2] {
        let key = |record: &Record<K, V>| record.key().clone();
        let added =
            |record: &Record<K, V>, initial| Some(Change::added(key(record), record.object.clone(), initial));
        let updated = |old: &Record<K, V>, new: &Record<K, V>| {
            Some(Change::updated(key(new), old.object.clone(), new.object.clone()))
        };
        let deleted = |old: &Record<K, V>, last: &Last<V>| {
            Some(Change::deleted(key(old), last.object.clone(), last.missed))
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
