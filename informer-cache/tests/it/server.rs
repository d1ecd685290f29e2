//! A naive server to list and watch: the truth an informer has to arrive at, with every fault a real one has.

#![allow(clippy::disallowed_types, reason = "a test's server, no primitive; the fuzz target shares it")]

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use flyball_informer_cache::{
    Event, ListRequest, ListVersion, Page, Source, SourceError, SourceErrorKind, Version, Watch, WatchRequest,
};

use crate::world::Object;

/// A handle of the server; clones share it.
#[derive(Clone)]
pub(crate) struct Server(Arc<Mutex<State>>);

type Objects = BTreeMap<u8, Object>;

#[derive(Default)]
struct State {
    objects: Objects,
    version: u64,
    /// The highest version ever given; a restored server goes on from there.
    highest: u64,
    uids: u64,
    /// What happened, oldest first, after `compacted`.
    history: Vec<Event<Object>>,
    compacted: u64,
    /// A restored server: watches may also start at this version, though it is older.
    restored: Option<u64>,
    /// What the lists "not older than" and "any" may be answered from.
    cached: (u64, Objects),
    /// Lists in progress: token, version, objects still to come.
    pages: VecDeque<(String, u64, Vec<Object>)>,
    tokens: u64,
    wakers: Vec<Waker>,
    faults: Faults,
    /// The newest watch's disturbances.
    watch: u64,
    disturbed: VecDeque<Disturbance>,
}

enum Disturbance {
    End,
    Fail(SourceErrorKind),
    /// The last events told are told again.
    Repeat,
}

type Message = Result<Event<Object>, SourceErrorKind>;

/// What goes wrong with the next requests.
#[derive(Default)]
struct Faults {
    lists: VecDeque<SourceErrorKind>,
    watches: VecDeque<SourceErrorKind>,
    /// Lists hang, watches are opened by nobody.
    silent: bool,
    /// A list turns its objects around, and repeats one on the next page.
    shuffled: bool,
    /// A streaming list never ends.
    endless: bool,
    /// A watch tells the last events again.
    repeats: bool,
}

fn version(event: &Event<Object>) -> u64 {
    event.object().map_or(0, |object| object.version)
}

impl Server {
    pub(crate) fn new() -> Self {
        let state = State { version: 1, highest: 1, ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// The truth.
    pub(crate) fn objects(&self) -> Vec<Object> {
        self.0.lock().unwrap().objects.values().copied().collect()
    }

    pub(crate) fn version(&self) -> Version {
        Version::new(self.0.lock().unwrap().version)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock().unwrap();
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn put(&self, key: u8) {
        self.change(|state| {
            state.highest += 1;
            state.version = state.highest;
            let old = state.objects.get(&key);
            let uid = old.map_or(state.uids + 1, |old| old.uid);
            state.uids = state.uids.max(uid);
            let object = Object { key, uid, version: state.version };
            let event = if old.is_some() { Event::Modified(object) } else { Event::Added(object) };
            state.objects.insert(key, object);
            state.history.push(event);
        });
    }

    pub(crate) fn delete(&self, key: u8) {
        self.change(|state| {
            if let Some(object) = state.objects.remove(&key) {
                state.highest += 1;
                state.version = state.highest;
                state.history.push(Event::Deleted(Object { version: state.version, ..object }));
            }
        });
    }

    /// Forgets what happened; watches from before expire, lists in progress too.
    pub(crate) fn compact(&self) {
        self.change(|state| {
            state.history.clear();
            if state.version >= state.compacted {
                state.compacted = state.version;
                state.restored = None;
            }
            state.pages.clear();
        });
    }

    /// From now on lists may be answered with the state of this moment.
    pub(crate) fn cache(&self) {
        self.change(|state| state.cached = (state.version, state.objects.clone()));
    }

    /// Restores the cached state: the version goes back, and nothing is known of what happened since.
    pub(crate) fn restore(&self) {
        self.change(|state| {
            if state.cached.0 == 0 {
                return;
            }
            (state.version, state.objects) = state.cached.clone();
            state.history.clear();
            // Nobody may go on from what was lost, not even from its very end.
            state.compacted = state.highest + 1;
            state.restored = Some(state.version);
            state.pages.clear();
        });
        self.close();
    }

    pub(crate) fn fail_list(&self, kind: SourceErrorKind) {
        self.change(|state| state.faults.lists.push_back(kind));
    }

    pub(crate) fn fail_watch(&self, kind: SourceErrorKind) {
        self.change(|state| state.faults.watches.push_back(kind));
    }

    pub(crate) fn break_watch(&self, kind: SourceErrorKind) {
        self.change(|state| state.disturbed.push_back(Disturbance::Fail(kind)));
    }

    /// Ends the open watch.
    pub(crate) fn close(&self) {
        self.change(|state| state.disturbed.push_back(Disturbance::End));
    }

    /// The open watch tells the last events again.
    pub(crate) fn repeat(&self) {
        self.change(|state| state.disturbed.push_back(Disturbance::Repeat));
    }

    pub(crate) fn bookmark(&self) {
        self.change(|state| {
            let bookmark = Event::Bookmark(Version::new(state.version));
            state.history.push(bookmark);
        });
    }

    pub(crate) fn set_silent(&self, silent: bool) {
        self.change(|state| state.faults.silent = silent);
    }

    pub(crate) fn set_shuffled(&self) {
        self.change(|state| state.faults.shuffled ^= true);
    }

    pub(crate) fn set_endless(&self) {
        self.change(|state| state.faults.endless ^= true);
    }

    pub(crate) fn set_repeats(&self) {
        self.change(|state| state.faults.repeats ^= true);
    }

    /// Everything works from now on.
    pub(crate) fn heal(&self) {
        self.change(|state| {
            state.faults = Faults::default();
            state.disturbed.clear();
        });
    }
}

impl State {
    fn list(&mut self, request: &ListRequest) -> Result<Page<Object>, SourceErrorKind> {
        if let Some(fault) = self.faults.lists.pop_front() {
            return Err(fault);
        }
        let (at, mut objects) = match &request.continuation {
            Some(token) => {
                let at = self.pages.iter().position(|page| page.0 == *token);
                let (_, at, objects) =
                    at.and_then(|at| self.pages.remove(at)).ok_or(SourceErrorKind::Expired)?;
                (at, objects)
            }
            None => self.begin(request.version)?,
        };
        let limit = request.limit.map_or(objects.len(), |limit| limit as usize);
        let rest = objects.split_off(limit.min(objects.len()));
        let continuation = (!rest.is_empty()).then(|| {
            self.tokens += 1;
            self.tokens.to_string()
        });
        if let Some(token) = &continuation {
            let again = objects.first().filter(|_| self.faults.shuffled);
            let rest = again.into_iter().chain(&rest).copied().collect();
            self.pages.push_back((token.clone(), at, rest));
        }
        Ok(Page { items: objects, version: Version::new(at), continuation })
    }

    fn begin(&self, asked: ListVersion) -> Result<(u64, Vec<Object>), SourceErrorKind> {
        let newest = (self.version, &self.objects);
        let cached = (self.cached.0, &self.cached.1);
        let (at, objects) = match asked {
            ListVersion::Any if cached.0 > 0 => cached,
            ListVersion::NotOlderThan(version) if version.get() > self.version => {
                return Err(SourceErrorKind::TooLargeVersion);
            }
            ListVersion::NotOlderThan(version) if version.get() <= cached.0 && cached.0 <= self.version => {
                cached
            }
            _ => newest,
        };
        let mut objects: Vec<Object> = objects.values().copied().collect();
        if self.faults.shuffled {
            objects.reverse();
        }
        Ok((at, objects))
    }

    fn expired(&self, from: u64) -> bool {
        from < self.compacted && self.restored != Some(from)
    }

    fn watch(&mut self, request: &WatchRequest) -> Result<SimWatch, SourceErrorKind> {
        if let Some(fault) = self.faults.watches.pop_front() {
            return Err(fault);
        }
        let from = request.from.get();
        if from > self.version {
            return Err(SourceErrorKind::TooLargeVersion);
        }
        let mut first = VecDeque::new();
        let mut from = from;
        if request.streaming_list {
            first.extend(self.objects.values().map(|object| Event::Added(*object)));
            if !self.faults.endless {
                first.push_back(Event::InitialEnd(Version::new(self.version)));
            }
            from = self.version;
        } else if self.expired(from) {
            return Err(SourceErrorKind::Expired);
        }
        if self.faults.repeats && !request.streaming_list {
            first.extend(self.told_until(from));
        }
        self.watch += 1;
        self.disturbed.clear();
        Ok(SimWatch { server: None, number: self.watch, from, first, told: 0 })
    }

    /// Events that a watch at this version has told. No bookmarks: told early, they would be lies.
    fn told_until(&self, from: u64) -> impl Iterator<Item = Event<Object>> {
        self.history.iter().filter(move |event| event.object().is_some_and(|o| o.version <= from)).cloned()
    }

    fn next(&mut self, watch: &mut SimWatch) -> Option<Option<Message>> {
        if let Some(first) = watch.first.pop_front() {
            return Some(Some(Ok(first)));
        }
        if watch.number != self.watch {
            return Some(None);
        }
        match self.disturbed.pop_front() {
            Some(Disturbance::End) => return Some(None),
            Some(Disturbance::Fail(kind)) => return Some(Some(Err(kind))),
            Some(Disturbance::Repeat) => {
                let told: Vec<Event<Object>> = self.told_until(watch.from).collect();
                watch.first.extend(told.into_iter().rev().take(3).rev());
                return self.next(watch);
            }
            None => {}
        }
        if self.expired(watch.from) {
            return Some(Some(Err(SourceErrorKind::Expired)));
        }
        let next = self.history.iter().find(|event| version(event) > watch.from).cloned();
        if let Some(event) = next {
            watch.from = version(&event);
            return Some(Some(Ok(event)));
        }
        // Bookmarks come when everything before them was told.
        let marks = self.history.iter().filter(|event| matches!(event, Event::Bookmark(_)));
        let bookmark = marks.clone().nth(watch.told).cloned();
        watch.told += usize::from(bookmark.is_some());
        bookmark
            .filter(|mark| matches!(mark, Event::Bookmark(v) if v.get() >= watch.from))
            .map(|mark| Some(Ok(mark)))
    }
}

impl Source for Server {
    type Object = Object;
    type Watch = SimWatch;

    async fn list(&self, request: ListRequest) -> Result<Page<Object>, SourceError> {
        self.answer(|state| state.list(&request)).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<SimWatch, SourceError> {
        let watch = self.answer(|state| state.watch(&request)).await?;
        Ok(SimWatch { server: Some(self.clone()), ..watch })
    }
}

impl Server {
    async fn answer<R>(
        &self,
        mut ask: impl FnMut(&mut State) -> Result<R, SourceErrorKind>,
    ) -> Result<R, SourceError> {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if state.faults.silent {
                state.wakers.push(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(ask(&mut state).map_err(Into::into))
        })
        .await
    }
}

/// A watch of the server.
pub(crate) struct SimWatch {
    server: Option<Server>,
    number: u64,
    from: u64,
    /// What it tells first.
    first: VecDeque<Event<Object>>,
    told: usize,
}

impl Watch for SimWatch {
    type Object = Object;

    async fn next(&mut self) -> Option<Result<Event<Object>, SourceError>> {
        let server = self.server.clone().unwrap();
        poll_fn(|cx| {
            let mut state = server.0.lock().unwrap();
            match state.next(self) {
                Some(message) => Poll::Ready(message.map(|message| message.map_err(Into::into))),
                None => {
                    state.wakers.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}
