//! SHELL. An object with its deadline. This type has no lock; its `drop` takes the lock of the expiry queue.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use flyball_sync::Nanos;

use super::deadlines::{ExpiryQueue, Leave, Position};

/// An object in a [`TtlStore`](crate::TtlStore), with the instant at which it was written and the instant at which it expires. The entry derefs to
/// the object, so key functions and index functions can use it like the object itself.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{ManualClock, Nanos, TtlEntry, TtlStore};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let words = TtlStore::builder(|word: &TtlEntry<&str>| word.len())
///     .ttl(Duration::from_secs(60))
///     .clock(clock.clone())
///     .build()?;
/// clock.advance(Duration::from_secs(1));
/// words.upsert("one");
///
/// let view = words.snapshot();
/// let entry: &TtlEntry<&str> = view.entry(&3).expect("it was just written");
/// assert_eq!(entry.written_at(), Nanos::ZERO + Duration::from_secs(1));
/// assert_eq!(entry.expires_at(), Some(entry.written_at() + Duration::from_secs(60)));
/// assert_eq!(entry.to_uppercase(), "ONE"); // it derefs to the object
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
pub struct TtlEntry<V> {
    object: Arc<V>,
    written: Nanos,
    place: Position,
    expiry: Option<Arc<dyn Leave>>,
}

impl<V> TtlEntry<V> {
    pub(super) fn new(object: V, now: Nanos, ttl: Option<Duration>) -> Self {
        let deadline = ttl.map_or(Position::NEVER, |ttl| now + ttl);
        let place = Position { deadline, ticket: 0 };
        Self { object: Arc::new(object), written: now, place, expiry: None }
    }

    pub(super) fn enter<K: Send + Sync + 'static>(&mut self, expiry: &Arc<ExpiryQueue<K>>, key: &Arc<K>) {
        self.place = expiry.enter(self.place.deadline, key);
        self.expiry = Some(expiry.clone());
    }

    /// Returns a copy of the entry for use as the last state in a deletion, so that the deletion does not affect a later object under the same key.
    /// When the copy is dropped, the deadline stays in the expiry queue.
    pub(super) fn tombstone(&self) -> Self {
        Self { object: self.object.clone(), written: self.written, place: self.place, expiry: None }
    }

    pub(super) fn place(&self) -> Position {
        self.place
    }

    /// Returns the object itself.
    #[must_use]
    pub fn object(&self) -> &Arc<V> {
        &self.object
    }

    /// Returns the instant at which the object was written.
    #[must_use]
    pub fn written_at(&self) -> Nanos {
        self.written
    }

    /// Returns the last instant at which the object is visible, or `None` if it never expires.
    #[must_use]
    pub fn expires_at(&self) -> Option<Nanos> {
        Some(self.place.deadline).filter(|deadline| *deadline != Position::NEVER)
    }

    /// Returns whether the object is visible at this instant.
    pub(super) fn is_alive_at(&self, now: Nanos) -> bool {
        now <= self.place.deadline
    }
}

impl<V> Deref for TtlEntry<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.object
    }
}

/// Removes the deadline from the expiry queue: the object is no longer stored, so no sweep has to find it.
impl<V> Drop for TtlEntry<V> {
    fn drop(&mut self) {
        if let Some(expiry) = &self.expiry {
            expiry.leave(self.place);
        }
    }
}

impl<V: fmt::Debug> fmt::Debug for TtlEntry<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TtlEntry")
            .field("object", &self.object)
            .field("written", &self.written)
            .field("deadline", &self.expires_at())
            .finish_non_exhaustive()
    }
}
