//! EDGE. A clock that is moved by hand, and its timers.
//!
//! Cancel safety: nothing here waits. Dropping a timer drops its alarm.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::locks::Mutex;
use crate::panics::{Panic, keep_first, raise};
use crate::time::clock::Clock;
use crate::time::nanos::Nanos;
use crate::time::timer::Timer;
use crate::waiting::wakers::wake_all;

/// A clock that you move by hand, for tests in virtual time. Clones share the time.
///
/// [`timer`](Self::timer) creates timers. When the clock is moved to the time of a timer's alarm or past it, the
/// timer fires, on the thread that moves the clock. If a waker panics, the other due alarms still fire; then the panic is resumed in the caller that
/// moves the clock. The alarms of a queue or a limiter do not panic.
///
/// # Examples
/// ```
/// use flyball_sync::{Clock, ManualClock, Nanos};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now(), Nanos::new(3_000_000_000));
/// clock.set(Nanos::ZERO); // a test can also move the clock back
/// assert_eq!(clock.now(), Nanos::ZERO);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    alarms: Arc<Alarms>,
}

impl ManualClock {
    /// Creates a clock at [`Nanos::ZERO`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances the clock, then fires the alarms that became due, earliest first.
    ///
    /// # Panics
    /// Panics if a waker that was passed to a timer panics, after all due alarms have fired.
    pub fn advance(&self, by: Duration) {
        self.alarms.advance(by);
    }

    /// Sets the clock, forwards or backwards, then fires the alarms that are due.
    ///
    /// # Panics
    /// Panics if a waker that was passed to a timer panics, after all due alarms have fired.
    pub fn set(&self, now: Nanos) {
        self.alarms.set(now);
    }

    /// Creates a timer with its own alarm on this clock.
    #[must_use]
    pub fn timer(&self) -> ManualTimer {
        let mut state = self.alarms.state.lock();
        state.next_id += 1;
        ManualTimer { clock: self.clone(), id: state.next_id }
    }

    /// Returns the time of the next alarm.
    ///
    /// # Examples
    /// A test that advances from alarm to alarm:
    /// ```
    /// use flyball_sync::{Clock, ManualClock, Nanos, Timer};
    /// use std::task::Waker;
    /// use std::time::Duration;
    ///
    /// let (clock, seconds) = (ManualClock::new(), Duration::from_secs);
    /// let (first, second) = (clock.timer(), clock.timer());
    /// first.wake_at(Nanos::ZERO + seconds(5), Waker::noop());
    /// second.wake_at(Nanos::ZERO + seconds(60), Waker::noop());
    /// while let Some(next) = clock.next_alarm() {
    ///     clock.set(next); // fires it
    /// }
    /// assert_eq!(clock.now(), Nanos::ZERO + seconds(60));
    /// ```
    #[must_use]
    pub fn next_alarm(&self) -> Option<Nanos> {
        self.alarms.next()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        self.alarms.now()
    }
}

/// The state that a [`ManualClock`] shares with its timers.
///
/// | guarded by `state` | |
/// |---|---|
/// | `now` | the current time |
/// | `pending` | at most one alarm per timer; an alarm is removed under the lock; its waker is woken afterwards, outside the lock |
#[derive(Default)]
struct Alarms {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Nanos,
    next_id: u64,
    pending: Vec<Alarm>,
}

struct Alarm {
    timer: u64,
    at: Nanos,
    waker: Waker,
}

impl Alarms {
    fn now(&self) -> Nanos {
        self.state.lock().now
    }

    fn next(&self) -> Option<Nanos> {
        self.state.lock().pending.iter().map(|alarm| alarm.at).min()
    }

    fn advance(&self, by: Duration) {
        let mut state = self.state.lock();
        state.now = state.now + by;
        drop(state);
        raise(self.fire());
    }

    fn set(&self, now: Nanos) {
        self.state.lock().now = now;
        raise(self.fire());
    }

    /// Wakes the due alarms, one at a time, because a waker may set another alarm or move the clock. Returns the first panic.
    fn fire(&self) -> Result<(), Panic> {
        wake_all(std::iter::from_fn(|| self.take_due()))
    }

    fn take_due(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        let now = state.now;
        let due = state.pending.iter().enumerate().filter(|(_, alarm)| alarm.at <= now);
        let (index, _) = due.min_by_key(|(_, alarm)| alarm.at)?;
        Some(state.pending.swap_remove(index).waker)
    }

    fn set_alarm(&self, timer: u64, at: Nanos, waker: Waker) {
        let mut state = self.state.lock();
        let replaced = state.remove(timer);
        state.pending.push(Alarm { timer, at, waker });
        drop(state);
        let mut result = self.fire();
        keep_first(&mut result, catch_unwind(AssertUnwindSafe(|| drop(replaced))));
        raise(result);
    }
}

impl State {
    fn remove(&mut self, timer: u64) -> Option<Alarm> {
        let index = self.pending.iter().position(|alarm| alarm.timer == timer)?;
        Some(self.pending.swap_remove(index))
    }
}

impl fmt::Debug for Alarms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Alarms").field("now", &state.now).field("pending", &state.pending.len()).finish()
    }
}

/// A timer on a [`ManualClock`]: fires when the clock is moved to the time of its alarm or past it.
///
/// # Examples
/// Dropping a timer drops its alarm:
/// ```
/// use flyball_sync::{ManualClock, ManualTimer, Nanos, Timer};
/// use std::task::Waker;
///
/// let clock = ManualClock::new();
/// let timer: ManualTimer = clock.timer();
/// timer.wake_at(Nanos::new(5), Waker::noop());
/// assert_eq!(clock.next_alarm(), Some(Nanos::new(5)));
/// drop(timer);
/// assert_eq!(clock.next_alarm(), None);
/// ```
#[derive(Debug)]
pub struct ManualTimer {
    clock: ManualClock,
    id: u64,
}

impl Clock for ManualTimer {
    fn now(&self) -> Nanos {
        self.clock.now()
    }
}

impl Timer for ManualTimer {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        self.clock.alarms.set_alarm(self.id, at, waker.clone());
    }

    fn disarm(&self) {
        let removed = self.clock.alarms.state.lock().remove(self.id);
        drop(removed);
    }
}

impl Drop for ManualTimer {
    fn drop(&mut self) {
        self.disarm();
    }
}
