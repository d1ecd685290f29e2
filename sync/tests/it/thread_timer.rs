//! Tests `ThreadTimer`, in real time.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use flyball_sync::{Clock, Nanos, ThreadTimer, Timer, block_on};
use testkit::allocator::{CountingAllocator, live_bytes};
use testkit::wakers::{Counting, Panicking};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MILLI: Duration = Duration::from_millis(1);

/// Sends its name when it is woken.
struct Named(&'static str, Sender<&'static str>);

impl Wake for Named {
    fn wake(self: Arc<Self>) {
        self.1.send(self.0).unwrap();
    }
}

fn reach(timer: &ThreadTimer, deadline: Nanos) {
    block_on(poll_fn(|context| {
        if timer.now() >= deadline {
            return Poll::Ready(());
        }
        timer.wake_at(deadline, context.waker());
        Poll::Pending
    }));
}

#[test]
fn wakes_the_timers_of_many_threads_and_never_early() {
    let threads: Vec<_> = (1..=8_u32)
        .map(|number| {
            thread::spawn(move || {
                let timer = ThreadTimer::new();
                for _ in 0..10 {
                    let deadline = timer.now() + MILLI * number;
                    reach(&timer, deadline);
                    assert!(timer.now() >= deadline);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn fires_in_the_order_of_the_deadlines() {
    let (sender, order) = channel();
    let (early, late) = (ThreadTimer::new(), ThreadTimer::new());
    let now = early.now();
    late.wake_at(now + MILLI * 20, &Arc::new(Named("late", sender.clone())).into());
    early.wake_at(now + MILLI * 10, &Arc::new(Named("early", sender)).into());
    assert_eq!(order.iter().take(2).collect::<Vec<_>>(), ["early", "late"]);
}

#[test]
fn a_new_alarm_replaces_the_one_before() {
    let (sender, order) = channel();
    let timer = ThreadTimer::new();
    let (old, _) = Counting::waker();
    timer.wake_at(timer.now() + MILLI, &old.clone().into());
    timer.wake_at(timer.now() + MILLI * 10, &Arc::new(Named("new", sender)).into());
    assert_eq!(order.recv(), Ok("new"));
    assert!(old.wakes() <= 1, "the replaced alarm fired more than once");
    assert!(order.recv().is_err(), "the new alarm fired twice");
}

#[test]
fn a_dropped_timer_drops_its_alarm() {
    let (sender, order) = channel();
    let timer = ThreadTimer::new();
    timer.wake_at(timer.now() + Duration::from_secs(3_600), &Arc::new(Named("dropped", sender)).into());
    drop(timer);
    assert!(order.recv().is_err(), "the waker was not dropped");
}

#[test]
fn a_panicking_waker_takes_no_other_alarm_with_it() {
    let (sender, order) = channel();
    let (hostile, friendly) = (ThreadTimer::new(), ThreadTimer::new());
    let now = hostile.now();
    hostile.wake_at(now, &Arc::new(Panicking).into());
    friendly.wake_at(now + MILLI, &Arc::new(Named("friendly", sender)).into());
    assert_eq!(order.recv(), Ok("friendly"));
}

#[test]
fn far_alarms_do_not_stop_near_ones() {
    let (far, near) = (ThreadTimer::new(), ThreadTimer::new());
    let (counter, waker) = Counting::waker();
    far.wake_at(Nanos::MAX, &waker);
    reach(&near, near.now() + MILLI);
    assert_eq!(counter.wakes(), 0);
}

#[test]
fn a_disarmed_alarm_does_not_fire() {
    let (disarmed, other) = (ThreadTimer::new(), ThreadTimer::new());
    let (wakes, waker) = Counting::waker();
    let now = other.now();
    disarmed.wake_at(now + MILLI, &waker);
    disarmed.disarm();
    disarmed.disarm();
    reach(&other, now + MILLI * 5);
    assert_eq!(wakes.wakes(), 0);
    // An alarm that is set again while the thread sleeps for a later one, or lingers, is on time.
    for step in 1..=20 {
        other.wake_at(other.now() + MILLI * 3_600_000, &waker);
        other.disarm();
        disarmed.wake_at(now + MILLI * 3_600_000, &waker);
        reach(&other, other.now() + MILLI * step / 10);
        disarmed.disarm();
    }
    assert_eq!(wakes.wakes(), 0);
}

#[test]
fn a_burst_of_alarms_leaves_no_memory() {
    let before = live_bytes();
    let timers: Vec<_> = (0..20_000).map(|_| ThreadTimer::new()).collect();
    for timer in &timers {
        timer.wake_at(timer.now() + MILLI * 3_600_000, Waker::noop());
    }
    let most = live_bytes() - before;
    drop(timers);
    let left = live_bytes() - before;
    assert!(left < most / 10, "{left} of {most} bytes are left");
}
