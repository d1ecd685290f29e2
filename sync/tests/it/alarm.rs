//! The protocol of one alarm: which thread calls the timer, and the state after the timer has panicked.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use flyball_sync::Nanos;
use flyball_sync::locks::Mutex;
use flyball_sync::waiting::{Alarm, Alarmed, TimerCall, arm, waker};

#[derive(Default)]
struct Owner {
    alarm: Mutex<Alarm>,
    failed: Mutex<usize>,
}

impl Alarmed for Owner {
    fn with_alarm<R>(&self, change: impl FnOnce(&mut Alarm) -> R) -> R {
        change(&mut self.alarm.lock())
    }

    fn on_alarm(&self) {}

    fn alarm_failed(&self) {
        self.alarm.lock().reset();
        *self.failed.lock() += 1;
    }
}

fn at(nanos: u64) -> Nanos {
    Nanos::new(nanos)
}

fn wake_at(nanos: u64) -> TimerCall {
    TimerCall::WakeAt(at(nanos))
}

#[test]
fn a_later_alarm_does_not_replace_an_earlier_one() {
    let owner = Owner::default();
    let set = RefCell::new(Vec::new());
    let request = |time| {
        if let Some(call) = owner.with_alarm(|alarm| alarm.request(at(time))) {
            arm(&owner, call, |call| set.borrow_mut().push(call));
        }
    };
    request(10);
    request(20);
    request(10);
    request(5);
    assert_eq!(*set.borrow(), [wake_at(10), wake_at(5)]);
    assert_eq!(owner.with_alarm(Alarm::fired), Some(at(5)));
    assert_eq!(owner.with_alarm(Alarm::fired), None);
}

#[test]
fn an_earlier_alarm_that_is_wanted_meanwhile_is_set_by_the_thread_in_the_timer() {
    let owner = Owner::default();
    let set = RefCell::new(Vec::new());
    let first = owner.with_alarm(|alarm| alarm.request(at(10))).unwrap();
    arm(&owner, first, |call| {
        set.borrow_mut().push(call);
        if call == wake_at(10) {
            assert!(owner.with_alarm(|alarm| alarm.is_arming()));
            assert_eq!(
                owner.with_alarm(|alarm| alarm.request(at(3))),
                None,
                "another thread is in the timer"
            );
        }
    });
    assert_eq!(*set.borrow(), [wake_at(10), wake_at(3)]);
    assert!(!owner.with_alarm(|alarm| alarm.is_arming()));
}

#[test]
fn an_alarm_that_rings_within_the_timer_can_be_set_again() {
    let owner = Owner::default();
    let first = owner.with_alarm(|alarm| alarm.request(at(10))).unwrap();
    arm(&owner, first, |call| {
        assert_eq!(owner.with_alarm(Alarm::fired).is_some(), call == wake_at(10));
    });
    assert_eq!(owner.with_alarm(|alarm| alarm.request(at(30))), Some(wake_at(30)));
}

#[test]
fn a_timer_that_panics_leaves_no_alarm_and_no_thread_in_it() {
    let owner = Owner::default();
    let first = owner.with_alarm(|alarm| alarm.request(at(10))).unwrap();
    let armed = catch_unwind(AssertUnwindSafe(|| arm(&owner, first, |_| panic!("the timer panics"))));
    assert!(armed.is_err());
    assert_eq!(*owner.failed.lock(), 1);
    assert_eq!(owner.with_alarm(|alarm| alarm.request(at(10))), Some(wake_at(10)));
}

#[test]
fn an_alarm_without_a_waiter_is_removed_once() {
    let owner = Owner::default();
    let calls = RefCell::new(Vec::new());
    let perform = |call: Option<TimerCall>| {
        if let Some(call) = call {
            arm(&owner, call, |call| calls.borrow_mut().push(call));
        }
    };
    perform(owner.with_alarm(Alarm::release));
    perform(owner.with_alarm(|alarm| alarm.request(at(10))));
    assert!(owner.with_alarm(|alarm| alarm.is_set()));
    perform(owner.with_alarm(Alarm::release));
    perform(owner.with_alarm(Alarm::release));
    assert!(!owner.with_alarm(|alarm| alarm.is_set()));
    perform(owner.with_alarm(|alarm| alarm.request(at(20))));
    assert_eq!(*calls.borrow(), [wake_at(10), TimerCall::Disarm, wake_at(20)]);
}

/// The last request counts, whichever thread calls the timer.
#[test]
fn an_alarm_that_is_released_while_it_is_set_is_removed_by_the_thread_in_the_timer() {
    for fires in [false, true] {
        let owner = Owner::default();
        let calls = RefCell::new(Vec::new());
        let first = owner.with_alarm(|alarm| alarm.request(at(10))).unwrap();
        arm(&owner, first, |call| {
            calls.borrow_mut().push(call);
            if call == wake_at(10) {
                // An earlier alarm fires, or the last waiter leaves, before the timer is set to 10.
                match fires {
                    true => assert_eq!(owner.with_alarm(Alarm::fired), Some(at(10))),
                    false => assert_eq!(owner.with_alarm(Alarm::release), None),
                }
            }
        });
        assert_eq!(*calls.borrow(), [wake_at(10), TimerCall::Disarm]);
        assert!(!owner.with_alarm(|alarm| alarm.is_arming()));
    }
}

/// The panics of waiters, of a clock, or of a last reference that is dropped.
#[test]
fn the_waker_of_an_alarm_never_panics() {
    struct Panics;

    impl Alarmed for Panics {
        fn with_alarm<R>(&self, _: impl FnOnce(&mut Alarm) -> R) -> R {
            unreachable!("the alarm is not set")
        }

        fn on_alarm(&self) {
            panic!("a waiter panics");
        }

        fn alarm_failed(&self) {}
    }

    let owner = Arc::new(Panics);
    let alarm = waker(Arc::downgrade(&owner));
    alarm.wake_by_ref();
    drop(owner);
    alarm.wake();
}
