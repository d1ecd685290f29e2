//! Tests of event handlers. The function of a handler is called by a future, with coalesced changes. The tests cover slow handlers, the end of a
//! handler, and panics.
//!
//! These tests correspond to tests of client-go, whose names are given at each case: `TestEventPanics` (2) and kubernetes#129024,
//! `TestRemoveEventHandler_AsynchronousPanic` and `…_SynchronousShutdown` (client-go#1167, kubernetes#111122, #139755),
//! `TestShutDownEventHandler_Lifecycles` (3), `TestSharedInformerHandlerAbuse`, `TestSharedInformerRemoveHandler`. Two tests have no counterpart:
//! `…RemoveForeignHandler`, because a handle can only remove the handler to which it belongs, and `…MultipleRegistration`, because two handlers
//! always have two handles.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Poll, Waker};
use std::thread;

use flyball_informer_cache::{
    Change, HandlerExit, HandlerRegistration, Schema, SharedWriter, Store, Version,
};
use parking_lot::Mutex;
use testkit::random::Random;
use testkit::wakers::{Counting, Panicking, poll_once, poll_with};

type Object = (u32, u64);
type Objects = SharedWriter<u32, Object>;

fn store() -> Objects {
    Store::builder(Schema::new(|object: &Object| object.0, |object| Version::new(object.1)))
        .seed(1)
        .build()
        .unwrap()
        .into_shared()
}

/// The key and the version of each received change, in order; the version is 0 for a deletion.
#[derive(Clone, Default)]
struct Observed(Arc<Mutex<Vec<Object>>>);

impl Observed {
    fn note(&self) -> impl FnMut(Change<u32, Object>) + Send + 'static {
        let observed = self.0.clone();
        move |change| {
            let version = change.new().map_or(0, |object| object.1);
            observed.lock().push((*change.key(), version));
        }
    }

    fn take(&self) -> Vec<Object> {
        std::mem::take(&mut *self.0.lock())
    }

    /// Returns whether the handler function was dropped.
    fn is_dropped(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

fn has_ended(handler: &HandlerRegistration) -> bool {
    poll_once(pin!(handler.unsubscribed())).is_ready()
}

fn initial_processed(handler: &HandlerRegistration) -> Poll<bool> {
    poll_once(pin!(handler.initial_processed())).map(|received| received.is_ok())
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn handlers_receive_merged_changes_at_their_own_pace() {
    let (store, observed) = (store(), Observed::default());
    store.upsert((1, 1));
    let (handler, run) = store.subscribe().for_each(observed.note());
    let mut run = Box::pin(run);
    let (woken, waker) = Counting::waker();
    assert!(observed.take().is_empty(), "a change was delivered before the first poll");
    for version in 2..10 {
        store.upsert((1, version));
        store.upsert((2, version));
    }
    assert!(poll_with(run.as_mut(), &waker).is_pending());
    assert_eq!(observed.take(), [(1, 9), (2, 9)]);
    store.delete(&2, None);
    assert_eq!((woken.wakes(), observed.take().len()), (1, 0), "the writer called the function");
    assert!(poll_with(run.as_mut(), &waker).is_pending());
    assert_eq!(observed.take(), [(2, 0)]);
    // When the store is closed, the future completes after all pending changes were delivered.
    store.upsert((3, 10));
    store.close();
    assert!(!has_ended(&handler));
    assert_eq!(poll_with(run.as_mut(), &waker), Poll::Ready(HandlerExit::Closed));
    assert!(has_ended(&handler) && observed.take() == [(3, 10)] && observed.is_dropped());
    assert_eq!(
        poll_once(run.as_mut()),
        Poll::Ready(HandlerExit::Closed),
        "the future does not stay complete"
    );
}

#[test]
fn a_long_backlog_yields_to_other_tasks() {
    let (store, observed) = (store(), Observed::default());
    store.replace((0..1_000).map(|key| (key, 1)), Version::new(1));
    let (_handler, run) = store.subscribe().for_each(observed.note());
    let mut run = pin!(run);
    let (woken, waker) = Counting::waker();
    let mut polls = 0;
    while observed.0.lock().len() < 1_000 {
        assert!(poll_with(run.as_mut(), &waker).is_pending());
        polls += 1;
        assert!(observed.0.lock().len() <= polls * 64);
        assert!(
            observed.0.lock().len() == 1_000 || woken.wakes() == polls,
            "the future yielded without waking itself"
        );
    }
}

/// `TestEventPanics`, kubernetes#129024: if a handler panics on a change, the change and the initial list count as processed, and other handlers
/// receive the change.
#[test]
fn a_panic_is_counted_and_its_change_counts_as_processed() {
    let (store, observed) = (store(), Observed::default());
    let (calm, quiet) = store.subscribe().for_each(observed.note());
    let mut calls = 0;
    let (hostile, loud) = store.subscribe().for_each(move |change| {
        calls += 1;
        // The function panics on the initial objects, and on every second call after them.
        assert!(*change.key() > 2 && calls % 2 == 0, "a hostile handler panics");
    });
    let (mut quiet, mut loud) = (pin!(quiet), pin!(loud));
    store.replace([(1, 1), (2, 1)], Version::new(1));
    assert!(poll_once(loud.as_mut()).is_pending() && poll_once(quiet.as_mut()).is_pending());
    assert_eq!((hostile.panic_count(), calm.panic_count()), (2, 0));
    assert_eq!(
        (initial_processed(&hostile), initial_processed(&calm)),
        (Poll::Ready(true), Poll::Ready(true))
    );
    assert_eq!(observed.take(), [(1, 1), (2, 1)]);
    for key in 3..7 {
        store.upsert((key, 2));
    }
    assert!(poll_once(loud.as_mut()).is_pending());
    assert_eq!(hostile.panic_count(), 4);
    store.close();
    assert_eq!(poll_once(loud), Poll::Ready(HandlerExit::Closed));
}

/// A handler that runs on its own thread. Its function blocks in each call until the test allows it to continue.
struct Held {
    entered: mpsc::Receiver<u32>,
    go_on: mpsc::Sender<()>,
    handler: HandlerRegistration,
    running: thread::JoinHandle<HandlerExit>,
    dropped: Arc<AtomicBool>,
}

/// A value that the function captures. When the function is dropped, so is this value, which sets the flag.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn held(store: &Objects, then: impl Fn() + Send + 'static) -> Held {
    let (enter, entered) = mpsc::channel();
    let (go_on, wait) = mpsc::channel();
    let dropped = Arc::new(AtomicBool::new(false));
    let gone = Gone(dropped.clone());
    let (handler, run) = store.subscribe().for_each(move |change| {
        let _held = &gone;
        enter.send(*change.key()).unwrap();
        wait.recv().unwrap();
        then();
    });
    let running = thread::spawn(move || block_on(run));
    Held { entered, go_on, handler, running, dropped }
}

/// `TestRemoveEventHandler_AsynchronousPanic`: `unsubscribe` returns while a call is still in progress. This call may still panic.
#[test]
fn unsubscribe_does_not_wait() {
    let store = store();
    store.replace([(1, 1), (2, 1), (3, 1)], Version::new(1));
    let held = held(&store, || panic!("a hostile handler panics"));
    held.entered.recv().unwrap();
    held.handler.unsubscribe();
    held.handler.unsubscribe();
    assert!(!has_ended(&held.handler) && !held.dropped.load(Ordering::SeqCst));
    store.upsert((4, 2));
    held.go_on.send(()).unwrap();
    assert_eq!(held.running.join().unwrap(), HandlerExit::Unsubscribed);
    assert_eq!(
        (held.handler.panic_count(), held.entered.try_iter().count()),
        (1, 0),
        "the function was called again"
    );
    assert!(has_ended(&held.handler) && held.dropped.load(Ordering::SeqCst));
    assert_eq!(initial_processed(&held.handler), Poll::Ready(false));
    store.check().unwrap();
}

/// `TestRemoveEventHandler_SynchronousShutdown`: the wait for the end completes only after the call that is in progress has returned.
#[test]
fn waiting_for_the_end_waits_for_the_call() {
    let store = store();
    store.upsert((1, 1));
    let returning = Arc::new(AtomicBool::new(false));
    let held = held(&store, {
        let returning = returning.clone();
        move || returning.store(true, Ordering::SeqCst)
    });
    held.entered.recv().unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let (handler, returning) = (held.handler.clone(), returning.clone());
            let dropped = held.dropped.clone();
            thread::spawn(move || {
                handler.unsubscribe();
                block_on(handler.unsubscribed());
                assert!(returning.load(Ordering::SeqCst) && dropped.load(Ordering::SeqCst));
            })
        })
        .collect();
    let mut wait = pin!(held.handler.unsubscribed());
    assert!(poll_once(wait.as_mut()).is_pending());
    held.go_on.send(()).unwrap();
    for waiting in waiting {
        waiting.join().unwrap();
    }
    block_on(wait);
    assert_eq!(held.running.join().unwrap(), HandlerExit::Unsubscribed);
}

/// `TestShutDownEventHandler_Lifecycles`: three handlers, of which one is never polled, one is created before the first list, and one after it.
#[test]
fn lifecycles() {
    let (store, observed) = (store(), Observed::default());
    // If the future is never polled, waiters are woken when it is dropped.
    let (never, run) = store.subscribe().for_each(observed.note());
    never.unsubscribe();
    assert!(!has_ended(&never));
    let (woken, waker) = Counting::waker();
    let mut wait = Box::pin(never.unsubscribed());
    assert!(poll_with(wait.as_mut(), &waker).is_pending());
    drop(run);
    assert_eq!(woken.wakes(), 1);
    assert!(poll_once(wait.as_mut()).is_ready() && observed.is_dropped());
    assert_eq!(initial_processed(&never), Poll::Ready(false));
    for before in [true, false] {
        let store = self::store();
        let list = || drop(store.replace([(1, 1)], Version::new(1)));
        if !before {
            list();
        }
        let (handler, run) = store.subscribe().for_each(observed.note());
        let mut run = Box::pin(run);
        let (woken, waker) = Counting::waker();
        if before {
            assert!(poll_with(run.as_mut(), &waker).is_pending());
            assert_eq!(initial_processed(&handler), Poll::Pending);
            list();
        }
        assert!(poll_with(run.as_mut(), &waker).is_pending());
        assert_eq!((observed.take(), initial_processed(&handler)), (vec![(1, 1)], Poll::Ready(true)));
        let wakes = woken.wakes();
        store.upsert((2, 2));
        handler.unsubscribe();
        assert_eq!(
            woken.wakes(),
            wakes + 2,
            "there were not two wake-ups, for the change and for `unsubscribe`"
        );
        assert_eq!(poll_with(run.as_mut(), &waker), Poll::Ready(HandlerExit::Unsubscribed));
        assert!(has_ended(&handler) && observed.take().is_empty() && observed.is_dropped());
        assert_eq!(
            initial_processed(&handler),
            Poll::Ready(true),
            "the initial list no longer counts as processed"
        );
        handler.unsubscribe();
        drop((run, store));
    }
}

#[test]
fn a_function_may_unsubscribe_itself() {
    let store = store();
    store.replace([(1, 1), (2, 1)], Version::new(1));
    let own = Arc::new(OnceLock::<HandlerRegistration>::new());
    let calls = Arc::new(AtomicUsize::new(0));
    let (handler, run) = store.subscribe().for_each({
        let (own, calls) = (own.clone(), calls.clone());
        move |_| {
            calls.fetch_add(1, Ordering::SeqCst);
            own.get().unwrap().unsubscribe();
        }
    });
    own.set(handler.clone()).unwrap();
    assert_eq!(block_on(run), HandlerExit::Unsubscribed);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert!(has_ended(&handler));
}

#[test]
fn the_run_future_may_be_dropped_at_every_poll() {
    for polls in 0..5 {
        let (store, observed) = (store(), Observed::default());
        store.replace((0..100).map(|key| (key, 1)), Version::new(1));
        let (handler, run) = store.subscribe().for_each(observed.note());
        let mut run = Box::pin(run);
        let received = [0, 64, 100, 100, 101][polls];
        for poll in 0..polls {
            if poll == 3 {
                store.upsert((100, 2));
            }
            assert!(poll_once(run.as_mut()).is_pending());
        }
        drop(run);
        assert!(has_ended(&handler) && observed.is_dropped());
        assert_eq!(observed.take().len(), received);
        assert_eq!(initial_processed(&handler), Poll::Ready(polls > 1));
        store.upsert((1, 9));
        store.check().unwrap();
        // A wait may also be dropped at any time.
        let (handler, run) = store.subscribe().for_each(observed.note());
        let mut wait = Box::pin(handler.unsubscribed());
        for _ in 0..polls {
            assert!(poll_once(wait.as_mut()).is_pending());
        }
        drop(wait);
        drop(run);
        assert!(has_ended(&handler));
    }
}

/// If a waker, the drop of the function or the drop of a change panics, nothing else is affected.
#[test]
fn any_panic_ends_the_handler_in_order() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a hostile drop panics");
        }
    }
    let store = store();
    let hostile = Waker::from(Arc::new(Panicking));
    let bomb = Bomb;
    let (handler, run) = store.subscribe().for_each(move |_| {
        let _held = &bomb;
    });
    let mut run = Box::pin(run);
    let (woken, waker) = Counting::waker();
    let mut waits: Vec<_> = (0..2).map(|_| Box::pin(handler.unsubscribed())).collect();
    assert!(poll_with(waits[0].as_mut(), &hostile).is_pending());
    assert!(poll_with(waits[1].as_mut(), &waker).is_pending());
    let mut initial_processed = Box::pin(handler.initial_processed());
    assert!(poll_with(initial_processed.as_mut(), &hostile).is_pending());
    assert!(poll_with(run.as_mut(), &hostile).is_pending());
    // `unsubscribe` stops the future, although the waker of the future panics. The panic propagates to the caller, as with `Informer::shut_down`.
    let _ = catch_unwind(AssertUnwindSafe(|| handler.unsubscribe()));
    assert_eq!(poll_once(run.as_mut()), Poll::Ready(HandlerExit::Unsubscribed));
    assert_eq!((woken.wakes(), handler.panic_count()), (1, 1));
    assert!(has_ended(&handler) && poll_once(initial_processed.as_mut()).is_ready());
    store.check().unwrap();
}

/// If user code panics while a change is built, the panic propagates from the future, and no change is lost.
#[test]
fn a_change_whose_merge_panics_is_delivered_later() {
    static ILL: AtomicBool = AtomicBool::new(false);
    let schema =
        Schema::new(|object: &Object| object.0, |object| Version::new(object.1)).with_identity(|a, b| {
            assert!(!ILL.load(Ordering::SeqCst), "a hostile identity panics");
            a.0 == b.0
        });
    let (store, observed) = (Store::builder(schema).build().unwrap().into_shared(), Observed::default());
    let (handler, run) = store.subscribe().for_each(observed.note());
    let mut run = Box::pin(run);
    store.upsert((1, 1));
    assert!(poll_once(run.as_mut()).is_pending());
    store.delete(&1, None);
    store.upsert((1, 2));
    store.upsert((2, 3));
    ILL.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| poll_once(run.as_mut()))).is_err());
    }
    ILL.store(false, Ordering::SeqCst);
    assert!(poll_once(run.as_mut()).is_pending());
    assert_eq!((observed.take(), handler.panic_count()), (vec![(1, 1), (1, 2), (2, 3)], 0));
}

/// `TestSharedInformerHandlerAbuse`: a hundred handlers are added and removed while a writer performs ten thousand writes. The handlers that stay
/// end with the state of the store. Handlers that were unsubscribed have dropped their function.
#[test]
fn a_hundred_handlers_come_and_go() {
    let store = store();
    let writer = thread::spawn({
        let store = store.clone();
        move || {
            let mut random = Random::new(3);
            for version in 1..=10_000 {
                let key = random.below(50) as u32;
                match random.below(10) {
                    0 => {
                        store.delete(&key, None);
                    }
                    1 if version % 7 == 0 => {
                        drop(store.replace((0..20).map(|key| (key, version)), Version::new(version)));
                    }
                    _ => {
                        store.upsert((key, version));
                    }
                }
            }
            store.close();
        }
    });
    let abusers: Vec<_> = (0..4_u64)
        .map(|abuser| {
            let store = store.clone();
            thread::spawn(move || {
                let mut random = Random::new(abuser);
                let mut staying = Vec::new();
                for _ in 0..25 {
                    let known = Arc::new(Mutex::new(BTreeMap::new()));
                    let (handler, run) = store.subscribe().for_each({
                        let known = known.clone();
                        move |change: Change<u32, Object>| {
                            let (key, mut known) = (*change.key(), known.lock());
                            match change.new() {
                                Some(new) => {
                                    assert_eq!(known.insert(key, new.1), change.old().map(|old| old.1));
                                }
                                None => assert!(known.remove(&key).is_some()),
                            }
                        }
                    });
                    let mut run = Box::pin(run);
                    for _ in 0..random.below(20) {
                        let _ = poll_once(run.as_mut());
                    }
                    match random.below(3) {
                        0 => drop(run),
                        1 => {
                            let ending = handler.clone();
                            let running = thread::spawn(move || block_on(run));
                            ending.unsubscribe();
                            block_on(ending.unsubscribed());
                            assert_eq!(Arc::strong_count(&known), 1, "the function was not dropped");
                            // The exit reason is not checked, because the store may have been closed before `unsubscribe` was called.
                            running.join().unwrap();
                        }
                        _ => staying.push((thread::spawn(move || block_on(run)), known)),
                    }
                    assert_eq!(handler.panic_count(), 0);
                }
                for (running, known) in staying {
                    assert_eq!(running.join().unwrap(), HandlerExit::Closed);
                    let there = store.snapshot();
                    let there: BTreeMap<_, _> = there.iter().map(|(key, object)| (*key, object.1)).collect();
                    assert_eq!(*known.lock(), there);
                }
            })
        })
        .collect();
    writer.join().unwrap();
    for abuser in abusers {
        abuser.join().unwrap();
    }
    store.check().unwrap();
}
