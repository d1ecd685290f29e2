//! EDGE. The alarms of a clock that is moved by hand.

use std::fmt;
use std::task::Waker;
use std::time::Duration;

use crate::sync::Mutex;
use crate::{Clock, ManualClock, Nanos, Timer};

/// The shared face of a [`ManualClock`] and its timers.
///
/// | guarded by `state` | |
/// |---|---|
/// | `now` | what the clock shows |
/// | `pending` | at most one alarm per timer; an alarm leaves before its waker runs, outside the lock |
#[derive(Default)]
pub(crate) struct Alarms {
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
    pub(crate) fn now(&self) -> Nanos {
        self.state.lock().now
    }

    pub(crate) fn next(&self) -> Option<Nanos> {
        self.state.lock().pending.iter().map(|alarm| alarm.at).min()
    }

    pub(crate) fn advance(&self, by: Duration) {
        let mut state = self.state.lock();
        state.now = state.now + by;
        drop(state);
        self.fire();
    }

    pub(crate) fn set(&self, now: Nanos) {
        self.state.lock().now = now;
        self.fire();
    }

    /// Wakes what is due, one alarm at a time: a waker may set another alarm, or move the clock.
    fn fire(&self) {
        while let Some(waker) = self.take_due() {
            waker.wake();
        }
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
        drop(replaced);
        self.fire();
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

/// A timer on a [`ManualClock`]: fires when the clock is moved past its alarm.
#[derive(Debug)]
pub struct ManualTimer {
    clock: ManualClock,
    id: u64,
}

impl ManualClock {
    /// A timer of its own on this clock.
    #[must_use]
    pub fn timer(&self) -> ManualTimer {
        let mut state = self.alarms.state.lock();
        state.next_id += 1;
        ManualTimer { clock: self.clone(), id: state.next_id }
    }
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
}

impl Drop for ManualTimer {
    fn drop(&mut self) {
        let removed = self.clock.alarms.state.lock().remove(self.id);
        drop(removed);
    }
}
