//! Tests `block_on` and `block_on_timeout`.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
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

/// The output may be a guard, such as a lease of a queue.
#[test]
fn the_output_is_dropped_if_the_drop_of_the_future_panics() {
    struct Hostile(Option<Arc<()>>);
    impl Future for Hostile {
        type Output = Option<Arc<()>>;
        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            Poll::Ready(self.0.take())
        }
    }
    impl Drop for Hostile {
        fn drop(&mut self) {
            assert!(thread::panicking(), "the drop of a future panics");
        }
    }
    let output = Arc::new(());
    let future = || Hostile(Some(output.clone()));
    assert!(catch_unwind(AssertUnwindSafe(|| block_on(future()))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| block_on_timeout(future(), Duration::ZERO))).is_err());
    assert_eq!(Arc::strong_count(&output), 1, "the output was leaked");
}
