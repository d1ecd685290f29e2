//! Code that is generic over the queue: the traits `AddKeys`, `GetKeys` and so on.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flyball_sync::block_on;
use flyball_workqueue::{AddKeys, BlockingGetKeys, DelayKeys, EndKeys, GetKeys, KeyState, Lease, Queue};

use crate::support::{BackoffQueue, backoff, ns};

/// Serves one key, by means of the traits only.
fn serve<Q: BlockingGetKeys + ?Sized>(queue: &Q, run: impl FnOnce(&Q::Key) -> bool) {
    let leased = queue.blocking_get().expect("open");
    if run(queue.key(&leased)) { queue.succeed(leased) } else { queue.retry(leased) }
}

#[test]
fn it_ends_as_a_lease_does() {
    let (queue, clock) = backoff();
    AddKeys::add(&queue, "a").unwrap();
    serve(&queue, |_| false);
    assert_eq!((queue.num_requeues(&"a"), queue.stats().waiting), (1, 1));
    clock.advance(ns(10));
    serve(&queue, |key| *key == "a");
    assert_eq!((queue.num_requeues(&"a"), queue.state(&"a")), (0, KeyState::Absent));
}

#[test]
fn a_panic_in_generic_code_loses_no_key() {
    let (queue, _clock) = backoff();
    queue.add("a").unwrap();
    let served = catch_unwind(AssertUnwindSafe(|| serve(&queue, |_| panic!("at work"))));
    assert!(served.is_err());
    assert_eq!((queue.num_requeues(&"a"), queue.stats().waiting), (1, 1));
}

#[test]
fn a_refused_key_is_in_the_error() {
    let (queue, _clock) = backoff();
    queue.shut_down();
    let add: &dyn DelayKeys<&str> = &queue;
    assert_eq!((add.add("a"), add.add_after("b", ns(1))), (Err("a"), Err("b")));
    assert!(BlockingGetKeys::blocking_get(&queue).is_none() && block_on(GetKeys::get(&queue)).is_none());
}

#[test]
fn a_key_delayed_by_its_worker_comes_back() {
    let (queue, clock) = backoff();
    queue.add("a").unwrap();
    let leased = block_on(GetKeys::get(&queue)).unwrap();
    DelayKeys::add_after(&queue, "a", ns(50)).unwrap();
    queue.succeed(leased);
    clock.advance(ns(49));
    assert!(!queue.has_ready());
    clock.advance(ns(1));
    assert_eq!(queue.ready_len(), 1);
}

#[test]
fn the_traits_that_need_no_future_are_object_safe() {
    let queue = Queue::new();
    let add: Box<dyn AddKeys<u8>> = Box::new(queue.clone());
    let take: Box<dyn BlockingGetKeys<Key = u8, Leased = Lease<u8>>> = Box::new(queue.clone());
    add.add(1).unwrap();
    serve(&*take, |key| *key == 1);
    assert!(!queue.has_ready());
}

#[test]
fn a_generic_worker_can_be_spawned() {
    fn can_be_spawned(_: impl Future + Send) {}
    fn generic<Q: GetKeys<Leased: Send> + Sync>(queue: &Q) {
        can_be_spawned(async move {
            while let Some(leased) = queue.get().await {
                queue.succeed(leased);
            }
        });
    }
    generic::<BackoffQueue>(&backoff().0);
}
