//! EDGE. What a queue knows of time; it decides which operations there are.
//!
//! | type | delays | async `get` | blocking `get` |
//! |---|---|---|---|
//! | [`NoDelay`] | no | yes | yes |
//! | [`Blocking`] | yes | no | yes |
//! | [`Timed`] | yes | yes | yes |
//!
//! Cancel safety: nothing here waits. A timer that fires wakes the queue, and the queue wakes a getter.

use std::task::Waker;

use flyball_sync::{Clock, Monotonic, Nanos, Timer};

/// A queue without delays: it has no clock at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDelay;

/// A queue with delays for threads: its blocking getters wait for deadlines by themselves, with no runtime.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blocking<C = Monotonic>(pub(crate) C);

/// A queue with delays for tasks and threads: deadlines wake it through a timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timed<T>(pub(crate) T);

/// What a queue knows of time. Sealed: [`NoDelay`], [`Blocking`] or [`Timed`].
pub trait Time: sealed::Time {}

/// A queue that can delay a key.
#[diagnostic::on_unimplemented(
    message = "this queue has no delays",
    note = "build it with `.clock(..)` for threads or with `.timer(..)` for tasks"
)]
pub trait Delays: Time {}

/// A queue whose keys can be awaited.
#[diagnostic::on_unimplemented(
    message = "an async `get` on a queue with delays needs a timer",
    note = "build the queue with `.timer(..)`, such as `TokioTimer::current()`, or use `blocking_get`"
)]
pub trait AsyncGet: Time {}

pub(crate) mod sealed {
    use super::{Delays, Nanos, Waker};

    /// The operations behind the marker traits.
    pub trait Time: Send + Sync + 'static {
        const DELAYS: bool;
        const TIMER: bool;
        type WithDelays: Delays;
        fn with_delays(self) -> Self::WithDelays;
        fn now(&self) -> Nanos;
        fn wake_at(&self, at: Nanos, waker: &Waker);
    }
}

impl sealed::Time for NoDelay {
    const DELAYS: bool = false;
    const TIMER: bool = false;
    type WithDelays = Blocking;

    fn with_delays(self) -> Blocking {
        Blocking(Monotonic)
    }

    fn now(&self) -> Nanos {
        Nanos::ZERO
    }

    fn wake_at(&self, _: Nanos, _: &Waker) {}
}

impl Time for NoDelay {}
impl AsyncGet for NoDelay {}

impl<C: Clock> sealed::Time for Blocking<C> {
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

impl<C: Clock> Time for Blocking<C> {}
impl<C: Clock> Delays for Blocking<C> {}

impl<T: Timer> sealed::Time for Timed<T> {
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

impl<T: Timer> Time for Timed<T> {}
impl<T: Timer> Delays for Timed<T> {}
impl<T: Timer> AsyncGet for Timed<T> {}
