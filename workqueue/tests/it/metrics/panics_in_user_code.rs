//! Sinks that panic, call the queue, and receive events from several threads.

use std::panic::panic_any;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use drivers::queue::metrics_sink::Reports;
use flyball_ratelimit::Exponential;
use flyball_sync::{ManualClock, ManualTimer};
use flyball_workqueue::{AddErrorKind, Fifo, LeaseOutcome, Queue, QueueMetrics};
use futures_util::FutureExt;

use crate::support::{ns, times};

/// A panic payload whose drop panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

struct Panics;

impl QueueMetrics for Panics {
    fn dequeued(&self, _: Duration, _: bool) {
        panic_any(Bomb);
    }

    fn lease_ended(&self, _: LeaseOutcome, _: Duration) {
        panic_any(Bomb);
    }

    fn failure_counted(&self) {
        panic_any(Bomb);
    }

    fn gave_up(&self, _: u32) {
        panic_any(Bomb);
    }

    fn add_refused(&self, _: AddErrorKind) {
        panic_any(Bomb);
    }

    fn lease_overdue(&self, _: Duration) {
        panic_any(Bomb);
    }
}

/// A sink that panics in every method does not affect the queue. A sink that is registered after it still receives all events.
#[test]
fn a_sink_that_panics_changes_nothing() {
    let (clock, reports, dead) = (ManualClock::new(), Reports::default(), Arc::new(Mutex::new(Vec::new())));
    let told = dead.clone();
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(Exponential::new(ns(10)..=ns(100)))
        .capacity(2)
        .give_up_after(times(2), move |key, failures| told.lock().unwrap().push((*key, failures)))
        .metrics(Panics)
        .metrics(reports.clone())
        .build();
    queue.add("a").unwrap();
    queue.add("b").unwrap();
    assert_eq!(queue.add("c").unwrap_err().into_key(), "c", "the refused key was not returned");
    let leases = queue.try_get_many(2).unwrap();
    clock.advance(ns(5));
    assert!(queue.next_overdue(ns(1)).now_or_never().is_some());
    for lease in leases {
        lease.retry();
    }
    queue.check().unwrap();
    assert_eq!(queue.stats().waiting, 2, "a failed key does not wait for its backoff");
    clock.advance(ns(10));
    let mut keys = Vec::new();
    while let Ok(lease) = queue.try_get() {
        keys.push(*lease);
        lease.retry();
    }
    assert_eq!(keys, ["a", "b"]);
    assert_eq!(*dead.lock().unwrap(), [("a", 2), ("b", 2)]);
    let read = queue.stats();
    assert_eq!((read.adds, read.leased, read.depth()), (4, 0, 0));
    // Four hand-outs, four ends, four failures, two keys given up, one refusal and one overdue lease.
    assert_eq!(reports.take().len(), 4 + 4 + 4 + 2 + 1 + 1);
    drop(queue.stop_now());
    queue.check().unwrap();
}

/// A lease is dropped while its thread unwinds, and the sink panics when it receives this event. This must not abort the process.
#[test]
fn a_sink_that_panics_while_its_thread_does() {
    let clock = ManualClock::new();
    let queue = Queue::builder().timer(clock.timer()).metrics(Panics).build();
    queue.add("a").unwrap();
    let worker = thread::spawn({
        let queue = queue.clone();
        move || {
            let _lease = queue.try_get().unwrap();
            panic!("work");
        }
    });
    assert!(worker.join().is_err());
    assert_eq!(*queue.try_get().unwrap(), "a");
}

type Own = Queue<&'static str, Fifo, Exponential<&'static str>, ManualTimer>;

/// A sink that calls its queue in every method.
#[derive(Clone, Default)]
struct CallsBack(Arc<OnceLock<Own>>);

impl CallsBack {
    fn call(&self) {
        if let Some(queue) = self.0.get() {
            queue.check().unwrap();
            assert!(queue.stats().ages_tracked);
            let _ = queue.add("from within");
            queue.cancel(&"from within");
        }
    }
}

impl QueueMetrics for CallsBack {
    fn dequeued(&self, _: Duration, _: bool) {
        self.call();
    }

    fn lease_ended(&self, _: LeaseOutcome, _: Duration) {
        self.call();
    }

    fn failure_counted(&self) {
        self.call();
    }

    fn gave_up(&self, _: u32) {
        self.call();
    }

    fn add_refused(&self, reason: AddErrorKind) {
        if reason == AddErrorKind::GivenUp {
            self.call();
        }
    }

    fn lease_overdue(&self, _: Duration) {
        self.call();
    }
}

/// Neither the queue's lock nor the limiter's lock is held while a sink is called.
#[test]
fn a_sink_may_call_the_queue() {
    let (clock, sink) = (ManualClock::new(), CallsBack::default());
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(Exponential::new(ns(10)..=ns(100)))
        .give_up_after(times(2), |_, _| {})
        .metrics(sink.clone())
        .build();
    assert!(sink.0.set(queue.clone()).is_ok());
    _ = queue.add_many(["a", "b"]);
    let leases = queue.try_get_many(2).unwrap();
    assert!(queue.next_overdue(Duration::ZERO).now_or_never().is_some());
    leases.into_iter().for_each(|lease| lease.retry());
    clock.advance(ns(10));
    queue.try_get().unwrap().retry();
    assert!(queue.add_rate_limited("b").is_err(), "the key was not given up");
    let _ = queue.stop_now();
    assert!(queue.add("c").is_err());
    queue.check().unwrap();
    assert_eq!(queue.stats().adds, 2 + 2 + 14, "the sink did not add a key in each of 14 calls");
}

/// Threads add, take and end keys. Afterwards the counters agree with the reported events.
#[test]
fn counters_agree_when_threads_work() {
    let reports = Reports::default();
    let queue = Queue::builder().metrics(reports.clone()).build();
    thread::scope(|scope| {
        for worker in 0..4 {
            let queue = &queue;
            scope.spawn(move || {
                for round in 0..500 {
                    let _ = queue.add((worker + round) % 7);
                    if let Ok(lease) = queue.try_get() {
                        if round % 3 == 0 { lease.done() } else { drop(lease) }
                    }
                }
            });
        }
    });
    while let Ok(lease) = queue.try_get() {
        lease.done();
    }
    queue.check().unwrap();
    let (read, told) = (queue.stats(), reports.take());
    assert_eq!((read.depth(), read.leased, read.waiting), (0, 0, 0));
    assert_eq!((read.unfinished_work, read.oldest_lease), (Duration::ZERO, None));
    let outs =
        told.iter().filter(|told| matches!(told, testkit::queue_answers::Report::HandedOut { .. })).count();
    assert_eq!(
        (outs as u64, told.len()),
        (read.adds, 2 * outs),
        "a hand-out or its end was not reported exactly once"
    );
}
