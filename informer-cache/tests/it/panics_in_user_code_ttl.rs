//! Tests of the TTL store with keys, objects, clocks and policies that panic, and with user code that calls the store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{Change, Index, TtlEntry, TtlStore, WriteOutcome};
use flyball_sync::ManualClock;
use parking_lot::Mutex;
use testkit::panicking::{PanicSwitch, PanickingKey, Point};

struct Object {
    switch: Arc<PanicSwitch>,
    /// This field is dropped with the object, so the drop of an object may panic, too.
    _own: PanickingKey,
    id: u32,
    serial: u32,
}

type Hostile = TtlStore<PanickingKey, Object, ManualClock>;

static BY_PARITY: Index<TtlEntry<Object>, PanickingKey> =
    Index::new("parity", |object| object.switch.key(object.id % 2));

const TTL: Duration = Duration::from_secs(1);

fn object(switch: &Arc<PanicSwitch>, id: u32, serial: u32) -> Object {
    Object { switch: switch.clone(), _own: switch.key(id), id, serial }
}

fn contents(store: &Hostile) -> Vec<(u32, u32)> {
    let view = store.snapshot();
    let mut contents: Vec<_> = view.objects().map(|object| (object.id, object.serial)).collect();
    contents.sort_unstable();
    contents
}

/// An operation on the store. Each operation is called with a store in which objects 1 and 2 have expired but are not evicted, and objects 3 and 4
/// have not expired.
type Operation = fn(&Hostile, &Arc<PanicSwitch>);

const OPERATIONS: [(&str, Operation); 9] = [
    ("add", |store, switch| {
        let _ = store.upsert(object(switch, 5, 9));
    }),
    ("update", |store, switch| {
        let _ = store.upsert(object(switch, 3, 9));
    }),
    ("revive", |store, switch| {
        let _ = store.upsert(object(switch, 1, 9));
    }),
    ("delete", |store, switch| drop(store.delete(&switch.key(3)))),
    ("delete what has expired", |store, switch| drop(store.delete(&switch.key(2)))),
    ("replace", |store, switch| {
        drop(store.replace([
            object(switch, 2, 9),
            object(switch, 3, 9),
            object(switch, 6, 8),
            object(switch, 6, 9),
        ]));
    }),
    ("sweep", |store, _| drop(store.evict_expired())),
    ("read", |store, switch| {
        drop((store.get(&switch.key(1)), store.get(&switch.key(3))));
        drop(store.by_index(&BY_PARITY, &switch.key(1)));
        let _ = store.len();
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
                let (switch, clock) = (PanicSwitch::new(), ManualClock::new());
                let builder = TtlStore::builder(|object: &TtlEntry<Object>| object.switch.key(object.id));
                let store = builder.ttl(TTL).index(&BY_PARITY).clock(clock.clone()).build().unwrap();
                for id in 1..3 {
                    store.upsert(object(&switch, id, 0));
                }
                clock.advance(TTL);
                for id in 3..5 {
                    store.upsert(object(&switch, id, 0));
                }
                clock.advance(TTL / 2);
                let before = contents(&store);
                assert_eq!((before.len(), store.stored_len()), (2, 4));

                switch.arm(point, nth);
                let panicked = catch_unwind(AssertUnwindSafe(|| operation(&store, &switch))).is_err();
                let unreached = switch.disarm(point);
                panics += u32::from(panicked);

                store.check().unwrap_or_else(|problem| panic!("{name}, {point:?} {nth}: {problem}"));
                let after = contents(&store);
                if panicked && matches!(point, Point::Hash | Point::Eq) {
                    assert_eq!(after, before, "{name}, {point:?} {nth}");
                }
                // The store still accepts writes, and evicts every object that expires.
                store.upsert(object(&switch, 3, 100));
                assert_eq!(store.get(&switch.key(3)).unwrap().serial, 100);
                clock.advance(3 * TTL);
                assert!(contents(&store).is_empty());
                drop(store.evict_expired());
                assert_eq!((store.stored_len(), store.next_expiry()), (0, None), "{name}, {point:?} {nth}");

                drop(store);
                assert_eq!(switch.live(), 0, "{name}, {point:?} {nth}: keys leaked");
                if unreached {
                    break;
                }
            }
        }
    }
    assert!(panics > 60, "{panics} panics");
}

#[test]
fn a_policy_that_panics_leaves_everything_as_it_was() {
    let clock = ManualClock::new();
    let builder = TtlStore::builder(|number: &TtlEntry<u32>| **number).clock(clock.clone());
    let store =
        builder.ttl_with(|number| if *number == 13 { panic!("not this one") } else { Some(TTL) }).build();
    let store = store.unwrap();
    store.upsert(1);
    clock.advance(2 * TTL);
    for list in [vec![13], vec![2, 13]] {
        let operation = AssertUnwindSafe(|| drop(store.replace(list)));
        assert!(catch_unwind(operation).is_err());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| store.upsert(13))).is_err());
    assert_eq!((store.stored_len(), store.len()), (1, 0));
    assert_eq!(store.evict_expired().len(), 1);
    assert_eq!(store.next_expiry(), None);
}

/// If the drop of an expired object panics, a write of its key is not affected.
#[test]
fn the_drop_of_an_expired_object_may_panic() {
    struct Object(u32, bool);
    impl Drop for Object {
        fn drop(&mut self) {
            assert!(!self.1 || std::thread::panicking(), "a hostile drop panics");
        }
    }
    let clock = ManualClock::new();
    let builder = TtlStore::builder(|object: &TtlEntry<Object>| object.0).ttl(TTL);
    let store = builder.clock(clock.clone()).build().unwrap();
    type Objects = TtlStore<u32, Object, ManualClock>;
    let writes: [fn(&Objects); 6] = [
        |store| assert_eq!(store.upsert(Object(1, false)), WriteOutcome::Added),
        |store| assert_eq!(store.upsert(Object(2, false)), WriteOutcome::Added),
        |store| assert!(store.delete(&1).is_none()),
        |store| assert!(store.delete(&2).is_none()),
        |store| assert_eq!(store.replace([Object(1, false)]).len(), 1),
        |store| drop((store.subscribe(), store.observe(|_| {}))),
    ];
    for write in writes {
        store.upsert(Object(1, true));
        clock.advance(2 * TTL);
        write(&store);
        assert!(store.snapshot().objects().all(|object| !object.1));
        clock.advance(2 * TTL);
        drop(store.evict_expired());
        assert_eq!((store.stored_len(), store.next_expiry()), (0, None));
    }
}

/// Policies, clocks, drops and observers may call the store, because none of them runs under a lock.
#[test]
fn code_that_calls_back_is_answered() {
    struct CallsBack(u32);
    type Numbers = TtlStore<u32, CallsBack, ManualClock>;
    static STORE: Mutex<Option<Numbers>> = Mutex::new(None);
    fn call() {
        let store = STORE.lock().clone();
        if let Some(store) = store {
            let _ = (store.get(&1), store.len(), store.next_expiry());
            drop(store.evict_expired());
            drop(store.delete(&99));
        }
    }
    impl Drop for CallsBack {
        fn drop(&mut self) {
            call();
        }
    }
    let clock = ManualClock::new();
    let builder = TtlStore::builder(|object: &TtlEntry<CallsBack>| {
        call();
        object.0
    });
    let builder = builder.ttl_with(|object| {
        call();
        Some(TTL * object.0)
    });
    let store = builder.clock(clock.clone()).build().unwrap();
    *STORE.lock() = Some(store.clone());
    let received = Arc::new(Mutex::new(0));
    let observer = store.observe({
        let received = received.clone();
        move |change: &Change<_, _>| {
            *received.lock() += 1;
            call();
            // This write is nested: a write has evicted an object, and its observer writes again.
            if change.new().is_none() && *change.key() == 1 {
                let store = STORE.lock().clone().unwrap();
                store.upsert(CallsBack(7));
            }
        }
    });
    for id in 1..4 {
        store.upsert(CallsBack(id));
    }
    clock.advance(3 * TTL / 2);
    store.upsert(CallsBack(3));
    assert!(store.get(&1).is_none() && store.get(&7).is_some());
    clock.advance(TTL);
    drop(store.replace([CallsBack(4)]));
    clock.advance(10 * TTL);
    drop(store.evict_expired());
    assert_eq!((store.stored_len(), observer.panic_count()), (0, 0));
    assert!(*received.lock() > 8);
    store.check().unwrap();
    *STORE.lock() = None;
}
