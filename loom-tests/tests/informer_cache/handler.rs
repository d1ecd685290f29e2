//! Models of handlers: a run future calls the function of a handler with coalesced changes, while other threads unsubscribe the handler and wait for
//! its end.

use std::sync::atomic::{AtomicU64, Ordering};

use flyball_informer_cache::{HandlerExit, Schema, SharedWriter, Store, Version};
use loom_tests::{Arc, Model, block_on, model, thread};

/// A key and a version.
type Object = (u8, u64);

fn store() -> SharedWriter<u8, Object> {
    let schema = Schema::new(|object: &Object| object.0, |object| Version::new(object.1));
    Store::builder(schema).seed(1).reader_slots(0, 1).build().unwrap().into_shared()
}

#[test]
fn unsubscribed_vs_call() {
    let claim = Model {
        name: "handler::unsubscribed_vs_call",
        threads: 2,
        floor: 120,
        catches: "a run future that checks for an unsubscribe request before it registers its waker for it: it sleeps, and the waiters for its end are never woken",
    };
    model(claim, || {
        let store = store();
        store.upsert((1, 1));
        // `calls` is std's atomic, not the model's, so that counting adds no scheduling point; loom runs all threads of a model on one thread.
        let calls = Arc::new(AtomicU64::new(0));
        let counting = calls.clone();
        // Ordering: Relaxed; the reader has waited until the calls have ended.
        let (handler, run) = store.subscribe().for_each(move |_| {
            counting.fetch_add(1, Ordering::Relaxed);
        });
        let running = thread::spawn(move || block_on(run));
        handler.unsubscribe();
        block_on(handler.unsubscribed());
        let reported = calls.load(Ordering::Relaxed);
        assert!(reported <= 1 && Arc::strong_count(&calls) == 1, "a call or the function remains");
        store.upsert((2, 2));
        assert_eq!(running.join().unwrap(), HandlerExit::Unsubscribed);
        assert_eq!(calls.load(Ordering::Relaxed), reported);
        store.check().unwrap();
    });
}

#[test]
fn close_vs_call() {
    let claim = Model {
        name: "handler::close_vs_call",
        threads: 2,
        floor: 518,
        catches: "a run future that reports that it has ended before it has dropped the function",
    };
    model(claim, || {
        let store = store();
        let held = Arc::new(());
        let holding = held.clone();
        let (handler, run) = store.subscribe().for_each(move |_| drop(holding.clone()));
        let running = thread::spawn(move || block_on(run));
        store.upsert((1, 1));
        store.close();
        block_on(handler.unsubscribed());
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(running.join().unwrap(), HandlerExit::Closed);
        assert_eq!(handler.panic_count(), 0);
    });
}
