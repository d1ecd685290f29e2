//! EDGE. Wakes through tokio's timer wheel.
//!
//! Cancel safety: `wake_at` completes at once, so there is nothing to cancel. Dropping the timer drops its alarm.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::sync::Mutex;
use crate::{Clock, Nanos, Timer};

/// A timer on tokio's clock and timer wheel: no task, no thread, nothing at rest.
///
/// It may be used from anywhere, also outside the runtime that it belongs to, and follows that runtime's clock
/// when a test pauses it. Its time line starts when it is made. tokio's wheel has a resolution of one millisecond
/// and rounds up.
///
/// | guarded by `sleep` | |
/// |---|---|
/// | the alarm | taken out while it is set, so that nothing runs under the lock: setting it clones, drops and sometimes wakes wakers |
///
/// # Panics
/// [`wake_at`](Timer::wake_at) panics when the runtime has no timer (`enable_time`) or has been shut down.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Clock, Nanos, TokioTimer};
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let timer = TokioTimer::current();
/// tokio::time::sleep(Duration::from_secs(3)).await;
/// assert!(timer.now() >= Nanos::ZERO + Duration::from_secs(3));
/// # });
/// ```
pub struct TokioTimer {
    runtime: Handle,
    origin: Instant,
    sleep: Mutex<Option<Pin<Box<Sleep>>>>,
}

// === impl TokioTimer ===

impl TokioTimer {
    /// A timer on the runtime this is called in.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    #[track_caller]
    pub fn current() -> Self {
        Self::new(Handle::current())
    }

    /// A timer on the runtime of `runtime`.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        let origin = now_in(&runtime);
        Self { runtime, origin, sleep: Mutex::new(None) }
    }

    /// Sets the alarm in `sleep` or in a new one; `None` when it is due. Runs without the lock.
    ///
    /// A due one is dropped, not kept: it would hold on to its waker, and wake it when it is set the next time.
    fn arm(&self, at: Nanos, waker: &Waker, sleep: Option<Pin<Box<Sleep>>>) -> Option<Pin<Box<Sleep>>> {
        let now = now_in(&self.runtime);
        // `Nanos::MAX` may be beyond what the machine's clock can add up, and an early wake-up is allowed.
        let deadline = now + at.since(self.reading(now)).min(LONGEST_SLEEP);
        let mut sleep = match sleep {
            Some(mut sleep) => {
                sleep.as_mut().reset(deadline);
                sleep
            }
            None => {
                let _inside = self.runtime.enter();
                Box::pin(sleep_until(deadline))
            }
        };
        // Without a task's budget: a task that has used it up would be woken early, again and again.
        let mut unhindered = unconstrained(sleep.as_mut());
        match Pin::new(&mut unhindered).poll(&mut Context::from_waker(waker)) {
            Poll::Ready(()) => None,
            Poll::Pending => Some(sleep),
        }
    }

    fn reading(&self, now: Instant) -> Nanos {
        Nanos::ZERO + now.saturating_duration_since(self.origin)
    }
}

impl Clock for TokioTimer {
    fn now(&self) -> Nanos {
        self.reading(now_in(&self.runtime))
    }
}

impl Timer for TokioTimer {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        let taken = self.sleep.lock().take();
        let Some(sleep) = self.arm(at, waker, taken) else {
            waker.wake_by_ref();
            return;
        };
        let mut slot = self.sleep.lock();
        let surplus = match *slot {
            // Another alarm was set meanwhile, from a waker that was woken or dropped in here: the latest counts.
            Some(_) => Some(sleep),
            None => slot.replace(sleep),
        };
        drop(slot);
        drop(surplus);
    }
}

impl fmt::Debug for TokioTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioTimer").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Tokio's clock is a property of the runtime: outside it, a paused clock would not be seen.
fn now_in(runtime: &Handle) -> Instant {
    let _inside = runtime.enter();
    Instant::now()
}

/// Below tokio's own limit of about two years, above which it would have to wake in between by itself.
const LONGEST_SLEEP: Duration = Duration::from_secs(365 * 24 * 60 * 60);
