//! EDGE. A timer on tokio's timer wheel.
//!
//! Cancel safety: `wake_at` does not wait, so there is nothing to cancel. `disarm` removes the alarm, and so does dropping the timer.

mod pausable;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::locks::Mutex;
use crate::panics::caught;
use crate::time::clock::Clock;
use crate::time::nanos::Nanos;
use crate::time::thread_timer::ThreadTimer;
use crate::time::timer::Timer;
use crate::waiting::wakers::ContainedWaker;

/// A timer on tokio's clock and timer wheel, without a task or thread of its own.
///
/// You can use the timer outside its runtime, too, but the runtime must be driven: a `current_thread` runtime serves alarms only while it is in
/// `block_on`. Afterwards, use `blocking_get` and `blocking_drain` of a queue, which need no alarm. When a test pauses the runtime's clock, the timer follows the paused
/// clock. So in a build with tokio's feature `test-util`, in which the clock can be paused, these need the alarm, too: drive the runtime meanwhile, or
/// drop it. The origin of the timer's clock is the time at which the timer is created. tokio's wheel has a resolution of one
/// millisecond and rounds up.
///
/// A waker that panics affects neither the runtime nor other tasks: tokio is given a waker that catches its panics. The panic hook still runs.
///
/// | guarded by `alarm` | |
/// |---|---|
/// | the alarm | taken out while it is being set, because setting an alarm drops and sometimes wakes wakers, which runs user code |
///
/// # After the runtime has shut down
/// A runtime that has been shut down, or was built without `enable_time`, serves no alarms. A waiter that is a thread, or a task on a different
/// runtime, is still woken: from then on, a [`ThreadTimer`] serves the alarms in real time. tokio refuses an alarm by panicking. The timer catches
/// this panic, but the panic hook still runs, once. A program that is built with `panic = "abort"` ends there: let such a program shut its queues and
/// limiters down before the runtime.
///
/// # Examples
/// ```
/// use flyball_sync::{Clock, Nanos, TokioTimer};
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
    /// Whether the runtime's clock can be paused; such a clock must be read within the runtime.
    pausable: bool,
    origin: Instant,
    alarm: Mutex<Option<Alarm>>,
    /// Serves the alarms once the runtime has refused one.
    thread: OnceLock<ThreadTimer>,
}

/// The alarm, and the waker that tokio was given. Both allocations are used again for the next alarm, even after the alarm was disarmed: a worker whose
/// `get` waits beside a delayed key sets and disarms an alarm for each key.
struct Alarm {
    /// `None` while the alarm is disarmed.
    sleep: Pin<Box<Option<Sleep>>>,
    waker: ContainedWaker,
}

/// The result of setting an alarm.
enum Armed {
    Set,
    Due,
    /// The runtime is shutting down: it fires all alarms early.
    Gone,
}

// === impl Alarm ===

impl Alarm {
    fn new() -> Self {
        Self { sleep: Box::pin(None), waker: ContainedWaker::new() }
    }

    /// Removes the alarm from tokio's wheel, and drops the user's waker. The caller must not hold the lock.
    fn disarm(&mut self) {
        self.sleep.set(None);
        let waker = self.waker.replace(None);
        caught(|| drop(waker));
    }
}

// === impl TokioTimer ===

impl TokioTimer {
    /// Creates a timer on the current runtime.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    ///
    /// # Examples
    /// A thread outside of the runtime enters it first:
    /// ```
    /// use flyball_sync::{Clock, Nanos, TokioTimer};
    /// use std::time::Duration;
    /// use tokio::runtime::Builder;
    ///
    /// let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
    /// let timer = {
    ///     let _inside = runtime.enter();
    ///     TokioTimer::current()
    /// };
    /// runtime.block_on(async { tokio::time::sleep(Duration::from_secs(3)).await });
    /// assert!(timer.now() >= Nanos::ZERO + Duration::from_secs(3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn current() -> Self {
        let runtime = Handle::current();
        let origin = now_in(&runtime);
        let pausable = pausable::clocks_can_be_paused();
        Self { runtime, pausable, origin, alarm: Mutex::new(None), thread: OnceLock::new() }
    }

    /// Sets the alarm. The caller must not hold the lock.
    fn arm(&self, at: Nanos, alarm: &mut Alarm) -> Armed {
        // `rang` is read before the clock. In the opposite order, an alarm that fires on time between the two readings would look as if it had fired
        // early.
        let rang = alarm.sleep.as_ref().as_pin_ref().is_some_and(|sleep| sleep.is_elapsed());
        let now = self.instant();
        // The sleep is limited, because `Nanos::MAX` may be beyond the range of the machine's clock; an early wake-up is allowed.
        let deadline = now + at.since(self.reading(now)).min(LONGEST_SLEEP);
        match alarm.sleep.as_mut().as_pin_mut() {
            Some(sleep) if rang && now < sleep.deadline() => return Armed::Gone,
            Some(sleep) => sleep.reset(deadline),
            None => {
                let _inside = self.runtime.enter();
                alarm.sleep.set(Some(sleep_until(deadline)));
            }
        }
        let sleep = alarm.sleep.as_mut().as_pin_mut().expect("the alarm was set above");
        // The sleep is polled without tokio's task budget; otherwise a task that has used up its budget would be woken early, again and again.
        let mut unhindered = unconstrained(sleep);
        match Pin::new(&mut unhindered).poll(&mut Context::from_waker(alarm.waker.waker())) {
            Poll::Ready(()) => Armed::Due,
            Poll::Pending => Armed::Set,
        }
    }

    /// Puts the alarm back. The caller must not hold the lock.
    fn put(&self, alarm: Alarm) {
        let mut slot = self.alarm.lock();
        let surplus = match &*slot {
            // While this alarm was being set, a waker that was woken or dropped has set a newer alarm in `slot`. The newer alarm counts.
            Some(newer) if newer.sleep.is_some() => Some(alarm),
            _ => slot.replace(alarm),
        };
        drop(slot);
        drop(surplus);
    }

    fn wake_by_thread(&self, at: Nanos, waker: &Waker) {
        let left = at.since(self.now());
        let thread = self.thread.get_or_init(ThreadTimer::new);
        thread.wake_at(thread.now() + left, waker);
    }

    /// Reads tokio's clock. Enters the runtime only if necessary, because entering takes longer than reading the clock.
    #[inline]
    fn instant(&self) -> Instant {
        if self.pausable { now_in(&self.runtime) } else { Instant::now() }
    }

    fn reading(&self, now: Instant) -> Nanos {
        Nanos::from_duration(now.saturating_duration_since(self.origin))
    }
}

impl Clock for TokioTimer {
    fn now(&self) -> Nanos {
        self.reading(self.instant())
    }
}

impl Timer for TokioTimer {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        if self.thread.get().is_some() {
            return self.wake_by_thread(at, waker);
        }
        // Cloned before the earlier alarm is taken, because the clone may panic.
        let clone = waker.clone();
        let mut alarm = self.alarm.lock().take().unwrap_or_else(Alarm::new);
        // Dropped last, because its drop may panic. If the earlier alarm fires at this moment, it wakes the new waker, too early. This is allowed.
        let _replaced = alarm.waker.replace(Some(clone));
        let armed = caught(|| self.arm(at, &mut alarm));
        if !matches!(armed, Some(Armed::Set)) {
            // A `Sleep` that is due would keep its waker, and wake it when the alarm is set the next time.
            alarm.disarm();
        }
        self.put(alarm);
        match armed {
            Some(Armed::Set) => {}
            Some(Armed::Due) => waker.wake_by_ref(),
            // A panic can only come from tokio, which refuses the alarm.
            Some(Armed::Gone) | None => self.wake_by_thread(at, waker),
        }
    }

    /// An alarm that stayed registered would make a paused clock advance to it.
    fn disarm(&self) {
        if let Some(thread) = self.thread.get() {
            thread.disarm();
        }
        let Some(mut alarm) = self.alarm.lock().take() else { return };
        alarm.disarm();
        self.put(alarm);
    }

    fn is_real_time(&self) -> bool {
        !self.pausable
    }
}

impl fmt::Debug for TokioTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioTimer").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Reads tokio's clock within the runtime, because a paused clock is visible only there.
fn now_in(runtime: &Handle) -> Instant {
    let _inside = runtime.enter();
    Instant::now()
}

/// This is below tokio's limit of about two years. For a longer sleep, tokio's timer would have to wake up in between.
const LONGEST_SLEEP: Duration = Duration::from_secs(365 * 24 * 60 * 60);
