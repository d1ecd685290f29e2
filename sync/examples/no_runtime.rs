//! A timer without a runtime: a task that is woken three times, on the thread that calls `block_on`.
//!
//! Run it with `cargo run -p flyball-sync --example no_runtime`.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use flyball_sync::{Clock, Nanos, ThreadTimer, Timer, block_on, block_on_timeout};

fn main() {
    let timer = ThreadTimer::new();
    let start = timer.now();
    block_on(async {
        for tick in 1..=3 {
            reach(&timer, start + Duration::from_millis(10) * tick).await;
            println!("tick {tick} after {:?}", timer.now().since(start));
        }
    });
    assert!(timer.now() >= start + Duration::from_millis(30), "the task was woken early");

    let too_late = reach(&timer, start + Duration::from_secs(3_600));
    assert_eq!(block_on_timeout(too_late, Duration::from_millis(5)), None);
}

/// Waits as the flyball crates do: reads the clock, and sets the alarm if the deadline has not passed.
async fn reach(timer: &ThreadTimer, deadline: Nanos) {
    poll_fn(|context| {
        if timer.now() >= deadline {
            return Poll::Ready(());
        }
        timer.wake_at(deadline, context.waker());
        Poll::Pending
    })
    .await;
}
