//! SHELL. Waiting on a thread, without a runtime: a future is polled, and the thread sleeps until its waker is woken.
//!
//! | what | guarded by |
//! |---|---|
//! | whether it was woken since it last slept | `woken` |
//!
//! The look at `woken` and falling asleep are one critical section, so no wake-up comes in between. One that is nobody's costs one poll more.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use flyball_ratelimit::{Clock, Monotonic};

use crate::sync::{Condvar, Mutex};

/// The future's output.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(signal.clone());
    let (mut future, mut cx) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => signal.wait(None),
        }
    }
}

/// The future's output, unless the time is up first. By the machine's clock.
pub(crate) fn block_on_timeout<T>(future: impl Future<Output = T>, limit: Duration) -> Option<T> {
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(signal.clone());
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
        signal.wait(Some(left));
    }
}

/// Wakes a thread that sleeps.
#[derive(Default)]
struct Signal {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Sleeps until it is woken, for at most so long; may wake up for nothing.
    fn wait(&self, limit: Option<Duration>) {
        let mut woken = self.woken.lock();
        if !*woken {
            woken = match limit {
                Some(limit) => self.changed.wait_for(woken, limit),
                None => self.changed.wait(woken),
            };
        }
        *woken = false;
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.woken.lock() = true;
        self.changed.notify_one();
    }
}
