//! SHELL. What goes out of a queue.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use flyball_sync::locks::MutexGuard;
use flyball_sync::{Clock, Monotonic, Nanos};

use super::Queue;
use crate::error::{GetTimeoutError, TryGetError};
use crate::futures::get::Get;
use crate::futures::get_many::GetMany;
#[cfg(feature = "stream")]
use crate::futures::stream::LeaseStream;
use crate::key::Key;
use crate::lease::Lease;
use crate::limiter::QueueLimiter;
use crate::queue::consumer::Consumer;
use crate::queue::shared::{Effects, Locked, Shared};
use crate::state::order::Order;
use crate::state::{HandedOut, LeaseId, NextKey};
use crate::time_mode::{SupportsAsync, SupportsDelays, TimeMode};

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Queue<K, O, L, T> {
    /// Waits for a key, as a task on any executor; `None` once the queue is closed.
    ///
    /// Closed means: shut down, nothing Ready, and nothing that can become Ready; but for keys of groups that are
    /// [suspended](crate::Fair::max_leased). Dropping handles closes nothing.
    ///
    /// It yields now and then, on every executor: of 128 keys in a row that are there at once, one is handed out at the second
    /// poll, so that a queue which is never empty leaves other tasks their turn. To look without waiting, use
    /// [`try_get`](Self::try_get).
    ///
    /// # Panics
    /// The future panics when `Clone` of the key, the clock or the timer does; nothing is handed out then.
    ///
    /// # Cancel safety
    /// Dropping the future takes no key. If it had been woken for one, the wake-up is passed on to another getter.
    ///
    /// # Examples
    /// A worker:
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::Queue;
    ///
    /// async fn work(queue: Queue<&'static str>) {
    ///     while let Some(lease) = queue.get().await {
    ///         println!("working on {}", lease.key());
    ///         lease.succeed();
    ///     }
    /// }
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// queue.shut_down();
    /// block_on(work(queue)); // on a runtime, spawn some of these
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// On a queue with delays there is no async `get` without a timer:
    /// ```compile_fail,E0277
    /// # use flyball_workqueue::Queue;
    /// let queue = Queue::<&str>::builder().with_delays().build();
    /// let get = queue.get();
    /// ```
    pub fn get(&self) -> Get<'_, K, O, L, T>
    where
        T: SupportsAsync,
    {
        Get::new(self, None)
    }

    /// Waits for a key as [`get`](Self::get) does, then takes what else is Ready, at most `most` keys in all. Nothing once
    /// the queue is closed, and nothing at once where `most` is 0, as tokio's `recv_many`.
    ///
    /// # Panics
    /// As `get`.
    ///
    /// # Cancel safety
    /// As `get`.
    pub fn get_many(&self, most: usize) -> GetMany<'_, K, O, L, T>
    where
        T: SupportsAsync,
    {
        GetMany::new(self.get(), most)
    }

    /// Leases as a stream that ends once the queue is closed. Cancel-safe, and as fair, as [`get`](Self::get) is.
    #[cfg(feature = "stream")]
    pub fn stream(&self) -> LeaseStream<'_, K, O, L, T>
    where
        T: SupportsAsync,
    {
        LeaseStream::new(self.get())
    }

    /// A key, if one is Ready. Never waits.
    ///
    /// # Errors
    /// [`TryGetError::Empty`] if none is, [`TryGetError::Closed`] if none will be.
    #[inline]
    pub fn try_get(&self) -> Result<Lease<K, T>, TryGetError> {
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock();
        let next = self.shared.next(&mut locked, now);
        match next {
            NextKey::Key(id, key) => Ok(self.lease(locked, now, id, key)),
            NextKey::Closed => Err(TryGetError::Closed),
            NextKey::Wait(_) | NextKey::Empty => Err(TryGetError::Empty),
        }
    }

    /// What is Ready, under one lock: at most `most` keys. Never waits. 0 takes nothing, and is no error.
    ///
    /// # Errors
    /// As [`try_get`](Self::try_get).
    ///
    /// # Panics
    /// When `Clone` of the first key does, or the clock; nothing is handed out then. A later key whose `Clone` panics
    /// ends the batch, and is left for the next call.
    ///
    /// # Examples
    /// A batch has what there is, and does not wait to be full:
    /// ```
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::new();
    /// queue.add_many([1, 2, 3, 4, 5]);
    /// let first = queue.try_get_many(2)?;
    /// let second = queue.blocking_get_many(2);
    /// let rest = queue.blocking_get_many_timeout(2, Duration::from_secs(60))?;
    /// assert_eq!((first.len(), second.len(), rest.len()), (2, 2, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_get_many(&self, most: usize) -> Result<Vec<Lease<K, T>>, TryGetError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let now = self.shared.now_if_timed();
        let mut taken = Vec::with_capacity(most.min(64));
        let mut told = Vec::new();
        let mut locked = self.shared.lock();
        let mut panicked = None;
        let end = loop {
            // What was taken before a panic must reach its leases, or those keys were lost.
            match catch_unwind(AssertUnwindSafe(|| self.shared.next(&mut locked, now))) {
                Ok(NextKey::Key(id, key)) => {
                    taken.push((id, key));
                    told.extend(self.shared.handed_out(&locked));
                }
                Ok(NextKey::Closed) => break TryGetError::Closed,
                Ok(NextKey::Wait(_) | NextKey::Empty) => break TryGetError::Empty,
                Err(panic) => {
                    panicked = Some(panic);
                    break TryGetError::Empty;
                }
            }
            if taken.len() >= most {
                break TryGetError::Empty;
            }
        };
        let effects = self.shared.collect_wakeups(&mut locked, now);
        drop(locked);
        let lease = |(id, key)| Lease::new(key, id, self.shared.clone());
        let leases: Vec<_> = taken.into_iter().map(lease).collect();
        let leases = self.wake_for(leases, effects);
        told.into_iter().for_each(|one| self.tell_hand_out(one));
        match panicked {
            Some(panic) if leases.is_empty() => resume_unwind(panic),
            _ if leases.is_empty() => Err(end),
            _ => Ok(leases),
        }
    }

    /// Unlocks, and hands out what was taken.
    ///
    /// The lease is made before anything that may panic, or the key would be lost; and after unlocking, as counting its
    /// handle on the queue is work that others need not wait for.
    #[inline]
    pub(crate) fn lease(
        &self,
        mut locked: MutexGuard<'_, Locked<K, O::ReadyQueue>>,
        now: Option<Nanos>,
        id: LeaseId,
        key: K,
    ) -> Lease<K, T> {
        let effects = self.shared.collect_wakeups(&mut locked, now);
        let told = self.shared.handed_out(&locked);
        drop(locked);
        let lease = Lease::new(key, id, self.shared.clone());
        let lease = match effects {
            None => lease,
            Some(_) => {
                let [lease] = self.wake_for([lease], effects);
                lease
            }
        };
        if let Some(told) = told {
            self.tell_hand_out(told);
        }
        lease
    }

    /// Once the lease has reached its caller, and not before: what goes back was not handed out.
    pub(super) fn tell_hand_out(&self, told: HandedOut) {
        self.shared.tell(|sink| sink.dequeued(told.queued, told.delayed));
    }

    /// Wakes others. If a waker panics, what was taken goes back uncounted, as nobody has seen it.
    fn wake_for<C>(&self, taken: C, effects: Option<Effects>) -> C
    where
        C: IntoIterator<Item = Lease<K, T>>,
    {
        let Some(effects) = effects else { return taken };
        match catch_unwind(AssertUnwindSafe(|| self.shared.perform(effects))) {
            Ok(()) => taken,
            Err(panic) => {
                taken.into_iter().for_each(Lease::requeue);
                resume_unwind(panic);
            }
        }
    }

    /// Waits for a key, blocking the thread; `None` once the queue is closed. Needs no runtime, also with delays.
    ///
    /// # Panics
    /// When `Clone` of the key or the clock does; nothing is handed out then.
    #[must_use = "a lease that is dropped without an outcome counts as a failure"]
    #[inline]
    pub fn blocking_get(&self) -> Option<Lease<K, T>> {
        match self.try_get() {
            Ok(lease) => Some(lease),
            Err(TryGetError::Closed) => None,
            Err(TryGetError::Empty) => self.block(None, None).ok(),
        }
    }

    /// Waits for a key at most so long, blocking the thread. The limit is real time, whatever the queue's clock.
    ///
    /// # Errors
    /// [`GetTimeoutError::TimedOut`] after `limit`, [`GetTimeoutError::Closed`] once the queue is closed.
    ///
    /// # Panics
    /// When `Clone` of the key or the clock does; nothing is handed out then.
    pub fn blocking_get_timeout(&self, limit: Duration) -> Result<Lease<K, T>, GetTimeoutError> {
        self.block(Some(Monotonic.now() + limit), None)
    }

    /// [`get_many`](Self::get_many), blocking the thread at most so long. The limit is real time, whatever the queue's clock.
    ///
    /// # Errors
    /// As [`blocking_get_timeout`](Self::blocking_get_timeout).
    ///
    /// # Panics
    /// As [`blocking_get`](Self::blocking_get).
    pub fn blocking_get_many_timeout(
        &self,
        most: usize,
        limit: Duration,
    ) -> Result<Vec<Lease<K, T>>, GetTimeoutError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        self.blocking_get_timeout(limit).map(|first| self.more(first, most))
    }

    /// [`get_many`](Self::get_many), blocking the thread.
    ///
    /// # Panics
    /// As [`blocking_get`](Self::blocking_get).
    pub fn blocking_get_many(&self, most: usize) -> Vec<Lease<K, T>> {
        if most == 0 {
            return Vec::new();
        }
        self.blocking_get().map_or_else(Vec::new, |first| self.more(first, most))
    }

    /// A batch that begins with `first`.
    pub(crate) fn more(&self, first: Lease<K, T>, most: usize) -> Vec<Lease<K, T>> {
        let mut leases = vec![first];
        if most > 1 {
            // What panics is left for the next call: the first key is none the worse for it.
            let others = catch_unwind(AssertUnwindSafe(|| self.try_get_many(most - 1)));
            leases.extend(others.into_iter().flatten().flatten());
        }
        leases
    }

    /// Someone who takes keys and can be stopped while the queue goes on.
    #[must_use]
    pub fn consumer(&self) -> Consumer<K, O, L, T> {
        Consumer::new(self.clone())
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: SupportsDelays + SupportsAsync> Queue<K, O, L, T> {
    /// [`get`](Self::get) for at most so long, by the queue's clock. It takes a key that is there, however short the limit.
    ///
    /// # Errors
    /// [`GetTimeoutError::TimedOut`] after `limit`, [`GetTimeoutError::Closed`] once the queue is closed.
    ///
    /// # Panics
    /// As `get`.
    ///
    /// # Cancel safety
    /// As `get`. The limit begins with the first poll.
    ///
    /// # Examples
    /// ```
    /// # use flyball_workqueue::{GetTimeoutError, Queue, ThreadTimer};
    /// # use std::time::Duration;
    /// # flyball_sync::block_on(async {
    /// let queue = Queue::<&str>::builder().timer(ThreadTimer::new()).build();
    /// let none = queue.get_timeout(Duration::from_millis(10)).await;
    /// assert_eq!(none.unwrap_err(), GetTimeoutError::TimedOut);
    /// # });
    /// ```
    pub async fn get_timeout(&self, limit: Duration) -> Result<Lease<K, T>, GetTimeoutError> {
        match self.within(limit, &mut self.get()).await {
            Some(Some(lease)) => Ok(lease),
            Some(None) => Err(GetTimeoutError::Closed),
            // It may have given way, or the key may have come since.
            None => self.try_get().map_err(|error| match error {
                TryGetError::Empty => GetTimeoutError::TimedOut,
                TryGetError::Closed => GetTimeoutError::Closed,
            }),
        }
    }

    /// [`get_many`](Self::get_many) for at most so long, by the queue's clock. It takes keys that are there, however short the limit.
    ///
    /// # Errors
    /// As [`get_timeout`](Self::get_timeout).
    ///
    /// # Panics
    /// As `get`.
    ///
    /// # Cancel safety
    /// As `get_timeout`.
    pub async fn get_many_timeout(
        &self,
        most: usize,
        limit: Duration,
    ) -> Result<Vec<Lease<K, T>>, GetTimeoutError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        self.get_timeout(limit).await.map(|first| self.more(first, most))
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Shared<K, O, L, T> {
    /// Hands out a key, if there is one.
    #[inline]
    pub(crate) fn next(&self, locked: &mut Locked<K, O::ReadyQueue>, now: Option<Nanos>) -> NextKey<K> {
        if T::DELAYS { locked.state.get_told(now) } else { locked.state.get(now) }
    }
}
