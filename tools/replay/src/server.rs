//! EDGE. The recorded cluster, which acts as an API server. It serves lists and watches of six resources, up to the horizon.
//!
//! Cancel safety: the only state of a watch is its position, so a dropped watch is closed. A cut watch or a compaction removes nothing from the
//! recording. A watch from a version that has not been compacted delivers every event that follows this version; any other watch fails with "gone",
//! and its informer relists.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flyball_informer_cache::{
    ListRequest, ListVersion, Page, Source, SourceError, SourceErrorKind, Version, WatchEvent, WatchRequest,
    WatchStream,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::faults::Injector;
use crate::horizon::Horizon;
use crate::objects::{Moment, Object};
use crate::trace::{Record, Stream};

/// The data that the six resources of one pass share.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) horizon: Horizon,
    pub(crate) faults: Arc<Injector>,
    /// A fault for the test of the comparison: the event at this position is not delivered.
    pub(crate) lose: Option<usize>,
    /// For each position, the time at which it happened; empty if these times are not measured.
    pub(crate) happened: Vec<Moment>,
}

/// One resource of the recorded cluster.
#[derive(Debug)]
pub(crate) struct Recorded<V> {
    cluster: Arc<Cluster>,
    /// The number of this resource.
    resource: usize,
    stream: Arc<Stream<V>>,
    /// How many records have been compacted. A watch that starts before the last of these fails with "gone".
    compacted: Arc<AtomicUsize>,
    /// A list of which a client has not requested all pages yet.
    listing: Mutex<Option<Listing<V>>>,
}

/// A list. Some of its pages have been returned.
#[derive(Debug)]
struct Listing<V> {
    /// The list shows the state after this number of records.
    at: usize,
    items: Vec<Arc<V>>,
}

impl<V: Object> Recorded<V> {
    pub(crate) fn new(cluster: &Arc<Cluster>, resource: usize, stream: &Arc<Stream<V>>) -> Self {
        let (cluster, stream) = (cluster.clone(), stream.clone());
        Self { cluster, resource, stream, compacted: Arc::default(), listing: Mutex::default() }
    }

    /// Returns how many records have happened.
    fn present(&self) -> usize {
        let place = self.cluster.horizon.place();
        self.stream.records.partition_point(|record| record.place < place)
    }

    /// Returns the error "gone" if the state after `at` records has been compacted. The request then fails because of the compaction, so this is
    /// counted as an injected fault.
    fn check_kept(&self, at: usize) -> Result<(), SourceError> {
        // Ordering: Relaxed; the number only increases. If an old value is read, the only effect is that the request succeeds, as it would have a
        // moment earlier.
        if at >= self.compacted.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.cluster.faults.count_gone();
        Err(SourceError::new(SourceErrorKind::Expired, "the history was compacted"))
    }
}

impl<V> Stream<V> {
    /// Returns the version of the state after this number of records.
    fn version_at(&self, at: usize) -> Version {
        at.checked_sub(1).map_or(self.version, |last| self.records[last].version)
    }

    fn after(&self, version: Version) -> usize {
        self.records.partition_point(|record| record.version <= version)
    }
}

impl<V: Object> Stream<V> {
    /// Returns the objects that exist after this number of records, by name. The map is built for each list. Lists are rare, and this way the
    /// delivery of an event needs no additional work. The time is about proportional to the numbers of objects and records.
    fn state_at(&self, at: usize) -> BTreeMap<&str, &Arc<V>> {
        let mut state: BTreeMap<&str, _> =
            self.list.iter().map(|object| (&*object.meta().name, object)).collect();
        for record in &self.records[..at] {
            match &record.event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    state.insert(&object.meta().name, object);
                }
                WatchEvent::Deleted(object) => {
                    state.remove(&*object.meta().name);
                }
                WatchEvent::Bookmark(_) | WatchEvent::InitialListEnd(_) => {}
            }
        }
        state
    }
}

impl<V: Object> Source for Recorded<V> {
    type Object = Arc<V>;
    type Watch = RecordedWatch<V>;

    /// Lists the current state. A continuation token has the form `records:items`; all pages of a list show the state of its first page.
    async fn list(&self, request: ListRequest) -> Result<Page<Arc<V>>, SourceError> {
        let (at, skip): (usize, usize) = match &request.continuation {
            None => (self.present(), 0),
            Some(token) => {
                let numbers =
                    token.split_once(':').and_then(|(at, skip)| Some((at.parse().ok()?, skip.parse().ok()?)));
                numbers.filter(|&(at, _)| at <= self.stream.records.len()).ok_or_else(|| {
                    SourceError::new(SourceErrorKind::Other, format!("{token:?} is not a continuation"))
                })?
            }
        };
        let version = self.stream.version_at(at);
        if request.continuation.is_some() {
            self.check_kept(at)?;
        } else if matches!(request.min_version, ListVersion::NotOlderThan(asked) if asked > version) {
            return Err(SourceErrorKind::VersionTooLarge.into());
        }
        // `listing` holds one list, and is empty while a request uses it. If a request for a further page finds no list there, or finds the list of a
        // different state (for example that of a second client), it builds its own list again.
        let kept = self.listing.lock().take_if(|listing| listing.at == at && request.continuation.is_some());
        let listing = kept.unwrap_or_else(|| Listing {
            at,
            items: self.stream.state_at(at).into_values().cloned().collect(),
        });
        let limit = request.limit.map_or(usize::MAX, |limit| limit as usize);
        let end = skip.saturating_add(limit);
        let continuation = (end < listing.items.len()).then(|| format!("{at}:{end}"));
        let items = listing.items.iter().skip(skip).take(limit).cloned().collect();
        if continuation.is_some() {
            *self.listing.lock() = Some(listing);
        }
        Ok(Page { items, version, continuation })
    }

    async fn watch(&self, request: WatchRequest) -> Result<RecordedWatch<V>, SourceError> {
        let mut initial_events = VecDeque::new();
        let at = if request.streaming_list || request.from_version == Version::ZERO {
            let at = self.present();
            let version = self.stream.version_at(at);
            if request.from_version > version {
                return Err(SourceErrorKind::VersionTooLarge.into());
            }
            initial_events.extend(self.stream.state_at(at).into_values().cloned().map(WatchEvent::Added));
            initial_events.extend(request.streaming_list.then_some(WatchEvent::InitialListEnd(version)));
            at
        } else {
            let at = self.stream.after(request.from_version);
            self.check_kept(at)?;
            at
        };
        Ok(RecordedWatch {
            cluster: self.cluster.clone(),
            resource: self.resource,
            stream: self.stream.clone(),
            compacted: self.compacted.clone(),
            initial_events,
            at,
            seen: 0,
            moved: self.cluster.horizon.subscribe(),
            // If the time of the timeout is too large for an `Instant`, the watch has no timeout.
            ends: Instant::now().checked_add(request.timeout),
        })
    }
}

/// A watch of one resource.
#[derive(Debug)]
pub(crate) struct RecordedWatch<V> {
    cluster: Arc<Cluster>,
    resource: usize,
    stream: Arc<Stream<V>>,
    compacted: Arc<AtomicUsize>,
    /// The objects with which a streaming list, or a watch without a version, begins, as events that are delivered before the records.
    initial_events: VecDeque<WatchEvent<Arc<V>>>,
    /// The number of the record that is delivered next.
    at: usize,
    /// The last observed horizon.
    seen: usize,
    moved: tokio::sync::watch::Receiver<usize>,
    ends: Option<Instant>,
}

impl<V: Object> WatchStream for RecordedWatch<V> {
    type Object = Arc<V>;

    async fn next(&mut self) -> Option<Result<WatchEvent<Arc<V>>, SourceError>> {
        if let Some(event) = self.initial_events.pop_front() {
            return Some(Ok(event));
        }
        loop {
            let place = self.stream.records.get(self.at).map_or(usize::MAX, |record| record.place);
            if place >= self.seen && !self.happens(place).await {
                return None;
            }
            if let Some(end) = self.fault() {
                return end;
            }
            let Record { place, event, .. } = &self.stream.records[self.at];
            self.at += 1;
            if let Some((at, object)) = self.cluster.happened.get(*place).zip(event.object()) {
                at.get().into_iter().for_each(|at| object.meta().happened.set(at));
            }
            if self.cluster.lose != Some(*place) {
                return Some(Ok(event.clone()));
            }
        }
    }
}

impl<V: Object> RecordedWatch<V> {
    /// Waits until the record at `place` has happened. Returns false if the watch times out first.
    async fn happens(&mut self, place: usize) -> bool {
        self.cluster.horizon.reached(self.resource, place);
        let ends = self.ends;
        let moved = self.moved.wait_for(|&horizon| horizon > place);
        // The wait cannot fail: the sender is part of the cluster, to which this watch has a reference.
        let seen = match ends {
            Some(ends) => tokio::time::timeout_at(ends, moved).await.map(|moved| moved.map(|seen| *seen)),
            None => Ok(moved.await.map(|seen| *seen)),
        };
        match seen {
            Ok(Ok(seen)) => {
                self.seen = seen;
                true
            }
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Returns `Some` if a fault must be injected before the next record. The value is the result with which the watch ends.
    fn fault(&self) -> Option<Option<Result<WatchEvent<Arc<V>>, SourceError>>> {
        let faults = &self.cluster.faults;
        if faults.compacts() {
            // Compacts all records up to the horizon that this watch has observed, including the next record of this watch. Then either this watch
            // ends with "gone" now, or it is closed and the next watch request fails with "gone".
            let kept = self.stream.records.partition_point(|record| record.place < self.seen);
            // Ordering: Relaxed; a reader needs only this value, and no other memory.
            self.compacted.fetch_max(kept, Ordering::Relaxed);
            if faults.coin() {
                faults.count_gone();
                return Some(Some(Err(SourceError::new(
                    SourceErrorKind::Expired,
                    "the history was compacted",
                ))));
            }
            return Some(None);
        }
        if faults.cuts() {
            let cut = || SourceError::new(SourceErrorKind::Other, "connection reset");
            return Some(faults.coin().then(|| Err(cut())));
        }
        None
    }
}
