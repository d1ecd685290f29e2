//! EDGE. A timer for programs without a runtime: one thread serves the alarms of all timers.
//!
//! Cancel safety: nothing here waits for an alarm. `disarm` drops the alarm, and so does dropping the timer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use crate::locks::{AtomicU64, Condvar, Mutex, Ordering};
use crate::panics::caught;
use crate::time::clock::{Clock, Monotonic};
use crate::time::nanos::Nanos;
use crate::time::timer::Timer;

/// A timer on the machine's monotonic clock that needs no runtime.
///
/// All timers of a process share one thread, named `flyball-timer`. A timer without an alarm costs nothing. The first alarm starts the thread, and the
/// thread ends about one second after the last alarm has fired or was removed, so a program whose timers are idle has no such thread. Wakers run on that
/// thread: a waker that blocks delays the alarms of other timers; a waker that panics does not.
///
/// If the operating system refuses to start the thread, the waker is woken immediately; its task then reads the clock
/// and sets the alarm again.
///
/// Setting an alarm takes O(log n) time if n alarms are set. Do not use this timer in models under loom or shuttle, which have no time, or in a
/// forked process, which does not have the thread.
///
/// # Examples
/// ```
/// use flyball_sync::{Clock, ThreadTimer, Timer, block_on};
/// use std::task::Poll;
/// use std::time::Duration;
///
/// let timer = ThreadTimer::new();
/// let deadline = timer.now() + Duration::from_millis(5);
/// block_on(std::future::poll_fn(|context| {
///     if timer.now() >= deadline {
///         return Poll::Ready(());
///     }
///     timer.wake_at(deadline, context.waker());
///     Poll::Pending
/// }));
/// assert!(timer.now() >= deadline);
/// ```
#[derive(Default)]
pub struct ThreadTimer {
    /// Set by the first alarm, so that a queue or limiter that never sets an alarm costs nothing.
    served: OnceLock<Served>,
}

/// The number of a timer at the service.
struct Served {
    service: Arc<Service>,
    id: u64,
    /// The time of the alarm that was set last, in nanoseconds; it may have fired. Read and written under the service's lock.
    at: AtomicU64,
}

/// The thread, and the alarms it serves.
///
/// | guarded by `state` | |
/// |---|---|
/// | the alarms | an alarm is removed under the lock; its waker is woken afterwards, outside the lock |
/// | whether the thread runs | it ends if there was no alarm for [`LINGER`], and records this under the lock; the next alarm starts a new one |
/// | until when the thread sleeps | an alarm signals the thread only if it is earlier; so a queue that sets and removes an alarm for each key signals it about twice a second |
#[derive(Default)]
struct Service {
    state: Mutex<State>,
    changed: Condvar,
}

/// # Invariants
/// 1. A timer has at most one alarm in `alarms`: at the time that the timer stores, see [`Served`].
#[derive(Default)]
struct State {
    next_id: u64,
    alarms: BTreeMap<(Nanos, u64), Waker>,
    runs: bool,
    sleep: Sleep,
}

/// What the thread does. A signal sets it to `Awake`, so that the thread is signalled once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sleep {
    /// The thread checks the alarms before it sleeps again.
    #[default]
    Awake,
    /// The thread sleeps until the time of an alarm.
    UntilAlarm(Nanos),
    /// There was no alarm, and the thread ends at this time unless there is one.
    Lingers(Nanos),
}

/// How long the thread waits for the next alarm before it ends, so that a retry every few milliseconds does not start a
/// thread each time.
const LINGER: Duration = Duration::from_secs(1);

static SERVICE: LazyLock<Arc<Service>> = LazyLock::new(Arc::default);

// === impl ThreadTimer ===

impl ThreadTimer {
    /// Creates a timer with its own alarm.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn served(&self) -> &Served {
        self.served.get_or_init(|| Served::by(&SERVICE))
    }
}

impl Clock for ThreadTimer {
    #[inline]
    fn now(&self) -> Nanos {
        Monotonic.now()
    }
}

impl Timer for ThreadTimer {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        let waker = waker.clone();
        let own = self.served();
        let service = &own.service;
        let mut state = service.state.lock();
        let replaced = own.set(&mut state, at, waker);
        let is_too_late = match state.sleep {
            Sleep::Awake => false,
            Sleep::UntilAlarm(until) | Sleep::Lingers(until) => at < until,
        };
        if is_too_late {
            state.sleep = Sleep::Awake;
        }
        let runs = std::mem::replace(&mut state.runs, true);
        drop(state);
        if !runs {
            service.start();
        } else if is_too_late {
            service.changed.notify_one();
        }
        // The old waker is dropped last, because its drop may panic.
        drop(replaced);
    }

    fn disarm(&self) {
        let Some(own) = self.served.get() else { return };
        let service = &own.service;
        let mut state = service.state.lock();
        let dropped = own.unset(&mut state);
        // Without a signal the thread would sleep until the time of the removed alarm, and not end.
        let must_linger = state.alarms.is_empty() && matches!(state.sleep, Sleep::UntilAlarm(_));
        if must_linger {
            state.sleep = Sleep::Awake;
        }
        drop(state);
        if must_linger {
            service.changed.notify_one();
        }
        drop(dropped);
    }

    fn is_real_time(&self) -> bool {
        true
    }
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl fmt::Debug for ThreadTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alarm = self.served.get().and_then(|own| {
            let state = own.service.state.lock();
            state.alarms.contains_key(&own.alarm()).then(|| own.alarm().0)
        });
        f.debug_struct("ThreadTimer").field("alarm", &alarm).finish_non_exhaustive()
    }
}

// === impl Served ===

impl Served {
    fn by(service: &Arc<Service>) -> Self {
        let mut state = service.state.lock();
        state.next_id += 1;
        Self { service: service.clone(), id: state.next_id, at: AtomicU64::new(0) }
    }

    /// Sets an alarm. Returns the replaced waker, to be dropped outside the lock.
    fn set(&self, state: &mut State, at: Nanos, waker: Waker) -> Option<Waker> {
        let replaced = self.unset(state);
        // Ordering: Relaxed, because the service's lock orders the accesses.
        self.at.store(at.get(), Ordering::Relaxed);
        state.alarms.insert(self.alarm(), waker);
        replaced
    }

    fn unset(&self, state: &mut State) -> Option<Waker> {
        state.alarms.remove(&self.alarm())
    }

    /// The key under which the alarm that was set last is stored, if it has not fired.
    fn alarm(&self) -> (Nanos, u64) {
        // Ordering: Relaxed, see `set`.
        (Nanos::new(self.at.load(Ordering::Relaxed)), self.id)
    }
}

// === impl Service ===

impl Service {
    fn start(self: &Arc<Self>) {
        let service = self.clone();
        let started = thread::Builder::new().name("flyball-timer".to_owned()).spawn(move || service.run());
        if started.is_err() {
            let mut state = self.state.lock();
            state.runs = false;
            let alarms = std::mem::take(&mut state.alarms);
            drop(state);
            alarms.into_values().for_each(wake);
        }
    }

    fn run(&self) {
        let mut last_used = Monotonic.now();
        loop {
            let now = Monotonic.now();
            let mut state = self.state.lock();
            state.sleep = Sleep::Awake;
            if let Some(waker) = state.take_due(now) {
                drop(state);
                wake(waker);
                last_used = now;
                continue;
            }
            let first = state.alarms.first_key_value().map(|((at, _), _)| *at);
            let until = match first {
                Some(at) => {
                    state.sleep = Sleep::UntilAlarm(at);
                    at
                }
                None => {
                    let end = last_used + LINGER;
                    if end <= now {
                        state.runs = false;
                        return;
                    }
                    state.sleep = Sleep::Lingers(end);
                    end
                }
            };
            drop(self.changed.wait_for(state, until.since(now).min(LONGEST_SLEEP)));
            if first.is_some() {
                // The alarm was set until now: it is due, or it was removed or replaced.
                last_used = Monotonic.now();
            }
        }
    }
}

/// Wakes the waker and catches its panic, because this thread must serve the next alarm. The panic hook still runs.
fn wake(waker: Waker) {
    caught(|| waker.wake());
}

// === impl State ===

impl State {
    fn take_due(&mut self, now: Nanos) -> Option<Waker> {
        let first = self.alarms.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }
}

/// Limits each sleep of the thread, because the clock of a condition variable may have a smaller range.
const LONGEST_SLEEP: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns when the thread sleeps, with what it waits for.
    fn sleeping(service: &Service) -> Sleep {
        loop {
            match service.state.lock().sleep {
                Sleep::Awake => thread::yield_now(),
                asleep => return asleep,
            }
        }
    }

    #[test]
    fn lingers_after_the_last_alarm_was_removed() {
        let service = Arc::<Service>::default();
        let timer = ThreadTimer { served: OnceLock::from(Served::by(&service)) };
        let at = timer.now() + Duration::from_secs(3_600);
        timer.wake_at(at, Waker::noop());
        assert_eq!(sleeping(&service), Sleep::UntilAlarm(at));
        let before = timer.now();
        timer.disarm();
        let Sleep::Lingers(until) = sleeping(&service) else { panic!("waits for an alarm") };
        assert!(until >= before + LINGER, "the thread ends {:?} later", until.since(before));
    }
}
