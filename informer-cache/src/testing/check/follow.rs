//! EDGE. Follows the changes of a source from a given version, with one watch after another, as an informer does.
//!
//! Cancel safety: if the deadline passes and a future of a watch is dropped, the watch is dropped, too.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use flyball_sync::{Nanos, Timer};

use super::{SourceRule, SourceViolation};
use crate::{Schema, Source, SourceError, Version, WatchEvent, WatchRequest, WatchStream};

/// The keys that exist, with their versions.
pub(super) type Objects<K> = BTreeMap<K, Version>;

/// The known objects of a source, and the watch whose events update them.
pub(super) struct Follow<K, S: Source> {
    schema: Schema<K, S::Object>,
    pub(super) known: Objects<K>,
    deleted: Objects<K>,
    /// The newest delivered version, from which the next watch begins.
    pub(super) position: Version,
    /// The version of the newest bookmark.
    covered: Version,
    watch: Option<S::Watch>,
}

/// The effect of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// The event reports a change.
    News,
    /// The event is older than the known state, or repeats it.
    Stale,
    /// The event has no object: it is a bookmark, or the end of the initial list.
    Nothing,
}

impl<K: Ord + Clone + fmt::Debug, S: Source> Follow<K, S> {
    pub(super) fn new(schema: Schema<K, S::Object>, known: Objects<K>, position: Version) -> Self {
        Self { schema, known, deleted: Objects::new(), position, covered: Version::ZERO, watch: None }
    }

    /// Drops the watch, so that the next event comes from a new watch.
    pub(super) fn interrupt(&mut self) {
        self.watch = None;
    }

    /// Returns the next event, or `None` if the `deadline` passes first. If a watch ends normally, opens a new one.
    pub(super) async fn next(
        &mut self,
        source: &S,
        timer: &impl Timer,
        deadline: Nanos,
    ) -> Result<Option<WatchEvent<S::Object>>, SourceError> {
        loop {
            let watch = match &mut self.watch {
                Some(watch) => watch,
                none => {
                    let request = request(self.position);
                    match until(timer, deadline, source.watch(request)).await {
                        None => return Ok(None),
                        Some(opened) => none.insert(opened?),
                    }
                }
            };
            match until(timer, deadline, watch.next()).await {
                Some(Some(event)) => {
                    return match event {
                        Ok(event) => Ok(Some(event)),
                        Err(error) => {
                            self.interrupt();
                            Err(error)
                        }
                    };
                }
                Some(None) => {
                    self.interrupt();
                    // Without this sleep, a polling source that responds immediately would keep this loop spinning until the deadline.
                    sleep(timer, Duration::from_millis(1)).await;
                }
                None => {
                    self.interrupt();
                    return Ok(None);
                }
            }
            if timer.now() >= deadline {
                return Ok(None);
            }
        }
    }

    /// Applies an event as an informer does, by the version of its object.
    pub(super) fn apply(&mut self, event: &WatchEvent<S::Object>) -> Result<Applied, SourceViolation> {
        let object = match event {
            WatchEvent::Bookmark(version) | WatchEvent::InitialListEnd(version) => {
                self.covered = self.covered.max(*version);
                self.position = self.position.max(*version);
                return Ok(Applied::Nothing);
            }
            WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => object,
        };
        let (key, version) = (self.schema.key(object), self.schema.version(object));
        self.position = self.position.max(version);
        let before = self.known.get(&key).copied();
        let is_deletion = matches!(event, WatchEvent::Deleted(_));
        let newer = before.or(self.deleted.get(&key).copied()).is_none_or(|before| version > before);
        // Some sources deliver a deletion with the version of the last change of the object.
        let news = newer || is_deletion && before == Some(version);
        if !news || is_deletion && before.is_none() {
            return Ok(Applied::Stale);
        }
        if newer && version <= self.covered {
            let detail = format!("{key:?} at version {version} came after the bookmark {}", self.covered);
            return Err(SourceViolation::new(SourceRule::Bookmarks, detail));
        }
        if is_deletion {
            self.known.remove(&key);
            self.deleted.insert(key, version);
        } else {
            self.known.insert(key, version);
        }
        Ok(Applied::News)
    }

    /// Returns the key of an event's object.
    pub(super) fn key(&self, event: &WatchEvent<S::Object>) -> Option<K> {
        event.object().map(|object| self.schema.key(object))
    }
}

/// Creates a request for a watch from this version, without a streaming list.
pub(super) fn request(from_version: Version) -> WatchRequest {
    WatchRequest { from_version, streaming_list: false, timeout: Duration::from_secs(300) }
}

/// Returns the output of a future, or `None` if the deadline passes first.
pub(super) async fn until<R>(
    timer: &impl Timer,
    deadline: Nanos,
    future: impl Future<Output = R>,
) -> Option<R> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Poll::Ready(result) = future.as_mut().poll(context) {
            return Poll::Ready(Some(result));
        }
        if timer.now() >= deadline {
            return Poll::Ready(None);
        }
        timer.wake_at(deadline, context.waker());
        Poll::Pending
    })
    .await
}

async fn sleep(timer: &impl Timer, time: Duration) {
    until(timer, timer.now() + time, pending::<()>()).await;
}
