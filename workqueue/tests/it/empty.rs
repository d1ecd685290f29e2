//! Waiting until a queue holds no key at all.

use drivers::queue::metrics_sink::Reports;
use flyball_workqueue::{LeaseOutcome, Queue};
use futures_util::FutureExt;

use crate::support::{backoff, ns, timed};
use crate::task::Task;

#[test]
fn a_queue_without_a_key_is_empty() {
    assert_eq!(Queue::<u32>::new().wait_empty().now_or_never(), Some(()));
    let (queue, _) = timed();
    queue.add("a").unwrap();
    queue.try_get().unwrap().done();
    assert_eq!(queue.wait_empty().now_or_never(), Some(()));
}

/// `wait_empty` also waits for deadlines and retries, unlike `wait_idle`.
#[test]
fn an_idle_waiter_waits_for_deadlines_and_retries() {
    let (queue, clock) = backoff();
    queue.add("a").unwrap();
    let mut waits = Task::waiting(queue.wait_empty());
    let lease = queue.try_get().unwrap();
    assert!(waits.poll().is_pending(), "completed while a key is leased");
    lease.retry();
    assert_eq!(queue.wait_idle().now_or_never(), Some(()));
    assert!(waits.poll().is_pending(), "completed while a key waits for its retry");
    queue.add_after("b", ns(10)).unwrap();
    clock.advance(ns(10));
    assert!(waits.poll().is_pending(), "completed while keys are due");
    queue.try_get().unwrap().succeed();
    assert!(waits.poll().is_pending());
    queue.try_get().unwrap().succeed();
    assert!(waits.was_woken());
    waits.finish();
}

#[test]
fn every_removal_of_the_last_key_wakes_idle_waiters() {
    let reports = Reports::default();
    let (timed, clock) = timed();
    let measured = Queue::builder().timer(clock.timer()).metrics(reports).build();
    for queue in [timed, measured] {
        queue.add_after("a", ns(10)).unwrap();
        let mut all: Vec<_> = (0..3).map(|_| Task::waiting(queue.wait_empty())).collect();
        assert!(queue.cancel(&"a"));
        assert!(all.iter().all(Task::was_woken), "the cancel did not wake a waiter");
        all.iter_mut().for_each(Task::finish);

        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        let mut detached = Task::waiting(queue.wait_empty());
        let key = lease.detach();
        assert!(detached.poll().is_pending());
        queue.done(&key).unwrap();
        assert!(detached.was_woken());
        detached.finish();

        queue.add_after("a", ns(10)).unwrap();
        let mut stopped = Task::waiting(queue.wait_empty());
        queue.shut_down();
        assert!(stopped.poll().is_pending(), "completed although a waiting key stays in the queue");
        let _ = queue.stop_now();
        assert!(stopped.was_woken());
        stopped.finish();
        queue.check().unwrap();
    }
}

#[test]
fn a_lease_keeps_a_stopped_queue_from_being_empty() {
    let (queue, _) = timed();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    let _ = queue.stop_now();
    let mut waits = Task::waiting(queue.wait_empty());
    lease.end(LeaseOutcome::Requeued);
    assert!(waits.was_woken());
    waits.finish();
}

#[test]
fn a_dropped_waiter_is_not_woken() {
    let (queue, _) = timed();
    queue.add("a").unwrap();
    let waits = Task::waiting(queue.wait_empty());
    let mut stays = Task::waiting(queue.wait_empty());
    drop(waits);
    queue.try_get().unwrap().done();
    assert!(stays.was_woken());
    stays.finish();
    queue.check().unwrap();
}
