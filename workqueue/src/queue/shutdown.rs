//! SHELL. Pausing, draining and stopping a queue.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use flyball_sync::panics::{caught, drop_each};
use flyball_sync::waiting::Place;
use flyball_sync::{Clock, Monotonic, Timer};

use crate::limiter::QueueLimiter;
use crate::queue::Key;
use crate::queue::Queue;
use crate::state::order::Order;
use crate::state::types::Leftovers;

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Pauses the queue: no key is handed out until [`resume`](Self::resume), and getters wait even if keys are Ready.
    /// Idempotent.
    ///
    /// A pause has no effect on adds, deadlines and leases, or on the results of a shutdown. A drain resumes the queue.
    ///
    /// # Panics
    /// Panics if the clock panics; then the queue is not paused. Also panics if the timer or a waker panics; the queue is paused even so.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{Queue, TryGetError};
    ///
    /// let queue = Queue::new();
    /// queue.pause(); // say, until the caches are synced
    /// queue.add("a")?;
    /// assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    /// queue.resume();
    /// assert_eq!(*queue.try_get()?, "a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self) {
        self.set_paused(true);
    }

    /// Ends a [`pause`](Self::pause). Idempotent.
    ///
    /// # Panics
    /// Panics like `pause`.
    pub fn resume(&self) {
        self.set_paused(false);
    }

    fn set_paused(&self, paused: bool) {
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock();
        locked.state.pause(paused);
        self.shared.finish(locked, now);
    }

    /// Shuts the queue down: from now on adds are refused and leased keys cannot become dirty. The backlog is still
    /// handed out; then `get` returns `None`.
    ///
    /// The backlog consists of all keys that are Ready now, and of the leased keys that are dirty now. Keys that wait for a later deadline, and keys
    /// that are retried after the shutdown, are leftovers, see [`drain`](Self::drain). Idempotent; does not wait. O(leased keys that wait +
    /// groups for whose room adders wait).
    ///
    /// A drain that has begun stops waiting: it returns its leftovers, which then also contain the keys that are Ready or leased. Nothing is dropped:
    /// the backlog is still handed out, and leases still end. So a program can drain at the first signal, and end at the second.
    ///
    /// # Panics
    /// Panics if the clock panics; then the queue is not shut down. Also panics if the timer or a waker panics; the queue is shut down even so.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{Queue, TryGetError};
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// queue.shut_down();
    /// assert!(queue.add("b").is_err());
    /// queue.try_get()?.succeed(); // the backlog is handed out
    /// assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    /// The first signal drains, the second one ends the program, although a key is still leased:
    /// ```
    /// use flyball_workqueue::{DrainOptions, Queue};
    /// use std::thread;
    ///
    /// let queue = Queue::new();
    /// queue.add_many(["a", "b"]);
    /// let lease = queue.try_get()?; // a worker that is stuck
    /// let main = thread::spawn({
    ///     let queue = queue.clone();
    ///     move || queue.blocking_drain(DrainOptions::unlimited()) // after the first signal
    /// });
    /// while !queue.is_shutting_down() { thread::yield_now() }
    /// queue.shut_down(); // at the second signal
    /// let left = main.join().unwrap();
    /// assert_eq!((left.ready, left.leased), (vec!["b"], vec!["a"]));
    /// # drop(lease);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shut_down(&self) {
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock();
        locked.others.end_drains();
        locked.state.shut_down(now);
        self.shared.finish_for_all(locked, now);
    }

    /// Shuts the queue down and resumes it, then waits until no key is Ready or leased, and returns the leftovers: waiting keys, and keys of
    /// [suspended](crate::Fair::max_leased) groups. [`DrainOptions`] limit the wait, and say whether the drain serves waiting keys, too.
    ///
    /// A later [`shut_down`](Self::shut_down) ends the wait, but not the work; then the leftovers also contain the keys that are Ready or leased. A
    /// later [`stop_now`](Self::stop_now) ends the drain, too; then the leftovers contain only the keys that are still leased. Any number of callers
    /// may drain at the same time, and each of them receives all leftovers.
    ///
    /// # Panics
    /// Panics if the clock panics; then the drain has not begun. Also panics if the timer, the waker of another waiter or `Clone` of a leftover key
    /// panics; the queue is shut down and not paused even so.
    ///
    /// # Cancel safety
    /// The first poll shuts the queue down and starts the time limit; before it, nothing happens. If the future is dropped after its first poll, only
    /// the wait ends. To shut down without waiting, use [`shut_down`](Self::shut_down).
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::{DrainOptions, Queue};
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// queue.add_after("b", Duration::from_secs(3_600))?;
    /// let worker = thread::spawn({
    ///     let queue = queue.clone();
    ///     move || while let Some(lease) = queue.blocking_get() { lease.succeed() }
    /// });
    /// let left = block_on(queue.drain(DrainOptions::within(Duration::from_secs(60)))); // waits until "a" has run
    /// assert_eq!(left.waiting, ["b"]);
    /// assert!(left.ready.is_empty() && left.leased.is_empty());
    /// worker.join().unwrap(); // `get` has returned `None`
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(
        &self,
        options: DrainOptions,
    ) -> impl Future<Output = Leftovers<K>> + Send + use<K, O, L, T> {
        let queue = self.clone();
        async move {
            let begun = queue.begin_drain(options);
            let mut drain = Drain::new(&queue, begun);
            let Some(limit) = options.limit else { return drain.await };
            match queue.timeout(limit, &mut drain).await {
                Some(left) => left,
                None => {
                    // Before the leftovers are computed, which would be leaked if this drop panicked.
                    drop(drain);
                    let now = Some(queue.shared.now());
                    // Declared before the guard, so that `left` is dropped after the guard even if a key's `Clone` panics.
                    let mut left = Leftovers::new();
                    queue.shared.lock().state.leftovers(now, &mut left);
                    left
                }
            }
        }
    }

    /// Like [`drain`](Self::drain), but blocks the thread.
    ///
    /// The limit counts in real time: the call returns after it even if the queue's clock stands still. Delayed keys that the drain serves become
    /// Ready according to the queue's clock.
    ///
    /// # Panics
    /// Panics like `drain`.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{DrainOptions, Queue};
    /// use std::time::Duration;
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// let left = queue.blocking_drain(DrainOptions::within(Duration::from_millis(1))); // no worker takes the key
    /// assert_eq!(left.ready, ["a"]);
    /// assert_eq!(queue.stop_now().ready, ["a"]); // no worker can take it any more
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "these keys were not finished"]
    pub fn blocking_drain(&self, options: DrainOptions) -> Leftovers<K> {
        let begun = self.begin_drain(options);
        self.drain_until(begun, options.limit.map(|limit| Monotonic.now() + limit))
    }

    /// Stops the queue immediately: removes and returns all Ready and waiting keys, and returns clones of the keys that
    /// are still leased.
    ///
    /// From now on `get` returns `None`, and a key is not queued again when its lease ends. A second call returns the keys that are still leased at
    /// that time.
    ///
    /// # Panics
    /// Panics if the clock or `Clone` of a leased key panics; in that case the queue is not stopped. A panic in a waker
    /// does not propagate, because the removed keys must reach the caller.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{KeyState, Queue};
    ///
    /// let queue = Queue::new();
    /// queue.add_many(["a", "b"]);
    /// let lease = queue.try_get()?;
    /// let left = queue.stop_now();
    /// assert_eq!((left.ready, left.leased), (vec!["b"], vec!["a"]));
    /// lease.retry(); // the key is not queued again
    /// assert_eq!(queue.state(&"a"), KeyState::Absent);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "these keys were not finished"]
    pub fn stop_now(&self) -> Leftovers<K> {
        let now = self.shared.now_if_timed();
        let mut left = Leftovers::new();
        let mut locked = self.shared.lock();
        locked.state.stop(now, &mut left);
        let memory = locked.state.take_memory();
        caught(|| self.shared.finish(locked, now));
        caught(|| drop(memory));
        left
    }

    /// Returns whether the queue was shut down, drained or stopped.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        !self.shared.lock().state.is_open()
    }

    /// Shuts the queue down and resumes it, under one lock. Returns how often drains were ended before this one began.
    fn begin_drain(&self, options: DrainOptions) -> u64 {
        let served = options.limit.filter(|_| options.serves_waiting);
        let now = match served {
            Some(_) => Some(self.shared.now()),
            None => self.shared.now_if_timed(),
        };
        let mut locked = self.shared.lock();
        let begun = locked.others.drains_ended;
        match served.zip(now) {
            Some((limit, now)) => locked.state.drain_delays(now, limit),
            None => locked.state.shut_down(now),
        }
        locked.state.pause(false);
        self.shared.finish_for_all(locked, now);
        begun
    }
}

/// The options of [`Queue::drain`]: how long it waits, and whether it serves waiting keys, too.
///
/// # Examples
/// ```
/// use flyball_workqueue::{DrainOptions, Queue};
/// use std::thread;
/// use std::time::Duration;
///
/// let queue = Queue::new();
/// queue.add_after("soon", Duration::from_millis(10))?;
/// queue.add_after("late", Duration::from_secs(3_600))?;
/// let worker = thread::spawn({
///     let queue = queue.clone();
///     move || while let Some(lease) = queue.blocking_get() { lease.succeed() }
/// });
/// let left = queue.blocking_drain(DrainOptions::serve_waiting(Duration::from_secs(60))); // does not take that long
/// assert_eq!(left.waiting, ["late"]);
/// worker.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainOptions {
    limit: Option<Duration>,
    /// Set only together with a limit.
    serves_waiting: bool,
}

impl DrainOptions {
    /// Waits as long as it takes. Keys that wait, are retried or are requeued after the shutdown are leftovers.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{DrainOptions, Queue};
    ///
    /// let queue = Queue::<&str>::new();
    /// assert!(queue.blocking_drain(DrainOptions::unlimited()).is_empty());
    /// assert!(queue.is_shutting_down());
    /// ```
    #[must_use]
    pub const fn unlimited() -> Self {
        Self { limit: None, serves_waiting: false }
    }

    /// Waits for at most `limit`, by the queue's clock in `drain` and in real time in `blocking_drain`. Keys that are Ready or leased when the limit has
    /// passed are leftovers, too.
    ///
    /// After the limit only the wait ends, not the work: Ready leftovers are still handed out. To end the work, too, call
    /// [`stop_now`](Queue::stop_now) next, and use its leftovers.
    #[must_use]
    pub const fn within(limit: Duration) -> Self {
        Self { limit: Some(limit), serves_waiting: false }
    }

    /// Waits for at most `limit`, like [`within`](Self::within), and also serves delayed keys: until `limit` has passed, keys that wait, are retried
    /// or are requeued still become Ready at their deadlines. Adds are refused, and leased keys cannot become dirty.
    ///
    /// When `limit` has passed, the queue is as after [`shut_down`](Queue::shut_down): a key that is retried or requeued from then on is a leftover,
    /// and getters return `None` once no key is Ready, even if a lease is held for longer. If only keys of [suspended](crate::Fair::max_leased)
    /// groups are left before that, the drain ends at once.
    ///
    /// If there are several such drains, the `limit` of the first determines how long delayed keys are served, and each waits for at most its own
    /// `limit`. A call of `shut_down`, and a drain without this option, end the service of delayed keys, so a later drain serves none either.
    #[must_use]
    pub const fn serve_waiting(limit: Duration) -> Self {
        Self { limit: Some(limit), serves_waiting: true }
    }
}

/// Waits until a drain that has begun is over, and resolves to the leftovers. Dropping the future only ends the wait.
pub(crate) struct Drain<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> {
    queue: &'a Queue<K, O, L, T>,
    /// How often drains had been ended when this one began.
    begun: u64,
    ticket: Option<Place>,
}

impl<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drain<'a, K, O, L, T> {
    pub(crate) fn new(queue: &'a Queue<K, O, L, T>, begun: u64) -> Self {
        Self { queue, begun, ticket: None }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Future for Drain<'_, K, O, L, T> {
    type Output = Leftovers<K>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shared = &this.queue.shared;
        // Cloned before locking, because a waker's vtable is user code.
        let waker = context.waker().clone();
        let now = shared.now_if_timed();
        // Declared before the guard, so that `left` is dropped after the guard even if a key's `Clone` panics.
        let mut left = Leftovers::new();
        let old;
        let mut locked = shared.lock_to_check(now);
        old = this.ticket.take().and_then(|own| locked.others.drainers.leave(own));
        if locked.state.is_drained(now) || locked.others.has_ended(this.begun) {
            locked.state.leftovers(now, &mut left);
            // The timer may be armed for this task alone.
            shared.finish(locked, now);
            drop_each([old, Some(waker)].into_iter());
            return Poll::Ready(left);
        }
        this.ticket = Some(locked.others.drainers.park(waker));
        locked.others.any = true;
        // While the drain serves delayed keys, the queue may be drained at a time at which no operation is called. `finish` arms the timer for it.
        shared.finish(locked, now);
        drop(old);
        Poll::Pending
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drop for Drain<'_, K, O, L, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let shared = &self.queue.shared;
            let mut locked = shared.lock();
            let old = locked.others.drainers.leave(ticket);
            // The timer may be armed for this task alone.
            shared.finish(locked, None);
            drop_each(old.into_iter());
        }
    }
}
