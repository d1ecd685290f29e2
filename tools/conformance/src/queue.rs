//! EDGE. Runs scripts on the queue of `flyball-workqueue`.

use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_sync::ManualClock;
use flyball_workqueue::{Fifo, Lease, ManualTimer, Queue, TryGetError};
use testkit::client_go::{Answer, QueueLine};

/// A queue with a [`ManualClock`].
///
/// A script ends a lease by the name of its key. Therefore the leases are detached, and the queue itself checks whether the key of a `done` is
/// leased.
///
/// client-go reports a failure separately from `Done`. So the line `done` of a script calls the queue's `done`, which, like [`Lease::done`], reports
/// neither success nor failure, and the lines `add_rate_limited` and `forget` call the queue's methods of these names. If `add_rate_limited` adds a
/// leased key, the key becomes Ready when its lease has ended and its delay has passed.
pub(crate) struct FlyballQueue {
    clock: ManualClock,
    queue: Queue<String, Fifo, Exponential<String>, ManualTimer>,
    started: bool,
}

impl FlyballQueue {
    /// The queue has the default backoff of client-go's controllers, unless the first line of the script changes it.
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
        let queue = Queue::builder().timer(clock.timer()).limiter(backoff).build();
        Self { clock, queue, started: false }
    }

    /// Returns the answer to a line. Pass `None` for an invalid line.
    pub(crate) fn answer(&mut self, line: Option<&QueueLine>) -> Answer {
        let first = !self.started;
        self.started = true;
        let Some(line) = line else { return Answer::Error };
        match line {
            QueueLine::Config { base_ms, max_ms } if first => return self.configure(*base_ms, *max_ms),
            QueueLine::Config { .. } => return Answer::Error,
            // client-go does not report that it refuses a call (after shutdown, or for a key that is not leased), so the errors of flyball's calls
            // are dropped.
            QueueLine::Add(key) => drop(self.queue.add(key.clone())),
            QueueLine::AddAfter(key, ms) => {
                drop(self.queue.add_after(key.clone(), Duration::from_millis(*ms)));
            }
            QueueLine::AddRateLimited(key) => drop(self.queue.add_rate_limited(key.clone())),
            QueueLine::Get => return self.get(),
            QueueLine::Done(key) => drop(self.queue.done(key)),
            QueueLine::Forget(key) => self.queue.forget(key),
            QueueLine::Requeues(key) => return Answer::Number(self.queue.num_requeues(key).into()),
            QueueLine::Len => return Answer::Number(self.queue.ready_len() as u64),
            QueueLine::Advance(ms) => self.clock.advance(Duration::from_millis(*ms)),
            QueueLine::Shutdown => self.queue.shut_down(),
            QueueLine::ShuttingDown => return Answer::Flag(self.queue.is_shutting_down()),
        }
        Answer::Done
    }

    fn configure(&mut self, base_ms: u64, max_ms: u64) -> Answer {
        let waits = Duration::from_millis(base_ms)..=Duration::from_millis(max_ms);
        match Exponential::try_new(waits) {
            Err(_) => Answer::Error,
            Ok(backoff) => {
                self.queue = Queue::builder().timer(self.clock.timer()).limiter(backoff).build();
                Answer::Done
            }
        }
    }

    fn get(&mut self) -> Answer {
        match self.queue.try_get() {
            Ok(lease) => Answer::Key(Lease::detach(lease)),
            Err(TryGetError::Empty) => Answer::Empty,
            Err(TryGetError::Closed) => Answer::Shutdown,
        }
    }
}
