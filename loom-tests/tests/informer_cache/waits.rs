//! Models of waits for a version, in a task or on a thread, while the store is written or closed, or the wait is cancelled.

use std::pin::pin;
use std::time::Duration;

use flyball_informer_cache::{Version, WaitForError};
use flyball_sync::block_on_timeout;
use loom_tests::cache::object::{Objects, beside, holding, object, store};
use loom_tests::wakers::{Counting, poll_with};
use loom_tests::{Model, block_on, model};

const WANTED: Version = Version::new(2);

#[test]
fn wait_for_key_vs_upsert() {
    let claim = Model {
        name: "informer_cache::wait_for_key_vs_upsert",
        threads: 2,
        floor: 40,
        catches: "a wait that finds the object in one critical section and the version in a later one",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writer = beside(&store, |store| store.upsert(object(1, 2)));
        let found = block_on(store.wait_for_key(1, WANTED)).unwrap();
        assert_eq!(found.as_deref(), Some(&object(1, 2)), "not the awaited object");
        writer.join().unwrap();
        store.check().unwrap();
    });
}

#[test]
fn wait_for_key_vs_close() {
    let claim = Model {
        name: "informer_cache::wait_for_key_vs_close",
        threads: 2,
        floor: 50,
        catches: "a wait that checks in one critical section whether the store is closed and registers its waker in another",
    };
    model(claim, || {
        let store = store();
        let closing = beside(&store, Objects::close);
        assert_eq!(block_on(store.wait_for_key(1, WANTED)), Err(WaitForError::Closed));
        closing.join().unwrap();
        store.check().unwrap();
    });
}

#[test]
fn wait_for_key_vs_dropped_wait() {
    let claim = Model {
        name: "informer_cache::wait_for_key_vs_dropped_wait",
        threads: 3,
        floor: 1452,
        catches: "a wait that draws its number in one critical section and registers its waker in another: dropping it removes another wait",
    };
    model(claim, || {
        let store = store();
        let dropped = beside(&store, |store| {
            let (_, waker) = Counting::waker();
            let mut wait = pin!(store.wait_for_key(1, WANTED));
            poll_with(wait.as_mut(), &waker).is_ready()
        });
        let waiting = beside(&store, |store| block_on(store.wait_for_key(1, WANTED)).unwrap());
        store.upsert(object(1, 2));
        dropped.join().unwrap();
        assert_eq!(waiting.join().unwrap().as_deref(), Some(&object(1, 2)));
        store.check().unwrap();
    });
}

#[test]
fn blocking_wait_for_vs_upsert() {
    let claim = Model {
        name: "informer_cache::blocking_wait_for_vs_upsert",
        threads: 2,
        floor: 14,
        catches: "a thread that unlocks between checking whether it was woken and sleeping",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writer = beside(&store, |store| store.upsert(object(1, 2)));
        assert_eq!(flyball_sync::block_on(store.wait_for_version(WANTED)), Ok(WANTED));
        assert_eq!(store.get(&1).as_deref(), Some(&object(1, 2)), "the awaited object is missing");
        writer.join().unwrap();
    });
}

#[test]
fn blocking_wait_for_vs_close() {
    let claim = Model {
        name: "informer_cache::blocking_wait_for_vs_close",
        threads: 2,
        floor: 14,
        catches: "a waker that notifies the thread before it sets the flag",
    };
    model(claim, || {
        let store = store();
        let closing = beside(&store, Objects::close);
        assert_eq!(flyball_sync::block_on(store.wait_for_version(WANTED)), Err(WaitForError::Closed));
        closing.join().unwrap();
    });
}

/// The timeout never elapses, because the models have no time.
#[test]
fn wait_for_timeout_vs_upsert() {
    let claim = Model {
        name: "informer_cache::wait_for_timeout_vs_upsert",
        threads: 2,
        floor: 18,
        catches: "a thread that clears the flag before it sleeps, and loses a wake-up since its check",
    };
    model(claim, || {
        let store = store();
        let writer = beside(&store, |store| store.upsert(object(1, 2)));
        assert_eq!(block_on_timeout(store.wait_for_version(WANTED), Duration::MAX), Some(Ok(WANTED)));
        writer.join().unwrap();
        store.check().unwrap();
    });
}
