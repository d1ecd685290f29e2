//! A program that has to run with several queues defines a trait with the methods that it calls. `Queue` implements such a trait, and so does another
//! queue. `Queue` also implements the trait of a framework that passes bare keys.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use flyball_sync::block_on;
use flyball_workqueue::{AddError, KeyState, Lease};

use crate::support::{BackoffQueue, backoff, ns};

type Key = &'static str;

/// What a worker that is generic over the queue needs.
trait WorkerQueue {
    type Leased;

    fn add_after(&self, key: Key, delay: Duration) -> Result<(), Key>;
    fn get(&self) -> impl Future<Output = Option<Self::Leased>> + Send;
    fn blocking_get(&self) -> Option<Self::Leased>;
    fn key(&self, leased: &Self::Leased) -> Key;
    fn succeed(&self, leased: Self::Leased);
    fn retry(&self, leased: Self::Leased);
}

impl WorkerQueue for BackoffQueue {
    type Leased = Lease<Key>;

    fn add_after(&self, key: Key, delay: Duration) -> Result<(), Key> {
        Self::add_after(self, key, delay).map(drop).map_err(AddError::into_key)
    }

    fn get(&self) -> impl Future<Output = Option<Self::Leased>> + Send {
        Self::get(self)
    }

    fn blocking_get(&self) -> Option<Self::Leased> {
        Self::blocking_get(self)
    }

    fn key(&self, leased: &Self::Leased) -> Key {
        leased.key()
    }

    fn succeed(&self, leased: Self::Leased) {
        leased.succeed();
    }

    fn retry(&self, leased: Self::Leased) {
        leased.retry();
    }
}

/// Another queue, which hands out bare keys. It ignores delays, and is closed when it is empty.
#[derive(Default)]
struct Bare(RefCell<VecDeque<Key>>);

impl WorkerQueue for Bare {
    type Leased = Key;

    fn add_after(&self, key: Key, _: Duration) -> Result<(), Key> {
        self.0.borrow_mut().push_back(key);
        Ok(())
    }

    fn get(&self) -> impl Future<Output = Option<Key>> + Send {
        std::future::ready(self.blocking_get())
    }

    fn blocking_get(&self) -> Option<Key> {
        self.0.borrow_mut().pop_front()
    }

    fn key(&self, leased: &Key) -> Key {
        leased
    }

    fn succeed(&self, _: Key) {}

    fn retry(&self, leased: Key) {
        self.0.borrow_mut().push_back(leased);
    }
}

/// Processes one key.
fn serve<Q: WorkerQueue>(queue: &Q, run: impl FnOnce(Key) -> bool) {
    let leased = queue.blocking_get().expect("open");
    if run(queue.key(&leased)) { queue.succeed(leased) } else { queue.retry(leased) }
}

#[test]
fn a_generic_worker_runs_with_both_queues() {
    /// Each of two keys fails once. Returns the runs.
    fn runs<Q: WorkerQueue>(queue: &Q, after_each: impl Fn()) -> Vec<Key> {
        queue.add_after("a", Duration::ZERO).unwrap();
        queue.add_after("b", Duration::ZERO).unwrap();
        let mut runs = Vec::new();
        for at in 0..4 {
            serve(queue, |key| {
                runs.push(key);
                at >= 2
            });
            after_each();
        }
        runs
    }
    let (queue, clock) = backoff();
    assert_eq!(runs(&queue, || clock.advance(ns(10))), ["a", "b", "a", "b"]);
    assert_eq!(runs(&Bare::default(), || ()), ["a", "b", "a", "b"]);
}

#[test]
fn a_generic_worker_ends_a_lease() {
    let (queue, clock) = backoff();
    queue.add("a").unwrap();
    serve(&queue, |_| false);
    assert_eq!((queue.num_requeues(&"a"), queue.stats().waiting), (1, 1));
    clock.advance(ns(10));
    serve(&queue, |key| key == "a");
    assert_eq!((queue.num_requeues(&"a"), queue.state(&"a")), (0, KeyState::Absent));
}

#[test]
fn a_panic_in_a_generic_worker_loses_no_key() {
    let (queue, _clock) = backoff();
    queue.add("a").unwrap();
    let served = catch_unwind(AssertUnwindSafe(|| serve(&queue, |_| panic!("at work"))));
    assert!(served.is_err());
    assert_eq!((queue.num_requeues(&"a"), queue.stats().waiting), (1, 1));
}

#[test]
fn a_closed_queue_refuses_and_hands_out_nothing() {
    let (queue, _clock) = backoff();
    queue.shut_down();
    assert_eq!(WorkerQueue::add_after(&queue, "a", ns(1)), Err("a"));
    assert!(WorkerQueue::blocking_get(&queue).is_none() && block_on(WorkerQueue::get(&queue)).is_none());
}

#[test]
fn a_key_delayed_by_its_worker_comes_back() {
    let (queue, clock) = backoff();
    queue.add("a").unwrap();
    let leased = block_on(WorkerQueue::get(&queue)).unwrap();
    WorkerQueue::add_after(&queue, "a", ns(50)).unwrap();
    WorkerQueue::succeed(&queue, leased);
    clock.advance(ns(49));
    assert!(!queue.has_ready());
    clock.advance(ns(1));
    assert_eq!(queue.ready_len(), 1);
}

#[test]
fn a_generic_worker_can_be_spawned() {
    fn can_be_spawned(_: impl Future + Send) {}
    fn generic<Q: WorkerQueue<Leased: Send> + Sync>(queue: &Q) {
        can_be_spawned(async move {
            while let Some(leased) = queue.get().await {
                queue.succeed(leased);
            }
        });
    }
    generic(&backoff().0);
}

#[test]
fn a_framework_that_passes_bare_keys_runs_with_a_queue() {
    /// The trait of a framework, as client-go's.
    trait Framework {
        fn get(&self) -> Option<Key>;
        fn add_rate_limited(&self, key: Key);
        fn forget(&self, key: Key);
        fn done(&self, key: Key);
    }
    impl Framework for BackoffQueue {
        fn get(&self) -> Option<Key> {
            self.blocking_get().map(Lease::detach)
        }
        fn add_rate_limited(&self, key: Key) {
            let _ = Self::add_rate_limited(self, key);
        }
        fn forget(&self, key: Key) {
            Self::forget(self, &key);
        }
        fn done(&self, key: Key) {
            let _ = Self::done(self, &key);
        }
    }
    fn serve(queue: &dyn Framework, succeeds: bool) {
        let key = queue.get().expect("open");
        if succeeds {
            queue.forget(key)
        } else {
            queue.add_rate_limited(key)
        }
        queue.done(key);
    }

    let (queue, clock) = backoff();
    queue.add("a").unwrap();
    serve(&queue, false);
    assert_eq!((queue.num_requeues(&"a"), queue.state(&"a")), (1, KeyState::Waiting(queue.now() + ns(10))));
    clock.advance(ns(10));
    serve(&queue, true);
    assert_eq!((queue.num_requeues(&"a"), queue.state(&"a")), (0, KeyState::Absent));
}
