//! Models of the informer: its run future beside its handles.
//!
//! The store's own operations have their models in `informer_cache.rs`; here time stands still and the source has little to say.

use std::task::Waker;

use flyball_informer_cache::{
    Event, Informer, InformerState, ListRequest, Page, Schema, Source, SourceError, Version, Watch,
    WatchRequest,
};
use flyball_ratelimit::{Clock, Nanos, Timer};
use loom_tests::wakers::{Counting, poll_with};
use loom_tests::{Model, block_on, model, thread};

const SCHEMA: Schema<u8, u8> = Schema::new(|object| *object, |_| Version::ZERO);

/// Time stands still, so no deadline passes.
struct Still;

impl Clock for Still {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
}

impl Timer for Still {
    fn wake_at(&self, _: Nanos, _: &Waker) {}
}

/// Lists one object if there is one to list, else never answers; a watch tells nothing.
struct Quiet(Option<u8>);

impl Source for Quiet {
    type Object = u8;
    type Watch = Silence;

    async fn list(&self, _: ListRequest) -> Result<Page<u8>, SourceError> {
        match self.0 {
            Some(object) => Ok(Page { items: vec![object], version: Version::new(1), continuation: None }),
            None => std::future::pending().await,
        }
    }

    async fn watch(&self, _: WatchRequest) -> Result<Silence, SourceError> {
        Ok(Silence)
    }
}

struct Silence;

impl Watch for Silence {
    type Object = u8;

    async fn next(&mut self) -> Option<Result<Event<u8>, SourceError>> {
        std::future::pending().await
    }
}

fn informer(object: Option<u8>) -> (Informer<u8, u8>, impl Future<Output = ()> + Send + 'static) {
    Informer::builder(SCHEMA, Quiet(object)).seed(1).timer(Still).build().unwrap()
}

#[test]
fn shut_down_vs_run() {
    let claim = Model {
        name: "informer::shut_down_vs_run",
        threads: 2,
        floor: 12,
        catches: "a run future that stores its waker without looking again whether the end was wished for",
    };
    model(claim, || {
        let (informer, run) = informer(None);
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
        catches: "a run future that changes its waker without looking again whether the end was wished for",
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
fn end_vs_who_waits_for_it() {
    let claim = Model {
        name: "informer::end_vs_who_waits_for_it",
        threads: 2,
        floor: 50,
        catches: "an informer that tells of its end before its status and its store do",
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
        floor: 20,
        catches: "a status that says it watches beside the version of before the list",
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
