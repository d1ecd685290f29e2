//! Waits are woken when what they wait for has changed, and only then; and no alarm is set that no future waits for.

use flyball_sync::block_on_timeout;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos, ThreadTimer, Timer};
use flyball_workqueue::{DrainOptions, Fair, GetTimeoutError, Queue, TryGetError};
use futures_util::future::{join, select};
use testkit::wakers::{Counting, poll_with};

use crate::support::{backoff, ns, timed};
use crate::task::{Task, lists};

const HOUR: Duration = Duration::from_secs(3600);

type Groups = Queue<
    (&'static str, u32),
    Fair<(&'static str, u32), &'static str>,
    flyball_workqueue::NoLimiter,
    ManualTimer,
>;

/// A queue whose group "off" is suspended, and its clock.
fn with_suspended_group() -> (Groups, ManualClock) {
    let clock = ManualClock::new();
    let order = Fair::by_group(|key: &(&'static str, u32)| key.0)
        .max_leased(|group| if *group == "off" { 0 } else { u32::MAX });
    (Queue::builder().order(order).timer(clock.timer()).build(), clock)
}

// ---- wake-ups without cause ------------------------------------------------------------------------------------

#[test]
fn a_wait_for_an_empty_queue_is_not_woken_by_an_idle_one() {
    let (queue, clock) = timed();
    queue.add_after("a", HOUR).unwrap();
    let mut empty = Task::waiting(queue.timeout(ns(5), queue.wait_empty()));
    assert_eq!(empty.wakes(), 0, "the future has woken its own task");
    queue.add("b").unwrap();
    queue.try_get().unwrap().done();
    assert_eq!(empty.wakes(), 0, "woken by an idle queue");
    clock.advance(ns(5));
    assert_eq!((empty.wakes(), empty.finish()), (1, None));
    let mut empty = Task::waiting(queue.wait_empty());
    queue.cancel(&"a");
    assert_eq!(empty.wakes(), 1);
    empty.finish();
}

#[test]
fn a_wait_for_an_idle_queue_pends_without_waking_itself_while_a_key_is_due_in_a_paused_queue() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(1)).unwrap();
    queue.pause();
    clock.advance(ns(2));
    let mut idle = Task::waiting(queue.timeout(ns(5), queue.wait_idle()));
    assert_eq!(idle.wakes(), 0, "the future has woken its own task");
    clock.advance(ns(5));
    assert_eq!((idle.wakes(), idle.finish()), (1, None));
}

#[test]
fn a_wait_for_an_empty_queue_beside_a_getter_in_one_task_is_polled_once() {
    let (queue, _clock) = timed();
    queue.add_after("a", HOUR).unwrap();
    let task = Task::waiting(select(Box::pin(queue.wait_empty()), Box::pin(queue.get())));
    assert_eq!(task.wakes(), 0);
}

#[test]
fn a_wait_for_an_empty_queue_pends_without_waking_itself_while_a_group_is_suspended() {
    let (queue, _clock) = with_suspended_group();
    queue.add(("off", 1)).unwrap();
    let empty = Task::waiting(queue.timeout(HOUR, queue.wait_empty()));
    let getter = Task::waiting(queue.timeout(HOUR, queue.get()));
    assert_eq!((empty.wakes(), getter.wakes()), (0, 0));
}

#[test]
fn a_wait_for_an_idle_queue_beside_a_watcher_in_one_task_is_polled_once() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(1)).unwrap();
    clock.advance(ns(2));
    let task = Task::waiting(join(queue.wait_idle(), queue.next_overdue(HOUR)));
    assert_eq!(task.wakes(), 0);
}

/// A pause does not read a later time than the waiter.
#[test]
fn a_pause_does_not_wake_a_wait_for_an_idle_queue() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(1)).unwrap();
    clock.advance(ns(2));
    let idle = Task::waiting(queue.wait_idle());
    queue.pause();
    drop(Task::waiting(queue.get()));
    assert_eq!(idle.wakes(), 0);
}

/// A cancel notes the time at which the queue is not idle, because another key is due. A getter that is dropped reads no clock: it must not check at an
/// earlier time.
#[test]
fn a_cancel_beside_a_key_that_is_due_does_not_wake_a_wait_for_an_idle_queue() {
    let (queue, clock) = timed();
    queue.pause();
    queue.add("a").unwrap();
    queue.add_after("due", ns(2)).unwrap();
    let idle = Task::waiting(queue.wait_idle());
    let getter = Task::waiting(queue.get());
    clock.advance(ns(2));
    assert!(queue.cancel(&"a"));
    drop(getter);
    assert_eq!(idle.wakes(), 0);
}

// ---- the end of a drain ----------------------------------------------------------------------------------------

#[test]
fn getters_end_at_the_limit_of_a_drain_although_a_lease_is_stuck() {
    let (queue, clock) = backoff();
    _ = queue.add_many(["stuck", "dirty"]);
    let stuck = queue.try_get().unwrap();
    let dirty = queue.try_get().unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(50))));
    let mut getters = [Task::waiting(queue.get()), Task::waiting(queue.get())];
    dirty.done();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty, "the lease may still fail");
    thread::scope(|scope| {
        let blocked = scope.spawn(|| queue.blocking_get().is_none());
        let timed = scope.spawn(|| queue.blocking_get_timeout(HOUR).err());
        while queue.try_get().err() != Some(TryGetError::Closed) {
            clock.advance(ns(10));
            thread::yield_now();
        }
        assert_eq!(clock.now(), Nanos::new(50));
        assert!(blocked.join().unwrap());
        assert_eq!(timed.join().unwrap(), Some(GetTimeoutError::Closed));
    });
    assert_eq!(lists(drain.finish()), (vec![], vec![], vec!["stuck"]));
    for getter in &mut getters {
        assert!(getter.was_woken(), "a getter waits for a stuck lease");
        assert!(getter.finish().is_none());
    }
    // A failure at or after the limit is a leftover.
    stuck.retry();
    assert_eq!(lists(queue.stop_now()), (vec![], vec!["stuck"], vec![]));
}

/// A leased key whose deadline has passed at the limit runs once more, so the queue is not closed before its lease ends.
#[test]
fn a_key_that_is_due_at_the_limit_of_a_drain_keeps_the_queue_open_until_its_lease_ends() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add_after("a", ns(30)).unwrap();
    let _drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(50))));
    let mut getter = Task::waiting(queue.get());
    clock.advance(ns(60));
    assert!(getter.poll().is_pending());
    lease.done();
    assert!(getter.was_woken());
    assert_eq!(*getter.finish().unwrap(), "a");
}

#[test]
fn a_drain_ends_as_soon_as_only_keys_of_suspended_groups_are_left() {
    for by_deadline in [false, true] {
        let (queue, clock) = with_suspended_group();
        if by_deadline {
            queue.add_after(("off", 1), ns(10)).unwrap();
        } else {
            queue.add(("off", 1)).unwrap();
        }
        queue.add(("on", 1)).unwrap();
        let lease = queue.try_get().unwrap();
        let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(HOUR)));
        let mut getter = Task::waiting(queue.get());
        let mut watcher = Task::waiting(queue.next_overdue(HOUR * 2));
        lease.done();
        clock.advance(ns(10));
        assert!(drain.was_woken(), "the drain takes its whole limit");
        assert_eq!(lists(drain.finish()), (vec![("off", 1)], vec![], vec![]));
        assert!(getter.was_woken(), "a getter waits, although the queue is closed");
        assert!(getter.finish().is_none());
        assert!(watcher.was_woken(), "a watcher waits, although the queue is drained");
        assert!(watcher.finish().is_none());
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
        queue.check().unwrap();
    }
}

#[test]
fn a_drain_without_getters_ends_as_soon_as_only_keys_of_suspended_groups_are_left() {
    let (queue, clock) = with_suspended_group();
    queue.add_after(("off", 1), ns(10)).unwrap();
    queue.add_after(("off", 2), ns(20)).unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(HOUR)));
    thread::scope(|scope| {
        let blocked = scope.spawn(|| lists(queue.blocking_drain(DrainOptions::serve_waiting(HOUR))));
        clock.advance(ns(10));
        assert_eq!(drain.wakes(), 0);
        while queue.try_get().err() != Some(TryGetError::Closed) {
            clock.advance(ns(10));
        }
        assert_eq!(blocked.join().unwrap().0.len(), 2);
    });
    assert!(drain.was_woken(), "the drain takes its whole limit");
    assert_eq!(lists(drain.finish()).0.len(), 2);
}

// ---- alarms ----------------------------------------------------------------------------------------------------

#[test]
fn an_alarm_is_removed_when_its_last_waiter_is_dropped() {
    let (queue, clock) = timed();
    queue.add_after("a", HOUR).unwrap();
    let stays = Task::waiting(queue.get());
    drop(Task::waiting(queue.get()));
    assert_eq!(clock.next_alarm(), Some(Nanos::ZERO + HOUR));
    drop(stays);
    assert_eq!(clock.next_alarm(), None, "an alarm outlives its wait");
    // The other waits that set an alarm.
    drop(Task::waiting(queue.timeout(ns(5), queue.get())));
    drop(Task::waiting(queue.timeout(ns(5), queue.wait_empty())));
    assert_eq!(clock.next_alarm(), None);
    queue.add("b").unwrap();
    let _lease = queue.try_get().unwrap();
    drop(Task::waiting(queue.next_overdue(ns(5))));
    drop(Task::waiting(queue.drain(DrainOptions::serve_waiting(HOUR))));
    assert_eq!(clock.next_alarm(), None);
}

#[test]
fn an_alarm_is_removed_when_its_key_is_cancelled() {
    let (queue, clock) = timed();
    queue.add_after("a", HOUR).unwrap();
    let _getter = Task::waiting(queue.get());
    queue.cancel(&"a");
    assert_eq!(clock.next_alarm(), None, "an alarm outlives its key");
    queue.add_after("a", HOUR).unwrap();
    assert_eq!(clock.next_alarm(), Some(Nanos::ZERO + HOUR));
    queue.pause();
    assert_eq!(clock.next_alarm(), None, "a paused queue hands out no key");
    queue.resume();
    assert_eq!(clock.next_alarm(), Some(Nanos::ZERO + HOUR));
    drop(queue.stop_now());
    assert_eq!(clock.next_alarm(), None);
}

#[test]
fn an_alarm_is_removed_when_the_last_waiter_gets_a_key_or_its_limit_has_passed() {
    let (queue, clock) = timed();
    queue.add_after("a", HOUR).unwrap();
    let mut getter = Task::waiting(queue.get());
    queue.add("b").unwrap();
    let lease = getter.finish().unwrap();
    assert_eq!(clock.next_alarm(), None);
    lease.done();
    let mut limited = Task::waiting(queue.timeout(ns(5), queue.get()));
    clock.advance(ns(5));
    assert!(limited.finish().is_none());
    drop(limited);
    assert_eq!(clock.next_alarm(), None);
}

#[test]
fn an_alarm_is_removed_when_a_drain_that_blocks_its_thread_ends() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    thread::scope(|scope| {
        let drain = scope.spawn(|| queue.blocking_drain(DrainOptions::serve_waiting(HOUR)));
        // The drain waits for the lease, or for the end of its limit.
        while clock.next_alarm().is_none() {
            thread::yield_now();
        }
        lease.done();
        assert!(drain.join().unwrap().is_empty());
    });
    assert_eq!(clock.next_alarm(), None, "an alarm outlives its drain");
}

/// A delay of `Duration::MAX` never ends. A paused clock would advance to its alarm again and again.
#[test]
fn a_wait_for_ever_sets_no_alarm() {
    let (queue, clock) = timed();
    queue.add_after("a", Duration::MAX).unwrap();
    let _getters = [
        Task::waiting(queue.timeout(Duration::MAX, queue.get())),
        Task::waiting(queue.timeout(Duration::MAX, queue.get())),
    ];
    let _drain = Task::new(queue.drain(DrainOptions::serve_waiting(Duration::MAX))).poll();
    assert_eq!(clock.next_alarm(), None);
}

// ---- threads without an alarm ----------------------------------------------------------------------------------

/// A timer in real time that counts its alarms.
#[derive(Default)]
struct Alarms {
    timer: ThreadTimer,
    set: Arc<AtomicUsize>,
}

impl Clock for Alarms {
    fn now(&self) -> Nanos {
        self.timer.now()
    }
}

impl Timer for Alarms {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        self.set.fetch_add(1, Ordering::Relaxed);
        self.timer.wake_at(at, waker);
    }

    fn is_real_time(&self) -> bool {
        true
    }
}

/// On a clock in real time, a blocked thread sleeps until its deadline, so a program of threads has no timer thread.
#[test]
fn no_alarm_is_set_for_a_thread_if_the_clock_runs_in_real_time() {
    let alarms = Alarms::default();
    let set = alarms.set.clone();
    let queue = Queue::builder().timer(alarms).build();
    queue.add_after("a", Duration::from_millis(2)).unwrap();
    let lease = queue.blocking_get().unwrap();
    queue.add_after("b", HOUR).unwrap();
    assert!(queue.blocking_get_timeout(Duration::from_millis(1)).is_err());
    assert!(block_on_timeout(queue.wait_idle(), Duration::from_millis(1)).is_none());
    lease.done();
    let left = queue.blocking_drain(DrainOptions::serve_waiting(Duration::from_millis(2)));
    assert_eq!((left.waiting, set.load(Ordering::Relaxed)), (vec!["b"], 0));
}

#[test]
fn an_alarm_is_set_for_a_task_in_real_time() {
    let alarms = Alarms::default();
    let set = alarms.set.clone();
    let queue = Queue::builder().timer(alarms).build();
    queue.add_after("a", HOUR).unwrap();
    let _getter = Task::waiting(queue.get());
    assert_eq!(set.load(Ordering::Relaxed), 1);
}

// ---- an adder that takes its key back --------------------------------------------------------------------------

/// The wake-up of an adder that was woken for room, and does not use it, goes to the next adder.
#[test]
fn an_adder_that_takes_its_key_back_passes_its_wake_up_on() {
    let queue = Queue::builder().capacity(1).build();
    queue.add("full").unwrap();
    let (first_woken, first_waker) = Counting::waker();
    let mut first = queue.add_when_room("first");
    assert!(poll_with(Pin::new(&mut first), &first_waker).is_pending());
    let mut second = Task::waiting(queue.add_when_room("second"));
    queue.try_get().unwrap().done();
    assert_eq!((first_woken.wakes(), second.wakes()), (1, 0));
    assert_eq!(first.into_key(), Some("first"));
    assert_eq!(second.wakes(), 1, "the wake-up is lost");
    assert!(second.finish().is_ok());
}
