//! EDGE. The time modes of a queue: whether it has delays, and how it waits for deadlines. The mode decides which
//! operations exist.
//!
//! | type | delays | async `get` | blocking `get` |
//! |---|---|---|---|
//! | [`NoDelays`] | no | yes | yes |
//! | [`WithClock`] | yes | no | yes |
//! | [`WithTimer`] | yes | yes | yes |
//!
//! Cancel safety: nothing here waits. A timer that fires wakes the queue, and the queue wakes a getter.

use std::task::Waker;

use flyball_sync::waiting::TimerCall;
use flyball_sync::{Clock, Monotonic, Nanos, Timer};

/// A queue without delays. It has no clock.
///
/// # Examples
/// See [`TimeMode`].
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDelays;

/// A queue with delays, for threads: its blocking getters wait for deadlines without a runtime.
///
/// # Examples
/// See [`TimeMode`].
#[derive(Clone, Copy, Debug, Default)]
pub struct WithClock<C = Monotonic>(pub(crate) C);

/// A queue with delays, for tasks and threads: a timer wakes the queue at deadlines.
///
/// # Examples
/// See [`TimeMode`].
#[derive(Clone, Copy, Debug, Default)]
pub struct WithTimer<T>(pub(crate) T);

/// The time mode of a queue. Sealed: [`NoDelays`], [`WithClock`] or [`WithTimer`].
///
/// # Examples
/// Three queues with their types, and a function for all of them:
/// ```
/// use flyball_workqueue::{Fifo, NoDelays, NoLimiter, Queue, ThreadTimer, TimeMode, WithClock, WithTimer};
///
/// struct Queues {
///     plain: Queue<u32, Fifo, NoLimiter, NoDelays>, // or Queue<u32>
///     for_threads: Queue<u32, Fifo, NoLimiter, WithClock>,
///     for_tasks: Queue<u32, Fifo, NoLimiter, WithTimer<ThreadTimer>>,
/// }
///
/// fn backlog<T: TimeMode>(queue: &Queue<u32, Fifo, NoLimiter, T>) -> usize {
///     queue.stats().depth()
/// }
///
/// let queues = Queues {
///     plain: Queue::new(),
///     for_threads: Queue::builder().with_delays().build(),
///     for_tasks: Queue::builder().timer(ThreadTimer::new()).build(),
/// };
/// queues.for_tasks.add(7)?;
/// assert_eq!(backlog(&queues.plain) + backlog(&queues.for_threads) + backlog(&queues.for_tasks), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TimeMode: sealed::TimeMode {}

/// The time mode of a queue that can delay keys.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Fifo, NoLimiter, Queue, SupportsDelays};
/// use std::time::Duration;
///
/// fn add_in_an_hour<T: SupportsDelays>(queue: &Queue<&'static str, Fifo, NoLimiter, T>, key: &'static str) {
///     let _ = queue.add_after(key, Duration::from_secs(3_600)); // fails once the queue is shut down
/// }
///
/// add_in_an_hour(&Queue::builder().with_delays().build(), "a");
/// ```
///
/// This does not compile for a queue without delays:
/// ```compile_fail,E0277
/// # use flyball_workqueue::{Fifo, NoLimiter, Queue, SupportsDelays};
/// # fn add_in_an_hour<T: SupportsDelays>(queue: &Queue<&'static str, Fifo, NoLimiter, T>, key: &'static str) {}
/// add_in_an_hour(&Queue::new(), "a");
/// ```
#[diagnostic::on_unimplemented(
    message = "this queue has no delays",
    note = "build it with `.with_delays()` for threads, or with `.timer(..)`, such as `TokioTimer::current()`, for tasks"
)]
pub trait SupportsDelays: TimeMode {}

/// The time mode of a queue with an async `get`.
///
/// # Examples
/// ```
/// use flyball_sync::block_on;
/// use flyball_workqueue::{Fifo, NoLimiter, Queue, SupportsAsync};
///
/// async fn work<T: SupportsAsync>(queue: &Queue<u32, Fifo, NoLimiter, T>) {
///     while let Some(lease) = queue.get().await {
///         lease.succeed();
///     }
/// }
///
/// let queue = Queue::new();
/// queue.add(7)?;
/// queue.shut_down();
/// block_on(work(&queue));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "this queue has delays and no timer, so no task can wait for its keys",
    note = "build the queue with `.timer(..)`, such as `TokioTimer::current()` or `ThreadTimer::new()`, or use `blocking_get`"
)]
pub trait SupportsAsync: TimeMode {}

pub(crate) mod sealed {
    use super::{Nanos, SupportsDelays, TimerCall, Waker};

    /// The operations that the sealed marker traits hide from users.
    pub trait TimeMode: Send + Sync + 'static {
        const DELAYS: bool;
        const TIMER: bool;
        type WithDelays: SupportsDelays;
        fn with_delays(self) -> Self::WithDelays;
        fn now(&self) -> Nanos;
        fn call(&self, call: TimerCall, waker: &Waker);
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

    fn call(&self, _: TimerCall, _: &Waker) {}
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

    fn call(&self, _: TimerCall, _: &Waker) {}
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

    fn call(&self, call: TimerCall, waker: &Waker) {
        call.perform(&self.0, waker);
    }
}

impl<T: Timer> TimeMode for WithTimer<T> {}
impl<T: Timer> SupportsDelays for WithTimer<T> {}
impl<T: Timer> SupportsAsync for WithTimer<T> {}
