//! Ways to take keys: paused queues, batches, and streams.

use flyball_sync::block_on_timeout;
use std::future::Future;
use std::thread;
use std::time::Duration;

use flyball_sync::block_on;
use flyball_workqueue::{DrainOptions, GetTimeoutError, KeyState, Lease, ManualClock, Queue, TryGetError};
use futures_util::FutureExt;

use crate::support::{TimedQueue, ns, timed};
use crate::task::{Task, keys, lists};

// ---- pause -----------------------------------------------------------------------------------------------------

#[test]
fn a_paused_queue_hands_out_nothing() {
    let (queue, clock) = timed();
    queue.add("ready").unwrap();
    queue.add_after("waits", ns(5)).unwrap();
    queue.pause();
    queue.pause();
    assert!(queue.stats().paused);
    clock.advance(ns(5));
    assert_eq!(queue.stats().ready, 2, "a deadline does not pass in a paused queue");
    assert_eq!(queue.add("ready").unwrap(), flyball_workqueue::Added::Merged);
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    assert_eq!(queue.try_get_many(9).unwrap_err(), TryGetError::Empty);
    assert_eq!(queue.blocking_get_timeout(Duration::ZERO).unwrap_err(), GetTimeoutError::TimedOut);
    assert!(queue.get().now_or_never().is_none());
    queue.resume();
    queue.resume();
    assert!(!queue.stats().paused);
    assert_eq!(keys(&queue.try_get_many(9).unwrap()), ["ready", "waits"]);
}

/// While the queue is paused no getter is woken and no alarm is set; `resume` wakes the getters and sets the alarm.
#[test]
fn resume_wakes_one_getter_for_each_key() {
    let (queue, clock) = timed();
    let mut getters: Vec<_> = (0..3).map(|_| Task::waiting(queue.get())).collect();
    queue.pause();
    _ = queue.add_many(["a", "b"]);
    queue.add_after("c", ns(10)).unwrap();
    queue.add_after("d", ns(20)).unwrap();
    clock.advance(ns(10));
    assert!(getters.iter().all(|getter| getter.wakes() == 0));
    assert_eq!(clock.next_alarm(), None);
    queue.resume();
    let mut leases = Vec::new();
    while let Some(knows) = getters.iter().position(Task::was_woken) {
        leases.push(getters.remove(knows).finish().unwrap());
    }
    assert_eq!(keys(&leases), ["a", "b", "c"]);
    let mut last = Task::waiting(queue.get());
    clock.advance(ns(10));
    assert!(last.was_woken());
    assert_eq!(*last.finish().unwrap(), "d");
}

/// A getter that was woken just before the pause waits until the queue is resumed.
#[test]
fn a_pause_overtakes_a_wake_up() {
    let queue = Queue::new();
    let mut getter = Task::waiting(queue.get());
    queue.add("a").unwrap();
    assert!(getter.was_woken());
    queue.pause();
    assert!(getter.poll().is_pending());
    queue.resume();
    assert!(getter.was_woken());
    assert_eq!(*getter.finish().unwrap(), "a");
}

/// A pause does not affect leases; they can end as before.
#[test]
fn a_pause_stops_no_lease() {
    let (queue, _clock) = timed();
    _ = queue.add_many(["a", "b", "c"]);
    let leases = queue.try_get_many(3).unwrap();
    queue.pause();
    queue.add("a").unwrap();
    for (lease, end) in leases.into_iter().zip(0..) {
        match end {
            0 => lease.done(),
            1 => lease.retry(),
            _ => lease.requeue_after(ns(5)),
        }
    }
    assert_eq!((queue.state(&"a"), queue.state(&"b")), (KeyState::Ready, KeyState::Ready));
    assert!(queue.try_get().is_err());
    assert!(queue.cancel(&"a"));
}

/// A paused queue that is shut down is not closed while it has Ready keys. An empty paused queue is closed.
#[test]
fn a_paused_queue_closes_when_it_is_empty() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    queue.pause();
    queue.shut_down();
    let mut getter = Task::waiting(queue.get());
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    assert!(queue.stats().paused, "a shutdown resumed the queue");
    queue.resume();
    assert!(getter.was_woken());
    getter.finish().unwrap().done();
    queue.pause();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
    assert!(queue.blocking_get().is_none());
    assert!(block_on(queue.get_many(3)).is_empty());
}

#[test]
fn a_drain_resumes() {
    let drains: [fn(&TimedQueue); 4] = [
        |queue| drop(queue.drain(DrainOptions::unlimited()).now_or_never()),
        |queue| drop(queue.blocking_drain(DrainOptions::within(Duration::ZERO))),
        |queue| drop(queue.drain(DrainOptions::serve_waiting(ns(9))).now_or_never()),
        |queue| drop(queue.blocking_drain(DrainOptions::serve_waiting(Duration::ZERO))),
    ];
    for drain in drains {
        for round in 0..2 {
            let (queue, _clock) = timed();
            queue.add("a").unwrap();
            let mut getter = Task::waiting(async {
                queue.pause();
                queue.get().await
            });
            if round > 0 {
                queue.shut_down();
            }
            drain(&queue);
            assert!(!queue.stats().paused);
            assert!(getter.was_woken());
            assert_eq!(*getter.finish().unwrap(), "a");
        }
    }
}

#[test]
fn a_pause_does_not_concern_a_stop() {
    let (queue, _clock) = timed();
    queue.add("a").unwrap();
    queue.pause();
    let mut getter = Task::waiting(queue.get());
    assert_eq!(lists(queue.stop_now()), (vec!["a"], vec![], vec![]));
    assert!(queue.stats().paused && getter.was_woken());
    assert!(getter.finish().is_none());
}

/// A blocked thread sleeps until the queue is resumed.
#[test]
fn a_paused_thread_sleeps() {
    for _ in 0..50 {
        let queue = Queue::new();
        queue.pause();
        queue.add("a").unwrap();
        thread::scope(|scope| {
            let getter = scope.spawn(|| queue.blocking_get().map(|lease| *lease));
            queue.resume();
            assert_eq!(getter.join().unwrap(), Some("a"));
        });
    }
}

// ---- batches ---------------------------------------------------------------------------------------------------

#[test]
fn a_batch_is_that_many_gets() {
    let (queue, clock) = timed();
    assert_eq!(queue.try_get_many(3).unwrap_err(), TryGetError::Empty);
    queue.add_after("due", ns(3)).unwrap();
    _ = queue.add_many(["a", "b", "c"]);
    clock.advance(ns(5));
    queue.add("d").unwrap();
    let first = queue.try_get_many(2).unwrap();
    assert_eq!(keys(&first), ["a", "b"]);
    let rest = queue.try_get_many(usize::MAX).unwrap();
    assert_eq!(keys(&rest), ["c", "due", "d"]);
    assert_eq!(queue.stats().leased, 5);
    drop(rest);
    first.into_iter().for_each(Lease::done);
    queue.shut_down();
    assert_eq!(keys(&block_on(queue.get_many(9))), ["c", "due", "d"]);
    queue.check().unwrap();
}

/// A request for a batch of 0 keys returns immediately and without an error, whether keys are Ready or not.
#[test]
fn a_batch_of_none_takes_nothing_and_waits_for_nothing() {
    let (queue, _clock) = timed();
    for _ in 0..2 {
        assert!(queue.try_get_many(0).unwrap().is_empty());
        assert!(block_on(queue.get_many(0)).is_empty());
        assert!(block_on_timeout(queue.get_many(0), ns(1)).unwrap().is_empty());
        assert!(Task::new(queue.get_many(0)).finish().is_empty());
        assert!(Task::new(queue.timeout(ns(1), queue.get_many(0))).finish().unwrap().is_empty());
        queue.add("a").unwrap();
    }
    assert_eq!((queue.ready_len(), queue.stats().leased), (1, 0));
}

/// Each batch operation waits for the first key, then takes the other Ready keys.
#[test]
fn a_batch_waits_for_its_first() {
    let queue = Queue::new();
    let mut batch = Task::waiting(queue.get_many(3));
    _ = queue.add_many([1, 2, 3, 4]);
    assert!(batch.was_woken());
    assert_eq!(keys(&batch.finish()), [1, 2, 3]);
    assert_eq!(keys(&block_on(queue.get_many(3))).len(), 3);
    thread::scope(|scope| {
        drop(queue.stop_now());
        let blocked = scope.spawn(|| block_on(queue.get_many(2)).len());
        assert_eq!(blocked.join().unwrap(), 0);
    });
    assert!(block_on(queue.get_many(2)).is_empty());
    assert_eq!(queue.try_get_many(2).unwrap_err(), TryGetError::Closed);
}

/// A batch may take keys for which other getters were woken. Those getters are woken again for the next keys.
#[test]
fn a_batch_leaves_the_next_key_to_woken_getters() {
    let queue = Queue::new();
    let mut getters: Vec<_> = (0..3).map(|_| Task::waiting(queue.get())).collect();
    _ = queue.add_many([1, 2, 3]);
    let batch = queue.try_get_many(9).unwrap();
    assert_eq!(batch.len(), 3);
    for getter in &mut getters {
        assert!(getter.poll().is_pending());
    }
    queue.add(4).unwrap();
    assert_eq!(getters.iter().filter(|getter| getter.was_woken()).count(), 1);
    batch.into_iter().for_each(Lease::retry);
    assert!(
        getters.iter().all(Task::was_woken),
        "a getter was not woken although there are more keys than getters"
    );
}

/// Threads take batches, and every key is served once.
#[test]
fn batches_on_threads() {
    let queue: Queue<u32> = Queue::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (1..=4)
            .map(|most| {
                let queue = &queue;
                scope.spawn(move || {
                    let mut served = 0;
                    loop {
                        let batch = block_on(queue.get_many(most));
                        assert!(batch.len() <= most);
                        if batch.is_empty() {
                            return served;
                        }
                        served += batch.len();
                        batch.into_iter().for_each(Lease::done);
                    }
                })
            })
            .collect();
        for first in (0..4_000).step_by(5) {
            _ = queue.add_many(first..first + 5);
        }
        drop(block_on(queue.drain(DrainOptions::unlimited())));
        assert_eq!(workers.into_iter().map(|worker| worker.join().unwrap()).sum::<usize>(), 4_000);
    });
}

// ---- streams ---------------------------------------------------------------------------------------------------

#[cfg(feature = "stream")]
mod stream {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use flyball_sync::{Nanos, block_on};
    use futures_core::Stream;

    use super::*;

    /// Returns the next item of a stream.
    async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
        std::future::poll_fn(|context: &mut Context<'_>| Pin::new(&mut *stream).poll_next(context)).await
    }

    #[test]
    fn a_stream_is_one_get_after_the_other() {
        let (queue, clock) = timed();
        _ = queue.add_many(["a", "b"]);
        queue.add_after("c", ns(5)).unwrap();
        let mut leases = queue.stream();
        assert!(format!("{leases:?}").starts_with("LeaseStream"));
        block_on(next(&mut leases)).unwrap().done();
        let b = block_on(next(&mut leases)).unwrap();
        let mut third = Task::waiting(next(&mut leases));
        assert_eq!(clock.next_alarm(), Some(Nanos::new(5)));
        clock.advance(ns(5));
        assert!(third.was_woken());
        third.finish().unwrap().done();
        drop(third);
        b.retry();
        let b = block_on(next(&mut leases)).unwrap();
        queue.shut_down();
        b.retry();
        assert!(
            block_on(next(&mut leases)).is_none(),
            "a key that was retried after shutdown was handed out"
        );
        assert!(block_on(next(&mut leases)).is_none(), "the stream does not stay closed");
    }

    /// A stream that was woken and is dropped passes its wake-up on.
    #[test]
    fn a_dropped_stream_passes_its_wake_up_on() {
        for polls in 0..3 {
            let queue = Queue::new();
            let mut leases = Box::pin(queue.stream());
            let mut stream =
                Task::new(std::future::poll_fn(move |context| leases.as_mut().poll_next(context)));
            if polls > 0 {
                assert!(stream.poll().is_pending());
            }
            let mut other = Task::waiting(queue.get());
            queue.add("a").unwrap();
            if polls > 1 {
                let Poll::Ready(Some(lease)) = stream.poll() else { panic!("the woken stream has no item") };
                assert!(!other.was_woken());
                drop(lease);
            }
            drop(stream);
            assert!(other.was_woken());
            assert_eq!(*other.finish().unwrap(), "a");
        }
    }
}

// ---- getters that are kept and never polled ----------------------------------------------------------------------

/// A getter that was woken and is never polled delays only the key that it was woken for. Other getters are woken for the next due key, and
/// the alarm is set for the next deadline.
#[test]
fn wakes_a_getter_behind_any_number_that_are_never_polled() {
    for kept in [1, 2, 63, 64, 65, 66, 200] {
        for next in [1, 2] {
            let clock = ManualClock::new();
            let queue = Queue::builder().timer(clock.timer()).build();
            for key in 0..kept {
                queue.add_after(key, ns(1)).unwrap();
            }
            queue.add_after(kept, ns(next)).unwrap();
            let getters: Vec<_> = (0..kept).map(|_| Task::waiting(queue.get())).collect();
            let last = Task::waiting(queue.get());
            clock.advance(ns(1));
            assert!(getters.iter().all(Task::was_woken), "a getter was not woken for {kept} due keys");
            if next > 1 {
                assert!(!last.was_woken());
                clock.advance(ns(1));
            }
            assert!(last.was_woken(), "not woken behind {kept} getters for the key that is due at {next}");
        }
    }
}

/// The queue wakes wakers in batches. All waiters are woken, even if their wakers do not fit into one batch, and whatever they wait for.
#[test]
fn wakes_any_number_of_tasks() {
    const TASKS: u32 = 100;
    fn all<'a, F: Future + 'a>(wait: impl Fn(u32) -> F) -> Vec<Task<'a, F::Output>> {
        (0..TASKS).map(|number| Task::waiting(wait(number))).collect()
    }

    let queue = Queue::new();
    let gets = all(|_| queue.get());
    _ = queue.add_many(0..TASKS);
    assert!(gets.iter().all(Task::was_woken), "a getter was not woken for its key");
    drop(gets);

    let queue = Queue::builder().capacity(TASKS as usize).build();
    _ = queue.add_many(0..TASKS);
    let adders = all(|number| queue.add_when_room(TASKS + number));
    let (drains, idles) = (all(|_| queue.wait_empty()), all(|_| queue.wait_idle()));
    let leases: Vec<_> = (0..TASKS).map(|_| queue.try_get().unwrap()).collect();
    queue.pause();
    leases.into_iter().for_each(Lease::done);
    assert!(adders.iter().all(Task::was_woken), "an adder was not woken for its room");
    assert!(drains.iter().chain(&idles).all(Task::was_woken), "a waiter was not woken by the idle queue");

    let queue = Queue::<u32>::new();
    let closed = all(|_| queue.get());
    queue.shut_down();
    assert!(closed.iter().all(Task::was_woken), "a getter was not woken by the shutdown");
}

// ---- yielding --------------------------------------------------------------------------------------------------------

/// A task whose operations always complete immediately yields to other tasks, on any executor and with any features.
#[test]
fn lets_other_tasks_run_however_full_the_queue_is() {
    fn gives_way(work: impl Future<Output = ()>) {
        let mut task = Task::new(work);
        let mut polls = 1;
        while task.poll().is_pending() {
            assert!(task.was_woken(), "the task yielded without waking itself");
            polls += 1;
        }
        assert!((10..=100).contains(&polls), "{polls} polls for 2000 keys");
    }
    let queue = &Queue::new();
    let again = |key: u32| queue.add(key).map(drop).unwrap();
    _ = queue.add_many(0..2);
    gives_way(async {
        for _ in 0..2_000 {
            let lease = queue.get().await.unwrap();
            again(*lease);
            lease.done();
        }
    });
    gives_way(async {
        for _ in 0..2_000 {
            for lease in queue.get_many(2).await {
                again(*lease);
                lease.done();
            }
        }
    });
    gives_way(async {
        for key in 0..2_000 {
            queue.add_when_room(key).await.unwrap();
        }
    });
    #[cfg(feature = "stream")]
    gives_way(async {
        let mut leases = std::pin::pin!(queue.stream());
        for _ in 0..2_000 {
            let next =
                std::future::poll_fn(|context| futures_core::Stream::poll_next(leases.as_mut(), context));
            let lease = next.await.unwrap();
            again(*lease);
            lease.done();
        }
    });
    // A task that had to wait does not yield, because other tasks could run while it waited.
    let empty = Queue::new();
    for key in 0..500 {
        let mut task = Task::waiting(empty.get());
        empty.add(key).unwrap();
        task.finish().unwrap().done();
    }
}
