//! Models of the path from an event to the lease of its key, across the crates. The store publishes an object, its
//! observer then adds the key, and the worker that leases the key must read the version that caused the add, or a newer
//! one.
//!
//! A controller uses the same path, and adds no lock or atomic to it.

use std::sync::atomic::{AtomicU64, Ordering};

use flyball_informer_cache::{Change, Observer, Schema, SharedWriter, Store, Version};
use flyball_workqueue::Queue;
use loom_tests::{Arc, Model, block_on, model, thread};

/// A key and a version.
type Object = (u8, u64);

/// A store and a queue: an observer of the store adds the key of each change to the queue. The counters, which record the versions of key 1 that were
/// reported and read, are std's atomics, not the model's, so that recording adds no scheduling point; loom runs all threads of a model on one thread.
#[derive(Clone)]
struct Pipeline {
    store: SharedWriter<u8, Object>,
    queue: Queue<u8>,
    /// The newest version for which the key was added.
    reported: Arc<AtomicU64>,
    /// The version that the last lease read.
    seen: Arc<AtomicU64>,
    /// The number of current leases.
    held: Arc<AtomicU64>,
}

// Ordering: Relaxed where the lease or a join orders the accesses.
const RELAXED: Ordering = Ordering::Relaxed;

impl Pipeline {
    /// Starts with version 1 of key 1 in the store.
    fn new() -> Self {
        let schema = Schema::new(|object: &Object| object.0, |object| Version::new(object.1));
        let store = Store::builder(schema).seed(1).reader_slots(0, 1).build().unwrap().into_shared();
        store.upsert((1, 1));
        let queue = Queue::builder().seed(1).build();
        Self { store, queue, reported: Arc::default(), seen: Arc::default(), held: Arc::default() }
    }

    /// Registers an observer as a controller does.
    fn observe(&self) -> Observer<u8, Object> {
        let (queue, reported) = (self.queue.clone(), self.reported.clone());
        self.store.observe(move |change: &Change<u8, Object>| {
            // Ordering: Release, pairs with the Acquire load in `lease`, which reads the store only afterwards.
            reported.fetch_max(change.object().1, Ordering::Release);
            queue.add(*change.key()).unwrap();
        })
    }

    /// Runs one reconcile. Returns the version it read, or `None` if the queue is closed.
    fn lease(&self) -> Option<u64> {
        let lease = block_on(self.queue.get())?;
        assert_eq!(self.held.fetch_add(1, RELAXED), 0, "two leases of one key");
        // Ordering: Acquire, pairs with the Release in the observer.
        let reported = self.reported.load(Ordering::Acquire);
        let seen = self.store.get(&1).expect("the object was deleted").1;
        assert!(seen >= reported, "version {reported} was reported, but {seen} was read");
        self.seen.store(seen, RELAXED);
        self.held.fetch_sub(1, RELAXED);
        lease.done();
        Some(seen)
    }

    /// Reconciles until version 2 is read. If the event of version 2 is lost, no worker is woken and the model deadlocks.
    fn lease_until_seen(&self) {
        while self.lease() != Some(2) {}
    }

    fn check(&self) {
        self.store.check().unwrap();
        self.queue.check().unwrap();
    }
}

#[test]
fn event_vs_lease() {
    let claim = Model {
        name: "composed::event_vs_lease",
        threads: 2,
        floor: 80,
        catches: "an event of a leased key, lost by a lease end that checks the dirty flag in one critical section and ends the lease in another",
    };
    model(claim, || {
        let pipeline = Pipeline::new();
        let _observer = pipeline.observe();
        let store = pipeline.store.clone();
        let writer = thread::spawn(move || {
            store.upsert((1, 2));
        });
        pipeline.lease_until_seen();
        writer.join().unwrap();
        pipeline.check();
    });
}

#[test]
fn list_vs_start() {
    let claim = Model {
        name: "composed::list_vs_start",
        threads: 2,
        floor: 204,
        catches: "a list that reads the observers in one critical section and is published in another: a controller that starts in between never receives it",
    };
    model(claim, || {
        let pipeline = Pipeline::new();
        let store = pipeline.store.clone();
        let writer = thread::spawn(move || drop(store.replace([(1, 2)], Version::new(2))));
        let _observer = pipeline.observe();
        pipeline.lease_until_seen();
        writer.join().unwrap();
        pipeline.check();
    });
}

#[test]
fn event_vs_two_workers() {
    let claim = Model {
        name: "composed::event_vs_two_workers",
        threads: 3,
        floor: 60000,
        catches: "a worker that selects the key in one critical section and leases it in another: two leases of one key",
    };
    model(claim, || {
        let pipeline = Pipeline::new();
        let _observer = pipeline.observe();
        let other = pipeline.clone();
        let worker = thread::spawn(move || while other.lease().is_some() {});
        let (store, queue) = (pipeline.store.clone(), pipeline.queue.clone());
        let writer = thread::spawn(move || {
            store.upsert((1, 2));
            queue.shut_down();
        });
        while pipeline.lease().is_some() {}
        writer.join().unwrap();
        worker.join().unwrap();
        assert_eq!(pipeline.seen.load(RELAXED), 2, "the last lease did not read the event's version");
        assert_eq!(pipeline.queue.ready_len(), 0);
        pipeline.check();
    });
}
