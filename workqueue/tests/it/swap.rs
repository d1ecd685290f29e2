//! A queue behind the small traits: what generic code sees.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flyball_workqueue::{AddKeys, BlockingTakeKeys, DelayKeys, EndKeys, KeyState, Lease, Queue, TakeKeys};

use crate::support::{BackoffQueue, backoff, block_on, ns};

/// One key, as generic code would serve it.
fn serve<Q: BlockingTakeKeys + ?Sized>(queue: &Q, run: impl FnOnce(&Q::Key) -> bool) {
    let held = queue.blocking_take().expect("open");
    if run(queue.key(&held)) { queue.succeed(held) } else { queue.retry(held) }
}

#[test]
fn it_ends_as_a_lease_does() {
    let (queue, clock) = backoff();
    AddKeys::add(&queue, "a").unwrap();
    serve(&queue, |_| false);
    assert_eq!((queue.requeues(&"a"), queue.counts().waiting), (1, 1));
    clock.advance(ns(10));
    serve(&queue, |key| *key == "a");
    assert_eq!((queue.requeues(&"a"), queue.state(&"a")), (0, KeyState::Absent));
}

#[test]
fn a_panic_in_generic_code_loses_no_key() {
    let (queue, _clock) = backoff();
    queue.add("a").unwrap();
    let served = catch_unwind(AssertUnwindSafe(|| serve(&queue, |_| panic!("at work"))));
    assert!(served.is_err());
    assert_eq!((queue.requeues(&"a"), queue.counts().waiting), (1, 1));
}

#[test]
fn what_is_refused_comes_back() {
    let (queue, _clock) = backoff();
    queue.shut_down();
    let add: &dyn DelayKeys<&str> = &queue;
    assert_eq!((add.add("a"), add.add_after("b", ns(1))), (Err("a"), Err("b")));
    assert!(queue.blocking_take().is_none() && block_on(queue.take()).is_none());
}

#[test]
fn a_key_delayed_by_its_worker_comes_back() {
    let (queue, clock) = backoff();
    queue.add("a").unwrap();
    let held = block_on(queue.take()).unwrap();
    DelayKeys::add_after(&queue, "a", ns(50)).unwrap();
    queue.succeed(held);
    clock.advance(ns(49));
    assert!(queue.is_empty());
    clock.advance(ns(1));
    assert_eq!(queue.len(), 1);
}

#[test]
fn the_traits_that_need_no_future_are_object_safe() {
    let queue = Queue::new();
    let add: Box<dyn AddKeys<u8>> = Box::new(queue.clone());
    let take: Box<dyn BlockingTakeKeys<Key = u8, Held = Lease<u8>>> = Box::new(queue.clone());
    add.add(1).unwrap();
    serve(&*take, |key| *key == 1);
    assert!(queue.is_empty());
}

#[test]
fn a_generic_worker_can_be_spawned() {
    fn can_be_spawned(_: impl Future + Send) {}
    fn generic<Q: TakeKeys<Held: Send> + Sync>(queue: &Q) {
        can_be_spawned(async move {
            while let Some(held) = queue.take().await {
                queue.succeed(held);
            }
        });
    }
    generic::<BackoffQueue>(&backoff().0);
}
