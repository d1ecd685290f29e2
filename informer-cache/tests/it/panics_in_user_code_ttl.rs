//! Tests of the writer whose objects expire, with keys and objects that panic, and with user code that calls the writer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{Change, Index, Schema, Store, TtlWriter, Version, WriteOutcome};
use flyball_sync::{ManualClock, ManualTimer};
use parking_lot::Mutex;
use testkit::panicking::{PanicSwitch, PanickingKey, Point};
use testkit::wakers::poll_once;

struct Object {
    switch: Arc<PanicSwitch>,
    /// This field is dropped with the object, so the drop of an object may panic, too.
    _own: PanickingKey,
    id: u32,
    serial: u32,
}

type Hostile = TtlWriter<PanickingKey, Object>;

static BY_PARITY: Index<Object, PanickingKey> =
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

/// An operation on the store. Each operation is called with a store in which objects 1 and 2 have expired but are not swept, and objects 3 and 4 have
/// not expired.
type Operation = fn(&Hostile, &Arc<PanicSwitch>);

const OPERATIONS: [(&str, Operation); 6] = [
    ("add", |store, switch| _ = store.upsert(object(switch, 5, 9), Some(TTL))),
    ("update", |store, switch| _ = store.upsert(object(switch, 3, 9), None)),
    ("revive", |store, switch| _ = store.upsert(object(switch, 1, 9), Some(TTL))),
    ("delete", |store, switch| _ = store.delete(&switch.key(3), None)),
    ("delete what has expired", |store, switch| {
        _ = store.delete(&switch.key(2), Some(object(switch, 2, 0)));
    }),
    ("sweep", |store, _| _ = store.sweep()),
];

#[test]
fn a_panic_anywhere_leaves_everything_intact() {
    let mut panics = 0;
    for point in Point::ALL {
        for (name, operation) in OPERATIONS {
            for nth in 1.. {
                let (switch, clock) = (PanicSwitch::new(), ManualClock::new());
                let schema = Schema::new(|object: &Object| object.switch.key(object.id), |_| Version::ZERO);
                let writer = Store::builder(schema).index(&BY_PARITY).build().unwrap();
                let (store, sweeper) = TtlWriter::new(writer, clock.timer());
                // A write and a sweep compare the key of this subscription, so that a deletion compares keys, too.
                let changes = store.subscription().for_key(switch.key(2)).subscribe();
                for id in 1..3 {
                    store.upsert(object(&switch, id, 0), Some(TTL));
                }
                for id in 3..5 {
                    store.upsert(object(&switch, id, 0), Some(2 * TTL));
                }
                clock.advance(TTL);

                switch.arm(point, nth);
                let panicked = catch_unwind(AssertUnwindSafe(|| operation(&store, &switch))).is_err();
                let unreached = switch.disarm(point);
                panics += u32::from(panicked);

                store.check().unwrap_or_else(|problem| panic!("{name}, {point:?} {nth}: {problem}"));
                // The store still accepts writes, and deletes every object that expires.
                store.upsert(object(&switch, 3, 100), Some(2 * TTL));
                assert_eq!(store.get(&switch.key(3)).unwrap().serial, 100);
                clock.advance(3 * TTL);
                store.upsert(object(&switch, 6, 0), None);
                store.sweep();
                let left = contents(&store);
                // An update without a time to live is still there.
                assert!(left.iter().all(|(id, _)| *id == 6), "{name}, {point:?} {nth}: {left:?}");
                assert_eq!(store.next_deadline(), None, "{name}, {point:?} {nth}");

                drop((store, sweeper, changes));
                assert_eq!(switch.live(), 0, "{name}, {point:?} {nth}: keys leaked");
                if unreached {
                    break;
                }
            }
        }
    }
    assert!(panics > 20, "{panics} panics");
}

/// The first of two expired objects cannot be deleted, because the comparison of its key panics.
#[test]
fn an_object_that_cannot_be_deleted_does_not_keep_a_sweep_from_others() {
    for by_sweeper in [false, true] {
        let (switch, clock) = (PanicSwitch::new(), ManualClock::new());
        let schema = Schema::new(|object: &Object| object.switch.key(object.id), |_| Version::ZERO);
        let (store, mut sweeper) = TtlWriter::new(Store::builder(schema).build().unwrap(), clock.timer());
        let _changes = store.subscription().for_key(switch.key(1)).subscribe();
        store.upsert(object(&switch, 1, 0), Some(TTL / 2));
        store.upsert(object(&switch, 2, 0), Some(TTL));
        clock.advance(TTL);
        switch.arm(Point::Eq, 1);
        match by_sweeper {
            true => assert!(poll_once(std::pin::Pin::new(&mut sweeper)).is_pending()),
            false => assert!(catch_unwind(AssertUnwindSafe(|| store.sweep())).is_err()),
        }
        assert!(!switch.disarm(Point::Eq), "no key was compared");
        assert_eq!(contents(&store), [(1, 0)]);
        clock.advance(TTL);
        assert_eq!((store.sweep(), store.len()), (1, 0), "it was not tried again");
    }
}

/// If the drop of an expired object panics, a write is not affected.
#[test]
fn the_drop_of_an_expired_object_may_panic() {
    struct Object(u32, bool);
    impl Drop for Object {
        fn drop(&mut self) {
            assert!(!self.1 || std::thread::panicking(), "a hostile drop panics");
        }
    }
    let clock = ManualClock::new();
    let schema = Schema::new(|object: &Object| object.0, |_| Version::ZERO);
    let (store, mut sweeper) = TtlWriter::new(Store::builder(schema).build().unwrap(), clock.timer());
    let mut writes: [Box<dyn FnMut()>; 3] = [
        Box::new(|| assert_eq!(store.upsert(Object(2, false), Some(TTL)), WriteOutcome::Added)),
        Box::new(|| assert_eq!(store.delete(&2, None), WriteOutcome::Absent)),
        Box::new(|| assert!(poll_once(std::pin::Pin::new(&mut sweeper)).is_pending())),
    ];
    for write in &mut writes {
        store.upsert(Object(1, true), Some(TTL));
        store.upsert(Object(3, false), Some(TTL));
        clock.advance(TTL);
        write();
        assert!(store.get(&1).is_none() && store.get(&3).is_none());
        clock.advance(TTL);
        store.sweep();
        assert_eq!((store.len(), store.next_deadline()), (0, None));
    }
    store.upsert(Object(1, true), Some(TTL));
    store.upsert(Object(3, false), Some(TTL));
    clock.advance(TTL);
    assert!(catch_unwind(AssertUnwindSafe(|| store.sweep())).is_err());
    assert!(store.is_empty(), "the panic kept the sweep from the other object");
}

/// Drops, observers and clocks may call the writer, because none of them runs under a lock.
#[test]
fn code_that_calls_back_is_answered() {
    struct CallsBack(u32);
    static STORE: Mutex<Option<TtlWriter<u32, CallsBack>>> = Mutex::new(None);
    fn call() {
        let store = STORE.lock().clone();
        if let Some(store) = store {
            let _ = (store.get(&1), store.len(), store.next_deadline(), store.sweep());
            let _ = store.delete(&99, None);
        }
    }
    impl Drop for CallsBack {
        fn drop(&mut self) {
            call();
        }
    }
    struct Calls(ManualTimer);
    impl flyball_sync::Clock for Calls {
        fn now(&self) -> flyball_sync::Nanos {
            thread_local!(static NESTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
            if !NESTED.replace(true) {
                call();
                NESTED.set(false);
            }
            self.0.now()
        }
    }
    impl flyball_sync::Timer for Calls {
        fn wake_at(&self, at: flyball_sync::Nanos, waker: &std::task::Waker) {
            call();
            self.0.wake_at(at, waker);
        }
    }
    let clock = ManualClock::new();
    let key = |object: &CallsBack| {
        call();
        object.0
    };
    let writer = Store::builder(Schema::new(key, |_| Version::ZERO)).build().unwrap();
    let (store, mut sweeper) = TtlWriter::new(writer, Calls(clock.timer()));
    *STORE.lock() = Some(store.clone());
    let received = Arc::new(Mutex::new(0));
    let observer = store.observe({
        let received = received.clone();
        move |change: &Change<_, _>| {
            *received.lock() += 1;
            call();
            // This write is nested: a write has swept an object, and its observer writes again.
            if change.new().is_none() && *change.key() == 1 {
                let store = STORE.lock().clone().unwrap();
                store.upsert(CallsBack(7), Some(10 * TTL));
            }
        }
    });
    for id in 1..4 {
        store.upsert(CallsBack(id), Some(TTL * id));
    }
    assert!(poll_once(std::pin::Pin::new(&mut sweeper)).is_pending());
    clock.advance(3 * TTL / 2);
    store.upsert(CallsBack(3), Some(TTL));
    assert!(store.get(&1).is_none() && store.get(&7).is_some());
    clock.advance(20 * TTL);
    assert!(poll_once(std::pin::Pin::new(&mut sweeper)).is_pending());
    assert_eq!((store.len(), observer.panic_count()), (0, 0));
    assert!(*received.lock() > 8);
    store.check().unwrap();
    *STORE.lock() = None;
}
