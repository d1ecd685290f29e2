//! Models of a set of informers whose users come and go.

use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};

use flyball_informer_cache::{Index, InformerSet, InformerStartError, SharedInformer};
use loom_tests::cache::quiet::builder;
use loom_tests::wakers::{Counting, poll_with};
use loom_tests::{Model, model, thread};

static PARITY: Index<u8, u8> = Index::new("parity", |number| number % 2);

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A set, and a channel with the run futures it started. The channel is not part of the model.
fn set() -> (InformerSet, Receiver<Run>) {
    let (started, runs) = channel();
    (InformerSet::new(move |run| started.send(run).unwrap()), runs)
}

/// Polls each started run future once, and returns those that are pending.
fn poll(runs: &Receiver<Run>) -> Vec<Run> {
    let (_, waker) = Counting::waker();
    let mut runs: Vec<_> = runs.try_iter().collect();
    runs.retain_mut(|run| poll_with(run.as_mut(), &waker).is_pending());
    runs
}

fn get(set: &InformerSet) -> Result<SharedInformer<u8, u8>, InformerStartError> {
    set.get_or_start("numbers", builder(None))
}

#[test]
fn two_first_users() {
    let claim = Model {
        name: "informer_set::two_first_users",
        threads: 2,
        floor: 11,
        catches: "a user that starts an informer without checking again whether another one started it first",
    };
    model(claim, || {
        let (set, runs) = set();
        let other = thread::spawn({
            let set = set.clone();
            move || get(&set).unwrap()
        });
        let mine = get(&set).unwrap();
        let theirs = other.join().unwrap();
        mine.add_index(&PARITY).unwrap();
        assert!(
            theirs.store().by_index(&PARITY, &0).is_ok() && runs.try_iter().count() == 1,
            "the users do not share one informer"
        );
    });
}

#[test]
fn last_drop_vs_get() {
    let claim = Model {
        name: "informer_set::last_drop_vs_get",
        threads: 2,
        floor: 4,
        catches: "a user that checks in one critical section whether it is the last one, and stops the informer in another",
    };
    model(claim, || {
        let (set, runs) = set();
        let last = get(&set).unwrap();
        let dropping = thread::spawn(move || drop(last));
        let next = get(&set).unwrap();
        dropping.join().unwrap();
        let running = poll(&runs);
        assert_eq!(running.len(), 1);
        assert!(!next.is_stopped(), "the informer of a user was stopped");
    });
}

#[test]
fn shut_down_vs_get() {
    let claim = Model {
        name: "informer_set::shut_down_vs_get",
        threads: 2,
        floor: 8,
        catches: "a set that stops its informers in one critical section and closes in another",
    };
    model(claim, || {
        let (set, runs) = set();
        let closing = thread::spawn({
            let set = set.clone();
            move || set.shut_down()
        });
        let got = get(&set);
        closing.join().unwrap();
        assert_eq!((poll(&runs).len(), set.statuses().len()), (0, 0), "an informer runs after the shutdown");
        assert!(got.is_err() || got.is_ok_and(|informer| informer.is_stopped()));
    });
}
