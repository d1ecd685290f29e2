//! EDGE. Waiting on a thread, without a runtime: a future is polled, and the thread parked until its waker unparks it.
//!
//! A wake-up that comes before the thread parks is kept by the thread, and one that is nobody's costs one poll more.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use flyball_ratelimit::{Clock, Monotonic};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// The future's output.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut cx) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// The future's output, unless the time is up first. By the machine's clock.
pub(crate) fn block_on_timeout<T>(future: impl Future<Output = T>, limit: Duration) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut cx) = (pin!(future), Context::from_waker(&waker));
    let end = Monotonic.now() + limit;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
        let left = end.since(Monotonic.now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}
