//! An informer in which one call of user code panics: each call in turn, on a script with pages, streaming lists, events of every kind and relists.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::Poll;
use std::thread::panicking;
use std::time::Duration;

use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{
    Change, Index, Informer, ManualClock, Observer, Page, Schema, SourceErrorKind, Subscription, Version,
    WatchEvent,
};
use testkit::wakers::poll_once;

thread_local! {
    /// The number of calls until one panics; 0 if none does.
    static CALLS_LEFT: Cell<u64> = const { Cell::new(0) };
    /// The call that panicked last.
    static PANICKED: Cell<&'static str> = const { Cell::new("") };
    /// Whether each destructor that runs while the panic of that call unwinds panics, too.
    static DROPS_PANIC: Cell<bool> = const { Cell::new(false) };
    /// The number of keys, objects and index values that exist.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

/// Counts a call of user code, which may panic. While another panic unwinds, the next call panics instead, because a second panic aborts the process.
fn called(call: &'static str) {
    match CALLS_LEFT.get() {
        1 if !panicking() => {
            CALLS_LEFT.set(0);
            PANICKED.set(call);
            resume_unwind(Box::new(call));
        }
        0 | 1 => {}
        left => CALLS_LEFT.set(left - 1),
    }
}

/// A key, an index value, or a part of an object. Each of its methods may panic.
struct Hostile(u32);

impl Hostile {
    fn new(number: u32) -> Self {
        LIVE.set(LIVE.get() + 1);
        Self(number)
    }
}

impl Clone for Hostile {
    fn clone(&self) -> Self {
        called("clone");
        Self::new(self.0)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        LIVE.set(LIVE.get() - 1);
        called("drop");
        if DROPS_PANIC.get() && panicking() {
            resume_unwind(Box::new("a second panic"));
        }
    }
}

impl PartialEq for Hostile {
    fn eq(&self, other: &Self) -> bool {
        called("eq");
        self.0 == other.0
    }
}

impl Eq for Hostile {}

impl Hash for Hostile {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        called("hash");
        self.0.hash(hasher);
    }
}

impl PartialOrd for Hostile {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Hostile {
    fn cmp(&self, other: &Self) -> Ordering {
        called("cmp");
        self.0.cmp(&other.0)
    }
}

struct Object {
    key: Hostile,
    version: u64,
    uid: u32,
    content: u32,
}

fn object(key: u32, version: u64, uid: u32, content: u32) -> Object {
    Object { key: Hostile::new(key), version, uid, content }
}

static BY_THIRD: Index<Object, Hostile> = Index::new("third", |object: &Object| {
    called("index function");
    Hostile::new(object.content % 3)
})
.ordered();
static BY_MANY: Index<Object, Hostile> = Index::many("many", |object| {
    called("index function");
    vec![Hostile::new(object.content), Hostile::new(object.content % 2)]
});

fn schema() -> Schema<Hostile, Object> {
    let key = |object: &Object| {
        called("key");
        Hostile::new(object.key.0)
    };
    let version = |object: &Object| {
        called("version");
        Version::new(object.version)
    };
    Schema::new(key, version)
        .with_identity(|a, b| {
            called("identity");
            a.uid == b.uid
        })
        .with_content_eq(|a, b| {
            called("content");
            a.content == b.content
        })
}

type Consumers = (Vec<Subscription<Hostile, Object>>, Option<Observer<Hostile, Object>>);

struct World {
    source: ScriptedSource<Object>,
    clock: ManualClock,
    informer: Informer<Hostile, Object>,
    run: Pin<Box<dyn Future<Output = ()> + Send>>,
    streaming: bool,
    consumers: Consumers,
}

impl World {
    fn new(streaming: bool, consuming: bool) -> Self {
        let (source, clock) = (ScriptedSource::new(), ManualClock::new());
        let builder = Informer::builder(schema(), source.clone()).index(&BY_THIRD).index(&BY_MANY).seed(3);
        let builder = builder.on_error(|_| called("on_error")).transform(|object| {
            // The object belongs to this function, which therefore catches the second panic.
            if let Err(panic) = catch_unwind(|| called("transform")) {
                drop(catch_unwind(AssertUnwindSafe(|| drop(object))));
                resume_unwind(panic);
            }
            object
        });
        let builder = if streaming { builder.streaming_lists() } else { builder };
        let (informer, run) = builder.timer(clock.timer()).build().unwrap();
        let consumers = match consuming {
            false => (Vec::new(), None),
            true => {
                let of_key = informer.subscription().for_key(Hostile::new(1));
                let of_value = informer.subscription().by_index(&BY_THIRD, Hostile::new(1)).unwrap();
                let filtered = informer.subscription().filter(|object| {
                    called("filter");
                    object.content > 1
                });
                let all = informer.subscribe();
                let subscriptions = vec![all, of_key.subscribe(), of_value.subscribe(), filtered.subscribe()];
                (subscriptions, Some(informer.observe(|_: &Change<_, _>| called("observer"))))
            }
        };
        Self { source, clock, informer, run: Box::pin(run), streaming, consumers }
    }

    /// Answers the next list: in two pages, or as a stream.
    fn list(&self, mut objects: Vec<Object>, version: u64) {
        let version = Version::new(version);
        if self.streaming {
            self.source.answer_watch(Ok(()));
            objects.into_iter().for_each(|object| self.source.send(WatchEvent::Added(object)));
            return self.source.send(WatchEvent::InitialListEnd(version));
        }
        let rest = objects.split_off(objects.len() / 2);
        for (items, continuation) in [(objects, Some(format!("after {version}"))), (rest, None)] {
            self.source.answer_list(Ok(Page { items, version, continuation }));
        }
        self.source.answer_watch(Ok(()));
    }

    fn send(&self, events: Vec<WatchEvent<Object>>) {
        if self.source.open_watches() > 0 {
            events.into_iter().for_each(|event| self.source.send(event));
        } else {
            // Two panics in the drop of one list of the test would abort.
            events.into_iter().for_each(|event| drop(catch_unwind(AssertUnwindSafe(|| drop(event)))));
        }
    }

    /// Polls the informer, which must not end, and then takes what the subscriptions have.
    fn settle(&mut self) {
        for _ in 0..40 {
            let poll = catch_unwind(AssertUnwindSafe(|| poll_once(self.run.as_mut())));
            assert!(
                matches!(poll, Ok(Poll::Pending)),
                "a panic of {} has ended the informer",
                PANICKED.get()
            );
        }
        for changes in &mut self.consumers.0 {
            let mut take = || catch_unwind(AssertUnwindSafe(|| changes.try_next().is_some())).unwrap_or(true);
            assert!((0..100).any(|_| !take()), "a subscription does not end");
        }
    }

    /// Interrupts the watch, and answers the list that follows.
    fn relist(&mut self, objects: Vec<Object>, version: u64) {
        if self.source.open_watches() > 0 {
            self.source.fail_watch(SourceErrorKind::Expired.into());
            self.settle();
        }
        self.clock.advance(Duration::from_secs(100));
        self.list(objects, version);
        self.settle();
    }
}

/// Runs the script, in which the call with this number panics. Returns whether there was such a call.
fn run(streaming: bool, consuming: bool, nth: u64) -> bool {
    let mut world = World::new(streaming, consuming);
    CALLS_LEFT.set(nth);
    world.list([(1, 1), (2, 2), (3, 3), (4, 4), (2, 2)].map(|(key, at)| object(key, at, 1, key)).into(), 5);
    world.settle();
    world.send(vec![
        WatchEvent::Modified(object(1, 6, 1, 5)),
        WatchEvent::Deleted(object(3, 7, 1, 3)),
        WatchEvent::Added(object(3, 6, 1, 9)),
        WatchEvent::Added(object(3, 8, 2, 4)),
    ]);
    world.settle();
    world.send(vec![
        WatchEvent::Deleted(object(2, 9, 1, 1)),
        WatchEvent::Modified(object(4, 11, 1, 4)),
        WatchEvent::Bookmark(Version::new(12)),
        WatchEvent::Modified(object(1, 13, 3, 6)),
        WatchEvent::Deleted(object(4, 14, 1, 1)),
    ]);
    world.settle();
    let listed = |version: u64, content: u32| {
        vec![object(1, 13, 3, content), object(5, version, 1, 1), object(6, 19, 4, 0), object(3, 8, 2, 4)]
    };
    world.relist(listed(20, 7), 20);
    world.relist(listed(30, 8), 30);
    let happened = CALLS_LEFT.replace(0) == 0;
    // If the call has failed a list, the informer has not used all answers yet, and does so now, one after the other.
    let expected = BTreeMap::from([(1, (13, 3, 8)), (3, (8, 2, 4)), (5, (40, 1, 1)), (6, (19, 4, 0))]);
    let is_complete = |world: &mut World| {
        world.relist(listed(40, 8), 40);
        let view = world.informer.snapshot();
        view.check().unwrap();
        // An index error stays until its object has another version.
        assert!(view.index_errors().count() <= 1);
        let parts = |object: &Object| (object.version, object.uid, object.content);
        let stored: BTreeMap<_, _> = view.objects().map(|object| (object.key.0, parts(object))).collect();
        stored == expected
    };
    assert!((0..8).any(|_| is_complete(&mut world)), "call {nth}, a panic of {}", PANICKED.get());
    drop(world);
    assert_eq!(LIVE.get(), 0, "call {nth}, a panic of {}: something leaks", PANICKED.get());
    happened
}

#[test]
fn a_panic_at_each_call_of_user_code_leaves_the_informer_running() {
    panic_at_each_call();
}

/// If one of the further panics left its destructor, the process would abort.
#[test]
fn a_panic_at_each_call_while_which_all_drops_panic_does_not_abort() {
    DROPS_PANIC.set(true);
    panic_at_each_call();
    DROPS_PANIC.set(false);
}

fn panic_at_each_call() {
    for (streaming, consuming) in [(false, false), (false, true), (true, false), (true, true)] {
        let calls = (1..).take_while(|nth| run(streaming, consuming, *nth)).count();
        assert!(calls > 300, "only {calls} calls");
    }
}
