//! PURE. A consistent view of a store with expiry, at one instant.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::ops::RangeBounds;
use std::sync::Arc;

use flyball_sync::Nanos;

use crate::{Index, IndexError, MissingIndex, Query, Snapshot, TtlEntry};

/// A consistent view of a [`TtlStore`](crate::TtlStore): the objects that were visible when the snapshot was taken. Objects do not expire in a
/// snapshot.
///
/// As with a [`Snapshot`], it takes O(1) time to take or clone a `TtlSnapshot`. Objects that had expired when the snapshot was taken are skipped. So
/// it takes O(n) time to count the objects, for n stored objects, and the iterators have no exact length.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, ManualClock, TtlEntry, TtlSnapshot, TtlStore};
/// use std::time::Duration;
///
/// type Session = (u32, &'static str, u64);
/// static BY_USER: Index<TtlEntry<Session>, &str> = Index::new("user", |session| session.1);
///
/// let clock = ManualClock::new();
/// let sessions = TtlStore::builder(|session: &TtlEntry<Session>| session.0)
///     .ttl_with(|session| Some(Duration::from_secs(session.2)))
///     .index(&BY_USER)
///     .clock(clock.clone())
///     .build()?;
/// sessions.replace([(1, "ann", 10), (2, "ann", 60), (3, "ben", 60)]);
/// clock.advance(Duration::from_secs(30));
///
/// let view: TtlSnapshot<u32, Session> = sessions.snapshot();
/// assert!(!view.contains_key(&1) && view.keys().count() == 2); // expired objects are not visible
/// assert_eq!(view.keys_by_index(&BY_USER, "ann")?.collect::<Vec<_>>(), [&2]);
/// assert!(view.index_values(&BY_USER)?.all(|(_, sessions)| sessions == 1));
/// assert_eq!(view.index_errors().count(), 0);
///
/// clock.advance(Duration::from_secs(60));
/// assert!(sessions.is_empty() && view.len() == 2); // the snapshot keeps its instant
/// assert!(view.taken_at() < sessions.snapshot().taken_at());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TtlSnapshot<K, V> {
    view: Snapshot<K, TtlEntry<V>>,
    at: Nanos,
}

impl<K, V> TtlSnapshot<K, V> {
    pub(super) fn new(view: Snapshot<K, TtlEntry<V>>, at: Nanos) -> Self {
        Self { view, at }
    }

    /// Returns the instant at which the snapshot was taken.
    #[must_use]
    pub fn taken_at(&self) -> Nanos {
        self.at
    }

    /// Returns the number of visible objects, in O(n) time for n stored objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects().count()
    }

    /// Returns whether there is no visible object, in O(n) time for n expired objects that had not been evicted yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects().next().is_none()
    }

    /// Returns an iterator over all objects, with their keys and times.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &TtlEntry<V>)> {
        let all = self.view.iter().map(|(key, timed)| (key, &**timed));
        all.filter(|(_, timed)| timed.is_alive_at(self.at))
    }

    /// Returns an iterator over all objects.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<V>> {
        self.iter().map(|(_, timed)| timed.object())
    }

    /// Returns an iterator over all keys.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }
}

impl<K: Eq + Hash, V: 'static> TtlSnapshot<K, V> {
    /// Returns the object under a key.
    pub fn get<Q>(&self, key: &Q) -> Option<&Arc<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.entry(key).map(TtlEntry::object)
    }

    /// Returns the object under a key, with the instant at which it was written and the instant at which it expires.
    pub fn entry<Q>(&self, key: &Q) -> Option<&TtlEntry<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.view.get(key).map(|timed| &**timed).filter(|timed| timed.is_alive_at(self.at))
    }

    /// Returns whether there is an object under this key.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.entry(key).is_some()
    }

    /// Returns the objects that have `value` in an index; an unknown value has no objects.
    ///
    /// # Errors
    /// Returns an error if the store has no such index.
    pub fn by_index<IK, Q>(
        &self,
        index: &Index<TtlEntry<V>, IK>,
        value: &Q,
    ) -> Result<impl Iterator<Item = &Arc<V>> + use<'_, K, V, IK, Q>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        let hits = self.view.by_index(index, value)?;
        Ok(hits.filter(|timed| timed.is_alive_at(self.at)).map(|timed| timed.object()))
    }

    /// Returns the keys of the objects that have `value` in an index; an unknown value has no objects.
    ///
    /// # Errors
    /// Returns an error if the store has no such index.
    pub fn keys_by_index<IK, Q>(
        &self,
        index: &Index<TtlEntry<V>, IK>,
        value: &Q,
    ) -> Result<impl Iterator<Item = &K> + use<'_, K, V, IK, Q>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        Ok(self.view.keys_by_index(index, value)?.filter(|key| self.contains_key(*key)))
    }

    /// Returns the values that at least one object has in an index, each with the number of its objects. It takes O(n) time to read all of them, for
    /// n entries of the index.
    ///
    /// # Errors
    /// Returns an error if the store has no such index.
    pub fn index_values<IK: Eq + Hash + 'static>(
        &self,
        index: &Index<TtlEntry<V>, IK>,
    ) -> Result<impl Iterator<Item = (&IK, usize)>, MissingIndex> {
        let values = self.view.index_values(index)?;
        let counted = values.map(move |(value, _)| {
            let alive = self.by_index(index, value).map_or(0, Iterator::count);
            (value, alive)
        });
        Ok(counted.filter(|(_, alive)| *alive > 0))
    }

    /// Returns the objects whose values are in a range, in the order of the values, like [`Snapshot::range`].
    ///
    /// # Errors
    /// Returns an error if the store has no such index.
    ///
    /// # Panics
    /// Panics if the start of the range is greater than its end.
    pub fn range<IK, Q, R>(
        &self,
        index: &Index<TtlEntry<V>, IK>,
        range: R,
    ) -> Result<impl Iterator<Item = (&IK, &Arc<V>)> + use<'_, K, V, IK, Q, R>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Ord + ?Sized,
        R: RangeBounds<Q>,
    {
        let hits = self.view.range(index, range)?;
        let alive = hits.filter(|(_, timed)| timed.is_alive_at(self.at));
        Ok(alive.map(|(value, timed)| (value, timed.object())))
    }

    /// Returns the objects that match a [`Query`]. `ask` adds the conditions to the query, for example a label selector and an index value.
    ///
    /// # Errors
    /// Returns an error if the store has no such index.
    pub fn query<'a>(
        &'a self,
        ask: impl FnOnce(Query<'a, K, TtlEntry<V>>) -> Result<Query<'a, K, TtlEntry<V>>, MissingIndex>,
    ) -> Result<impl Iterator<Item = &'a Arc<V>>, MissingIndex> {
        let hits = ask(self.view.query())?.iter();
        Ok(hits.filter(|timed| timed.is_alive_at(self.at)).map(|timed| timed.object()))
    }

    /// Returns the errors of index functions, each with the key of the object and the name of the index. It takes O(n) time to read all of them, for
    /// n errors.
    pub fn index_errors(&self) -> impl Iterator<Item = (&K, &'static str, &Arc<IndexError>)> {
        self.view.index_errors().filter(|(key, ..)| self.contains_key(*key))
    }
}

/// Takes O(1) time, because the clone shares the data of the snapshot.
impl<K, V> Clone for TtlSnapshot<K, V> {
    fn clone(&self) -> Self {
        Self { view: self.view.clone(), at: self.at }
    }
}

impl<K, V> fmt::Debug for TtlSnapshot<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TtlSnapshot").field("len", &self.len()).field("at", &self.at).finish()
    }
}
