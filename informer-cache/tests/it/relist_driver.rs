//! Any bytes as a life of a server and its faults; once they stop, an informer has to show the server's state, and
//! so has everybody who followed its changes.
//!
//! Shared with the fuzz target `relist`.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_informer_cache::{
    BoundedSubscription, Change, ChangeKind, Event, Informer, InformerState, ListRequest, Overflow, Page,
    Source, SourceError, SourceErrorKind, Subscription, Told, Version, Watch, WatchRequest,
};
use parking_lot::Mutex;

use crate::server::{Server, server};
use crate::world::{BUSY, EXPIRED, INTERNAL, OTHER, Object, REFUSED, SCHEMA, TOO_LARGE, World, object};

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    Put(u8),
    PutMany(u8),
    Delete(u8),
    Recreate(u8),
    Bookmark,
    Compact,
    Cache,
    Restore,
    FailList(u8),
    FailWatch(u8),
    BreakWatch(u8),
    Close,
    Repeat,
    Silent(bool),
    Shuffled,
    Endless,
    Repeats,
    Pass(u16),
    PassLong(u8),
    Follow,
    Read(u8),
    Spoil(u8),
    Mend(u8),
}

const KEYS: u8 = 8;

fn kind(number: u8) -> SourceErrorKind {
    [EXPIRED, TOO_LARGE, BUSY, REFUSED, INTERNAL, OTHER][usize::from(number % 6)]
}

/// A server whose objects cannot all be read. That something happened to one that cannot is all a watch tells of it, but for its end.
#[derive(Clone)]
struct HardToRead {
    server: Server,
    spoilt: Arc<Mutex<BTreeSet<u8>>>,
    /// Those of the list under way, with their identities.
    unread: Arc<Mutex<BTreeMap<u8, u64>>>,
}

impl HardToRead {
    /// Notes an object that cannot be read.
    fn reads(&self, object: &Object) -> bool {
        let spoilt = self.spoilt.lock().contains(&object.key);
        if spoilt {
            self.unread.lock().insert(object.key, object.uid);
        }
        !spoilt
    }

    /// Somebody writes some of them anew, so that they can be read.
    fn mend(&self, which: impl Fn(&u8) -> bool) {
        let (mended, spoilt): (BTreeSet<u8>, _) =
            std::mem::take(&mut *self.spoilt.lock()).into_iter().partition(which);
        *self.spoilt.lock() = spoilt;
        let there = self.server.objects();
        there
            .iter()
            .filter(|object| mended.contains(&object.key))
            .for_each(|object| put(&self.server, object.key));
    }
}

struct HardToReadWatch<W> {
    watch: W,
    source: HardToRead,
}

impl Source for HardToRead {
    type Object = Object;
    type Watch = HardToReadWatch<<Server as Source>::Watch>;

    async fn list(&self, request: ListRequest) -> Result<Page<Object>, SourceError> {
        if request.continuation.is_none() {
            self.unread.lock().clear();
        }
        let mut page = self.server.list(request).await?;
        page.items.retain(|object| self.reads(object));
        Ok(page)
    }

    async fn watch(&self, request: WatchRequest) -> Result<Self::Watch, SourceError> {
        if request.streaming_list {
            self.unread.lock().clear();
        }
        Ok(HardToReadWatch { watch: self.server.watch(request).await?, source: self.clone() })
    }

    fn unread(&self, stored: &Object) -> bool {
        self.unread.lock().get(&stored.key) == Some(&stored.uid)
    }
}

impl<W: Watch<Object = Object>> Watch for HardToReadWatch<W> {
    type Object = Object;

    async fn next(&mut self) -> Option<Result<Event<Object>, SourceError>> {
        Some(self.watch.next().await?.map(|event| match event {
            Event::Added(object) | Event::Modified(object) if !self.source.reads(&object) => {
                Event::Bookmark(Version::new(object.version))
            }
            Event::Deleted(object) => {
                self.source.unread.lock().remove(&object.key);
                Event::Deleted(object)
            }
            event => event,
        }))
    }
}

/// What a consumer is told, and how.
#[derive(Clone, Copy)]
struct Manner {
    /// Nothing is too much, it begins anew, or it ends and is made again.
    overflow: Option<Overflow>,
    /// Only objects that pass.
    filtered: bool,
    /// Only one key.
    key: Option<u8>,
    /// Its filter panics now and then.
    panics: bool,
}

impl Manner {
    fn new(bits: u8) -> Self {
        let overflow = [None, Some(Overflow::Restart), Some(Overflow::Disconnect)][usize::from(bits % 3)];
        let (filtered, panics) = (bits & 4 != 0, bits & 8 != 0);
        Self { overflow, filtered, key: (bits & 48 == 48).then_some(bits % KEYS), panics }
    }

    fn is_shown(self, object: &Object) -> bool {
        self.key.is_none_or(|key| key == object.key) && (!self.filtered || object.version % 3 > 0)
    }
}

enum Changes {
    Merged(Subscription<u8, Object>),
    Bounded(BoundedSubscription<u8, Object>),
}

/// What a consumer knows from changes alone.
struct Follower {
    manner: Manner,
    changes: Changes,
    known: BTreeMap<u8, Object>,
}

impl Follower {
    fn new(world: &World, manner: Manner) -> Self {
        let mut builder = world.informer.subscription();
        if manner.filtered || manner.panics {
            let calls = AtomicU64::new(0);
            builder = builder.filter(move |object| {
                if manner.panics && calls.fetch_add(1, Ordering::Relaxed) % 5 == 0 {
                    // Past the hook, which would tell of each.
                    resume_unwind(Box::new("a bad day"));
                }
                !manner.filtered || manner.is_shown(object)
            });
        }
        if let Some(key) = manner.key {
            builder = builder.key(key);
        }
        let changes = match manner.overflow {
            None => Changes::Merged(builder.start()),
            Some(overflow) => Changes::Bounded(builder.bounded(3.try_into().unwrap(), overflow)),
        };
        Self { manner, changes, known: BTreeMap::new() }
    }

    fn next(&mut self, world: &World) -> Option<Change<u8, Object>> {
        loop {
            let told = catch_unwind(AssertUnwindSafe(|| match &mut self.changes {
                Changes::Merged(changes) => Ok(changes.try_next().map(Told::Change)),
                Changes::Bounded(changes) => changes.try_next(),
            }));
            match told {
                Ok(Ok(Some(Told::Change(change)))) => return Some(change),
                Ok(Ok(Some(Told::Restart))) => self.known.clear(),
                Ok(Ok(None)) => return None,
                Ok(Err(_)) => *self = Self::new(world, self.manner),
                Err(_) => assert!(self.manner.panics),
            }
        }
    }

    /// Takes up to `most` changes; each has to fit what is known.
    fn read(&mut self, world: &World, most: usize) {
        for _ in 0..most {
            let Some(change) = self.next(world) else { return };
            let key = *change.key();
            let before = match &change.kind {
                ChangeKind::Added { object, .. } => self.known.insert(key, **object),
                ChangeKind::Updated { new, .. } => self.known.insert(key, **new),
                ChangeKind::Deleted { .. } => self.known.remove(&key),
            };
            match &change.kind {
                ChangeKind::Added { .. } => assert_eq!(before, None, "added twice"),
                ChangeKind::Updated { old, new } => {
                    assert_eq!(before, Some(**old), "an update of something else");
                    assert_eq!(old.uid, new.uid, "another identity is not an update");
                }
                ChangeKind::Deleted { last, .. } => {
                    let before = before.expect("deleted without being known");
                    assert_eq!(before.uid, last.uid);
                }
            }
        }
    }
}

/// Runs the bytes; panics where something does not converge.
pub(crate) fn run(bytes: &[u8]) {
    let mut food = Unstructured::new(bytes);
    let settings: u8 = food.arbitrary().unwrap_or(0);
    let server = server();
    let source = HardToRead { server: server.clone(), spoilt: Arc::default(), unread: Arc::default() };
    let mut builder = Informer::builder(SCHEMA, source.clone());
    if settings & 1 != 0 {
        builder = builder.streaming_lists();
    }
    if settings & 2 != 0 {
        builder = builder.page_size(NonZeroU32::new(2).unwrap());
    }
    let mut world = World::new(builder);
    let mut followers = vec![Follower::new(&world, Manner::new(0))];
    // The others differ from life to life.
    let mut manners =
        (1..=5_u8).map(|turn| Manner::new((settings >> 2).wrapping_mul(turn).wrapping_add(turn)));
    followers.extend(manners.next().map(|manner| Follower::new(&world, manner)));
    // Those that were known when they could not be read any more, with their identities.
    let mut kept = BTreeMap::new();
    let mut ever_spoilt = BTreeSet::new();
    while !food.is_empty() {
        let Ok(op) = food.arbitrary() else { break };
        match op {
            Op::Spoil(key) => {
                ever_spoilt.insert(key % KEYS);
                let known = world.stored().into_iter().find(|object| object.key == key % KEYS);
                if source.spoilt.lock().insert(key % KEYS) {
                    kept.extend(known.map(|object| (object.key, object.uid)));
                }
            }
            Op::Mend(key) => {
                source.mend(|spoilt| *spoilt == key % KEYS);
                kept.remove(&(key % KEYS));
            }
            Op::Delete(key) | Op::Recreate(key) => drop(kept.remove(&(key % KEYS))),
            _ => {}
        }
        perform(op, &server, &mut world, &mut followers, &mut manners);
        world.settle();
        world.informer.store().check().unwrap();
        // Nobody took it away, so it is known as long as it cannot be read.
        let there = server.objects();
        kept.retain(|key, uid| there.iter().any(|object| (object.key, object.uid) == (*key, *uid)));
        let stored = world.stored();
        for (key, uid) in &kept {
            let known = stored.iter().any(|object| (object.key, object.uid) == (*key, *uid));
            assert!(known, "{key} cannot be read, and is not stored any more");
        }
    }
    server.heal();
    // All that ever were: a server that is restored may have one of those states again, which nobody could read when it was told.
    source.spoilt.lock().extend(ever_spoilt);
    source.mend(|_| true);
    // Longer than the longest wait, an unanswered request and a streaming list that never ends together.
    world.pass(Duration::from_secs(600));
    assert_eq!(world.informer.status().state, InformerState::Watching);
    assert_eq!(world.stored(), server.objects());
    assert!(world.informer.is_synced());
    // One more change comes through the watch alone.
    let relists = world.informer.status().relists;
    put(&server, 0);
    world.settle();
    assert_eq!(world.stored(), server.objects());
    assert_eq!(world.informer.status().relists, relists);
    assert_eq!(world.informer.status().version, server.version());
    world.informer.store().check().unwrap();
    for follower in &mut followers {
        follower.read(&world, usize::MAX);
        let known: Vec<Object> = follower.known.values().copied().collect();
        let mut shown = server.objects();
        shown.retain(|object| follower.manner.is_shown(object));
        assert_eq!(known, shown, "a consumer missed something");
    }
}

fn put(server: &Server, key: u8) {
    server.put(object(key % KEYS, 0));
}

fn perform(
    op: Op,
    server: &Server,
    world: &mut World,
    followers: &mut Vec<Follower>,
    manners: &mut impl Iterator<Item = Manner>,
) {
    match op {
        Op::Put(key) => put(server, key),
        Op::PutMany(bits) => (0..KEYS).filter(|key| bits >> key & 1 != 0).for_each(|key| put(server, key)),
        Op::Delete(key) => drop(server.delete(&(key % KEYS))),
        Op::Recreate(key) => drop(server.recreate(object(key % KEYS, 0))),
        Op::Bookmark => server.bookmark(),
        Op::Compact => server.compact(),
        Op::Cache => server.cache(),
        Op::Restore => server.restore(),
        Op::FailList(number) => server.fail_list(kind(number)),
        Op::FailWatch(number) => server.fail_watch(kind(number)),
        Op::BreakWatch(number) => server.break_watches(kind(number)),
        Op::Close => server.close_watches(),
        Op::Repeat => server.repeat(),
        Op::Silent(silent) => server.faults(|faults| faults.silent = silent),
        Op::Shuffled => server.faults(|faults| faults.shuffled ^= true),
        Op::Endless => server.faults(|faults| faults.endless ^= true),
        Op::Repeats => server.faults(|faults| faults.repeats ^= true),
        Op::Pass(millis) => {
            world.pass(Duration::from_millis(millis.into()));
        }
        Op::PassLong(seconds) => {
            world.pass(Duration::from_secs(seconds.into()));
        }
        Op::Follow => followers.extend(manners.next().map(|manner| Follower::new(world, manner))),
        Op::Spoil(_) | Op::Mend(_) => {}
        Op::Read(most) => followers.iter_mut().for_each(|follower| follower.read(world, most.into())),
    }
}
