//! Decodes arbitrary bytes to operations and faults of a server that an informer watches. After the last operation, the state of the informer, and of
//! all consumers of its changes, must become equal to the server's state.
//!
//! The fuzz target `relist` also uses this driver.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_informer_cache::{
    Change, ChangeKind, Index, IndexError, Informer, InformerState, ListRequest, Page, Schema, Source,
    SourceError, SourceErrorKind, Subscription, SubscriptionEvent, Version, WatchEvent, WatchRequest,
    WatchStream,
};
use parking_lot::Mutex;
use testkit::coverage::events::Happened;

use crate::cache::fixture::{BUSY, EXPIRED, INTERNAL, OTHER, Object, REFUSED, TOO_LARGE, World, object};
use crate::cache::server::{Server, server};

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
    MakeUnreadable(u8),
    MakeReadable(u8),
}

const KEYS: u8 = 8;

/// The names of the operations, and of the cases that may occur in an operation sequence.
pub const NAMES: &[&str] = &[
    "list: plain",
    "list: paged",
    "list: streaming",
    "order: kept",
    "order: changed",
    "function: sound",
    "function: key",
    "function: version",
    "function: identity",
    "function: transform",
    "index: sound",
    "index: error",
    "index: panic",
    "content: compared",
    "content: as the version says",
    "source: holds watches",
    "source: polls",
    "consumer: merged",
    "consumer: restarts",
    "filter",
    "filter panics",
    "one key",
    "unread",
    "bookmark",
    "expired",
    "restored",
    "stale",
    "relist",
    "deleted",
    "recreated",
    "list failed",
    "watch failed",
    "watch broken",
    "watch ended",
    "silent",
    "shuffled",
    "repeats",
];

/// Creates a count of the cases that occur in an operation sequence.
pub const fn tally() -> Happened {
    Happened::new(NAMES)
}

thread_local! {
    /// Selects the user function that panics for bad objects. Is `NONE` except while the run future is polled.
    static PANICKING_FUNCTION: Cell<u8> = const { Cell::new(NONE) };
}

const NONE: u8 = 0;
const KEY: u8 = 1;
const VERSION: u8 = 2;
const IDENTITY: u8 = 3;
const TRANSFORM: u8 = 4;

fn panic_if_selected(function: u8, object: &Object) {
    if PANICKING_FUNCTION.get() == function && is_bad(object) {
        // Unlike `panic!`, this does not run the panic hook, which would print each panic.
        resume_unwind(Box::new("a bad object"));
    }
}

const fn is_bad(object: &Object) -> bool {
    object.version % 7 == 3
}

const PANICKING: Schema<u8, Object> = Schema::new(
    |object: &Object| {
        panic_if_selected(KEY, object);
        object.key
    },
    |object| {
        panic_if_selected(VERSION, object);
        Version::new(object.version)
    },
)
.with_identity(|a, b| {
    panic_if_selected(IDENTITY, a);
    panic_if_selected(IDENTITY, b);
    a.uid == b.uid
});

static BY_THIRD: Index<Object, u64> = Index::new("third", |object| object.version % 3);
static FAILS: Index<Object, u8> = Index::fallible("frail", |object| match object.version % 5 {
    0 => Err(IndexError::new("a bad object")),
    _ => Ok(vec![object.key]),
});
static PANICS: Index<Object, u8> = Index::many("frail", |object| match object.version % 5 {
    0 => resume_unwind(Box::new("a bad object")),
    _ => vec![object.key],
});

fn kind(number: u8) -> SourceErrorKind {
    [EXPIRED, TOO_LARGE, BUSY, REFUSED, INTERNAL, OTHER][usize::from(number % 6)]
}

/// A server with unreadable objects. When an unreadable object changes, a watch delivers a bookmark; when it is deleted, a watch delivers the
/// deletion.
#[derive(Clone)]
struct UnreadableSource {
    server: Server,
    unreadable: Arc<Mutex<BTreeSet<u8>>>,
    /// The keys that could not be read since the current list began, with the identities of their objects.
    unread: Arc<Mutex<BTreeMap<u8, u64>>>,
    /// The deletions that are applied even if they are old events that the server sends again: those whose version cannot be read, and those whose
    /// object cannot be compared with the stored one. The informer cannot detect that one of the second kind is old if the stored object has
    /// its version, because a single write has deleted the one object and created the other.
    applied: Arc<Mutex<Vec<Object>>>,
    /// Whether the source reorders the events of different objects that it delivers together.
    reorders: bool,
    polls: bool,
    seen: Arc<SeenCases>,
}

/// The cases that occurred.
#[derive(Default)]
struct SeenCases {
    unread: AtomicBool,
    reordered: AtomicBool,
    expired: AtomicBool,
    bookmark: AtomicBool,
}

impl SeenCases {
    fn error(&self, error: &SourceError) {
        if error.kind() == EXPIRED {
            self.expired.store(true, Ordering::Relaxed);
        }
    }
}

impl UnreadableSource {
    /// Returns whether an object can be read. If it cannot, records it.
    fn reads(&self, object: &Object) -> bool {
        let unreadable = self.unreadable.lock().contains(&object.key);
        if unreadable {
            self.unread.lock().insert(object.key, object.uid);
            self.seen.unread.store(true, Ordering::Relaxed);
        }
        !unreadable
    }

    /// Makes unreadable objects readable, by writing them again.
    fn make_readable(&self, which: impl Fn(&u8) -> bool) {
        let (readable, unreadable): (BTreeSet<u8>, _) =
            std::mem::take(&mut *self.unreadable.lock()).into_iter().partition(which);
        *self.unreadable.lock() = unreadable;
        let objects = self.server.objects();
        objects
            .iter()
            .filter(|object| readable.contains(&object.key))
            .for_each(|object| put(&self.server, object.key));
    }
}

type Message = Option<Result<WatchEvent<Object>, SourceError>>;

struct UnreadableWatch<W> {
    watch: W,
    source: UnreadableSource,
    /// Events that have been read from the watch, but have not been returned yet.
    ready: VecDeque<Message>,
}

impl<W: WatchStream<Object = Object>> UnreadableWatch<W> {
    /// Converts an event to the form in which this source delivers it.
    fn read(&self, event: WatchEvent<Object>) -> WatchEvent<Object> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) if !self.source.reads(&object) => {
                WatchEvent::Bookmark(Version::new(object.version))
            }
            WatchEvent::Deleted(object) => {
                self.source.unread.lock().remove(&object.key);
                if matches!(PANICKING_FUNCTION.get(), VERSION | IDENTITY) && is_bad(&object) {
                    self.source.applied.lock().push(object);
                }
                WatchEvent::Deleted(object)
            }
            event => {
                if let WatchEvent::Bookmark(_) = event {
                    self.source.seen.bookmark.store(true, Ordering::Relaxed);
                }
                event
            }
        }
    }

    /// Sorts the events that are delivered together by key, in descending order. The order of the events of one object does not change, and no event
    /// is moved across a bookmark, an error or the end of the watch.
    fn reorder(&mut self, burst: &mut Vec<WatchEvent<Object>>) {
        let before: Vec<_> =
            burst.iter().filter_map(WatchEvent::object).map(|object| object.version).collect();
        burst.sort_by_key(|event| std::cmp::Reverse(event.object().map(|object| object.key)));
        let after = burst.iter().filter_map(WatchEvent::object).map(|object| object.version);
        if !after.eq(before.iter().copied()) && before.is_sorted() {
            self.source.seen.reordered.store(true, Ordering::Relaxed);
        }
        self.ready.extend(burst.drain(..).map(|event| Some(Ok(event))));
    }
}

impl Source for UnreadableSource {
    type Object = Object;
    type Watch = UnreadableWatch<<Server as Source>::Watch>;

    async fn list(&self, request: ListRequest) -> Result<Page<Object>, SourceError> {
        if request.continuation.is_none() {
            self.unread.lock().clear();
        }
        let page = self.server.list(request).await;
        let mut page = page.inspect_err(|error| self.seen.error(error))?;
        page.items.retain(|object| self.reads(object));
        Ok(page)
    }

    async fn watch(&self, request: WatchRequest) -> Result<Self::Watch, SourceError> {
        if request.streaming_list {
            self.unread.lock().clear();
        }
        let watch = self.server.watch(request).await.inspect_err(|error| self.seen.error(error))?;
        Ok(UnreadableWatch { watch, source: self.clone(), ready: VecDeque::new() })
    }

    fn is_polling(&self) -> bool {
        self.polls
    }

    fn is_unreadable(&self, stored: &Object) -> bool {
        self.unread.lock().get(&stored.key) == Some(&stored.uid)
    }
}

impl<W: WatchStream<Object = Object>> WatchStream for UnreadableWatch<W> {
    type Object = Object;

    async fn next(&mut self) -> Option<Result<WatchEvent<Object>, SourceError>> {
        let mut burst = Vec::new();
        poll_fn(|cx| {
            while self.ready.is_empty() {
                let event = pin!(self.watch.next()).poll(cx);
                match event {
                    Poll::Ready(Some(Ok(event))) => {
                        let event = self.read(event);
                        match event.object().is_some() && self.source.reorders {
                            true => burst.push(event),
                            false => {
                                self.reorder(&mut burst);
                                self.ready.push_back(Some(Ok(event)));
                            }
                        }
                    }
                    Poll::Ready(ended) => {
                        if let Some(Err(error)) = &ended {
                            self.source.seen.error(error);
                        }
                        self.reorder(&mut burst);
                        self.ready.push_back(ended);
                    }
                    Poll::Pending if burst.is_empty() => return Poll::Pending,
                    Poll::Pending => self.reorder(&mut burst),
                }
            }
            Poll::Ready(self.ready.pop_front().expect("a message is ready"))
        })
        .await
    }
}

/// The options of a subscription.
#[derive(Clone, Copy)]
struct SubscriptionOptions {
    /// Whether the number of pending keys has a limit.
    bounded: bool,
    /// Whether only objects that pass the filter are delivered.
    filtered: bool,
    /// The only key to deliver; `None` delivers all keys.
    key: Option<u8>,
    /// Whether the filter panics in every fifth call.
    panics: bool,
}

impl SubscriptionOptions {
    fn new(bits: u8) -> Self {
        let (bounded, filtered, panics) = (bits % 3 > 0, bits & 4 != 0, bits & 8 != 0);
        Self { bounded, filtered, key: (bits & 48 == 48).then_some(bits % KEYS), panics }
    }

    fn tally(self, tally: &mut Happened) {
        tally.hit(if self.bounded { "consumer: restarts" } else { "consumer: merged" });
        tally.hit_if(self.filtered, "filter");
        tally.hit_if(self.panics, "filter panics");
        tally.hit_if(self.key.is_some(), "one key");
    }

    fn is_shown(self, object: &Object) -> bool {
        self.key.is_none_or(|key| key == object.key) && (!self.filtered || object.version % 3 > 0)
    }
}

enum Changes {
    Merged(Subscription<u8, Object>),
    Bounded(Subscription<u8, Object, SubscriptionEvent<u8, Object>>),
}

/// A consumer, whose state is computed only from the changes that it has received.
struct Follower {
    options: SubscriptionOptions,
    changes: Changes,
    known: BTreeMap<u8, Object>,
}

impl Follower {
    fn new(world: &World, options: SubscriptionOptions) -> Self {
        let mut builder = world.informer.subscription();
        if options.filtered || options.panics {
            let calls = AtomicU64::new(0);
            builder = builder.filter(move |object| {
                if options.panics && calls.fetch_add(1, Ordering::Relaxed) % 5 == 0 {
                    // `panic!` would run the hook, which prints each panic.
                    resume_unwind(Box::new("a bad day"));
                }
                !options.filtered || options.is_shown(object)
            });
        }
        if let Some(key) = options.key {
            builder = builder.for_key(key);
        }
        let changes = match options.bounded {
            true => Changes::Bounded(builder.max_pending(3.try_into().unwrap()).subscribe()),
            false => Changes::Merged(builder.subscribe()),
        };
        Self { options, changes, known: BTreeMap::new() }
    }

    fn next(&mut self) -> Option<Change<u8, Object>> {
        // A consumer may call the identity function here, outside of the run future. A panic of the function would then be a panic of the consumer,
        // so the function must not panic here.
        PANICKING_FUNCTION.set(NONE);
        loop {
            let event = catch_unwind(AssertUnwindSafe(|| match &mut self.changes {
                Changes::Merged(changes) => changes.try_next().map(SubscriptionEvent::Change),
                Changes::Bounded(changes) => changes.try_next(),
            }));
            match event {
                Ok(Some(SubscriptionEvent::Change(change))) => return Some(change),
                Ok(Some(SubscriptionEvent::Restarted)) => self.known.clear(),
                Ok(None) => return None,
                Err(_) => assert!(self.options.panics),
            }
        }
    }

    /// Takes up to `most` changes, and asserts that each is consistent with the state that the consumer had before.
    fn read(&mut self, most: usize) {
        for _ in 0..most {
            let Some(change) = self.next() else { return };
            let key = *change.key();
            let before = match change.new() {
                Some(new) => self.known.insert(key, **new),
                None => self.known.remove(&key),
            };
            let old = change.old().map(|old| **old);
            match change.kind() {
                ChangeKind::Initial | ChangeKind::Added => assert_eq!(before, None, "added twice"),
                ChangeKind::Updated => {
                    assert_eq!(before, old, "an update of an object that is not the known one");
                    let uid = old.map(|old| old.uid);
                    assert_eq!(uid, Some(change.object().uid), "an update changed the identity");
                }
                kind @ (ChangeKind::Replaced | ChangeKind::Deleted | ChangeKind::Missed) => {
                    let before = before.expect("a deleted object was known");
                    assert_eq!(Some(before.uid), old.map(|old| old.uid));
                    let replaced = before.uid != change.object().uid;
                    assert_eq!(kind == ChangeKind::Replaced, replaced, "{kind:?}");
                }
            }
        }
    }
}

/// Decodes `bytes`, and performs the operations. Panics if the store or a consumer does not reach the server's state. Counts the cases that occur in
/// `tally`.
pub fn run(bytes: &[u8], tally: &mut Happened) {
    PANICKING_FUNCTION.set(NONE);
    let mut input = Unstructured::new(bytes);
    let settings: u8 = input.arbitrary().unwrap_or(0);
    // The last byte contains further settings. It is not removed from the operations, so older corpus files still decode to the same operations.
    let more = bytes.last().copied().unwrap_or(0);
    let (function, failing_index) = ((more >> 1 & 7).saturating_sub(3), (more >> 4 & 3) % 3);
    let (compares, reorders, polls) = (more & 64 != 0, more & 1 != 0, more & 128 != 0);
    tally
        .hit(["list: plain", "list: streaming", "list: paged", "list: streaming"][usize::from(settings & 3)]);
    tally.hit(if compares { "content: compared" } else { "content: as the version says" });
    tally.hit(if polls { "source: polls" } else { "source: holds watches" });
    let server = server();
    let source = UnreadableSource {
        server: server.clone(),
        unreadable: Arc::default(),
        unread: Arc::default(),
        applied: Arc::default(),
        reorders,
        polls,
        seen: Arc::default(),
    };
    let schema = if compares { PANICKING.with_content_eq(|a, b| a == b) } else { PANICKING };
    let mut builder = Informer::builder(schema, source.clone()).index(&BY_THIRD).transform(|object| {
        panic_if_selected(TRANSFORM, &object);
        object
    });
    builder = match failing_index {
        0 => builder,
        1 => builder.index(&FAILS),
        _ => builder.index(&PANICS),
    };
    if settings & 1 != 0 {
        builder = builder.streaming_lists();
    }
    if settings & 2 != 0 {
        builder = builder.page_size(NonZeroU32::new(2).unwrap());
    }
    let mut world = World::new(builder);
    let mut version = server.version();
    let mut followers = vec![Follower::new(&world, SubscriptionOptions::new(0))];
    // The options of further subscriptions are derived from `settings`, too.
    let mut more_options = (1..=5_u8)
        .map(|number| SubscriptionOptions::new((settings >> 2).wrapping_mul(number).wrapping_add(number)));
    followers.extend(more_options.next().map(|options| Follower::new(&world, options)));
    // The objects that became unreadable after they had been stored, by key.
    let mut kept = BTreeMap::new();
    let mut ever_unreadable = BTreeSet::new();
    while !input.is_empty() {
        let Ok(op) = input.arbitrary() else { break };
        match op {
            Op::MakeUnreadable(key) => {
                ever_unreadable.insert(key % KEYS);
                let known = world.stored().into_iter().find(|object| object.key == key % KEYS);
                if source.unreadable.lock().insert(key % KEYS) {
                    kept.extend(known.map(|object| (object.key, object)));
                }
            }
            Op::MakeReadable(key) => {
                source.make_readable(|unreadable| *unreadable == key % KEYS);
                kept.remove(&(key % KEYS));
            }
            Op::Delete(key) | Op::Recreate(key) => drop(kept.remove(&(key % KEYS))),
            _ => {}
        }
        tally_op(op, tally);
        PANICKING_FUNCTION.set(function);
        perform(op, &server, &mut world, &mut followers, &mut more_options);
        PANICKING_FUNCTION.set(function);
        world.settle();
        PANICKING_FUNCTION.set(NONE);
        let before = std::mem::replace(&mut version, server.version());
        tally.hit_if(version < before, "restored");
        let failed = world.informer.store().index_errors().len();
        tally.hit_if(failed > 0, if failing_index == 1 { "index: error" } else { "index: panic" });
        world.informer.store().check().unwrap();
        // A stored object that has become unreadable must remain in the store, unless it is deleted.
        let objects = server.objects();
        let applied = std::mem::take(&mut *source.applied.lock());
        kept.retain(|key, kept: &mut Object| {
            let deletes = |deleted: &Object| {
                deleted.key == *key && (function == VERSION || deleted.version == kept.version)
            };
            !applied.iter().any(deletes)
                && objects.iter().any(|object| (object.key, object.uid) == (*key, kept.uid))
        });
        let stored = world.stored();
        for (key, kept) in &kept {
            let known = stored.iter().any(|object| (object.key, object.uid) == (*key, kept.uid));
            assert!(known, "the unreadable object {key} is no longer stored");
        }
    }
    server.clear_faults();
    // Writes all objects again that were unreadable at some time. Otherwise, after a restore, the server may have a state of an object that was
    // unreadable when the watch delivered it, and that is not delivered again.
    source.unreadable.lock().extend(ever_unreadable);
    source.make_readable(|_| true);
    if function != NONE {
        // A user function panicked for some objects, so they were not stored. A relist delivers them again; this time, no function panics.
        world.advance(Duration::from_secs(600));
        server.break_watches(EXPIRED);
    }
    // 600 s is longer than the sum of the longest backoff, the timeout of a request and the timeout of a streaming list.
    world.advance(Duration::from_secs(600));
    // The last watch may have reached its time limit just now, and the version that the next one starts from may be lost since a restore. Then the
    // informer lists after its first backoff.
    if matches!(world.informer.status().state, InformerState::Waiting { .. }) {
        world.advance(Duration::from_secs(5));
    }
    let status = world.informer.status();
    assert_eq!((status.state, status.last_error), (InformerState::Watching, None));
    assert_eq!(world.stored(), server.objects());
    assert!(world.informer.is_synced());
    indexed(&world, failing_index);
    tally_end(&world, &source, function, failing_index, tally);
    followers.iter().for_each(|follower| follower.options.tally(tally));
    // Makes one more change, which the watch must deliver without a relist.
    let relists = world.informer.status().relists;
    put(&server, 0);
    world.settle();
    assert_eq!(world.stored(), server.objects());
    assert_eq!(world.informer.status().relists, relists);
    assert_eq!(world.informer.status().version, server.version());
    world.informer.store().check().unwrap();
    for follower in &mut followers {
        follower.read(usize::MAX);
        let known: Vec<Object> = follower.known.values().copied().collect();
        let mut shown = server.objects();
        shown.retain(|object| follower.options.is_shown(object));
        assert_eq!(known, shown, "the state of a consumer differs from the server's");
    }
}

/// Checks that the indexes agree with the objects.
fn indexed(world: &World, failing_index: u8) {
    let (store, stored) = (world.informer.store(), world.stored());
    for third in 0..3 {
        let objects = stored.iter().filter(|object| object.version % 3 == third).count();
        assert_eq!(store.by_index(&BY_THIRD, &third).unwrap().len(), objects);
    }
    let mut failed: Vec<u8> = store.index_errors().iter().map(|(key, ..)| *key).collect();
    failed.sort_unstable();
    let bad =
        stored.iter().filter(|object| failing_index > 0 && object.version % 5 == 0).map(|object| object.key);
    assert_eq!(failed, bad.collect::<Vec<_>>());
    for object in stored.iter().filter(|_| failing_index > 0) {
        let found = store.by_index(&FAILS, &object.key).unwrap().len();
        assert_eq!(found, usize::from(object.version % 5 != 0));
    }
}

fn tally_op(op: Op, tally: &mut Happened) {
    let name = match op {
        Op::Delete(_) => "deleted",
        Op::Recreate(_) => "recreated",
        Op::FailList(_) => "list failed",
        Op::FailWatch(_) => "watch failed",
        Op::BreakWatch(_) => "watch broken",
        Op::Close => "watch ended",
        Op::Silent(true) => "silent",
        Op::Shuffled => "shuffled",
        Op::Repeats | Op::Repeat => "repeats",
        _ => return,
    };
    tally.hit(name);
}

fn tally_end(
    world: &World,
    source: &UnreadableSource,
    function: u8,
    failing_index: u8,
    tally: &mut Happened,
) {
    let status = world.informer.status();
    let function = if status.panics > 0 { function } else { NONE };
    tally.hit(
        [
            "function: sound",
            "function: key",
            "function: version",
            "function: identity",
            "function: transform",
        ][usize::from(function)],
    );
    let failed = tally.did("index: error") || tally.did("index: panic");
    tally.hit_if(failing_index == 0 || !failed, "index: sound");
    tally.hit_if(status.stale_events > 0, "stale");
    tally.hit_if(status.relists > 0, "relist");
    let seen = |seen: &AtomicBool| seen.load(Ordering::Relaxed);
    tally.hit(if seen(&source.seen.reordered) { "order: changed" } else { "order: kept" });
    tally.hit_if(seen(&source.seen.unread), "unread");
    tally.hit_if(seen(&source.seen.expired), "expired");
    tally.hit_if(seen(&source.seen.bookmark), "bookmark");
}

fn put(server: &Server, key: u8) {
    server.put(object(key % KEYS, 0));
}

fn perform(
    op: Op,
    server: &Server,
    world: &mut World,
    followers: &mut Vec<Follower>,
    more_options: &mut impl Iterator<Item = SubscriptionOptions>,
) {
    match op {
        Op::Put(key) => put(server, key),
        Op::PutMany(bits) => (0..KEYS).filter(|key| bits >> key & 1 != 0).for_each(|key| put(server, key)),
        Op::Delete(key) => drop(server.delete(&(key % KEYS))),
        Op::Recreate(key) => drop(server.recreate(object(key % KEYS, 0))),
        Op::Bookmark => server.send_bookmarks(),
        Op::Compact => server.compact(),
        Op::Cache => server.cache_state(),
        Op::Restore => server.restore_cached(),
        Op::FailList(number) => server.fail_list(kind(number)),
        Op::FailWatch(number) => server.fail_watch(kind(number)),
        Op::BreakWatch(number) => server.break_watches(kind(number)),
        Op::Close => server.close_watches(),
        Op::Repeat => server.repeat_events(),
        Op::Silent(silent) => server.set_faults(|faults| faults.unresponsive = silent),
        Op::Shuffled => server.set_faults(|faults| faults.shuffled_lists ^= true),
        Op::Endless => server.set_faults(|faults| faults.endless_streaming_list ^= true),
        Op::Repeats => server.set_faults(|faults| faults.repeated_events ^= true),
        Op::Pass(millis) => {
            world.advance(Duration::from_millis(millis.into()));
        }
        Op::PassLong(seconds) => {
            world.advance(Duration::from_secs(seconds.into()));
        }
        Op::Follow => followers.extend(more_options.next().map(|options| Follower::new(world, options))),
        Op::MakeUnreadable(_) | Op::MakeReadable(_) => {}
        Op::Read(most) => followers.iter_mut().for_each(|follower| follower.read(most.into())),
    }
}
