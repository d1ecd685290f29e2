//! EDGE. What a queue knows of time; it decides which operations there are.
//!
//! | type | delays | async `get` | blocking `get` |
//! |---|---|---|---|
//! | [`NoDelays`] | no | yes | yes |
//! | [`WithClock`] | yes | no | yes |
//! | [`WithTimer`] | yes | yes | yes |
//!
//! Cancel safety: nothing here waits. A timer that fires wakes the queue, and the queue wakes a getter.

use std::task::Waker;

use flyball_sync::{Clock, Monotonic, Nanos, Timer};

/// A queue without delays: it has no clock at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDelays;

/// A queue with delays for threads: its blocking getters wait for deadlines by themselves, with no runtime.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithClock<C = Monotonic>(pub(crate) C);

/// A queue with delays for tasks and threads: deadlines wake it through a timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithTimer<T>(pub(crate) T);

/// What a queue knows of time. Sealed: [`NoDelays`], [`WithClock`] or [`WithTimer`].
pub trait TimeMode: sealed::TimeMode {}

/// A queue that can delay a key.
#[diagnostic::on_unimplemented(
    message = "this queue has no delays",
    note = "build it with `.clock(..)` for threads or with `.timer(..)` for tasks"
)]
pub trait SupportsDelays: TimeMode {}

/// A queue whose keys can be awaited.
#[diagnostic::on_unimplemented(
    message = "an async `get` on a queue with delays needs a timer",
    note = "build the queue with `.timer(..)`, such as `TokioTimer::current()`, or use `blocking_get`"
)]
pub trait SupportsAsync: TimeMode {}

pub(crate) mod sealed {
    use super::{Nanos, SupportsDelays, Waker};

    /// The operations behind the marker traits.
    pub trait TimeMode: Send + Sync + 'static {
        const DELAYS: bool;
        const TIMER: bool;
        type WithDelays: SupportsDelays;
        fn with_delays(self) -> Self::WithDelays;
        fn now(&self) -> Nanos;
        fn wake_at(&self, at: Nanos, waker: &Waker);
    }
}

impl sealed::TimeMode for NoDelays {
    const DELAYS: bool = false;
    const TIMER: bool = false;
    type WithDelays = WithClock;

    fn with_delays(self) -> WithClock {
        WithClock(Monotonic)
    }

    fn now(&self) -> Nanos {
        Nanos::ZERO
    }

    fn wake_at(&self, _: Nanos, _: &Waker) {}
}

impl TimeMode for NoDelays {}
impl SupportsAsync for NoDelays {}

impl<C: Clock> sealed::TimeMode for WithClock<C> {
    const DELAYS: bool = true;
    const TIMER: bool = false;
    type WithDelays = Self;

    fn with_delays(self) -> Self {
        self
    }

    fn now(&self) -> Nanos {
        self.0.now()
    }

    fn wake_at(&self, _: Nanos, _: &Waker) {}
}

impl<C: Clock> TimeMode for WithClock<C> {}
impl<C: Clock> SupportsDelays for WithClock<C> {}

impl<T: Timer> sealed::TimeMode for WithTimer<T> {
    const DELAYS: bool = true;
    const TIMER: bool = true;
    type WithDelays = Self;

    fn with_delays(self) -> Self {
        self
    }

    fn now(&self) -> Nanos {
        self.0.now()
    }

    fn wake_at(&self, at: Nanos, waker: &Waker) {
        self.0.wake_at(at, waker);
    }
}

impl<T: Timer> TimeMode for WithTimer<T> {}
impl<T: Timer> SupportsDelays for WithTimer<T> {}
impl<T: Timer> SupportsAsync for WithTimer<T> {}
