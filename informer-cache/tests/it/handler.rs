//! Functions that are told merged changes by a future: their pace, their end, and what panics in them.
//!
//! Counterparts of client-go, one named case each: `TestEventPanics` (2) and kubernetes#129024, `TestRemoveEventHandler_AsynchronousPanic` and
//! `…_SynchronousShutdown` (client-go#1167, kubernetes#111122, #139755), `TestShutDownEventHandler_Lifecycles` (3),
//! `TestSharedInformerHandlerAbuse`, `TestSharedInformerRemoveHandler`, `…RemoveForeignHandler`: by type, a handle is of its own
//! handler; `…MultipleRegistration`: two handlers, two handles.

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

/// What was told, in order: key and version, 0 for a deletion.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Object>>>);

impl Heard {
    fn note(&self) -> impl FnMut(Change<u32, Object>) + Send + 'static {
        let heard = self.0.clone();
        move |change| {
            let version = change.new().map_or(0, |object| object.1);
            heard.lock().push((*change.key(), version));
        }
    }

    fn take(&self) -> Vec<Object> {
        std::mem::take(&mut *self.0.lock())
    }

    /// The function that notes is gone.
    fn is_let_go(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

fn over(handler: &HandlerRegistration) -> bool {
    poll_once(pin!(handler.unsubscribed())).is_ready()
}

fn initial_processed(handler: &HandlerRegistration) -> Poll<bool> {
    poll_once(pin!(handler.initial_processed())).map(|told| told.is_ok())
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn changes_are_told_merged_and_at_the_handlers_own_pace() {
    let (store, heard) = (store(), Heard::default());
    store.upsert((1, 1));
    let (handler, run) = store.subscribe().for_each(heard.note());
    let mut run = Box::pin(run);
    let (woken, waker) = Counting::waker();
    assert!(heard.take().is_empty(), "nothing is told before it is polled");
    for version in 2..10 {
        store.upsert((1, version));
        store.upsert((2, version));
    }
    assert!(poll_with(run.as_mut(), &waker).is_pending());
    assert_eq!(heard.take(), [(1, 9), (2, 9)]);
    store.delete(&2, None);
    assert_eq!((woken.wakes(), heard.take().len()), (1, 0), "it is told by its future, not by the writer");
    assert!(poll_with(run.as_mut(), &waker).is_pending());
    assert_eq!(heard.take(), [(2, 0)]);
    // The end of the store is the end of the future, after everything was told.
    store.upsert((3, 10));
    store.close();
    assert!(!over(&handler));
    assert_eq!(poll_with(run.as_mut(), &waker), Poll::Ready(HandlerExit::Closed));
    assert!(over(&handler) && heard.take() == [(3, 10)] && heard.is_let_go());
    assert_eq!(poll_once(run.as_mut()), Poll::Ready(HandlerExit::Closed), "and so for ever");
}

#[test]
fn a_long_backlog_leaves_others_their_turn() {
    let (store, heard) = (store(), Heard::default());
    store.replace((0..1_000).map(|key| (key, 1)), Version::new(1));
    let (_handler, run) = store.subscribe().for_each(heard.note());
    let mut run = pin!(run);
    let (woken, waker) = Counting::waker();
    let mut polls = 0;
    while heard.0.lock().len() < 1_000 {
        assert!(poll_with(run.as_mut(), &waker).is_pending());
        polls += 1;
        assert!(heard.0.lock().len() <= polls * 64);
        assert!(heard.0.lock().len() == 1_000 || woken.wakes() == polls, "it asks for its next turn");
    }
}

/// `TestEventPanics`, kubernetes#129024: the change that panicked is processed, others are told, and caught up it is.
#[test]
fn a_panic_is_counted_and_its_change_counts_as_processed() {
    let (store, heard) = (store(), Heard::default());
    let (calm, quiet) = store.subscribe().for_each(heard.note());
    let mut calls = 0;
    let (hostile, loud) = store.subscribe().for_each(move |change| {
        calls += 1;
        // Every change of the beginning, or each other one after it.
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
    assert_eq!(heard.take(), [(1, 1), (2, 1)]);
    for key in 3..7 {
        store.upsert((key, 2));
    }
    assert!(poll_once(loud.as_mut()).is_pending());
    assert_eq!(hostile.panic_count(), 4);
    store.close();
    assert_eq!(poll_once(loud), Poll::Ready(HandlerExit::Closed));
}

/// A function on a thread, held in its first call until it is let go on.
struct Held {
    entered: mpsc::Receiver<u32>,
    go_on: mpsc::Sender<()>,
    handler: HandlerRegistration,
    running: thread::JoinHandle<HandlerExit>,
    dropped: Arc<AtomicBool>,
}

/// Notes that the function is gone.
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

/// `TestRemoveEventHandler_AsynchronousPanic`: it returns while the call goes on, which may panic for all that.
#[test]
fn unsubscribing_waits_for_nobody() {
    let store = store();
    store.replace([(1, 1), (2, 1), (3, 1)], Version::new(1));
    let held = held(&store, || panic!("a hostile handler panics"));
    held.entered.recv().unwrap();
    held.handler.unsubscribe();
    held.handler.unsubscribe();
    assert!(!over(&held.handler) && !held.dropped.load(Ordering::SeqCst));
    store.upsert((4, 2));
    held.go_on.send(()).unwrap();
    assert_eq!(held.running.join().unwrap(), HandlerExit::Unsubscribed);
    assert_eq!((held.handler.panic_count(), held.entered.try_iter().count()), (1, 0), "no other call");
    assert!(over(&held.handler) && held.dropped.load(Ordering::SeqCst));
    assert_eq!(initial_processed(&held.handler), Poll::Ready(false));
    store.check().unwrap();
}

/// `TestRemoveEventHandler_SynchronousShutdown`: whoever waits goes on when the call has returned.
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

/// `TestShutDownEventHandler_Lifecycles`: never run, made before there is anything, made after.
#[test]
fn lifecycles() {
    let (store, heard) = (store(), Heard::default());
    // Never polled: whoever waits is told when the future goes.
    let (never, run) = store.subscribe().for_each(heard.note());
    never.unsubscribe();
    assert!(!over(&never));
    let (woken, waker) = Counting::waker();
    let mut wait = Box::pin(never.unsubscribed());
    assert!(poll_with(wait.as_mut(), &waker).is_pending());
    drop(run);
    assert_eq!(woken.wakes(), 1);
    assert!(poll_once(wait.as_mut()).is_ready() && heard.is_let_go());
    assert_eq!(initial_processed(&never), Poll::Ready(false));
    for before in [true, false] {
        let store = self::store();
        let list = || drop(store.replace([(1, 1)], Version::new(1)));
        if !before {
            list();
        }
        let (handler, run) = store.subscribe().for_each(heard.note());
        let mut run = Box::pin(run);
        let (woken, waker) = Counting::waker();
        if before {
            assert!(poll_with(run.as_mut(), &waker).is_pending());
            assert_eq!(initial_processed(&handler), Poll::Pending);
            list();
        }
        assert!(poll_with(run.as_mut(), &waker).is_pending());
        assert_eq!((heard.take(), initial_processed(&handler)), (vec![(1, 1)], Poll::Ready(true)));
        let wakes = woken.wakes();
        store.upsert((2, 2));
        handler.unsubscribe();
        assert_eq!(woken.wakes(), wakes + 2, "for the change, and for the wish");
        assert_eq!(poll_with(run.as_mut(), &waker), Poll::Ready(HandlerExit::Unsubscribed));
        assert!(over(&handler) && heard.take().is_empty() && heard.is_let_go());
        assert_eq!(initial_processed(&handler), Poll::Ready(true), "that stays");
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
    assert!(over(&handler));
}

#[test]
fn the_run_future_may_be_dropped_at_every_poll() {
    for polls in 0..5 {
        let (store, heard) = (store(), Heard::default());
        store.replace((0..100).map(|key| (key, 1)), Version::new(1));
        let (handler, run) = store.subscribe().for_each(heard.note());
        let mut run = Box::pin(run);
        let told = [0, 64, 100, 100, 101][polls];
        for poll in 0..polls {
            if poll == 3 {
                store.upsert((100, 2));
            }
            assert!(poll_once(run.as_mut()).is_pending());
        }
        drop(run);
        assert!(over(&handler) && heard.is_let_go());
        assert_eq!(heard.take().len(), told);
        assert_eq!(initial_processed(&handler), Poll::Ready(polls > 1));
        store.upsert((1, 9));
        store.check().unwrap();
        // Who waits may give up at any time, too.
        let (handler, run) = store.subscribe().for_each(heard.note());
        let mut wait = Box::pin(handler.unsubscribed());
        for _ in 0..polls {
            assert!(poll_once(wait.as_mut()).is_pending());
        }
        drop(wait);
        drop(run);
        assert!(over(&handler));
    }
}

/// Wakers, the drop of the function and that of the change it was given: nobody else suffers.
#[test]
fn whatever_panics_ends_in_order() {
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
    // The wish reaches the future, though its waker panics; and that is the caller's, as with `Informer::shut_down`.
    let _ = catch_unwind(AssertUnwindSafe(|| handler.unsubscribe()));
    assert_eq!(poll_once(run.as_mut()), Poll::Ready(HandlerExit::Unsubscribed));
    assert_eq!((woken.wakes(), handler.panic_count()), (1, 1));
    assert!(over(&handler) && poll_once(initial_processed.as_mut()).is_ready());
    store.check().unwrap();
}

/// What panics while a change is put together leaves the future; nothing is lost by that.
#[test]
fn a_change_that_cannot_be_put_together_is_told_later() {
    static ILL: AtomicBool = AtomicBool::new(false);
    let schema =
        Schema::new(|object: &Object| object.0, |object| Version::new(object.1)).with_identity(|a, b| {
            assert!(!ILL.load(Ordering::SeqCst), "a hostile identity panics");
            a.0 == b.0
        });
    let (store, heard) = (Store::builder(schema).build().unwrap().into_shared(), Heard::default());
    let (handler, run) = store.subscribe().for_each(heard.note());
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
    assert_eq!((heard.take(), handler.panic_count()), (vec![(1, 1), (1, 2), (2, 3)], 0));
}

/// `TestSharedInformerHandlerAbuse`: a hundred handlers come and go beside a writer of ten thousand events; those that stay hear all of it, and those
/// that have ended nothing more.
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
                            assert_eq!(Arc::strong_count(&known), 1, "no call, and no function");
                            // Or the store was quicker.
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
