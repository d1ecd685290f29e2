//! Tests `block_on` and `block_on_timeout`.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use flyball_sync::{block_on, block_on_timeout};

#[test]
fn sleeps_until_another_thread_wakes_it() {
    let mut polls = 0;
    let polls = block_on(poll_fn(|context| {
        polls += 1;
        if polls > 1 {
            return Poll::Ready(polls);
        }
        let waker = context.waker().clone();
        thread::spawn(move || waker.wake());
        Poll::Pending
    }));
    assert_eq!(polls, 2);
}

#[test]
fn polls_again_after_a_wake_up_within_the_poll() {
    let mut polls = 0;
    block_on(poll_fn(|context| {
        polls += 1;
        context.waker().wake_by_ref();
        if polls == 3 { Poll::Ready(()) } else { Poll::Pending }
    }));
    assert_eq!(polls, 3);
}

#[test]
fn a_limit_of_zero_takes_what_is_ready() {
    assert_eq!(block_on_timeout(async { 7 }, Duration::ZERO), Some(7));
    assert_eq!(block_on_timeout(pending::<()>(), Duration::ZERO), None);
}

#[test]
fn passes_a_panic_on() {
    assert!(catch_unwind(AssertUnwindSafe(|| block_on(async { panic!("the future panics") }))).is_err());
}
