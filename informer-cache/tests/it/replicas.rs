//! A random test of an informer whose source has several servers, as a Kubernetes cluster has. Each of them lags behind the storage in its own way and
//! has its own history, and a request goes to any of them. Only some objects are selected, and one write may change several of them.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use flyball_informer_cache::{
    Index, Informer, ListRequest, ListVersion, Page, ReflectorConfig, Schema, Source, SourceError,
    SourceErrorKind, Subscription, Version, WatchEvent, WatchRequest, WatchStream,
};
use flyball_sync::ManualClock;
use parking_lot::Mutex;
use testkit::random::{Random, thorough};
use testkit::wakers::{Counting, poll_with};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pod {
    key: u8,
    uid: u64,
    version: u64,
    is_selected: bool,
    value: u8,
}

const PODS: Schema<u8, Pod> =
    Schema::new(|pod: &Pod| pod.key, |pod| Version::new(pod.version)).with_identity(|a, b| a.uid == b.uid);

static BY_VALUE: Index<Pod, u8> = Index::new("value", |pod| pod.value);

type Objects = BTreeMap<u8, Pod>;

struct Server {
    at: usize,
    compacted: usize,
}

struct World {
    random: Random,
    /// The objects after each write. The version of a write is its position.
    states: Vec<Objects>,
    uids: u64,
    servers: [Server; 2],
    is_faulty: bool,
    /// What happens to each open watch next, by its number.
    watches: BTreeMap<u64, Vec<Disturbance>>,
    opened: u64,
    waiting: Vec<Waker>,
}

#[derive(Clone, Copy)]
enum Disturbance {
    Fail(SourceErrorKind),
    Close,
    Bookmark,
}

impl World {
    fn selected(&self, at: usize) -> Objects {
        self.states[at].clone().into_iter().filter(|(_, pod)| pod.is_selected).collect()
    }

    fn latest(&self) -> usize {
        self.states.len() - 1
    }

    fn chance(&mut self, of: u64) -> bool {
        self.random.below(of) == 0
    }

    fn kind(&mut self) -> SourceErrorKind {
        use SourceErrorKind::{
            ConnectionRefused, Expired, Internal, Other, TooManyRequests, VersionTooLarge,
        };
        let retry_after = Some(Duration::from_secs(self.random.below(3)));
        let kinds =
            [ConnectionRefused, Expired, Internal, Other, TooManyRequests { retry_after }, VersionTooLarge];
        kinds[self.random.below(6) as usize]
    }

    fn fault(&mut self) -> Option<SourceErrorKind> {
        (self.is_faulty && self.chance(6)).then(|| self.kind())
    }

    /// Changes one to three objects in one write.
    fn write(&mut self) {
        let version = self.states.len() as u64;
        let mut objects = self.states[self.latest()].clone();
        for _ in 0..1 + self.random.below(3) {
            let (key, value) = (self.random.below(6) as u8, self.random.below(3) as u8);
            self.uids += 1;
            let new = Pod { key, uid: self.uids, version, is_selected: self.random.below(3) > 0, value };
            match (self.random.below(4), objects.get(&key).map(|old| old.uid)) {
                (0, _) => drop(objects.remove(&key)),
                (1, _) | (_, None) => drop(objects.insert(key, new)),
                (_, Some(uid)) => drop(objects.insert(key, Pod { uid, ..new })),
            }
        }
        self.states.push(objects);
    }

    /// The events with which a server reports a write.
    fn events(&self, at: usize) -> Vec<WatchEvent<Pod>> {
        let (before, after) = (self.selected(at - 1), self.selected(at));
        let deleted = |pod: &Pod| WatchEvent::Deleted(Pod { version: at as u64, ..pod.clone() });
        let mut events = Vec::new();
        for key in 0..6 {
            match (before.get(&key), after.get(&key)) {
                (None, None) => {}
                (Some(old), None) => events.push(deleted(old)),
                (None, Some(new)) => events.push(WatchEvent::Added(new.clone())),
                (Some(old), Some(new)) if old == new => {}
                (Some(old), Some(new)) if old.uid == new.uid => {
                    events.push(WatchEvent::Modified(new.clone()));
                }
                (Some(old), Some(new)) => {
                    events.extend([deleted(old), WatchEvent::Added(new.clone())]);
                }
            }
        }
        events
    }

    fn list(&mut self, request: &ListRequest) -> Result<Page<Pod>, SourceErrorKind> {
        if let Some(kind) = self.fault() {
            return Err(kind);
        }
        let server = self.random.below(2) as usize;
        let Server { at, compacted } = self.servers[server];
        let (at, after) = match (&request.continuation, request.min_version) {
            (Some(token), _) => {
                let (at, after) = token.split_once(':').expect("a token of ours");
                let at: usize = at.parse().unwrap();
                if at < compacted {
                    return Err(SourceErrorKind::Expired);
                }
                (at, Some(after.parse::<u8>().unwrap()))
            }
            (None, ListVersion::MostRecent) => (self.latest(), None),
            (None, ListVersion::NotOlderThan(version)) if version.get() > at as u64 => {
                return Err(SourceErrorKind::VersionTooLarge);
            }
            (None, _) => (at, None),
        };
        let objects = self.selected(at);
        let rest = objects.into_values().filter(|pod| after.is_none_or(|after| pod.key > after));
        let mut items: Vec<_> = rest.collect();
        let limit = request.limit.map_or(usize::MAX, |limit| limit as usize);
        let is_last = items.len() <= limit;
        items.truncate(limit);
        let continuation = items.last().filter(|_| !is_last).map(|last| format!("{at}:{}", last.key));
        Ok(Page { items, version: Version::new(at as u64), continuation })
    }

    fn watch(&mut self, request: &WatchRequest) -> Result<Position, SourceErrorKind> {
        if let Some(kind) = self.fault() {
            return Err(kind);
        }
        let server = self.random.below(2) as usize;
        let from = request.from_version.get() as usize;
        assert!(from > 0 || request.streaming_list, "a watch without a version");
        if !request.streaming_list && from < self.servers[server].compacted && self.chance(2) {
            return Err(SourceErrorKind::Expired);
        }
        self.opened += 1;
        self.watches.insert(self.opened, Vec::new());
        let needs = if from == 0 { self.latest() } else { from };
        let initial = request.streaming_list.then_some((needs, None));
        Ok(Position { number: self.opened, server, at: from, part: 0, initial })
    }

    fn next(&mut self, position: &mut Position) -> Option<Option<Result<WatchEvent<Pod>, SourceError>>> {
        let Server { at: newest, compacted } = self.servers[position.server];
        let number = position.number;
        if let Some((needs, rest)) = &mut position.initial {
            if let Some(Disturbance::Fail(kind)) = self.watches[&number].first() {
                return Some(Some(Err((*kind).into())));
            }
            if let Some(Disturbance::Close) = self.watches[&number].first() {
                return Some(None);
            }
            if newest < *needs && rest.is_none() {
                return None;
            }
            let objects = rest.get_or_insert_with(|| {
                position.at = newest;
                self.states[newest].values().filter(|pod| pod.is_selected).cloned().rev().collect()
            });
            if self.random.below(4) == 0 {
                return Some(Some(Ok(WatchEvent::Bookmark(Version::new(position.at as u64)))));
            }
            return Some(Some(Ok(match objects.pop() {
                Some(pod) => WatchEvent::Added(pod),
                None => {
                    position.initial = None;
                    WatchEvent::InitialListEnd(Version::new(position.at as u64))
                }
            })));
        }
        if position.at < compacted {
            return Some(Some(Err(SourceErrorKind::Expired.into())));
        }
        let disturbances = self.watches.get_mut(&number).expect("an open watch");
        match disturbances.first().copied() {
            Some(Disturbance::Fail(kind)) => return Some(Some(Err(kind.into()))),
            Some(Disturbance::Close) if position.part == 0 => return Some(None),
            Some(Disturbance::Bookmark) if position.part == 0 => {
                disturbances.remove(0);
                return Some(Some(Ok(WatchEvent::Bookmark(Version::new(position.at as u64)))));
            }
            _ => {}
        }
        while position.at < newest {
            let events = self.events(position.at + 1);
            if let Some(event) = events.get(position.part) {
                position.part += 1;
                return Some(Some(Ok(event.clone())));
            }
            (position.at, position.part) = (position.at + 1, 0);
            if !self.watches[&number].is_empty() {
                return self.next(position);
            }
        }
        None
    }
}

/// The place of a watch in the history of its server, and the initial list that it still has to deliver.
struct Position {
    number: u64,
    server: usize,
    at: usize,
    part: usize,
    initial: Option<(usize, Option<Vec<Pod>>)>,
}

#[derive(Clone)]
struct Cluster(Arc<Mutex<World>>);

struct Watch(Cluster, Position);

impl Cluster {
    fn change<R>(&self, change: impl FnOnce(&mut World) -> R) -> R {
        let mut world = self.0.lock();
        let result = change(&mut world);
        let waiting = std::mem::take(&mut world.waiting);
        drop(world);
        waiting.into_iter().for_each(Waker::wake);
        result
    }
}

impl Source for Cluster {
    type Object = Pod;
    type Watch = Watch;

    async fn list(&self, request: ListRequest) -> Result<Page<Pod>, SourceError> {
        Ok(self.0.lock().list(&request)?)
    }

    async fn watch(&self, request: WatchRequest) -> Result<Watch, SourceError> {
        let position = self.0.lock().watch(&request)?;
        Ok(Watch(self.clone(), position))
    }
}

impl WatchStream for Watch {
    type Object = Pod;

    async fn next(&mut self) -> Option<Result<WatchEvent<Pod>, SourceError>> {
        let Self(cluster, position) = self;
        poll_fn(|cx| {
            let mut world = cluster.0.lock();
            match world.next(position) {
                Some(message) => Poll::Ready(message),
                None => {
                    world.waiting.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.0.lock().watches.remove(&self.1.number);
    }
}

/// A subscription, and the objects that its subscriber has.
struct Subscriber {
    changes: Subscription<u8, Pod>,
    selects: fn(&Pod) -> bool,
    held: Objects,
}

impl Subscriber {
    fn take(&mut self, most: usize) {
        for change in std::iter::from_fn(|| self.changes.try_next()).take(most) {
            let held = match change.new() {
                Some(new) => self.held.insert(*change.key(), (**new).clone()),
                None => self.held.remove(change.key()),
            };
            assert_eq!(held.is_none(), change.kind().is_addition(), "{change:?}");
        }
    }
}

fn run(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let server = || Server { at: 1, compacted: 0 };
    let world = World {
        random: Random::new(seed + 1_000_000),
        states: vec![Objects::new(), Objects::new()],
        uids: 0,
        servers: [server(), server()],
        is_faulty: random.below(4) > 0,
        watches: BTreeMap::new(),
        opened: 0,
        waiting: Vec::new(),
    };
    let cluster = Cluster(Arc::new(Mutex::new(world)));
    let config = ReflectorConfig {
        page_size: [None, 2.try_into().ok(), 3.try_into().ok()][random.below(3) as usize],
        streaming_lists: random.below(2) == 0,
        max_internal_error_retry_duration: Duration::from_secs(random.below(2) * 60),
        ..ReflectorConfig::default()
    };
    let clock = ManualClock::new();
    let builder =
        Informer::builder(PODS, cluster.clone()).index(&BY_VALUE).reflector_config(config).seed(seed);
    let (informer, future) = builder.timer(clock.timer()).build().unwrap();
    let mut future = Box::pin(future);
    let reported = Arc::new(Mutex::new(Objects::new()));
    let map = reported.clone();
    let _observer = informer.observe(move |change| {
        match change.new() {
            Some(new) => map.lock().insert(*change.key(), (**new).clone()),
            None => map.lock().remove(change.key()),
        };
    });
    let mut subscribers: Vec<Subscriber> = Vec::new();
    let (counting, waker) = Counting::waker();
    let mut polled = None;
    // Polls the informer if it was woken.
    let mut poll = |future: Pin<&mut dyn Future<Output = ()>>| {
        let woken = polled != Some(counting.wakes());
        if woken {
            polled = Some(counting.wakes());
            assert!(poll_with(future, &waker).is_pending());
        }
        woken
    };
    for _ in 0..random.below(120) {
        match random.below(12) {
            0..=2 => cluster.change(World::write),
            3 | 4 => {
                let (at, far) = (random.below(2) as usize, random.next());
                cluster.change(|world| {
                    let ahead = world.latest() - world.servers[at].at;
                    world.servers[at].at += (far % (ahead as u64 + 1)) as usize;
                });
            }
            5 => {
                let (at, far) = (random.below(2) as usize, random.next());
                cluster.change(|world| {
                    let server = &mut world.servers[at];
                    server.compacted += (far % ((server.at - server.compacted) as u64 + 1)) as usize;
                });
            }
            6 => {
                let what = random.below(4);
                cluster.change(|world| {
                    let kind = world.kind();
                    let disturbance = [
                        Disturbance::Fail(kind),
                        Disturbance::Close,
                        Disturbance::Bookmark,
                        Disturbance::Bookmark,
                    ];
                    world.watches.values_mut().for_each(|next| next.push(disturbance[what as usize]));
                });
            }
            7 => clock
                .advance(Duration::from_millis([1, 900, 5_000, 70_000, 400_000][random.below(5) as usize])),
            8 => {
                let subscription = informer.subscription();
                let (changes, selects): (_, fn(&Pod) -> bool) = match random.below(4) {
                    0 => (subscription.subscribe(), |_| true),
                    1 => (subscription.by_index(&BY_VALUE, 1).unwrap().subscribe(), |pod| pod.value == 1),
                    2 => (subscription.for_key(2).subscribe(), |pod| pod.key == 2),
                    _ => (subscription.filter(|pod| pod.value != 1).subscribe(), |pod| pod.value != 1),
                };
                subscribers.push(Subscriber { changes, selects, held: Objects::new() });
            }
            9 => {
                let most = random.below(4) as usize;
                subscribers.iter_mut().for_each(|subscriber| subscriber.take(most));
            }
            _ => drop((0..1 + random.below(3)).map(|_| poll(future.as_mut())).count()),
        }
        for stored in informer.snapshot().objects() {
            let world = cluster.0.lock();
            let at = stored.version as usize;
            assert_eq!(world.states[at].get(&stored.key), Some(&**stored), "an object that never was");
        }
    }
    cluster.change(|world| {
        world.is_faulty = false;
        let latest = world.latest();
        world.servers.iter_mut().for_each(|server| server.at = latest);
    });
    let world = cluster.0.lock();
    let wanted = world.selected(world.latest());
    drop(world);
    let stored =
        || -> Objects { informer.snapshot().iter().map(|(key, pod)| (*key, (**pod).clone())).collect() };
    let mut rounds = 0;
    while stored() != wanted || !informer.is_synced() {
        if !poll(future.as_mut()) {
            clock.set(clock.next_alarm().expect("the informer waits for nothing"));
        }
        rounds += 1;
        assert!(rounds < 3_000, "{:?} instead of {wanted:?}: {:?}", stored(), informer.status());
    }
    for subscriber in &mut subscribers {
        subscriber.take(usize::MAX);
        let expected: Objects = wanted
            .iter()
            .filter(|(_, pod)| (subscriber.selects)(pod))
            .map(|(key, pod)| (*key, pod.clone()))
            .collect();
        assert_eq!(subscriber.held, expected);
    }
    assert_eq!(*reported.lock(), wanted);
    informer.store().check().unwrap();
    informer.status().relists
}

#[test]
fn informer_of_servers_that_lag_behind_each_other_converges() {
    let first = std::env::var("FLYBALL_SEED").ok().and_then(|seed| seed.parse().ok());
    let cases = if thorough() { 3_000 } else { 300 };
    let seeds = first.map_or(0..cases, |seed| seed..seed + 1);
    let mut relists = 0;
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        relists += outcome.unwrap_or_else(|_| panic!("FLYBALL_SEED={seed}"));
    }
    assert!(first.is_some() || relists > cases / 4, "only {relists} relists");
}
