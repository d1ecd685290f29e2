//! Tests of subscriptions with a bound on the number of pending keys, which restart when the bound is exceeded.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;

use flyball_informer_cache::{
    HandlerExit, Index, Schema, SharedWriter, Stopped, Store, Subscription, SubscriptionEvent, Version,
};
use parking_lot::Mutex;
use testkit::panicking::{PanicSwitch, PanickingKey, Point};
use testkit::wakers::{Counting, Panicking, poll_once, poll_with};

type Pod = (u32, u64);

fn store() -> SharedWriter<u32, Pod> {
    Store::builder(Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1)))
        .seed(1)
        .build()
        .unwrap()
        .into_shared()
}

fn most(most: usize) -> NonZeroUsize {
    most.try_into().unwrap()
}

type Bounded<K, V> = Subscription<K, V, SubscriptionEvent<K, V>>;

fn bounded(store: &SharedWriter<u32, Pod>, keys: usize) -> Bounded<u32, Pod> {
    store.subscription().max_pending(most(keys)).subscribe()
}

/// The objects that a subscriber has received.
#[derive(Default)]
struct Known {
    objects: BTreeMap<u32, u64>,
    restarts: usize,
}

impl Known {
    fn receive(&mut self, received: SubscriptionEvent<u32, Pod>) {
        let change = match received {
            SubscriptionEvent::Change(change) => change,
            SubscriptionEvent::Restarted => {
                self.objects.clear();
                self.restarts += 1;
                return;
            }
        };
        let key = *change.key();
        match change.new() {
            Some(new) => {
                assert_eq!(self.objects.insert(key, new.1), change.old().map(|old| old.1));
            }
            None => assert!(self.objects.remove(&key).is_some()),
        }
    }

    fn receive_all(&mut self, changes: &mut Bounded<u32, Pod>) {
        while let Some(received) = changes.try_next() {
            self.receive(received);
        }
    }

    fn assert_matches(&self, store: &SharedWriter<u32, Pod>) {
        assert_eq!(self.objects, store.snapshot().iter().map(|(key, pod)| (*key, pod.1)).collect());
    }
}

#[test]
fn up_to_the_bound_it_is_as_any_other() {
    let store = store();
    store.upsert((1, 1));
    let (mut changes, mut known) = (bounded(&store, 2), Known::default());
    known.receive_all(&mut changes);
    for version in 2..1_000 {
        store.upsert((1, version));
        store.upsert((2, version));
        assert_eq!(changes.pending(), 2);
    }
    known.receive_all(&mut changes);
    known.assert_matches(&store);
    store.upsert((1, 1_000));
    for version in 0..100 {
        // The object is added and deleted before the subscriber receives it.
        store.upsert((3, version));
        store.delete(&3, None);
    }
    store.upsert((2, 1_000));
    assert_eq!(changes.pending(), 2);
    known.receive_all(&mut changes);
    known.assert_matches(&store);
    assert_eq!(known.restarts, 0);
}

#[test]
fn restarts_when_the_bound_is_exceeded() {
    let store = store();
    let (mut changes, mut known) = (bounded(&store, 2), Known::default());
    store.replace([(1, 1), (2, 1)], Version::new(1));
    known.receive_all(&mut changes);
    assert!(changes.is_initial_delivered());
    for key in 2..5 {
        store.upsert((key, 2));
    }
    store.delete(&1, None);
    assert_eq!(changes.pending(), 3, "changes after the overflow are pending");
    assert!(!changes.is_initial_delivered());
    assert!(matches!(changes.try_next(), Some(SubscriptionEvent::Restarted)));
    assert_eq!((changes.pending(), changes.is_initial_delivered()), (3, false));
    let mut keys = Vec::new();
    while let Some(SubscriptionEvent::Change(change)) = changes.try_next() {
        assert!(change.is_initial());
        keys.push(*change.key());
    }
    keys.sort_unstable();
    assert_eq!(keys, [2, 3, 4]);
    assert!(changes.is_initial_delivered());
    store.upsert((2, 3));
    assert!(matches!(changes.try_next(), Some(SubscriptionEvent::Change(change)) if change.old().is_some()));
    changes.check().unwrap();
}

#[test]
fn a_restart_discards_the_rest_of_the_snapshot() {
    let store = store();
    for key in 0..10 {
        store.upsert((key, 1));
    }
    let (mut changes, mut known) = (bounded(&store, 2), Known::default());
    known.receive(changes.try_next().unwrap());
    for key in 0..10 {
        store.delete(&key, None);
    }
    known.receive_all(&mut changes);
    assert_eq!((known.restarts, known.objects.len()), (1, 0));
}

/// The subscriber has discarded what was delivered before.
#[test]
fn after_a_restart_nothing_counts_as_delivered() {
    let store = store();
    let mut changes = bounded(&store, 1);
    store.upsert((1, 7));
    assert!(changes.try_next().is_some() && changes.try_next().is_none());
    assert_eq!(changes.pending(), 0);
    store.upsert((2, 8));
    store.upsert((3, 9));
    assert!(matches!(changes.try_next(), Some(SubscriptionEvent::Restarted)));
    assert_eq!(changes.pending(), 3);
    Known::default().receive_all(&mut changes);
    assert_eq!(changes.pending(), 0);
}

#[test]
fn a_restart_drops_the_pending_changes() {
    let store = store();
    store.upsert((1, 1));
    let mut changes = bounded(&store, 1);
    assert!(changes.try_next().is_some() && changes.try_next().is_none());
    store.upsert((1, 2));
    let held = Arc::downgrade(&store.get(&1).unwrap());
    store.upsert((2, 3));
    store.upsert((1, 4));
    store.upsert((2, 5));
    assert_eq!(
        (held.strong_count(), changes.pending()),
        (1, 2),
        "the pending changes are not those at the overflow"
    );
    assert!(matches!(changes.try_next(), Some(SubscriptionEvent::Restarted)));
    assert_eq!(held.strong_count(), 0);
    changes.check().unwrap();
    store.check().unwrap();
}

#[cfg(feature = "stream")]
#[test]
fn is_a_stream_of_changes_and_restarts() {
    use std::pin::Pin;
    use std::task::Context;

    use futures_core::Stream;

    let store = store();
    let mut changes = bounded(&store, 1);
    store.replace([(1, 1), (2, 1)], Version::new(1));
    let mut next = || Stream::poll_next(Pin::new(&mut changes), &mut Context::from_waker(Waker::noop()));
    assert!(matches!(next(), Poll::Ready(Some(SubscriptionEvent::Restarted))));
    assert!(matches!(next(), Poll::Ready(Some(SubscriptionEvent::Change(change))) if change.is_initial()));
}

#[test]
fn an_event_handler_receives_restarts_and_processes_the_initial_state_again() {
    let store = store();
    let changes = bounded(&store, 1);
    let known = Arc::new(Mutex::new(Known::default()));
    let (handler, mut run) = changes.for_each({
        let known = known.clone();
        move |event| known.lock().receive(event)
    });
    assert!(poll_once(pin!(&mut run)).is_pending());
    let initial_processed = handler.initial_processed();
    store.replace([(1, 1), (2, 1)], Version::new(1));
    assert!(!initial_processed.is_done(), "the objects of the first list are lost and not delivered again");
    assert!(poll_once(pin!(&mut run)).is_pending());
    assert!(initial_processed.is_done());
    known.lock().assert_matches(&store);
    assert_eq!(known.lock().restarts, 1);
    store.close();
    assert_eq!(poll_once(pin!(run)), Poll::Ready(HandlerExit::Closed));
}

#[test]
fn exceeding_the_bound_wakes_a_consumer_once() {
    let store = store();
    for panics in [false, true] {
        let mut changes = bounded(&store, 2);
        while changes.try_next().is_some() {}
        let (counting, waker) = Counting::waker();
        let waker = if panics { Waker::from(Arc::new(Panicking)) } else { waker };
        // One future is dropped before its first poll, and one while it waits.
        drop(changes.next());
        assert!(poll_with(pin!(changes.next()), &waker).is_pending());
        let version = store.version().get() + 1;
        // All keys are replaced in one step, so the subscriber cannot take a change before the bound is exceeded.
        store.replace((0..9).map(|key| (key, version)), Version::new(version));
        store.upsert((1, version + 1));
        assert_eq!(counting.wakes(), usize::from(!panics));
        let received = poll_once(pin!(changes.next()));
        assert!(matches!(received, Poll::Ready(Some(SubscriptionEvent::Restarted))));
    }
    store.check().unwrap();
}

#[test]
fn restarts_after_the_store_was_closed() {
    let store = store();
    let mut changes = bounded(&store, 1);
    store.upsert((1, 1));
    store.upsert((2, 2));
    store.close();
    store.upsert((3, 3));
    let mut known = Known::default();
    known.receive_all(&mut changes);
    known.assert_matches(&store);
    assert_eq!(known.restarts, 1);
    drop(store);
    assert!(matches!(poll_once(pin!(changes.next())), Poll::Ready(None)), "the subscription has not ended");
}

/// There is no state from which to restart, but the subscriber must not keep the state that it has.
#[test]
fn restarts_without_objects_and_ends_if_the_store_was_dropped() {
    for listed_before in [false, true] {
        let store = store();
        if listed_before {
            store.replace([(1, 1), (2, 1)], Version::new(1));
        }
        let mut changes = bounded(&store, 1);
        let initial_processed = changes.initial_processed();
        store.replace([(1, 2), (2, 2)], Version::new(2));
        drop(store);
        assert!(matches!(changes.try_next(), Some(SubscriptionEvent::Restarted)));
        assert_eq!(changes.pending(), 0);
        for _ in 0..2 {
            assert!(matches!(poll_once(pin!(changes.next())), Poll::Ready(None)));
        }
        assert!(!changes.is_initial_delivered(), "no object was delivered");
        assert_eq!(poll_once(pin!(initial_processed)), Poll::Ready(Err(Stopped)));
        changes.check().unwrap();
    }
}

#[test]
fn of_some_objects_only_those_count() {
    let store = store();
    let mut changes = store.subscription().for_key(1).max_pending(most(1)).subscribe();
    for key in 0..100 {
        store.upsert((key, 1));
    }
    assert!(matches!(changes.try_next(), Some(SubscriptionEvent::Change(change)) if *change.key() == 1));
    assert!(changes.try_next().is_none());
    // A filter is applied only when the subscriber takes a change. Until then, every change counts towards the bound.
    let mut changes = store.subscription().filter(|pod| pod.0 == 1).max_pending(most(1)).subscribe();
    while changes.try_next().is_some() {}
    for key in 2..4 {
        store.upsert((key, 2));
    }
    assert!(matches!(changes.try_next(), Some(SubscriptionEvent::Restarted)));
    assert!(matches!(changes.try_next(), Some(SubscriptionEvent::Change(change)) if *change.key() == 1));
    assert!(changes.try_next().is_none());
}

/// If a panic interrupts a restart, the next call restarts the subscription.
#[test]
fn a_panic_during_a_restart_loses_no_change() {
    struct Object {
        switch: Arc<PanicSwitch>,
        _own: PanickingKey,
        id: u32,
        version: u64,
    }
    static BY_HALF: Index<Object, PanickingKey> =
        Index::new("half", |object| object.switch.key(object.id % 2));
    type Known = Option<Vec<(u32, u64)>>;
    fn receive(changes: &mut Bounded<PanickingKey, Object>, known: &mut Known) {
        while let Some(received) = changes.try_next() {
            match received {
                SubscriptionEvent::Restarted => *known = Some(Vec::new()),
                SubscriptionEvent::Change(change) => {
                    let known = known.as_mut().expect("a restart comes first");
                    known.push((change.object().id, change.object().version));
                }
            }
        }
    }
    let object = |switch: &Arc<PanicSwitch>, id, version| Object {
        switch: switch.clone(),
        _own: switch.key(id),
        id,
        version,
    };
    let mut panics = 0;
    for point in Point::ALL {
        for nth in 1.. {
            let switch = PanicSwitch::new();
            let schema = Schema::new(
                |object: &Object| object.switch.key(object.id),
                |object| Version::new(object.version),
            );
            let store = Store::builder(schema).index(&BY_HALF).build().unwrap().into_shared();
            for id in 0..6 {
                store.upsert(object(&switch, id, 1));
            }
            let builder = store.subscription().by_index(&BY_HALF, switch.key(1)).unwrap();
            let mut changes = builder.max_pending(most(1)).subscribe();
            // The bound is exceeded after one object was delivered, and while others are still pending.
            drop(changes.try_next());
            for id in 0..6 {
                store.upsert(object(&switch, id, 2));
            }
            switch.arm(point, nth);
            let mut known = None;
            let panicked = catch_unwind(AssertUnwindSafe(|| receive(&mut changes, &mut known))).is_err();
            let unreached = switch.disarm(point);
            panics += u32::from(panicked);
            if !panicked {
                assert!(unreached, "{point:?} {nth}");
            }
            receive(&mut changes, &mut known);
            let mut known = known.expect("the subscription has restarted");
            known.sort_unstable();
            assert_eq!(known, [(1, 2), (3, 2), (5, 2)], "{point:?} {nth}");
            changes.check().unwrap();
            store.check().unwrap();
            drop((changes, store));
            assert_eq!(switch.live(), 0, "{point:?} {nth}: keys leaked");
            if unreached {
                break;
            }
        }
    }
    assert!(panics > 3, "{panics} panics");
}

/// A slow subscriber and writers, on real threads.
#[test]
fn threads() {
    let store = store();
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let store = store.clone();
            thread::spawn(move || {
                for round in 1..3_000_u64 {
                    let key = (round % 13) as u32;
                    match round % 97 {
                        0 => drop(store.replace((0..9).map(|key| (key, round)), Version::new(round))),
                        other if other % 7 == writer => {
                            store.delete(&key, None);
                        }
                        _ => {
                            store.upsert((key, round));
                        }
                    }
                }
            })
        })
        .collect();
    let reader = {
        let mut changes = bounded(&store, 3);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut known = Known::default();
            while let Some(received) = runtime.block_on(changes.next()) {
                known.receive(received);
                thread::yield_now();
            }
            (known, changes)
        })
    };
    for writer in writers {
        writer.join().unwrap();
    }
    store.close();
    let (known, changes) = reader.join().unwrap();
    known.assert_matches(&store);
    changes.check().unwrap();
    store.check().unwrap();
}
