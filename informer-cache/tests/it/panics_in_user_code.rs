//! Tests of user code that panics, returns errors, or calls the store.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};

use flyball_informer_cache::{
    Index, IndexError, Schema, SharedWriter, Store, Subscription, Version, WatchEvent, WriteOutcome,
};
use testkit::panicking::{PanicSwitch, PanickingKey, Point};
use testkit::wakers::{Counting, Panicking, poll_once, poll_with};

struct Object {
    switch: Arc<PanicSwitch>,
    /// This field is dropped with the object, so the drop of an object may panic, too.
    _own: PanickingKey,
    id: u32,
    version: u64,
    tag: u32,
}

const SCHEMA: Schema<PanickingKey, Object> =
    Schema::new(|object: &Object| object.switch.key(object.id), |object| Version::new(object.version));
static BY_TAG: Index<Object, PanickingKey> =
    Index::many("tag", |object| vec![object.switch.key(object.tag), object.switch.key(object.tag % 2)]);

fn object(switch: &Arc<PanicSwitch>, id: u32, version: u64, tag: u32) -> Object {
    Object { switch: switch.clone(), _own: switch.key(id), id, version, tag }
}

type Hostile = SharedWriter<PanickingKey, Object>;

/// Returns the sorted ids and versions of the stored objects.
fn contents(store: &Hostile) -> Vec<(u32, u64)> {
    let mut contents: Vec<_> = store.snapshot().objects().map(|object| (object.id, object.version)).collect();
    contents.sort_unstable();
    contents
}

/// Applies the changes of a subscription to `held`.
fn drain(changes: &mut Subscription<PanickingKey, Object>, held: &mut Vec<(u32, u64)>) {
    while let Some(change) = changes.try_next() {
        let id = change.key().id();
        match change.old().filter(|_| !change.is_initial()) {
            Some(old) => {
                let known = held.iter().position(|(known, _)| *known == id).expect("a change of a known key");
                assert!(change.new().is_none() || held[known].1 == old.version);
                held.remove(known);
            }
            None => assert!(held.iter().all(|(known, _)| *known != id), "an addition of an unknown key"),
        }
        held.extend(change.new().map(|new| (id, new.version)));
    }
    held.sort_unstable();
}

/// An operation on the store. Each operation is called with a new store that contains two objects.
type Operation = fn(&Hostile, &Arc<PanicSwitch>);

const OPERATIONS: [(&str, Operation); 9] = [
    ("update", |store, switch| {
        let _ = store.upsert(object(switch, 1, 9, 2));
    }),
    ("update in place", |store, switch| {
        let _ = store.upsert(object(switch, 1, 9, 1));
    }),
    ("add", |store, switch| {
        let _ = store.upsert(object(switch, 3, 9, 1));
    }),
    ("delete", |store, switch| {
        let _ = store.apply(WatchEvent::Deleted(object(switch, 2, 9, 2)));
    }),
    ("delete without a word", |store, switch| {
        let _ = store.delete(&switch.key(1), None);
    }),
    ("replace", |store, switch| {
        drop(store.replace(
            [object(switch, 2, 8, 1), object(switch, 4, 9, 2), object(switch, 4, 9, 3)],
            Version::new(9),
        ));
    }),
    ("read", |store, switch| {
        let _ = store.get(&switch.key(1));
        let _ = store.by_index(&BY_TAG, &switch.key(1));
        let _ = store.index_errors();
    }),
    ("subscribe to some", |store, switch| {
        let tagged = store.subscription().by_index(&BY_TAG, switch.key(1)).unwrap();
        let mut changes = tagged.subscribe();
        while changes.try_next().is_some() {}
        let mut changes = store.subscription().for_key(switch.key(1)).subscribe();
        while changes.try_next().is_some() {}
    }),
    ("subscribe", |store, _| {
        let mut changes = store.subscribe();
        while changes.try_next().is_some() {}
    }),
];

#[test]
fn a_panic_anywhere_leaves_everything_intact() {
    let mut panics = 0;
    for point in Point::ALL {
        for (name, operation) in OPERATIONS {
            for nth in 1.. {
                let switch = PanicSwitch::new();
                let store = Store::builder(SCHEMA).index(&BY_TAG).build().unwrap().into_shared();
                store.upsert(object(&switch, 1, 1, 1));
                let (mut early, mut received) = (store.subscribe(), Vec::new());
                let tagged = store.subscription().by_index(&BY_TAG, switch.key(1)).unwrap();
                let (mut tagged, mut told_tagged) = (tagged.subscribe(), Vec::new());
                let (mut second, mut told_second) =
                    (store.subscription().for_key(switch.key(2)).subscribe(), Vec::new());
                store.upsert(object(&switch, 2, 2, 2));
                // One subscriber has not received the last update, and a second one has not received anything.
                drain(&mut early, &mut received);
                store.upsert(object(&switch, 2, 3, 2));
                let mut late = store.subscribe();
                let before = contents(&store);

                switch.arm(point, nth);
                let panicked = catch_unwind(AssertUnwindSafe(|| operation(&store, &switch))).is_err();
                let unreached = switch.disarm(point);
                panics += u32::from(panicked);

                store.check().unwrap_or_else(|problem| panic!("{name}, {point:?} {nth}: {problem}"));
                let after = contents(&store);
                if panicked && point != Point::Drop && point != Point::Clone {
                    // A panic comes after the write only if the result of the operation (the keys of a diff) is being built or dropped. Any other
                    // panic comes before the write.
                    assert_eq!(after, before, "{name}, {point:?} {nth}");
                }
                // The subscribers receive exactly the changes to the store, even if a first attempt to receive them panics.
                switch.arm(point, nth);
                let _ = catch_unwind(AssertUnwindSafe(|| drain(&mut late, &mut Vec::new())));
                switch.disarm(point);
                drain(&mut early, &mut received);
                assert_eq!(received, after, "{name}, {point:?} {nth}");
                drain(&mut tagged, &mut told_tagged);
                let mut with_tag: Vec<_> = store
                    .by_index(&BY_TAG, &switch.key(1))
                    .unwrap()
                    .iter()
                    .map(|object| (object.id, object.version))
                    .collect();
                with_tag.sort_unstable();
                assert_eq!(told_tagged, with_tag, "{name}, {point:?} {nth}");
                drain(&mut second, &mut told_second);
                let two: Vec<_> = after.iter().copied().filter(|(id, _)| *id == 2).collect();
                assert_eq!(told_second, two, "{name}, {point:?} {nth}");
                // The store still accepts writes.
                store.upsert(object(&switch, 1, 100, 7));
                assert_eq!(store.get(&switch.key(1)).unwrap().version, 100);
                store.check().unwrap();

                drop((store, early, late, tagged, second));
                assert_eq!(switch.live(), 0, "{name}, {point:?} {nth}: keys leaked");
                if unreached {
                    break;
                }
            }
        }
    }
    assert!(panics > 40, "{panics} panics");
}

#[test]
fn a_change_survives_a_panic_of_its_delivery() {
    let switch = PanicSwitch::new();
    let store = Store::builder(SCHEMA).build().unwrap().into_shared();
    for id in 0..3 {
        store.upsert(object(&switch, id, 1, 0));
    }
    let mut changes = store.subscribe();
    let mut received = Vec::new();
    for round in 0..100 {
        store.upsert(object(&switch, round % 3, u64::from(round) + 2, 0));
        for point in [Point::Clone, Point::Eq, Point::Drop] {
            switch.arm(point, 1);
            // The call returns at most one change. If it panics, it returns none.
            if let Ok(Some(change)) = catch_unwind(AssertUnwindSafe(|| changes.try_next())) {
                switch.disarm(point);
                received.retain(|(id, _)| *id != change.key().id());
                received.push((change.key().id(), change.object().version));
            }
            switch.disarm(point);
        }
    }
    while let Some(change) = changes.try_next() {
        received.retain(|(id, _)| *id != change.key().id());
        received.push((change.key().id(), change.object().version));
    }
    received.sort_unstable();
    assert_eq!(received, contents(&store));
}

#[test]
fn a_panic_of_an_index_function_is_a_value() {
    let moody = Index::new("moody", |number: &u32| match number {
        13 => panic!("not this one"),
        number => number % 2,
    });
    let schema = Schema::new(|number: &u32| *number, |_| Version::ZERO);
    let mut store = Store::builder(schema).index(&moody).build().unwrap();
    store.upsert(1);
    assert_eq!(store.upsert(13), WriteOutcome::Added);
    let received = |store: &Store<u32, u32>| {
        store.check().unwrap();
        let errors = store.index_errors();
        assert!(errors.iter().all(|(key, index, _)| (*key, *index) == (13, "moody")));
        errors.len()
    };
    assert_eq!((store.len(), received(&store), store.by_index(&moody, &1).unwrap().len()), (2, 1, 1));
    store.replace([3, 13, 5], Version::new(1));
    assert_eq!((store.len(), received(&store), store.by_index(&moody, &1).unwrap().len()), (3, 1, 2));
    let mut writes = store.transaction();
    writes.delete(13, None);
    writes.commit();
    assert_eq!((store.len(), received(&store)), (2, 0));
    let mut writes = store.transaction();
    writes.upsert(13);
    writes.commit();
    assert_eq!((store.len(), received(&store)), (3, 1));
    store.remove_index(&moody).unwrap();
    store.add_index(&moody).unwrap();
    assert_eq!((store.len(), received(&store), store.by_index(&moody, &1).unwrap().len()), (3, 1, 2));
}

#[test]
fn an_index_function_that_fails_is_a_value() {
    static BY_HALF: Index<u32, u32> = Index::fallible("half", |number| match number % 2 {
        0 => Ok(vec![number / 2]),
        _ => Err(IndexError::new("odd")),
    });
    let schema = Schema::new(|number: &u32| number / 10, |_| Version::ZERO);
    let store = Store::builder(schema).index(&BY_HALF).build().unwrap().into_shared();
    store.upsert(10);
    store.upsert(21);
    assert_eq!(store.len(), 2);
    let errors = store.index_errors();
    assert_eq!(errors.len(), 1);
    let (key, index, error) = &errors[0];
    assert_eq!((*key, *index), (2, "half"));
    assert_eq!(std::error::Error::source(error).unwrap().to_string(), "odd");
    store.check().unwrap();
    // For the next version of an object, the index function may return no error, or a different one.
    store.upsert(22);
    assert!(store.index_errors().is_empty());
    assert_eq!(store.by_index(&BY_HALF, &11).unwrap().len(), 1);
    store.upsert(11);
    assert_eq!(store.index_errors().len(), 1);
    assert!(store.by_index(&BY_HALF, &5).unwrap().is_empty());
    store.delete(&1, None);
    assert!(store.index_errors().is_empty());
    store.check().unwrap();
}

thread_local! {
    static CALLED_BACK: RefCell<Option<SharedWriter<u32, Echo>>> = const { RefCell::new(None) };
    /// For each caller, the number of callbacks that have started, and the number of those that have returned.
    static CALLBACKS: RefCell<BTreeMap<&'static str, (u32, u32)>> = const { RefCell::new(BTreeMap::new()) };
}

/// An object whose functions, and whose drop, call the store that contains it.
struct Echo(u32, u64);

/// Puts the store back when it is dropped, even if a callback panics.
struct TakenOut(Option<SharedWriter<u32, Echo>>);

impl Drop for TakenOut {
    fn drop(&mut self) {
        CALLED_BACK.with(|slot| *slot.borrow_mut() = self.0.take());
    }
}

fn call_back(caller: &'static str, calls: fn(&SharedWriter<u32, Echo>)) {
    // The store is taken out of the variable during the call, so that callbacks that the call itself causes do not call the store again.
    let store = TakenOut(CALLED_BACK.with(|store| store.borrow_mut().take()));
    if let Some(store) = &store.0 {
        CALLBACKS.with(|counts| counts.borrow_mut().entry(caller).or_default().0 += 1);
        calls(store);
        CALLBACKS.with(|counts| counts.borrow_mut().entry(caller).or_default().1 += 1);
    }
}

fn reads(store: &SharedWriter<u32, Echo>) {
    let _ = (store.get(&99), store.snapshot().len(), store.subscribe().try_next());
}

fn writes(store: &SharedWriter<u32, Echo>) {
    store.upsert(Echo(99, 0));
    reads(store);
    store.delete(&99, None);
    store.apply(WatchEvent::Bookmark(Version::ZERO));
}

impl Drop for Echo {
    fn drop(&mut self) {
        call_back("drop of an object", writes);
    }
}

/// A waker that calls the store when it is woken, and when its last clone is dropped.
struct EchoWaker;

impl Wake for EchoWaker {
    fn wake(self: Arc<Self>) {
        call_back("waker", writes);
    }
}

impl Drop for EchoWaker {
    fn drop(&mut self) {
        call_back("drop of a waker", writes);
    }
}

/// If the store held a lock while it calls user code, this test would deadlock. The identity and index functions run under the lock of the writer; they
/// may read the store, but must not write.
#[test]
fn foreign_code_may_call_back() {
    let schema = Schema::new(
        |echo: &Echo| {
            call_back("key function", writes);
            echo.0
        },
        |echo| {
            call_back("version function", writes);
            Version::new(echo.1)
        },
    )
    .with_identity(|_, _| {
        call_back("identity function", reads);
        true
    });
    let index = Index::new("echo", |echo: &Echo| {
        call_back("index function", reads);
        echo.0 % 3
    });
    let builder = Store::builder(schema).index(&index).transform(|echo| {
        call_back("transformation", writes);
        echo
    });
    let store = builder.build().unwrap().into_shared();
    let observer = store.observe(|_| call_back("observer", writes));
    CALLED_BACK.with(|slot| *slot.borrow_mut() = Some(store.clone()));
    let mut changes = store.subscribe();
    let mut others = vec![store.subscribe(), store.subscribe()];
    let waker = || Waker::from(Arc::new(EchoWaker));
    for round in 1..50 {
        let mut wait = Box::pin(store.wait_for_version(Version::new(round)));
        assert!(poll_with(wait.as_mut(), &waker()).is_pending());
        assert!(poll_with(wait.as_mut(), &waker()).is_pending());
        for reader in &mut others {
            while poll_with(std::pin::pin!(reader.next()), &waker()).is_ready() {}
        }
        store.upsert(Echo(1, round));
        store.delete(&1, Some(Echo(1, round)));
        store.replace((0..5).map(|id| Echo(id, round)), Version::new(round));
        assert!(poll_once(wait.as_mut()).is_ready());
        while changes.try_next().is_some() {}
        others.remove(0);
        others.push(store.subscribe());
    }
    let mut synced = Box::pin(store.synced());
    assert!(poll_with(synced.as_mut(), &waker()).is_ready());
    let view = store.snapshot();
    store.replace([], Version::new(100));
    drop(view);
    store.check().unwrap();
    assert!(store.index_errors().is_empty());
    assert_eq!(observer.panic_count(), 0);
    store.close();
    drop(changes);
    CALLED_BACK.with(|slot| slot.borrow_mut().take());
    let counts = CALLBACKS.with(|counts| counts.borrow().clone());
    assert_eq!(counts.len(), 9, "{counts:?}");
    for (caller, (started, returned)) in &counts {
        assert!(*started >= 49, "{caller}: only {started} callbacks");
        assert_eq!(started, returned, "callbacks of {caller} panicked");
    }
}

#[test]
fn a_panicking_waker_blocks_no_other_wake_up() {
    let store =
        Store::builder(Schema::new(|number: &u64| *number, |_| Version::ZERO)).build().unwrap().into_shared();
    let (counting, waker) = Counting::waker();
    let hostile = Waker::from(Arc::new(Panicking));
    let mut readers = [store.subscribe(), store.subscribe(), store.subscribe()];
    let wakers = [&waker, &hostile, &waker];
    for (reader, waker) in readers.iter_mut().zip(wakers) {
        assert!(poll_with(std::pin::pin!(reader.next()), waker).is_pending());
    }
    let mut waits = [0, 1, 2].map(|_| Box::pin(store.wait_for_version(Version::new(1))));
    let mut synced = [0, 1, 2].map(|_| Box::pin(store.synced()));
    for at in 0..3 {
        assert!(poll_with(waits[at].as_mut(), wakers[at]).is_pending());
        assert!(poll_with(synced[at].as_mut(), wakers[at]).is_pending());
    }
    assert_eq!(store.replace([7], Version::new(1)).len(), 1, "the writer did not receive its diff");
    assert_eq!(counting.wakes(), 6);
    for at in 0..3 {
        assert!(poll_once(waits[at].as_mut()).is_ready());
        assert!(poll_once(synced[at].as_mut()).is_ready());
        assert!(readers[at].try_next().is_some());
    }
    store.check().unwrap();
}

#[test]
fn futures_dropped_at_every_poll_lose_nothing() {
    let schema = Schema::new(|pair: &(u8, u64)| pair.0, |pair| Version::new(pair.1));
    let store = Store::builder(schema).build().unwrap().into_shared();
    let mut changes = store.subscribe();
    let (mut received, mut version) = (0, 0);
    for round in 0..200_u64 {
        let (counting, waker) = Counting::waker();
        let mut wait = Box::pin(store.wait_for_version(Version::new(version + 1)));
        let mut synced = Box::pin(store.synced());
        if round % 3 > 0 {
            assert!(poll_with(wait.as_mut(), &waker).is_pending());
            assert!(poll_with(synced.as_mut(), &waker).is_pending());
        }
        if round % 2 == 0 {
            // When the futures are dropped, so are their wakers, whether the futures were polled or not.
            drop((wait, synced));
            assert_eq!(Arc::strong_count(&counting), 2, "a dropped future keeps its waker");
            assert!(poll_with(std::pin::pin!(changes.next()), &waker).is_pending());
        }
        version += 1;
        assert_eq!(
            store.upsert((0, version)),
            if round == 0 { WriteOutcome::Added } else { WriteOutcome::Updated }
        );
        // One future is dropped before its first poll, and the others after one poll.
        drop(changes.next());
        while let std::task::Poll::Ready(change) = poll_once(std::pin::pin!(changes.next())) {
            assert_eq!(change.unwrap().object().1, version);
            received += 1;
        }
        store.check().unwrap();
    }
    assert_eq!(received, 200);
}
