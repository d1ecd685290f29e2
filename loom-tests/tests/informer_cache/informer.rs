//! Models of the informer: its run future, while other threads use its handles.
//!
//! The operations of the store have their own models in `informer_cache.rs`. In these models the clock does not
//! advance, and the source has at most one object.

use flyball_informer_cache::{Index, InformerState, Version};
use loom_tests::cache::quiet::informer;
use loom_tests::wakers::{Counting, poll_with};
use loom_tests::{Model, block_on, model, thread};

#[test]
fn shut_down_vs_run() {
    let claim = Model {
        name: "informer::shut_down_vs_run",
        threads: 2,
        floor: 12,
        catches: "a run future that stores its waker without checking again for a shutdown request",
    };
    model(claim, || {
        let (informer, run) = informer(None);
        // In a box, because the stack of a model's thread is small.
        let run = Box::pin(run);
        let running = thread::spawn(move || block_on(run));
        informer.shut_down();
        running.join().unwrap();
        assert_eq!(informer.status().state, InformerState::Stopped);
    });
}

#[test]
fn shut_down_vs_run_that_moved() {
    let claim = Model {
        name: "informer::shut_down_vs_run_that_moved",
        threads: 2,
        floor: 12,
        catches: "a run future that replaces its waker without checking again for a shutdown request",
    };
    model(claim, || {
        let (informer, run) = informer(None);
        let mut run = Box::pin(run);
        let (_, waker) = Counting::waker();
        assert!(poll_with(run.as_mut(), &waker).is_pending());
        let running = thread::spawn(move || block_on(run));
        informer.shut_down();
        running.join().unwrap();
    });
}

#[test]
fn end_vs_waiters() {
    let claim = Model {
        name: "informer::end_vs_waiters",
        threads: 2,
        floor: 54,
        catches: "an informer that wakes waiters for its end before its status and its store report the end",
    };
    model(claim, || {
        let (informer, run) = informer(None);
        let other = informer.clone();
        let waiting = thread::spawn(move || {
            let mut changes = other.subscribe();
            block_on(other.stopped());
            assert_eq!(other.status().state, InformerState::Stopped);
            assert!(block_on(other.synced()).is_err());
            assert!(block_on(changes.next()).is_none());
        });
        drop(run);
        waiting.join().unwrap();
        assert!(informer.status().state.is_final());
    });
}

#[test]
fn status_vs_first_list() {
    let claim = Model {
        name: "informer::status_vs_first_list",
        threads: 2,
        floor: 23,
        catches: "a status that reports \"watching\" together with the version before the list",
    };
    model(claim, || {
        let (informer, run) = informer(Some(7));
        let mut run = Box::pin(run);
        let running = thread::spawn(move || {
            let (_, waker) = Counting::waker();
            assert!(poll_with(run.as_mut(), &waker).is_pending());
            run
        });
        let status = informer.status();
        if status.state == InformerState::Watching {
            assert_eq!(status.version, Version::new(1));
            assert!(informer.is_synced());
            assert_eq!(informer.snapshot().len(), 1);
        }
        drop(running.join().unwrap());
    });
}

static PARITY: Index<u8, u8> = Index::new("parity", |number| number % 2);

#[test]
fn list_vs_add_index() {
    let claim = Model {
        name: "informer::list_vs_add_index",
        threads: 2,
        floor: 480,
        catches: "a list that is committed while an index is being added",
    };
    model(claim, || {
        let (informer, run) = informer(Some(7));
        let mut run = Box::pin(run);
        let running = thread::spawn(move || {
            let (_, waker) = Counting::waker();
            assert!(poll_with(run.as_mut(), &waker).is_pending());
            run
        });
        informer.add_index(&PARITY).unwrap();
        let run = running.join().unwrap();
        assert_eq!(informer.store().by_index(&PARITY, &1).unwrap().len(), 1);
        informer.store().check().unwrap();
        drop(run);
    });
}
