//! A worker ends a lease and takes its next key in one step.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use flyball_workqueue::{KeyState, Lease, LeaseOutcome, Queue, TryGetError};

use crate::support::{backoff, ns};
use crate::task::Task;

/// Returns a queue that holds `keys`, and a lease of the first key.
fn leased<const N: usize>(keys: [&'static str; N]) -> (Queue<&'static str>, Lease<&'static str>) {
    let queue = Queue::new();
    _ = queue.add_many(keys);
    let lease = queue.try_get().unwrap();
    (queue, lease)
}

#[test]
fn it_ends_the_lease_and_hands_out_the_next_key() {
    let (queue, lease) = leased(["a", "b"]);
    let next = queue.try_end_and_get(lease, LeaseOutcome::Succeeded).unwrap();
    assert_eq!((*next, queue.state(&"a")), ("b", KeyState::Absent));
    assert_eq!(queue.try_end_and_get(next, LeaseOutcome::Succeeded).unwrap_err(), TryGetError::Empty);
    assert_eq!(queue.state(&"b"), KeyState::Absent);
}

/// A key that is Ready again is at the tail before the next key is taken.
#[test]
fn a_key_that_is_ready_again_may_be_the_next_one() {
    let (queue, lease) = leased(["a"]);
    queue.add("a").unwrap();
    let again = queue.try_end_and_get(lease, LeaseOutcome::Done).unwrap();
    assert_eq!(*again, "a");
    _ = queue.add_many(["b", "a"]);
    let next = queue.blocking_end_and_get(again, LeaseOutcome::Done).unwrap();
    assert_eq!(*next, "b");
    assert_eq!(*queue.blocking_end_and_get(next, LeaseOutcome::Requeued).unwrap(), "a");
}

#[test]
fn a_failure_backs_off_and_the_next_key_comes() {
    let (queue, clock) = backoff();
    _ = queue.add_many(["a", "b"]);
    let failed = LeaseOutcome::Failed { at_least: Duration::ZERO };
    let lease = queue.try_get().unwrap();
    let next = queue.try_end_and_get(lease, failed).unwrap();
    assert_eq!((*next, queue.num_requeues(&"a")), ("b", 1));
    clock.advance(ns(10));
    let again = queue.try_end_and_get(next, LeaseOutcome::SucceededAndRequeueAfter(ns(5))).unwrap();
    assert_eq!((*again, again.num_requeues()), ("a", 1));
    assert_eq!(queue.try_end_and_get(again, LeaseOutcome::Succeeded).unwrap_err(), TryGetError::Empty);
    assert_eq!(queue.num_requeues(&"a"), 0);
    clock.advance(ns(5));
    assert_eq!(*queue.try_get().unwrap(), "b");
}

#[test]
fn the_lease_of_another_queue_ends_there() {
    let (queue, _held) = leased(["a", "b"]);
    let (other, lease) = leased(["c"]);
    assert_eq!(*queue.try_end_and_get(lease, LeaseOutcome::Requeued).unwrap(), "b");
    assert_eq!(other.state(&"c"), KeyState::Ready);
}

#[test]
fn a_task_waits_for_a_key_after_its_lease_has_ended() {
    let (queue, lease) = leased(["a"]);
    let mut next = Task::waiting(queue.end_and_get(lease, LeaseOutcome::Done));
    assert_eq!(queue.state(&"a"), KeyState::Absent);
    queue.add("b").unwrap();
    let lease = next.finish().unwrap();
    assert_eq!(*lease, "b");
    queue.shut_down();
    assert!(Task::new(queue.end_and_get(lease, LeaseOutcome::Done)).finish().is_none());
    assert!(queue.blocking_get().is_none());
}

#[test]
fn dropped_before_its_first_poll_it_ends_the_lease_by_its_outcome() {
    let (queue, clock) = backoff();
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    clock.advance(ns(10));
    queue.add("b").unwrap();
    let lease = queue.try_get().unwrap();
    drop(queue.end_and_get(lease, LeaseOutcome::Succeeded));
    assert_eq!((queue.num_requeues(&"a"), queue.state(&"a")), (0, KeyState::Absent));
    assert_eq!(queue.state(&"b"), KeyState::Ready, "the dropped future took a key");
}

/// Like `get`, the future sometimes yields although a key is Ready, so that other tasks run.
#[test]
fn yields_regularly_after_the_lease_has_ended() {
    let queue = Queue::new();
    _ = queue.add_many(0..1_000_u32);
    let mut lease = queue.try_get().unwrap();
    let mut gave_way = 0;
    for key in 0..999 {
        let mut next = Task::new(queue.end_and_get(lease, LeaseOutcome::Done));
        lease = match next.poll() {
            Poll::Ready(lease) => lease,
            Poll::Pending => {
                gave_way += 1;
                assert!(next.was_woken(), "the task yielded without waking itself");
                assert_eq!(queue.state(&key), KeyState::Absent);
                next.finish()
            }
        }
        .unwrap();
    }
    assert_eq!(gave_way, 7);
}

/// A queue needs no configuration for the delay of an outcome.
#[test]
fn a_queue_from_new_keeps_the_delay_of_an_outcome() {
    let hour = Duration::from_secs(3_600);
    let delayed = [
        LeaseOutcome::DoneAndRequeueAfter(hour),
        LeaseOutcome::SucceededAndRequeueAfter(hour),
        LeaseOutcome::Failed { at_least: hour },
    ];
    for outcome in delayed {
        let (queue, lease) = leased(["a"]);
        assert_eq!(queue.try_end_and_get(lease, outcome).unwrap_err(), TryGetError::Empty, "{outcome:?}");
        assert!(matches!(queue.state(&"a"), KeyState::Waiting(_)), "{outcome:?}");
    }
}

/// A worker alternates between two queues that are never empty, and still yields.
#[test]
fn the_lease_of_another_queue_is_no_way_round_the_budget() {
    let (left, right) = (Queue::new(), Queue::new());
    _ = left.add_many(0..1_000_u32);
    _ = right.add_many(0..1_000_u32);
    let mut lease = left.try_get().unwrap();
    let mut gave_way = 0;
    for turn in 0..500 {
        let queue = if turn % 2 == 0 { &right } else { &left };
        let mut next = Task::new(queue.end_and_get(lease, LeaseOutcome::Done));
        let polled = next.poll();
        lease = match polled {
            Poll::Ready(lease) => lease,
            Poll::Pending => {
                gave_way += 1;
                next.finish()
            }
        }
        .unwrap();
    }
    assert!(gave_way >= 2, "{gave_way}");
}

/// A panic payload whose drop panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("a payload panics in its drop");
        }
    }
}

/// A key whose drop panics; the drop of the panic's payload panics, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PanickingKey(u32);

static ARMED: AtomicBool = AtomicBool::new(false);

impl Drop for PanickingKey {
    fn drop(&mut self) {
        if self.0 == 0 && ARMED.load(Ordering::SeqCst) && !thread::panicking() {
            std::panic::panic_any(Bomb);
        }
    }
}

/// If several panics occur while a lease ends, the first one propagates. The others are discarded, even if the drops of their payloads panic. The
/// key that was taken is not lost.
#[test]
fn a_key_survives_payloads_that_panic() {
    let queue = Queue::new();
    queue.add(PanickingKey(0)).unwrap();
    queue.add(PanickingKey(1)).unwrap();
    let lease = queue.try_get().unwrap();
    ARMED.store(true, Ordering::SeqCst);
    let ended = catch_unwind(AssertUnwindSafe(|| queue.try_end_and_get(lease, LeaseOutcome::Done)));
    ARMED.store(false, Ordering::SeqCst);
    std::mem::forget(ended.expect_err("both copies of the key panic"));
    queue.check().unwrap();
    assert_eq!(queue.try_get().unwrap().0, 1);
}

/// A policy that panics for one key costs no other key its place: the call that receives the panic takes no key.
#[test]
fn a_panic_in_the_policy_takes_no_other_key() {
    struct Bad;
    impl flyball_ratelimit::Policy<u32> for Bad {
        fn record_failure(
            &mut self,
            key: &u32,
            _: flyball_sync::Nanos,
            _: u64,
            _: &mut dyn FnMut(&u32) -> bool,
        ) -> flyball_ratelimit::Failure {
            assert!(*key != 0, "the policy panics");
            flyball_ratelimit::Failure { wait: Duration::ZERO, counted: true }
        }
        fn forget(&mut self, _: &u32) {}
        fn num_requeues(&self, _: &u32) -> u32 {
            0
        }
        fn tracked_keys(&self) -> usize {
            0
        }
    }
    struct Sink;
    impl flyball_workqueue::QueueMetrics for Sink {}
    let queue = Queue::builder().limiter(Bad).metrics(Sink).build();
    _ = queue.add_many(0..4);
    let lease = queue.try_get().unwrap();
    let ended =
        catch_unwind(AssertUnwindSafe(|| queue.try_end_and_get(lease, LeaseOutcome::Dropped).is_ok()));
    assert!(ended.is_err());
    let order: Vec<u32> = std::iter::from_fn(|| queue.try_get().ok().map(|lease| lease.detach())).collect();
    assert_eq!(order, [1, 2, 3, 0]);
    assert_eq!((queue.stats().adds, queue.stats().leased), (5, 4));
    order.iter().for_each(|key| queue.done(key).unwrap());
    queue.check().unwrap();
}
