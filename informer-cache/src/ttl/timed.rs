//! SHELL. An object and how long it lives. Guards nothing; its drop takes the lock of the agenda.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use flyball_sync::Nanos;

use super::agenda::{Agenda, Leave, Place};

/// An object in a [`TtlStore`](crate::TtlStore), with its times. Derefs to the object, so that functions of a key or an index are written as for
/// the object alone.
pub struct Timed<V> {
    object: Arc<V>,
    written: Nanos,
    place: Place,
    agenda: Option<Arc<dyn Leave>>,
}

impl<V> Timed<V> {
    pub(super) fn new(object: V, now: Nanos, ttl: Option<Duration>) -> Self {
        let deadline = ttl.map_or(Place::NEVER, |ttl| now + ttl);
        let place = Place { deadline, ticket: 0 };
        Self { object: Arc::new(object), written: now, place, agenda: None }
    }

    pub(super) fn enter<K: Send + Sync + 'static>(&mut self, agenda: &Arc<Agenda<K>>, key: &Arc<K>) {
        self.place = agenda.enter(self.place.deadline, key);
        self.agenda = Some(agenda.clone());
    }

    /// The same, to say what is to be deleted. It has no place.
    pub(super) fn tombstone(&self) -> Self {
        Self { object: self.object.clone(), written: self.written, place: self.place, agenda: None }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// The object itself.
    #[must_use]
    pub fn object(&self) -> &Arc<V> {
        &self.object
    }

    /// When it was written.
    #[must_use]
    pub fn written(&self) -> Nanos {
        self.written
    }

    /// The last instant at which it is there; `None` if it is for ever.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        Some(self.place.deadline).filter(|deadline| *deadline != Place::NEVER)
    }

    /// Whether it is there at this instant.
    #[must_use]
    pub fn is_alive_at(&self, now: Nanos) -> bool {
        now <= self.place.deadline
    }
}

impl<V> Deref for Timed<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.object
    }
}

/// Nobody has to sweep it any more.
impl<V> Drop for Timed<V> {
    fn drop(&mut self) {
        if let Some(agenda) = &self.agenda {
            agenda.leave(self.place);
        }
    }
}

impl<V: fmt::Debug> fmt::Debug for Timed<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timed")
            .field("object", &self.object)
            .field("written", &self.written)
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}
