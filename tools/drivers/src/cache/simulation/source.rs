//! A scripted source of the simulation. It keeps the contract of `Source`, and computes from what it has delivered which objects the store must
//! contain.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use flyball_informer_cache::{
    ListRequest, ListVersion, Page, Source, SourceError, SourceErrorKind, Version, WatchEvent, WatchRequest,
    WatchStream,
};
use parking_lot::Mutex;

use super::delivered::Delivered;
use super::object::Thing;

pub(super) type Objects = BTreeMap<u8, Thing>;
type Event = WatchEvent<Thing>;

/// The options of a source, which do not change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Whether objects, lists and events have versions.
    pub(super) versioned: bool,
    /// Whether the schema compares identities.
    pub(super) identified: bool,
    /// Whether a deletion has the version of the last update of its object instead of its own.
    pub(super) deletions_keep_versions: bool,
    /// Whether a write that changes an object several times delivers each step. Otherwise it delivers the effect.
    pub(super) verbose: bool,
    pub(super) continues: Continues,
}

/// Whether a watch continues after the last delivered event, whatever version it begins at, as a stream does that reconnects by itself. Such a source
/// delivers no event again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continues {
    /// A watch begins after its version.
    No,
    /// Before an error, a watch delivers a bookmark of its last event, as the contract of such a source says. It fails only between two versions.
    WithBookmarks,
    /// Without such a bookmark, the informer lists after an interruption.
    Silently,
}

/// A write of one key in a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Write {
    Put { key: u8, group: u8, faults: u8 },
    Delete(u8),
    Recreate { key: u8, group: u8 },
}

/// An event, and the version of the transaction that caused it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) version: u64,
    pub(super) kind: Kind,
    pub(super) thing: Thing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Added,
    Modified,
    Deleted,
}

impl Entry {
    fn event(&self) -> Event {
        match self.kind {
            Kind::Added => WatchEvent::Added(self.thing),
            Kind::Modified => WatchEvent::Modified(self.thing),
            Kind::Deleted => WatchEvent::Deleted(self.thing),
        }
    }
}

/// A message that a watch delivers before those of the history.
enum First {
    /// An event that was delivered before.
    Repeated(Entry),
    /// An object that existed when a watch without a version began.
    Existing(Thing),
    /// An object of a streaming list.
    Listed(Thing),
}

/// The position of a watch.
struct Place {
    epoch: u64,
    /// The index of the next event in the history.
    next: usize,
    first: VecDeque<First>,
    /// The streaming list that is being delivered.
    list: Option<StreamedList>,
    /// The version of the last event, if the watch delivers a bookmark of it before an error.
    bookmark_before_error: Option<u64>,
}

#[derive(Default)]
pub(super) struct StreamedList {
    pub(super) objects: Objects,
    /// The identities and keys of the objects whose key cannot be read.
    pub(super) keyless: BTreeMap<u64, u8>,
    pub(super) removed: BTreeSet<u8>,
    pub(super) unknown: BTreeSet<u8>,
}

/// The pages of a list that were not requested yet, and the whole list.
struct Rest {
    at: u64,
    items: Vec<Thing>,
    all: Objects,
}

pub(super) struct Server {
    pub(super) options: Options,
    pub(super) objects: Objects,
    pub(super) version: u64,
    highest: u64,
    ids: u64,
    history: Vec<Entry>,
    /// Incremented when a restore drops the history.
    epoch: u64,
    /// The version up to which the history was dropped.
    compacted: u64,
    /// After a restore, the version that was restored, which may be watched although it is below `compacted`.
    restored: Option<u64>,
    cached: Option<(u64, Objects)>,
    pages: BTreeMap<String, Rest>,
    tokens: u64,
    /// How many messages the watches may deliver; `None` for all.
    pub(super) credit: Option<usize>,
    pub(super) lists_held: bool,
    pub(super) watches_held: bool,
    pub(super) failing_lists: VecDeque<SourceErrorKind>,
    pub(super) failing_watches: VecDeque<SourceErrorKind>,
    pub(super) repeats_token: bool,
    /// The faults of the open watch.
    pub(super) fails: Option<SourceErrorKind>,
    pub(super) ends: bool,
    pub(super) bookmark: bool,
    /// How many events are delivered again, and whether only the oldest of them is.
    pub(super) repeat: (usize, bool),
    /// How many events from before its start the next watch delivers first.
    pub(super) repeat_at_start: usize,
    wakers: Vec<Waker>,
    pub(super) delivered: Delivered,
    /// Whether the open watch has delivered everything.
    pub(super) at_head: bool,
}

/// A handle of the source.
#[derive(Clone)]
pub(super) struct Scripted(pub(super) Arc<Mutex<Server>>);

impl Scripted {
    pub(super) fn new(options: Options) -> Self {
        Self(Arc::new(Mutex::new(Server {
            options,
            objects: Objects::new(),
            version: 1,
            highest: 1,
            ids: 0,
            history: Vec::new(),
            epoch: 0,
            compacted: 0,
            restored: None,
            cached: None,
            pages: BTreeMap::new(),
            tokens: 0,
            credit: None,
            lists_held: false,
            watches_held: false,
            failing_lists: VecDeque::new(),
            failing_watches: VecDeque::new(),
            repeats_token: false,
            fails: None,
            ends: false,
            bookmark: false,
            repeat: (0, false),
            repeat_at_start: 0,
            wakers: Vec::new(),
            delivered: Delivered::new(options),
            at_head: false,
        })))
    }

    /// Changes the server, and wakes the requests that wait.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Server) -> R) -> R {
        let mut server = self.0.lock();
        let result = change(&mut server);
        server.at_head = false;
        let wakers = std::mem::take(&mut server.wakers);
        drop(server);
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    fn poll<R>(&self, cx: &Context<'_>, take: impl FnOnce(&mut Server) -> Option<R>) -> Poll<R> {
        let mut server = self.0.lock();
        match take(&mut server) {
            Some(found) => Poll::Ready(found),
            None => {
                if !server.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                    server.wakers.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl Server {
    /// Performs a transaction, whose events have one version. Each identity has at most one state and one deletion in it.
    pub(super) fn transact(&mut self, writes: &[Write]) {
        self.highest += 1;
        self.version = self.highest;
        let mut events: Vec<Entry> = Vec::new();
        let mut recreated = BTreeSet::new();
        for write in writes {
            match *write {
                Write::Put { key, group, faults } => {
                    let touched = events.iter().any(|entry| entry.thing.key == key);
                    if self.objects.contains_key(&key) || !touched {
                        self.put(&mut events, key, group, faults);
                    }
                }
                Write::Delete(key) => self.delete(&mut events, key),
                // To distinguish a deleted object from the one that is created under its key with the same version, identities are needed.
                Write::Recreate { key, group } => {
                    let told_apart = self.options.identified || !self.options.versioned;
                    if told_apart && self.objects.contains_key(&key) && recreated.insert(key) {
                        self.delivered.cases.insert("another identity in a version");
                        self.delete(&mut events, key);
                        self.put(&mut events, key, group, 0);
                    }
                }
            }
        }
        if events.len() > 1 {
            self.delivered.cases.insert("several events of a version");
        }
        self.history.extend(events);
    }

    fn stamp(&self) -> u64 {
        if self.options.versioned { self.version } else { 0 }
    }

    fn put(&mut self, events: &mut Vec<Entry>, key: u8, group: u8, faults: u8) {
        let old = self.objects.get(&key).map(|old| old.uid);
        let uid = old.unwrap_or_else(|| {
            self.ids += 1;
            self.ids
        });
        let thing = Thing { key, uid, version: self.stamp(), group, faults };
        self.objects.insert(key, thing);
        match events.iter_mut().find(|entry| entry.thing.uid == uid) {
            Some(entry) => entry.thing = thing,
            None => {
                let kind = if old.is_some() { Kind::Modified } else { Kind::Added };
                events.push(Entry { version: self.version, kind, thing });
            }
        }
    }

    fn delete(&mut self, events: &mut Vec<Entry>, key: u8) {
        let Some(mut thing) = self.objects.remove(&key) else { return };
        let known = events.iter().position(|entry| entry.thing.uid == thing.uid);
        if let Some(at) = known.filter(|_| !self.options.verbose) {
            if events.remove(at).kind == Kind::Added {
                return; // the object was created in this transaction
            }
        }
        if !self.options.deletions_keep_versions {
            thing.version = self.stamp();
        }
        events.push(Entry { version: self.version, kind: Kind::Deleted, thing });
    }

    /// Whether no transaction is split by this index.
    fn is_boundary(&self, next: usize) -> bool {
        let at = |index: usize| self.history.get(index).map(|entry| entry.version);
        next == 0 || at(next).is_none() || at(next - 1) != at(next)
    }

    fn position(&self, version: u64) -> usize {
        self.history.partition_point(|entry| entry.version <= version)
    }

    pub(super) fn compact(&mut self) {
        if self.version >= self.compacted {
            (self.compacted, self.restored) = (self.version, None);
        }
        self.pages.clear();
    }

    pub(super) fn cache(&mut self) {
        self.cached = Some((self.version, self.objects.clone()));
    }

    /// Restores the cached state, as if from a backup. The history is lost. If deletions have no versions of their own, nothing would show that a
    /// deletion was undone.
    pub(super) fn restore(&mut self) {
        let shows = self.options.versioned && !self.options.deletions_keep_versions;
        let Some((version, objects)) = self.cached.clone().filter(|_| shows) else { return };
        (self.version, self.objects) = (version, objects);
        self.history.clear();
        self.epoch += 1;
        // A watch may begin before the first change after the restore, but not at the last version that is lost.
        self.compacted = self.highest + 2;
        self.restored = Some(self.version);
        self.pages.clear();
        self.delivered.next = 0;
        self.delivered.undone |= self.delivered.newest > version;
    }

    fn list(&mut self, request: &ListRequest) -> Option<Result<Page<Thing>, SourceErrorKind>> {
        if self.lists_held {
            return None;
        }
        if let Some(kind) = self.failing_lists.pop_front() {
            return Some(Err(kind));
        }
        let Rest { at, mut items, all } = match &request.continuation {
            Some(token) => match self.pages.remove(token) {
                Some(rest) => rest,
                None => return Some(Err(SourceErrorKind::Expired)),
            },
            None => {
                let cached = self.cached.clone().filter(|(at, _)| *at <= self.version);
                let (at, all) = match (request.min_version, cached) {
                    (ListVersion::NotOlderThan(version), _) if version.get() > self.version => {
                        return Some(Err(SourceErrorKind::VersionTooLarge));
                    }
                    (ListVersion::Any, Some(cached)) => cached,
                    (ListVersion::NotOlderThan(version), Some(cached)) if version.get() <= cached.0 => cached,
                    _ => (self.version, self.objects.clone()),
                };
                Rest { at, items: all.values().copied().collect(), all }
            }
        };
        let limit = request.limit.map_or(items.len(), |limit| limit as usize).min(items.len());
        let rest = items.split_off(limit);
        self.delivered.messages += 1 + items.len();
        let continuation = if rest.is_empty() {
            let next = self.position(at);
            self.delivered.listed(StreamedList::of(all), at, next);
            None
        } else {
            let repeated = request.continuation.clone().filter(|_| std::mem::take(&mut self.repeats_token));
            let token = repeated.unwrap_or_else(|| {
                self.tokens += 1;
                self.tokens.to_string()
            });
            self.pages.insert(token.clone(), Rest { at, items: rest, all });
            Some(token)
        };
        let version = Version::new(if self.options.versioned { at } else { 0 });
        Some(Ok(Page { items, version, continuation }))
    }

    fn watch(&mut self, request: &WatchRequest) -> Option<Result<Place, SourceErrorKind>> {
        if self.watches_held {
            return None;
        }
        if let Some(kind) = self.failing_watches.pop_front() {
            return Some(Err(kind));
        }
        let from = request.from_version.get();
        if from > self.version {
            return Some(Err(SourceErrorKind::VersionTooLarge));
        }
        (self.fails, self.ends, self.bookmark, self.repeat) = (None, false, false, (0, false));
        let (mut place, end) = (
            Place {
                epoch: self.epoch,
                next: 0,
                first: VecDeque::new(),
                list: None,
                bookmark_before_error: None,
            },
            self.history.len(),
        );
        let objects = self.objects.values().copied();
        if request.streaming_list {
            place.first.extend(objects.map(First::Listed));
            (place.list, place.next) = (Some(StreamedList::default()), end);
        } else if from == 0 {
            place.first.extend(objects.map(First::Existing));
            place.next = end;
            self.delivered.next = end;
        } else if from + 1 < self.compacted && self.restored != Some(from) {
            return Some(Err(SourceErrorKind::Expired));
        } else {
            place.next = self.position(from);
            let continues = self.options.continues != Continues::No;
            if continues && place.next < self.delivered.next {
                self.delivered.cases.insert("continued without a repetition");
                place.next = self.delivered.next;
            }
            assert!(
                place.next <= self.delivered.next,
                "a watch begins after an event that was not delivered: {:?}",
                self.history[self.delivered.next]
            );
            let again = std::mem::take(&mut self.repeat_at_start);
            let repeated = place.next.saturating_sub(if continues { 0 } else { again })..place.next;
            place.first.extend(self.history[repeated].iter().copied().map(First::Repeated));
        }
        Some(Ok(place))
    }

    /// Returns the next message of a watch, or `None` if it has to wait.
    fn next(&mut self, place: &mut Place) -> Option<Option<Result<Event, SourceErrorKind>>> {
        if place.epoch != self.epoch {
            return Some(Some(Err(SourceErrorKind::Expired)));
        }
        let may_fail = self.options.continues != Continues::WithBookmarks || self.is_boundary(place.next);
        if let Some(kind) = self.fails.take_if(|_| may_fail) {
            if let Some(version) = place.bookmark_before_error.take() {
                self.fails = Some(kind);
                self.delivered.messages += 1;
                self.delivered.reached(version);
                return Some(Some(Ok(WatchEvent::Bookmark(Version::new(version)))));
            }
            if !self.is_boundary(place.next) {
                self.delivered.cases.insert("interrupted between events of a version");
            }
            return Some(Some(Err(kind)));
        }
        if self.credit == Some(0) && (self.fails.is_none() || may_fail) {
            return None;
        }
        let message = self.message(place)?;
        self.delivered.messages += 1;
        self.credit = self.credit.map(|credit| credit.saturating_sub(1));
        Some(message)
    }

    fn message(&mut self, place: &mut Place) -> Option<Option<Result<Event, SourceErrorKind>>> {
        let event = |event| Some(Some(Ok(event)));
        match place.first.pop_front() {
            Some(First::Repeated(entry)) => {
                self.delivered.repeated(&entry);
                return event(entry.event());
            }
            Some(First::Existing(thing)) => {
                self.delivered.existing(thing);
                return event(WatchEvent::Added(thing));
            }
            Some(First::Listed(thing)) => {
                if let Some(list) = &mut place.list {
                    list.event(Kind::Added, thing);
                }
                return event(WatchEvent::Added(thing));
            }
            None => {}
        }
        let (count, late) = std::mem::take(&mut self.repeat);
        let count = if self.options.continues == Continues::No { count } else { 0 };
        let from = place.next.saturating_sub(count);
        if from < place.next && self.options.versioned && place.list.is_none() {
            let until = if late { from + 1 } else { place.next };
            place.first.extend(self.history[from..until].iter().copied().map(First::Repeated));
            return self.message(place);
        }
        let boundary = self.is_boundary(place.next);
        let at_end = place.next == self.history.len();
        let reached = if at_end { self.version } else { self.history[place.next].version - 1 };
        if boundary && std::mem::take(&mut self.ends) {
            return Some(None);
        }
        if boundary && self.options.versioned && std::mem::take(&mut self.bookmark) {
            if place.list.is_none() {
                self.delivered.reached(reached);
            }
            return event(WatchEvent::Bookmark(Version::new(reached)));
        }
        if let Some(list) = place.list.take_if(|_| at_end) {
            let version = Version::new(if self.options.versioned { self.version } else { 0 });
            self.delivered.listed(list, self.version, place.next);
            return event(WatchEvent::InitialListEnd(version));
        }
        let Some(entry) = self.history.get(place.next).copied() else {
            self.at_head = !self.delivered.undone;
            return None;
        };
        if entry.version <= self.compacted && self.restored.is_none() {
            return Some(Some(Err(SourceErrorKind::Expired)));
        }
        match &mut place.list {
            Some(list) => list.event(entry.kind, entry.thing),
            None if place.next == self.delivered.next => self.delivered.event(entry),
            None => {}
        }
        place.next += 1;
        if self.options.continues == Continues::WithBookmarks
            && self.options.versioned
            && place.list.is_none()
        {
            place.bookmark_before_error = Some(entry.version);
        }
        event(entry.event())
    }
}

impl Source for Scripted {
    type Object = Thing;
    type Watch = ScriptedWatch;

    async fn list(&self, request: ListRequest) -> Result<Page<Thing>, SourceError> {
        self.0.lock().delivered.requests += 1;
        poll_fn(|cx| self.poll(cx, |server| server.list(&request))).await.map_err(SourceError::from)
    }

    async fn watch(&self, request: WatchRequest) -> Result<ScriptedWatch, SourceError> {
        self.0.lock().delivered.requests += 1;
        let place = poll_fn(|cx| self.poll(cx, |server| server.watch(&request))).await?;
        Ok(ScriptedWatch { source: self.clone(), place })
    }
}

/// A watch of the source.
pub(super) struct ScriptedWatch {
    source: Scripted,
    place: Place,
}

impl WatchStream for ScriptedWatch {
    type Object = Thing;

    async fn next(&mut self) -> Option<Result<Event, SourceError>> {
        let Self { source, place } = self;
        let message = poll_fn(|cx| source.poll(cx, |server| server.next(place))).await;
        message.map(|message| message.map_err(SourceError::from))
    }
}

impl Drop for ScriptedWatch {
    fn drop(&mut self) {
        self.source.0.lock().at_head = false;
    }
}
