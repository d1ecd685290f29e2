//! PURE. The state of a server, and its responses.
//!
//! # Invariants
//! 1. The versions in the history are in ascending order; the two events of a [recreation](State::recreate) have the same version. All of them are above `compacted` or, after a restore, above `restored`.
//! 2. `version <= highest`. The two differ only after a restore, until the next change.
//! 3. After it has delivered the events in `first`, a watch has delivered every event between its start and its position, and no later event. Events
//!    that are delivered again are at or before its position.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;
use std::time::Duration;

use flyball_sync::{Clock, ManualClock, Nanos};

use super::Faults;
use crate::{ListRequest, ListVersion, Page, SourceErrorKind, Version, WatchEvent, WatchRequest};

pub(super) struct State<K, V> {
    pub(super) objects: Objects<K, V>,
    pub(super) version: u64,
    /// The highest version that was ever assigned. After a restore, the next version that is assigned is above it.
    highest: u64,
    ids: u64,
    /// The changes after the version `compacted`, oldest first.
    history: Vec<HistoryEntry<V>>,
    compacted: u64,
    /// After a restore, the version that was restored. A watch may start at this version, although it is below `compacted`.
    restored: Option<u64>,
    pub(super) cached: Option<(u64, Objects<K, V>)>,
    /// The remaining objects of each list whose last page was not requested yet.
    pages: Vec<Rest<V>>,
    tokens: u64,
    pub(super) wakers: Vec<Waker>,
    pub(super) faults: Faults,
    pub(super) failing_lists: VecDeque<SourceErrorKind>,
    pub(super) failing_watches: VecDeque<SourceErrorKind>,
    /// The messages for each open watch, by its number, in addition to the events in the history.
    pub(super) watches: BTreeMap<u64, WatchMessages>,
    opened: u64,
    pub(super) latency: Option<Latency>,
}

type Objects<K, V> = BTreeMap<K, Stored<V>>;

#[derive(Clone)]
pub(super) struct Stored<V> {
    id: u64,
    pub(super) object: V,
}

struct HistoryEntry<V> {
    /// The time of the change, according to the clock that measures the latency.
    at: Nanos,
    version: u64,
    event: WatchEvent<V>,
}

/// The remaining objects of a list, with the token of the next page.
struct Rest<V> {
    token: String,
    at: u64,
    objects: Vec<V>,
}

/// The latency of messages.
#[derive(Clone)]
pub(super) struct Latency {
    pub(super) clock: ManualClock,
    pub(super) latency: Duration,
}

#[derive(Default)]
pub(super) struct WatchMessages {
    disturbances: VecDeque<Disturbance>,
    /// The versions of bookmarks. A bookmark is delivered after all events up to its version.
    marks: VecDeque<u64>,
}

#[derive(Clone, Copy)]
pub(super) enum Disturbance {
    /// Ends the watch after it has delivered all events up to this version.
    End(u64),
    Fail(SourceErrorKind),
    /// Delivers the last three events before the position of the watch again.
    Repeat,
}

/// The position of a watch.
pub(super) struct Place<V> {
    pub(super) number: u64,
    /// The version up to which all events were delivered.
    from: u64,
    /// How many events of the next version were delivered.
    part: usize,
    /// Events that are delivered before those of the history.
    first: VecDeque<WatchEvent<V>>,
}

/// The next message of a watch.
pub(super) enum Next<V> {
    Event(WatchEvent<V>),
    Failed(SourceErrorKind),
    Ended,
    NotBefore(Nanos),
}

impl<K: Ord + Clone, V: Clone> State<K, V> {
    pub(super) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            version: 1,
            highest: 1,
            ids: 0,
            history: Vec::new(),
            compacted: 0,
            restored: None,
            cached: None,
            pages: Vec::new(),
            tokens: 0,
            wakers: Vec::new(),
            faults: Faults::default(),
            failing_lists: VecDeque::new(),
            failing_watches: VecDeque::new(),
            watches: BTreeMap::new(),
            opened: 0,
            latency: None,
        }
    }

    pub(super) fn put(&mut self, key: K, object: V, stamp: fn(&mut V, u64, Version)) -> Version {
        let version = self.advance();
        self.put_at(version, key, object, stamp);
        version
    }

    /// Deletes the object under the key, if there is one, and creates another one, at the same version.
    pub(super) fn recreate(&mut self, key: K, object: V, stamp: fn(&mut V, u64, Version)) -> Version {
        let version = self.advance();
        self.delete_at(version, &key, stamp);
        self.put_at(version, key, object, stamp);
        version
    }

    fn put_at(&mut self, version: Version, key: K, mut object: V, stamp: fn(&mut V, u64, Version)) {
        let old = self.objects.get(&key).map(|old| old.id);
        let id = old.unwrap_or_else(|| {
            self.ids += 1;
            self.ids
        });
        stamp(&mut object, id, version);
        let event = if old.is_some() { WatchEvent::Modified } else { WatchEvent::Added };
        self.record(event(object.clone()));
        self.objects.insert(key, Stored { id, object });
    }

    pub(super) fn delete(&mut self, key: &K, stamp: fn(&mut V, u64, Version)) -> Option<Version> {
        let version = self.objects.contains_key(key).then(|| self.advance())?;
        self.delete_at(version, key, stamp);
        Some(version)
    }

    fn delete_at(&mut self, version: Version, key: &K, stamp: fn(&mut V, u64, Version)) {
        let Some(Stored { id, mut object }) = self.objects.remove(key) else { return };
        stamp(&mut object, id, version);
        self.record(WatchEvent::Deleted(object));
    }

    fn advance(&mut self) -> Version {
        self.highest += 1;
        self.version = self.highest;
        Version::new(self.version)
    }

    fn record(&mut self, event: WatchEvent<V>) {
        let at = self.latency.as_ref().map_or(Nanos::ZERO, |latency| latency.clock.now());
        self.history.push(HistoryEntry { at, version: self.version, event });
    }

    pub(super) fn bookmark(&mut self) {
        self.watches.values_mut().for_each(|messages| messages.marks.push_back(self.version));
    }

    pub(super) fn disturb(&mut self, disturbance: Disturbance) {
        self.watches.values_mut().for_each(|messages| messages.disturbances.push_back(disturbance));
    }

    pub(super) fn close(&mut self) {
        self.disturb(Disturbance::End(self.version));
    }

    pub(super) fn compact(&mut self) {
        self.history.clear();
        if self.version >= self.compacted {
            self.compacted = self.version;
            self.restored = None;
        }
        self.pages.clear();
    }

    pub(super) fn restore(&mut self) {
        let Some((version, objects)) = self.cached.clone() else { return };
        (self.version, self.objects) = (version, objects);
        self.history.clear();
        // No watch may resume from a version of the lost history, not even from the highest of these versions.
        self.compacted = self.highest + 1;
        self.restored = Some(self.version);
        self.pages.clear();
        self.close();
    }

    pub(super) fn clear_faults(&mut self) {
        self.faults = Faults::default();
        self.failing_lists.clear();
        self.failing_watches.clear();
        self.watches.values_mut().for_each(|messages| messages.disturbances.clear());
    }

    pub(super) fn list(&mut self, request: &ListRequest) -> Result<Page<V>, SourceErrorKind> {
        if let Some(fault) = self.failing_lists.pop_front() {
            return Err(fault);
        }
        let (at, mut objects) = match &request.continuation {
            Some(token) => {
                let rest = self.pages.iter().position(|rest| rest.token == *token);
                let Rest { at, objects, .. } =
                    rest.map(|rest| self.pages.remove(rest)).ok_or(SourceErrorKind::Expired)?;
                (at, objects)
            }
            None => self.begin(request.min_version)?,
        };
        let limit = request.limit.map_or(objects.len(), |limit| limit as usize);
        let mut rest = objects.split_off(limit.min(objects.len()));
        let continuation = (!rest.is_empty()).then(|| {
            self.tokens += 1;
            self.tokens.to_string()
        });
        if let Some(token) = continuation.clone() {
            // If a page has room for one object only, no object is repeated: every page would repeat the same object, and the list would never end.
            if let Some(again) = objects.first().filter(|_| self.faults.shuffled_lists && limit > 1) {
                rest.insert(0, again.clone());
            }
            self.pages.push(Rest { token, at, objects: rest });
        }
        Ok(Page { items: objects, version: Version::new(at), continuation })
    }

    fn begin(&self, asked: ListVersion) -> Result<(u64, Vec<V>), SourceErrorKind> {
        let newest = (self.version, &self.objects);
        let cached = self.cached.as_ref().map(|(at, objects)| (*at, objects));
        let (at, objects) = match (asked, cached) {
            (ListVersion::Any, Some(cached)) => cached,
            (ListVersion::NotOlderThan(version), _) if version.get() > self.version => {
                return Err(SourceErrorKind::VersionTooLarge);
            }
            (ListVersion::NotOlderThan(version), Some(cached))
                if version.get() <= cached.0 && cached.0 <= self.version =>
            {
                cached
            }
            _ => newest,
        };
        let mut objects: Vec<V> = objects.values().map(|stored| stored.object.clone()).collect();
        if self.faults.shuffled_lists {
            objects.reverse();
        }
        Ok((at, objects))
    }

    fn expired(&self, from: u64) -> bool {
        from < self.compacted && self.restored != Some(from)
    }

    pub(super) fn watch(&mut self, request: &WatchRequest) -> Result<Place<V>, SourceErrorKind> {
        if let Some(fault) = self.failing_watches.pop_front() {
            return Err(fault);
        }
        let mut from = request.from_version.get();
        if from > self.version {
            return Err(SourceErrorKind::VersionTooLarge);
        }
        let mut first = VecDeque::new();
        if request.streaming_list || request.from_version.is_zero() {
            first.extend(self.objects.values().map(|stored| WatchEvent::Added(stored.object.clone())));
            if request.streaming_list && !self.faults.endless_streaming_list {
                first.push_back(WatchEvent::InitialListEnd(Version::new(self.version)));
            }
            from = self.version;
        } else if self.expired(from) {
            return Err(SourceErrorKind::Expired);
        } else if self.faults.repeated_events {
            first.extend(self.delivered(from, 0).iter().map(|entry| entry.event.clone()));
        }
        self.opened += 1;
        self.watches.insert(self.opened, WatchMessages::default());
        Ok(Place { number: self.opened, from, part: 0, first })
    }

    /// Returns the part of the history up to and including the version `from`, and `part` events of the next version: a watch with this position has
    /// delivered it.
    fn delivered(&self, from: u64, part: usize) -> &[HistoryEntry<V>] {
        let delivered = self.history.partition_point(|entry| entry.version <= from);
        &self.history[..self.history.len().min(delivered + part)]
    }

    /// Returns the next message of a watch, or `None` if the watch has to wait.
    pub(super) fn next(&mut self, place: &mut Place<V>) -> Option<Next<V>> {
        if let Some(first) = place.first.pop_front() {
            return Some(Next::Event(first));
        }
        let next = self.history.get(self.delivered(place.from, place.part).len()).map(|next| next.version);
        let messages = self.watches.get_mut(&place.number)?;
        match messages.disturbances.pop_front() {
            Some(Disturbance::End(after)) if next.is_some_and(|next| next <= after) => {
                messages.disturbances.push_front(Disturbance::End(after));
            }
            Some(Disturbance::End(_)) => return Some(Next::Ended),
            Some(Disturbance::Fail(kind)) => return Some(Next::Failed(kind)),
            Some(Disturbance::Repeat) => {
                let delivered = self.delivered(place.from, place.part);
                let last = &delivered[delivered.len().saturating_sub(3)..];
                place.first.extend(last.iter().map(|entry| entry.event.clone()));
                return self.next(place);
            }
            None => {}
        }
        if self.expired(place.from) {
            return Some(Next::Failed(SourceErrorKind::Expired));
        }
        let at = self.delivered(place.from, place.part).len();
        let next = self.history.get(at);
        let mark = self.watches.get(&place.number).and_then(|messages| messages.marks.front().copied());
        if let Some(mark) = mark.filter(|mark| next.is_none_or(|next| next.version > *mark)) {
            self.watches.get_mut(&place.number)?.marks.pop_front();
            return Some(Next::Event(WatchEvent::Bookmark(Version::new(mark))));
        }
        let next = next?;
        if let Some(Latency { clock, latency }) = &self.latency {
            let due = next.at + *latency;
            if clock.now() < due {
                return Some(Next::NotBefore(due));
            }
        }
        match self.history.get(at + 1) {
            Some(after) if after.version == next.version => place.part += 1,
            _ => (place.from, place.part) = (next.version, 0),
        }
        Some(Next::Event(next.event.clone()))
    }
}
