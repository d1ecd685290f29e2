//! EDGE. Sleeping in simulated time.
//!
//! Cancel safety: dropping a sleep removes its alarm.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use flyball_sync::{Clock, ManualClock, Nanos, Timer};

/// The time of a [`Simulation`](super::Simulation). Clone it into reconciles.
///
/// # Examples
/// ```
/// use flyball_controller::testing::{SimulatedTime, Simulation};
/// use std::time::Duration;
///
/// async fn request(time: SimulatedTime) -> &'static str {
///     time.sleep(Duration::from_secs(3)).await;
///     "answer"
/// }
///
/// let mut sim = Simulation::new(1);
/// let start = sim.time().now();
/// let answer = sim.spawn(request(sim.time()));
/// sim.advance(Duration::from_secs(2));
/// assert!(answer.take_output().is_none());
/// sim.advance(Duration::from_secs(1));
/// assert_eq!(answer.take_output(), Some("answer"));
/// assert_eq!(sim.time().now().since(start), Duration::from_secs(3));
/// ```
#[derive(Clone, Debug)]
pub struct SimulatedTime {
    clock: ManualClock,
}

impl SimulatedTime {
    pub(super) fn new(clock: ManualClock) -> Self {
        Self { clock }
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Waits for `time` to pass. Even if `time` is zero, the first poll is pending, so that other tasks can run.
    ///
    /// The time is counted from the first poll.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting; the simulation no longer advances to the end of the wait.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send + 'static {
        let timer = self.clock.timer();
        let mut due = None;
        poll_fn(move |cx| match due {
            Some(due) if timer.now() >= due => Poll::Ready(()),
            _ => {
                let due = *due.get_or_insert_with(|| timer.now() + time);
                timer.wake_at(due, cx.waker());
                Poll::Pending
            }
        })
    }
}
