//! Tests of observers: the writer calls each function exactly once with every change, and does not coalesce changes. If a function panics or uses the
//! store, nothing else is affected.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::task::Waker;
use std::thread;

use drivers::cache::observers::{self, Delivered, Observed, plain, store};
use flyball_informer_cache::{Observer, Schema, SharedWriter, Store, Version, WatchEvent};
use parking_lot::Mutex;
use testkit::panicking::{PanicSwitch, PanickingKey, Point};
use testkit::random::{cases, cases_are_chosen, thorough};
use testkit::store_op::TestObject;
use testkit::wakers::{Counting, Panicking, poll_once, poll_with};

fn thing(key: u8, uid: u8, version: u64) -> TestObject {
    TestObject { key, uid, version, tags: Vec::new(), ..TestObject::default() }
}

/// A task that waits for a change is not delayed by an observer, because readers can see the change already.
#[test]
fn waiting_tasks_are_woken_before_observers_are_called() {
    let store = store();
    let (woken, waker) = Counting::waker();
    let mut version = Box::pin(store.wait_for_version(Version::new(3)));
    let mut key = Box::pin(store.wait_for_key(1, Version::new(3)));
    assert!(poll_with(version.as_mut(), &waker).is_pending() && poll_with(key.as_mut(), &waker).is_pending());
    let (send, seen) = mpsc::channel();
    let _observer = store.observe(move |_| send.send(woken.wakes()).unwrap());
    store.upsert(thing(1, 0, 3));
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [2]);
}

/// The same holds for a write of many keys, which collects its wake-ups under the lock of the writer.
#[test]
fn transactions_and_lists_wake_waiting_tasks_before_they_call_observers() {
    let store = store();
    let (woken, waker) = Counting::waker();
    let (send, seen) = mpsc::channel();
    let count = woken.clone();
    let _observer = store.observe(move |_| send.send(count.wakes()).unwrap());
    let wakes_before_observers = |version, write: &dyn Fn()| {
        let mut wait = Box::pin(store.wait_for_version(Version::new(version)));
        assert!(poll_with(wait.as_mut(), &waker).is_pending());
        let before = woken.wakes();
        write();
        seen.try_iter().map(|wakes| wakes - before).collect::<Vec<_>>()
    };
    let transaction = || {
        let mut writes = store.transaction();
        writes.upsert(thing(1, 0, 3));
        writes.upsert(thing(2, 0, 3));
        writes.commit();
    };
    assert_eq!(wakes_before_observers(3, &transaction), [1, 1]);
    let list = || drop(store.replace([thing(1, 0, 5), thing(2, 0, 3)], Version::new(5)));
    assert_eq!(wakes_before_observers(5, &list), [1]);
}

/// Formats the changes in a short notation.
fn brief(received: Vec<Delivered>) -> Vec<String> {
    let text = |change| match change {
        Delivered::Added { object, initial: true, .. } => format!("={}@{}", object.key, object.version),
        Delivered::Added { object, .. } => format!("+{}@{}", object.key, object.version),
        Delivered::Updated { old, new, .. } => format!("{}@{}>{}", new.key, old.version, new.version),
        Delivered::Replaced { last, new, .. } => format!("{}@{}!{}", new.key, last.version, new.version),
        Delivered::Deleted { last, missed, .. } => {
            format!("-{}@{}{}", last.key, last.version, if missed { "?" } else { "" })
        }
    };
    received.into_iter().map(text).collect()
}

#[test]
fn every_change_of_the_oracle_store_is_delivered_once_in_order() {
    let received = AtomicU64::new(0);
    let sequences = if thorough() { 30_000 } else { 1_000 };
    cases("observer", sequences, 600, |bytes| {
        _ = received.fetch_add(observers::run(bytes), Ordering::Relaxed)
    });
    assert!(cases_are_chosen() || received.into_inner() > sequences, "too few changes were observed");
}

#[test]
fn the_first_list_is_initial_and_no_other() {
    let store = store();
    let (observed, _observer) = Observed::of(&store);
    store.upsert(thing(1, 1, 1));
    store.replace([thing(1, 1, 2), thing(2, 1, 2)], Version::new(2));
    assert_eq!(brief(observed.take()), ["+1@1", "1@1>2", "=2@2"]);
    store.replace([thing(2, 1, 2), thing(3, 1, 3)], Version::new(3));
    assert_eq!(brief(observed.take()), ["-1@2?", "+3@3"]);
}

#[test]
fn observers_receive_every_intermediate_state() {
    let store = store();
    let mut merged = store.subscribe();
    let (observed, _observer) = Observed::of(&store);
    store.upsert(thing(1, 1, 1));
    store.delete(&1, None);
    assert!(merged.try_next().is_none(), "a subscription received an object that was added and deleted");
    assert_eq!(brief(observed.take()), ["+1@1", "-1@1?"]);
    for version in 2..5 {
        store.upsert(thing(2, 1, version));
    }
    assert_eq!(merged.try_next().unwrap().object().version, 4);
    assert_eq!(brief(observed.take()), ["+2@2", "2@2>3", "2@3>4"]);
}

#[test]
fn the_objects_there_are_come_first() {
    let store = store();
    store.replace([thing(1, 1, 1), thing(2, 1, 1)], Version::new(1));
    let (observed, observer) = Observed::of(&store);
    let mut initial = brief(observed.take());
    initial.sort_unstable();
    assert_eq!(initial, ["=1@1", "=2@1"], "the initial changes were not delivered before `observe` returned");
    store.upsert(thing(1, 1, 2));
    assert_eq!(brief(observed.take()), ["1@1>2"]);
    store.close();
    let (late, after) = Observed::of(&store);
    assert_eq!(late.take().len(), 2, "an observer of a closed store does not receive its objects");
    assert_eq!(Arc::strong_count(&late.0), 1, "the function was not dropped");
    store.upsert(thing(1, 1, 3));
    assert!(observed.take().is_empty() && late.take().is_empty());
    drop((observer, after));
}

#[test]
fn a_relist_delivers_deletions_first() {
    let store = store();
    store.replace([thing(1, 1, 1), thing(2, 1, 1), thing(3, 1, 1), thing(4, 1, 1)], Version::new(1));
    let (observed, _observer) = Observed::of(&store);
    observed.take();
    let listed = [thing(5, 1, 2), thing(2, 2, 2), thing(3, 1, 1), thing(4, 1, 2)];
    let diff = store.replace(listed, Version::new(2));
    let received = observed.take();
    assert_eq!(received, diff.iter().map(plain).collect::<Vec<_>>());
    assert_eq!(brief(received), ["-1@1?", "+5@2", "2@1!2", "4@1>2"]);
}

#[test]
fn a_panic_is_counted_and_affects_no_other_observer() {
    let store = store();
    store.upsert(thing(0, 1, 1));
    let calls = Arc::new(AtomicU64::new(0));
    let called = calls.clone();
    let hostile = store.observe(move |change| {
        called.fetch_add(1, Ordering::Relaxed);
        if change.key() % 2 == 0 {
            resume_unwind(Box::new(PanicOnDrop));
        }
    });
    let (observed, friendly) = Observed::of(&store);
    assert_eq!(
        (hostile.panic_count(), observed.take().len()),
        (1, 1),
        "a panic on an initial object was not counted"
    );
    for key in 1..5 {
        store.upsert(thing(key, 1, 2));
    }
    store.replace([thing(0, 2, 3)], Version::new(3));
    assert_eq!((hostile.panic_count(), friendly.panic_count()), (1 + 2 + 2 + 1, 0));
    assert_eq!((calls.load(Ordering::Relaxed), observed.take().len()), (1 + 4 + 5, 4 + 5));
    assert!(format!("{hostile:?}").contains("panics: 6"));
    store.check().unwrap();
}

/// A panic payload that panics in its drop.
struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        resume_unwind(Box::new("again"));
    }
}

#[test]
fn an_observer_whose_drop_panics_affects_no_other() {
    let store = store();
    let held = PanicOnDrop;
    let observer = store.observe(move |_| {
        let _ = &held;
    });
    let (observed, _friendly) = Observed::of(&store);
    store.close();
    assert_eq!(observer.panic_count(), 1);
    assert_eq!(Arc::strong_count(&observed.0), 1, "the other observers did not end");
}

/// Whatever method of a key panics, either the write has no effect, or its change is delivered or counted as a panic. The next change is delivered.
#[test]
fn keys_that_panic_cost_a_change_and_nothing_else() {
    const HOSTILE: Schema<PanickingKey, (Arc<PanicSwitch>, u32, u64)> =
        Schema::new(|object| object.0.key(object.1), |object| Version::new(object.2));
    for point in Point::ALL {
        for nth in 1.. {
            let switch = PanicSwitch::new();
            let store = Store::builder(HOSTILE).build().unwrap().into_shared();
            let observed = Arc::new(AtomicU64::new(0));
            let noting = observed.clone();
            let observer = store.observe(move |change| {
                noting.fetch_add(change.object().2, Ordering::Relaxed);
            });
            switch.arm(point, nth);
            let written = catch_unwind(AssertUnwindSafe(|| store.upsert((switch.clone(), 1, 1)))).is_ok();
            let unreached = switch.disarm(point);
            let (there, received) = (store.len() as u64, observed.swap(0, Ordering::Relaxed));
            assert!(there == 1 || !written, "{point:?} {nth}");
            assert_eq!(
                received + observer.panic_count(),
                there,
                "{point:?} {nth}: a change was neither delivered nor counted as a panic"
            );
            store.upsert((switch.clone(), 1, 10));
            assert_eq!(observed.load(Ordering::Relaxed), 10, "{point:?} {nth}");
            store.check().unwrap();
            drop((store, observer));
            assert_eq!(switch.live(), 0, "{point:?} {nth}: keys leaked");
            if unreached {
                break;
            }
        }
    }
}

#[test]
fn an_observer_may_use_the_store() {
    let store = store();
    let (inside, own) = (store.clone(), Arc::new(OnceLock::<Mutex<Option<Observer<u8, TestObject>>>>::new()));
    let (mine, log) = (own.clone(), Observed::default());
    let noting = log.clone();
    let observer = store.observe(move |change| {
        noting.0.lock().push(plain(change));
        // The store already contains the new state of the change, or a newer one.
        let version = inside.get(change.key()).map(|thing| thing.version);
        assert!(version >= Some(change.object().version) || change.new().is_none());
        match change.key() {
            1 => {
                inside.upsert(thing(2, 1, 1));
                inside.delete(&1, None);
                inside.apply(WatchEvent::Bookmark(Version::new(9)));
            }
            2 => {
                let (seen, nested) = Observed::of(&inside);
                assert_eq!(seen.take().len(), inside.len());
                drop(nested);
                drop(inside.subscribe());
                drop(inside.replace([thing(3, 1, 1), thing(4, 1, 1), thing(5, 1, 1)], Version::new(9)));
            }
            // The function drops its own observer, in the middle of a relist.
            3 if change.new().is_some() => drop(mine.get().and_then(|observer| observer.lock().take())),
            _ => {}
        }
    });
    assert!(own.set(Mutex::new(Some(observer))).is_ok());
    let (observed, _other) = Observed::of(&store);
    store.upsert(thing(1, 1, 1));
    let received = brief(log.take());
    assert_eq!(received[..2], ["+1@1", "+2@1"]);
    assert_eq!(
        received.last().map(String::as_str),
        Some("=3@1"),
        "the observer did not end itself: {received:?}"
    );
    assert_eq!(Arc::strong_count(&log.0), 1, "the function was not dropped");
    assert!(observed.take().len() > received.len(), "the other observer did not receive the rest");
    store.upsert(thing(1, 1, 9));
    assert_eq!(brief(observed.take()), ["+1@9"]);
    store.check().unwrap();
}

#[test]
fn an_observer_outlives_its_store() {
    let store = store();
    let (observed, observer) = Observed::of(&store);
    store.upsert(thing(1, 1, 1));
    drop(store);
    assert_eq!(Arc::strong_count(&observed.0), 1, "the observer keeps the store open");
    assert_eq!((observed.take().len(), observer.panic_count()), (1, 0));
}

/// Writers run while observers are added and removed. No observer receives a change twice, and an observer that exists before the writers start
/// receives every change. A loom model checks that an observer that is added concurrently does not miss a change.
#[test]
fn threads() {
    const WRITES: u64 = 2_000;
    let store = store();
    let early = Observed::of(&store);
    let writers: Vec<_> = (0..2)
        .map(|key| {
            let store = store.clone();
            thread::spawn(move || {
                for version in 1..=WRITES {
                    store.upsert(thing(key, 1, version));
                }
            })
        })
        .collect();
    let observers: Vec<_> = (0..2)
        .map(|_| {
            let store = store.clone();
            thread::spawn(move || {
                let (mut kept, mut dropped) = (Vec::new(), 0);
                for round in 0..50 {
                    let (observed, observer) = Observed::of(&store);
                    match round % 2 {
                        0 => kept.push((observed, observer)),
                        _ => dropped += observer.panic_count(),
                    }
                }
                assert_eq!(dropped, 0);
                kept
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let versions = |received: &[Delivered], of: u8| -> Vec<u64> {
        let received = received.iter().filter(|change| *change.key() == of);
        received
            .map(|change| match change {
                Delivered::Added { object, .. } => object.version,
                Delivered::Updated { new, .. } => new.version,
                Delivered::Replaced { .. } | Delivered::Deleted { .. } => panic!("a deletion was reported"),
            })
            .collect()
    };
    let all: Vec<_> = (1..=WRITES).collect();
    let received = early.0.take();
    assert_eq!(
        [versions(&received, 0), versions(&received, 1)],
        [all.clone(), all],
        "the changes are not in the order of their writer"
    );
    for (observed, observer) in observers.into_iter().flat_map(|thread| thread.join().unwrap()) {
        let received = observed.take();
        for key in 0..2 {
            let mut versions = versions(&received, key);
            // The change of an initial object may be delivered between other changes, so the versions are sorted.
            versions.sort_unstable();
            assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "a change was delivered twice");
        }
        assert_eq!(observer.panic_count(), 0);
    }
    store.check().unwrap();
}

/// An observer whose function blocks in each call until a different thread allows it to continue.
struct Held {
    observed: Observed,
    observer: Arc<Observer<u8, TestObject>>,
    entered: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

fn held(store: &SharedWriter<u8, TestObject>) -> Held {
    let (enter, entered) = mpsc::channel();
    let (go_on, wait) = mpsc::channel();
    let (observed, wait) = (Observed::default(), Mutex::new(wait));
    let noting = observed.clone();
    let observer = store.observe(move |change| {
        enter.send(()).unwrap();
        wait.lock().recv().unwrap();
        noting.0.lock().push(plain(change));
    });
    Held { observed, observer: Arc::new(observer), entered, go_on }
}

/// `TestRemoveEventHandler_AsynchronousPanic` and `…_SynchronousShutdown` for a function that writers call: `unsubscribe` does not wait for a call
/// that is in progress, and `unsubscribed` does.
#[test]
fn shutdown_does_not_wait_and_can_be_awaited() {
    let store = store();
    let Held { observed, observer, entered, go_on } = held(&store);
    let (woken, waker) = Counting::waker();
    let mut wait = Box::pin(observer.unsubscribed());
    assert!(poll_with(wait.as_mut(), &waker).is_pending());
    let writer = thread::spawn({
        let store = store.clone();
        move || store.upsert(thing(1, 1, 1))
    });
    entered.recv().unwrap();
    observer.unsubscribe();
    observer.unsubscribe();
    store.upsert(thing(2, 1, 2));
    assert!(
        poll_with(wait.as_mut(), &waker).is_pending() && woken.wakes() == 0,
        "the wait completed during the call"
    );
    let waiting = thread::spawn({
        let (observer, observed) = (observer.clone(), observed.clone());
        move || {
            block_on(observer.unsubscribed());
            assert_eq!(
                (brief(observed.take()), Arc::strong_count(&observed.0)),
                (vec!["+1@1".to_owned()], 2)
            );
        }
    });
    go_on.send(()).unwrap();
    waiting.join().unwrap();
    writer.join().unwrap();
    assert_eq!(woken.wakes(), 1);
    assert!(poll_with(wait.as_mut(), &waker).is_ready());
    assert!(
        observed.take().is_empty() && entered.try_recv().is_err(),
        "the observer received change 2 after it had ended"
    );
}

#[test]
fn waiting_for_an_end_within_a_call_returns_at_once() {
    type Own = Arc<OnceLock<Observer<u8, TestObject>>>;
    let store = store();
    let (own, other) = (Own::default(), Own::default());
    let observe = |which: &Own| {
        let (own, other) = (own.clone(), other.clone());
        let observer = store.observe(move |_| {
            for observer in [own.get().unwrap(), other.get().unwrap()] {
                observer.unsubscribe();
                block_on(observer.unsubscribed());
            }
        });
        which.set(observer).unwrap();
    };
    observe(&own);
    observe(&other);
    store.upsert(thing(1, 1, 1));
    // No call is in progress now, so these waits complete immediately.
    block_on(own.get().unwrap().unsubscribed());
    block_on(other.get().unwrap().unsubscribed());
    assert_eq!(Arc::strong_count(&own), 1, "a function was not dropped");
    // `unsubscribed` also returns immediately within a call for an initial object. When `observe` has returned, this thread is no longer in a call.
    let (_, another) = Observed::of(&store);
    let at_once = Arc::new(AtomicU64::new(0));
    let _observer = store.observe({
        let (at_once, another) = (at_once.clone(), another);
        move |_| {
            block_on(another.unsubscribed());
            at_once.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(at_once.load(Ordering::Relaxed), 1);
    let (_, another) = Observed::of(&store);
    assert!(poll_once(std::pin::pin!(another.unsubscribed())).is_pending());
}

#[test]
fn the_end_of_the_store_ends_observers_too() {
    let store = store();
    let (observed, observer) = Observed::of(&store);
    let mut waits: Vec<_> = (0..3).map(|_| Box::pin(observer.unsubscribed())).collect();
    let (woken, waker) = Counting::waker();
    for (wait, waker) in waits.iter_mut().zip([&Waker::from(Arc::new(Panicking)), &waker, &waker]) {
        assert!(poll_with(wait.as_mut(), waker).is_pending());
    }
    drop(waits.pop());
    store.close();
    assert_eq!((woken.wakes(), Arc::strong_count(&observed.0)), (1, 1));
    assert!(waits.iter_mut().all(|wait| poll_once(wait.as_mut()).is_ready()));
    // An observer that is registered in a closed store has ended from the start.
    let (_, late) = Observed::of(&store);
    assert!(poll_once(std::pin::pin!(late.unsubscribed())).is_ready());
    // An observer may also outlive its store.
    let store = self::store();
    let (observed, observer) = Observed::of(&store);
    drop(store);
    assert!(poll_once(std::pin::pin!(observer.unsubscribed())).is_ready());
    assert_eq!(Arc::strong_count(&observed.0), 1);
    observer.unsubscribe();
}

/// `TestSharedInformerHandlerAbuse` for observers: after its end, an observer receives no further change, whatever writers do.
#[test]
fn a_hundred_observers_come_and_go() {
    let store = store();
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let store = store.clone();
            thread::spawn(move || {
                for version in 1..5_000 {
                    store.upsert(thing((version % 50) as u8, writer, version));
                }
            })
        })
        .collect();
    let abusers: Vec<_> = (0..4)
        .map(|_| {
            let store = store.clone();
            thread::spawn(move || {
                for round in 0..25 {
                    let (observed, observer) = Observed::of(&store);
                    if round % 2 == 0 {
                        thread::yield_now();
                    }
                    observer.unsubscribe();
                    block_on(observer.unsubscribed());
                    assert_eq!(Arc::strong_count(&observed.0), 1);
                    assert_eq!(observer.panic_count(), 0);
                }
            })
        })
        .collect();
    for thread in writers.into_iter().chain(abusers) {
        thread.join().unwrap();
    }
    store.check().unwrap();
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// `synced` completes when the observers have received the first list, even if an observer closes the store in a call for this list.
#[test]
fn a_store_that_an_observer_closes_under_its_first_list_has_synced() {
    let store = store();
    let closing = store.clone();
    let closed = Arc::new(AtomicU64::new(0));
    let calls = closed.clone();
    let observer = store.observe(move |_| {
        assert!(!closing.is_synced() || calls.load(Ordering::Relaxed) > 0);
        closing.close();
        calls.fetch_add(1, Ordering::Relaxed);
    });
    store.replace([thing(1, 1, 1), thing(2, 1, 1)], Version::new(1));
    assert_eq!((closed.load(Ordering::Relaxed), observer.panic_count()), (2, 0));
    assert!(store.is_synced());
    assert_eq!(poll_once(Box::pin(store.synced()).as_mut()), std::task::Poll::Ready(Ok(())));
}

/// A second list that is published while the first list is being reported does not complete `synced`.
#[test]
fn a_list_within_the_report_of_the_first_does_not_sync_the_store() {
    let store = store();
    let (again, within) = (store.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = within.clone();
    let _observer = store.observe(move |change| {
        if change.is_initial() && *change.key() == 1 {
            again.replace((1..4).map(|key| thing(key, 1, 2)), Version::new(2));
        }
        seen.lock().push(again.is_synced());
    });
    store.replace((1..4).map(|key| thing(key, 1, 1)), Version::new(1));
    assert!(within.lock().iter().all(|synced| !synced));
    assert!(store.is_synced());
}
