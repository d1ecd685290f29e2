//! The meaning of the metrics that client-go also has, case by case, and of the queue's own statistics.

use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use drivers::queue::metrics_sink::Reports;
use flyball_ratelimit::Exponential;
use flyball_sync::{ManualClock, ManualTimer};
use flyball_workqueue::{Fair, Fifo, NoLimiter, Queue, QueueMetrics, QueueStats, StatsReader};
use futures_util::FutureExt;
use testkit::queue_answers::{Ending, Refused, Report};
use testkit::wakers::{Panicking, poll_with};

use crate::support::{ns, times};
use crate::task::Task;

type Measured = Queue<&'static str, Fifo, NoLimiter, ManualTimer>;

fn measured() -> (Measured, ManualClock, Reports) {
    let (clock, reports) = (ManualClock::new(), Reports::default());
    (Queue::builder().timer(clock.timer()).metrics(reports.clone()).build(), clock, reports)
}

fn read(queue: &Measured) -> QueueStats {
    queue.stats()
}

fn handed_out(queued: u64) -> Report {
    Report::HandedOut { queued, delayed: false }
}

/// client-go's `TestMetrics`: adds, a hand-out, five duplicates while the key is leased, the end of the lease, and a second run.
#[test]
fn the_life_of_a_key() {
    let (queue, clock, reports) = measured();
    queue.add("a").unwrap();
    queue.add("a").unwrap();
    assert_eq!((read(&queue).adds, read(&queue).depth()), (1, 1), "a duplicate counts as an add");
    clock.advance(ns(50));
    let lease = queue.try_get().unwrap();
    assert_eq!(reports.take(), [handed_out(50)]);
    assert_eq!((read(&queue).adds, read(&queue).depth(), read(&queue).leased), (1, 0, 1));
    clock.advance(ns(5));
    for _ in 0..5 {
        queue.add("a").unwrap();
    }
    assert_eq!((read(&queue).adds, read(&queue).depth()), (2, 1), "a dirty key does not count");
    clock.advance(ns(20));
    assert_eq!((read(&queue).unfinished_work, read(&queue).oldest_lease), (ns(25), Some(ns(25))));
    lease.done();
    assert_eq!(reports.take(), [Report::Ended(Ending::Done, 25)]);
    assert_eq!(
        (read(&queue).adds, read(&queue).depth(), read(&queue).leased),
        (2, 1, 0),
        "the end of the lease counts as an add"
    );
    clock.advance(ns(10));
    queue.try_get().unwrap().succeed();
    assert_eq!(
        reports.take(),
        [handed_out(30), Report::Ended(Ending::Succeed, 0)],
        "the time does not start when the key became dirty"
    );
    assert_eq!((read(&queue).adds, read(&queue).depth()), (2, 0));
}

/// A delay is counted when it is accepted. An add is counted as soon as the deadline passes, even before an operation has processed the deadline.
#[test]
fn delays_become_adds_at_their_deadline() {
    let (queue, clock, reports) = measured();
    queue.add_after("a", ns(10)).unwrap();
    queue.add_after("a", ns(20)).unwrap();
    let now = read(&queue);
    assert_eq!(
        (now.adds, now.delayed_adds, now.depth(), now.waiting),
        (0, 2, 0, 1),
        "the merged delay was not counted"
    );
    clock.advance(ns(10));
    let now = read(&queue);
    assert_eq!(
        (now.adds, now.delayed_adds, now.depth(), now.waiting),
        (1, 2, 1, 0),
        "a passed deadline does not count"
    );
    clock.advance(ns(7));
    assert_eq!(read(&queue).oldest_ready, Some(ns(7)));
    let lease = queue.try_get().unwrap();
    assert_eq!(
        reports.take(),
        [Report::HandedOut { queued: 7, delayed: true }],
        "`queued` is not the time since the deadline"
    );
    lease.requeue_after(ns(5));
    assert_eq!((read(&queue).delayed_adds, read(&queue).waiting), (3, 1));
    queue.add("a").unwrap();
    queue.try_get().unwrap().done();
    let (end, now) = (reports.take(), read(&queue));
    assert_eq!(end[1], handed_out(0), "a promoted key was reported as late");
    assert_eq!((now.adds, now.waiting, now.depth()), (2, 0, 0));
}

/// If the deadline of a leased key passes, the metrics count this as client-go counts an add of a leased key. The depth includes the key
/// immediately, and the latency is measured from the deadline.
#[test]
fn a_deadline_within_a_lease() {
    let (queue, clock, reports) = measured();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add_after("a", ns(10)).unwrap();
    assert_eq!((read(&queue).leased_waiting, read(&queue).depth()), (1, 0));
    clock.advance(ns(15));
    assert_eq!((read(&queue).leased_waiting, read(&queue).depth(), read(&queue).adds), (0, 1, 2));
    lease.done();
    clock.advance(ns(1));
    queue.try_get().unwrap().done();
    assert_eq!(reports.take()[2], Report::HandedOut { queued: 6, delayed: true });
}

/// A key that is withdrawn (cancelled, postponed or stopped) stays counted as an add, so that the counter never decreases.
#[test]
fn a_withdrawn_key_counts_as_an_add() {
    let (queue, clock, _) = measured();
    _ = queue.add_many(["cancelled", "postponed", "stopped", "leased", "marked"]);
    assert!(queue.cancel(&"cancelled") && queue.postpone(&"postponed", ns(9)));
    queue.add_after("due", ns(1)).unwrap();
    clock.advance(ns(1));
    assert!(queue.cancel(&"due"));
    assert_eq!((read(&queue).adds, read(&queue).depth()), (6, 3));
    let leases = queue.try_get_many(9).unwrap();
    queue.add("marked").unwrap();
    assert_eq!((read(&queue).adds, read(&queue).depth()), (7, 1));
    assert_eq!(queue.stop_now().waiting, ["postponed"]);
    assert_eq!((read(&queue).adds, read(&queue).depth(), read(&queue).leased), (7, 0, 3));
    drop(leases);
    assert_eq!((read(&queue).adds, read(&queue).leased), (7, 0));
}

/// Statistics stay correct during a drain. client-go does not update its gauges after shutdown.
#[test]
fn a_drain_is_seen() {
    let (queue, clock, reports) = measured();
    _ = queue.add_many(["stuck", "queued"]);
    let stuck = queue.try_get().unwrap();
    queue.add("stuck").unwrap();
    queue.shut_down();
    assert!(queue.add("late").is_err());
    assert_eq!(reports.take(), [handed_out(0), Report::Refused(Refused::ShutDown)]);
    clock.advance(Duration::from_secs(60));
    let now = read(&queue);
    assert_eq!((now.depth(), now.leased, now.unfinished_work), (2, 1, Duration::from_secs(60)));
    assert_eq!(
        (now.oldest_lease, now.oldest_ready),
        (Some(Duration::from_secs(60)), Some(Duration::from_secs(60)))
    );
    queue.try_get().unwrap().done();
    stuck.retry();
    assert_eq!(
        (read(&queue).depth(), read(&queue).waiting, read(&queue).leased),
        (1, 0, 0),
        "the dirty key still counts"
    );
    queue.try_get().unwrap().retry();
    assert_eq!(
        (read(&queue).depth(), read(&queue).waiting, read(&queue).adds),
        (0, 1, 3),
        "the leftover counts as pending"
    );
}

#[test]
fn failures_count_once_per_wait() {
    let (clock, reports) = (ManualClock::new(), Reports::default());
    let limiter = Exponential::new(ns(10)..=ns(100));
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(limiter)
        .metrics(reports.clone())
        .give_up_after(times(2), |_, _| {});
    let queue = queue.build();
    queue.add("a").unwrap();
    drop(queue.try_get().unwrap());
    assert_eq!(reports.take()[1..], [Report::Ended(Ending::Dropped, 0), Report::Failed]);
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    assert_eq!(
        reports.take()[1..],
        [Report::Ended(Ending::Retry, 0)],
        "a failure within a backoff was counted"
    );
    assert_eq!(queue.stats().delayed_adds, 2, "the delay was not counted");
    clock.advance(ns(10));
    queue.try_get().unwrap().retry();
    let told = [Report::Ended(Ending::Retry, 0), Report::Failed, Report::GaveUp(2)];
    assert_eq!(reports.take()[1..], told);
    assert_eq!(queue.stats().delayed_adds, 2, "a key that was given up counted a delay");
    assert!(queue.add_rate_limited("b").is_ok());
    clock.advance(ns(20));
    assert!(queue.add_rate_limited("b").is_err());
    let told = [Report::Failed, Report::Failed, Report::GaveUp(2), Report::Refused(Refused::Exhausted)];
    assert_eq!(reports.take(), told);
}

#[test]
fn a_waiting_adder_is_not_refused() {
    let (clock, reports) = (ManualClock::new(), Reports::default());
    let queue = Queue::builder().timer(clock.timer()).capacity(1).metrics(reports.clone()).build();
    queue.add("a").unwrap();
    assert_eq!(queue.stats().capacity_left, Some(0));
    assert!(queue.add_when_room("b").now_or_never().is_none());
    assert!(reports.take().is_empty());
    assert!(
        queue.add("b").is_err() && queue.add_ref(&"b").is_err() && !queue.add_many(["b"]).refused.is_empty()
    );
    assert_eq!(reports.take(), [Report::Refused(Refused::Full); 3]);
}

#[test]
fn an_overdue_lease_is_reported_once() {
    let (queue, clock, reports) = measured();
    queue.add("a").unwrap();
    let _lease = queue.try_get().unwrap();
    let mut watcher = Task::new(queue.next_overdue(ns(30)));
    assert!(watcher.poll().is_pending());
    clock.advance(ns(31));
    assert!(watcher.poll().is_ready());
    assert!(queue.next_overdue(ns(30)).now_or_never().is_none());
    assert_eq!(reports.take()[1..], [Report::Overdue(31)]);
}

/// Hand-outs of a batch, and the ends of detached and dropped leases, are reported.
#[test]
fn batches_and_detached_leases_are_reported() {
    let (queue, clock, reports) = measured();
    _ = queue.add_many(["a", "b"]);
    clock.advance(ns(3));
    let mut leases = queue.try_get_many(5).unwrap();
    assert_eq!(reports.take(), [handed_out(3); 2]);
    let key = leases.remove(0).detach();
    clock.advance(ns(4));
    assert!(reports.take().is_empty(), "detaching reported an end");
    queue.done(&key).unwrap();
    drop(leases);
    assert_eq!(reports.take(), [Report::Ended(Ending::Done, 4), Report::Ended(Ending::Dropped, 4)]);
}

/// If the order gathers a due key, metrics still use the deadline of the key.
#[test]
fn metrics_do_not_depend_on_the_order() {
    let (clock, reports) = (ManualClock::new(), Reports::default());
    let order = Fair::by_group(|_: &&str| ());
    let queue = Queue::builder().order(order).timer(clock.timer()).metrics(reports.clone()).build();
    queue.add_after("a", ns(10)).unwrap();
    clock.advance(ns(15));
    queue.add("b").unwrap(); // gathers
    assert_eq!((queue.stats().adds, queue.stats().depth()), (2, 2));
    clock.advance(ns(5));
    queue.try_get().unwrap().done();
    assert_eq!(reports.take()[0], Report::HandedOut { queued: 10, delayed: true });
    assert_eq!((queue.stats().adds, queue.stats().depth()), (2, 1));
    queue.check().unwrap();
}

#[derive(Clone, Default)]
struct Watching(Arc<Mutex<Vec<StatsReader>>>);

impl QueueMetrics for Watching {
    fn register(&self, queue: StatsReader) {
        self.0.lock().unwrap().push(queue);
    }
}

/// A `StatsReader` does not keep the queue alive, and each sink receives one.
#[test]
fn a_watch_ends_with_the_queue() {
    let (one, other) = (Watching::default(), Watching::default());
    let queue = Queue::builder().metrics(one.clone()).metrics(Arc::new(other.clone())).build();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    drop(queue);
    for sink in [&one, &other] {
        let watches = sink.0.lock().unwrap();
        assert_eq!(watches.len(), 1);
        assert_eq!(
            watches[0].read().map(|read| read.leased),
            Some(1),
            "the lease does not keep the queue alive"
        );
    }
    drop(lease);
    for sink in [&one, &other] {
        assert!(sink.0.lock().unwrap()[0].read().is_none());
    }
}

/// A stop counts all due keys as withdrawn, even if there are more of them than one operation gathers.
#[test]
fn a_stop_counts_gathered_keys_as_withdrawn() {
    let clock = ManualClock::new();
    let order = Fair::by_group(|_: &u32| ());
    let queue = Queue::builder().timer(clock.timer()).order(order).metrics(Reports::default()).build();
    for key in 0..200 {
        queue.add_after(key, ns(1)).unwrap();
    }
    clock.advance(ns(1));
    assert_eq!(queue.stop_now().ready.len(), 200);
    queue.check().unwrap();
    assert_eq!(queue.stats().adds, 200);
}

/// If the waker of another waiter panics during a hand-out, the lease reaches the caller, and the hand-out is counted once.
#[test]
fn a_hand_out_whose_wake_up_panics_is_counted_once() {
    let clock = ManualClock::new();
    let queue = Queue::<u32>::builder().timer(clock.timer()).metrics(Reports::default()).build();
    assert_eq!(queue.add_many([1, 2]).new, 2);
    let mut watch = Box::pin(queue.next_overdue(ns(9)));
    assert!(poll_with(watch.as_mut(), &Waker::from(Arc::new(Panicking))).is_pending());
    let _lease = queue.try_get().unwrap();
    queue.check().unwrap();
    let read = queue.stats();
    assert_eq!((read.adds, read.depth(), read.leased), (2, 1, 1));
}
