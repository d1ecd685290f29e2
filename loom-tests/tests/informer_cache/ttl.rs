//! Models of the writer whose objects expire: a sweep concurrent with a write, two concurrent sweeps, and the sweeper concurrent with a write.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use flyball_informer_cache::{Schema, Store, TtlWriter, Version};
use flyball_sync::{Clock, Nanos, Timer};
use loom_tests::{Arc, Model, model, thread};

/// A timer whose time a test sets, and which records the last alarm. The numbers are std's atomics, not the model's, so that they add no scheduling
/// point; loom runs all threads of a model on one thread.
#[derive(Clone, Default)]
struct TestTimer {
    now: Arc<AtomicU64>,
    alarm: Arc<AtomicU64>,
}

impl Clock for TestTimer {
    fn now(&self) -> Nanos {
        // Ordering: Relaxed; a clock publishes no other memory.
        Nanos::new(self.now.load(Ordering::Relaxed))
    }
}

impl Timer for TestTimer {
    fn wake_at(&self, at: Nanos, _: &Waker) {
        // Ordering: as above.
        self.alarm.store(at.get(), Ordering::Relaxed);
    }
}

/// A key and its value.
type Object = (u8, u8);

type Sweeper = Pin<Box<dyn Future<Output = ()> + Send>>;

fn store() -> (TtlWriter<u8, Object>, Sweeper, TestTimer) {
    let timer = TestTimer::default();
    let schema = Schema::new(|object: &Object| object.0, |_| Version::ZERO);
    let writer = Store::builder(schema).seed(1).reader_slots(0, 1).build().unwrap();
    let (store, sweeper) = TtlWriter::new(writer, timer.clone());
    (store, Box::pin(sweeper), timer)
}

const TTL: Option<Duration> = Some(Duration::from_nanos(10));

#[test]
fn sweep_vs_upsert() {
    let claim = Model {
        name: "ttl::sweep_vs_upsert",
        threads: 2,
        floor: 99,
        catches: "a sweep that deletes an object inserted since it found the key expired",
    };
    model(claim, || {
        let (store, _sweeper, timer) = store();
        store.upsert((1, 1), TTL);
        timer.now.store(10, Ordering::Relaxed);
        let sweeper = thread::spawn({
            let store = store.clone();
            move || store.sweep()
        });
        store.upsert((1, 2), TTL);
        assert!(sweeper.join().unwrap() <= 1);
        assert_eq!(
            store.get(&1).as_deref(),
            Some(&(1, 2)),
            "the sweep of the old object deleted the new one"
        );
        store.check().unwrap();
        timer.now.store(20, Ordering::Relaxed);
        assert_eq!((store.sweep(), store.len(), store.next_deadline()), (1, 0, None));
    });
}

#[test]
fn two_sweeps() {
    let claim = Model {
        name: "ttl::two_sweeps",
        threads: 2,
        floor: 119,
        catches: "a sweep that counts the objects it found, not those it deleted",
    };
    model(claim, || {
        let (store, _sweeper, timer) = store();
        store.upsert((1, 1), TTL);
        timer.now.store(10, Ordering::Relaxed);
        let sweeper = thread::spawn({
            let store = store.clone();
            move || store.sweep()
        });
        let swept = store.sweep();
        assert_eq!(swept + sweeper.join().unwrap(), 1, "a deletion was not counted exactly once");
        assert_eq!((store.len(), store.next_deadline()), (0, None));
        store.check().unwrap();
    });
}

/// Records whether it was woken.
#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // Ordering: Relaxed; the test reads it after a join.
        self.0.store(1, Ordering::Relaxed);
    }
}

#[test]
fn sweeper_vs_upsert() {
    let claim = Model {
        name: "ttl::sweeper_vs_upsert",
        threads: 2,
        floor: 29,
        catches: "a sweeper that sleeps although a deadline was set while it looked for the earliest one",
    };
    model(claim, || {
        let (store, mut sweeper, timer) = store();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let sweeps = thread::spawn(move || {
            let is_pending = sweeper.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
            assert!(is_pending);
            (sweeper, waker)
        });
        store.upsert((1, 1), TTL);
        let (mut sweeper, waker) = sweeps.join().unwrap();
        if woken.0.load(Ordering::Relaxed) == 1 {
            assert!(sweeper.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(timer.alarm.load(Ordering::Relaxed), 10, "no alarm is set for the deadline");
    });
}
