//! Models of observers: functions that writers call, while other threads register and drop them.

use std::sync::atomic::{AtomicU64, Ordering};

use flyball_informer_cache::{Change, Observer, Schema, SharedWriter, Store, Version};
use loom_tests::{Arc, Model, block_on, model, thread};

/// A key and a version.
type Object = (u8, u64);
type Objects = SharedWriter<u8, Object>;

/// The sum of all reports: each kind of report adds one of the constants below. The sum is std's atomic, not the
/// model's, so that counting adds no scheduling point; loom runs all threads of a model on one thread.
#[derive(Clone, Default)]
struct Sum(Arc<AtomicU64>);

const INITIAL_1: u64 = 1;
const INITIAL_2: u64 = 1 << 8;
const UPDATED: u64 = 1 << 16;
const OTHER: u64 = 1 << 24;

impl Sum {
    fn of(store: &Objects) -> (Self, Observer<u8, Object>) {
        let (sum, inside) = (Self::default(), store.clone());
        let adding = sum.clone();
        let observer = store.observe(move |change: &Change<u8, Object>| {
            let what = match (change.is_initial(), change.object().1) {
                (true, 1) => INITIAL_1,
                (true, 2) => INITIAL_2,
                // When a change is reported, its object can already be read from the store.
                (false, 2) if inside.get(&1).is_some_and(|object| object.1 == 2) => UPDATED,
                _ => OTHER,
            };
            // Ordering: Relaxed; the threads are joined before the sum is read.
            adding.0.fetch_add(what, Ordering::Relaxed);
        });
        (sum, observer)
    }

    /// Returns true if the observing function has been dropped.
    fn is_dropped(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    fn get(&self) -> u64 {
        // Ordering: Relaxed; see `of`.
        self.0.load(Ordering::Relaxed)
    }
}

fn store() -> Objects {
    let schema = Schema::new(|object: &Object| object.0, |object| Version::new(object.1));
    let store = Store::builder(schema).seed(1).reader_slots(0, 1).build().unwrap().into_shared();
    store.upsert((1, 1));
    store
}

#[test]
fn observe_vs_write() {
    let claim = Model {
        name: "observer::observe_vs_write",
        threads: 2,
        floor: 4,
        catches: "a write that reads the observers in one critical section and publishes in another",
    };
    model(claim, || {
        let store = store();
        let writer = thread::spawn({
            let store = store.clone();
            move || store.upsert((1, 2))
        });
        let (reported, observer) = Sum::of(&store);
        writer.join().unwrap();
        let reported = reported.get();
        assert!(
            reported == INITIAL_2 || reported == INITIAL_1 + UPDATED,
            "not reported exactly once: {reported:x}"
        );
        assert_eq!(observer.panic_count(), 0);
        drop(observer);
        store.check().unwrap();
    });
}

#[test]
fn drop_vs_write() {
    let claim = Model {
        name: "observer::drop_vs_write",
        threads: 2,
        floor: 46,
        catches: "an observer that reports that it has ended before its function is dropped",
    };
    model(claim, || {
        let store = store();
        let (reported, observer) = Sum::of(&store);
        let writer = thread::spawn({
            let store = store.clone();
            move || store.upsert((1, 2))
        });
        observer.unsubscribe();
        block_on(observer.unsubscribed());
        assert!(reported.is_dropped(), "a call or the function remains");
        let before = reported.get();
        assert!(before == INITIAL_1 || before == INITIAL_1 + UPDATED, "{before:x}");
        writer.join().unwrap();
        assert_eq!(reported.get(), before);
        drop(observer);
        store.check().unwrap();
    });
}

#[test]
fn observe_vs_close() {
    let claim = Model {
        name: "observer::observe_vs_close",
        threads: 2,
        floor: 44,
        catches: "an observer that checks in one critical section whether the store is closed and registers in another",
    };
    model(claim, || {
        let store = store();
        let closer = thread::spawn({
            let store = store.clone();
            move || store.close()
        });
        let (reported, observer) = Sum::of(&store);
        block_on(observer.unsubscribed());
        assert!(reported.is_dropped());
        assert_eq!(reported.get(), INITIAL_1);
        closer.join().unwrap();
    });
}
