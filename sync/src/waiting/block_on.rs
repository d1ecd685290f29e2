//! SHELL. Runs a future on the calling thread, which sleeps while the future is pending.
//!
//! | what | guarded by |
//! |---|---|
//! | whether the thread was woken since it last slept | `woken` |
//!
//! The thread checks `woken` and falls asleep in one critical section, so a wake-up between these two steps is not lost. A spurious wake-up
//! costs one more poll.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::locks::{Condvar, Mutex};
use crate::time::clock::{Clock, Monotonic};

/// Runs a future to completion on this thread, without a runtime.
///
/// A future that waits for a runtime's timer needs that runtime; [`ThreadTimer`](crate::ThreadTimer) needs none.
///
/// # Panics
/// Panics if the future panics. Do not call this in a task of a runtime, because it blocks the thread.
///
/// # Examples
/// ```
/// assert_eq!(flyball_sync::block_on(async { 6 * 7 }), 42);
/// ```
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let signal = Arc::new(ThreadSignal::default());
    let waker = Waker::from(signal.clone());
    let (mut future, mut context) = (pin!(Some(future)), Context::from_waker(&waker));
    loop {
        match poll(future.as_mut(), &mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => signal.wait(None),
        }
    }
}

/// Like [`block_on`], but for at most `limit` on the machine's clock; after that the future is dropped, and the result
/// is `None`.
///
/// The future is polled at least once, and once more at the end of the limit if it was woken. So with a `limit` of zero a future that is ready completes,
/// even one that first yields to other tasks. To keep what a future holds after a timeout, pass `&mut future`.
///
/// # Panics
/// Panics if the future panics.
///
/// # Examples
/// ```
/// use flyball_sync::block_on_timeout;
/// use std::time::Duration;
///
/// assert_eq!(block_on_timeout(async { 1 }, Duration::ZERO), Some(1));
/// assert_eq!(block_on_timeout(std::future::pending::<()>(), Duration::from_millis(1)), None);
/// ```
pub fn block_on_timeout<T>(future: impl Future<Output = T>, limit: Duration) -> Option<T> {
    let signal = Arc::new(ThreadSignal::default());
    let waker = Waker::from(signal.clone());
    let (mut future, mut context) = (pin!(Some(future)), Context::from_waker(&waker));
    let end = Monotonic.now() + limit;
    let mut is_last = false;
    loop {
        if let Poll::Ready(output) = poll(future.as_mut(), &mut context) {
            return Some(output);
        }
        let left = end.since(Monotonic.now());
        if !left.is_zero() {
            signal.wait(Some(left));
        } else if is_last || !signal.take() {
            return None;
        } else {
            // A future that has yielded, or was woken at the last moment, may be ready now.
            is_last = true;
        }
    }
}

/// Polls a future, and drops it once it is ready. If it were dropped after the output was returned, and its drop panicked, Rust would leak the output,
/// which may be a guard.
fn poll<F: Future>(mut future: Pin<&mut Option<F>>, context: &mut Context<'_>) -> Poll<F::Output> {
    let Some(own) = future.as_mut().as_pin_mut() else {
        unreachable!("a future that is ready is not polled again")
    };
    let polled = own.poll(context);
    if polled.is_ready() {
        future.set(None);
    }
    polled
}

/// The waker of a thread that sleeps.
#[derive(Debug, Default)]
pub struct ThreadSignal {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl ThreadSignal {
    /// Returns whether the thread was woken since it last slept, and resets this. Does not sleep.
    fn take(&self) -> bool {
        std::mem::take(&mut *self.woken.lock())
    }

    /// Sleeps until woken, for at most `limit`. May also wake up spuriously.
    pub fn wait(&self, limit: Option<Duration>) {
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

impl Wake for ThreadSignal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.woken.lock() = true;
        self.changed.notify_one();
    }
}
