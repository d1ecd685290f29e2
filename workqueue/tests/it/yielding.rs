//! A task whose `get` and `add_when_room` always complete immediately still yields to other tasks from time to time.

use std::task::Poll;

use flyball_workqueue::{LeaseOutcome, Queue};

use crate::task::Task;

/// Takes `count` keys from the queue, and adds keys after each one, so that the queue is never empty.
fn serves(queue: &Queue<u32>, count: usize) {
    for _ in 0..count {
        let mut task = Task::new(queue.get());
        while task.poll().is_pending() {
            assert!(task.was_woken(), "the task yielded without waking itself");
        }
        _ = queue.add_many(0..2);
    }
}

/// When a future has to wait, its task yields, but a different task that always finds a key does not. So the wait of one task must not count as a
/// yield of another.
#[test]
fn a_waiting_getter_does_not_keep_another_from_yielding() {
    let queue = Queue::builder().capacity(1).build();
    queue.add(0).unwrap();
    let gives_way = || {
        (1..1_000).any(|key| {
            let mut producer = Task::waiting(queue.add_when_room(key));
            let mut consumer = Task::new(queue.get());
            let first = consumer.poll();
            let gave_way = first.is_pending();
            let lease = if let Poll::Ready(lease) = first { lease } else { consumer.finish() };
            lease.unwrap().done();
            while producer.poll().is_pending() {
                assert!(producer.was_woken(), "the producer yielded without waking itself");
            }
            gave_way
        })
    };
    assert!((0..5).all(|_| gives_way()));
}

/// A task polls an `add_when_room` that waits and a `get` that completes, again and again, as in a `select!` loop. The waiting future must not
/// prevent the task from yielding.
#[test]
fn a_waiting_getter_does_not_keep_its_task_from_yielding() {
    let queue = Queue::builder().capacity(2).build();
    _ = queue.add_many(0..2);
    for first in [true, false] {
        for time in 0..5 {
            let gives_way = (2..1_000).any(|key| {
                let mut room = Task::new(queue.add_when_room(key));
                let mut get = Task::new(queue.get());
                if first {
                    assert!(room.poll().is_pending());
                }
                let Poll::Ready(lease) = get.poll() else { return true };
                if !first {
                    assert!(room.poll().is_pending());
                }
                lease.unwrap().end(LeaseOutcome::Requeued);
                false
            });
            assert!(gives_way, "no yield at time {time}; the waiting future is polled first: {first}");
        }
    }
}

/// A `get` that has yielded returns a key at its next poll, however many other futures are served in between.
#[test]
fn a_getter_that_has_yielded_is_served_at_its_next_poll() {
    let queue = Queue::new();
    _ = queue.add_many(0..2);
    let mut gave_way = 0;
    for _ in 0..1_000 {
        let mut get = Task::new(queue.get());
        if get.poll().is_pending() {
            gave_way += 1;
            serves(&queue, 127);
            assert!(get.was_woken() && get.is_ready());
        }
        _ = queue.add_many(0..2);
    }
    assert!(gave_way > 0);
}

/// Workers take keys in turn, one key each. Each of the workers yields now and then, not always the same one.
#[test]
fn workers_of_one_task_yield_one_after_another() {
    for workers in 1..10 {
        let queue = Queue::new();
        _ = queue.add_many(0..2);
        let mut gave_way = vec![0; workers];
        for round in 0..10_000 {
            let mut get = Task::new(queue.get());
            if get.poll().is_pending() {
                gave_way[round % workers] += 1;
                get.finish().unwrap().done();
            }
            _ = queue.add_many(0..2);
        }
        assert!(gave_way.iter().all(|times| *times > 0), "{gave_way:?}");
    }
}

/// A task polls each `get` once and drops it. A `select!` whose other branch is always ready does the same, and so does a timeout of zero.
#[test]
fn a_task_that_polls_each_future_once_is_served_after_a_yield() {
    let queue = Queue::new();
    _ = queue.add_many(0..1_000_u32);
    let mut in_vain = 0;
    for _ in 0..500 {
        match Task::new(queue.get()).poll() {
            Poll::Ready(lease) => lease.unwrap().done(),
            Poll::Pending => in_vain += 1,
        }
    }
    assert_eq!(in_vain, 3, "not exactly one of 128 polls yielded");

    let queue = Queue::builder().capacity(1_000).build();
    let refused = (0..500_u32).filter(|key| Task::new(queue.add_when_room(*key)).poll().is_pending()).count();
    assert_eq!(refused, 3);
}
