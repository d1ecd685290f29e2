//! SHELL. Taking keys from a queue.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use flyball_sync::locks::MutexGuard;
use flyball_sync::panics::{caught, forget};
use flyball_sync::{Clock, Monotonic, Nanos, Timer};

use super::Queue;
use crate::error::{GetTimeoutError, TryGetError};
use crate::lease::Lease;
use crate::limiter::QueueLimiter;
use crate::queue::Key;
#[cfg(feature = "stream")]
use crate::queue::get_future::LeaseStream;
use crate::queue::get_future::{Get, GetMany};
use crate::queue::locked::Locked;
use crate::queue::shared::{Effects, Shared};
use crate::state::metering::HandedOut;
use crate::state::order::Order;
use crate::state::types::{LeaseId, NextKey};

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Waits asynchronously for a key, on any executor; resolves to `None` once the queue is closed.
    ///
    /// A queue is closed once it is shut down, no key is Ready, and no key can become Ready. Keys of [suspended](crate::Fair::max_leased) groups do
    /// not keep a queue open. Dropping all handles does not close a queue.
    ///
    /// Once 127 futures have been served at their first poll, the next future for which a key is Ready yields to other tasks, and returns a key only
    /// when it is polled again. So other tasks run even if the queue is never empty, on every executor. To take a key without waiting, use
    /// [`try_get`](Self::try_get).
    ///
    /// # Panics
    /// The future panics if the clock or `Clone` of the key panics; in that case no key is handed out. A key whose `Clone` panics moves to the tail of the
    /// queue, with its priority and its group, so that it does not keep other keys from being handed out. If the future waits or ends without a key, it also panics if
    /// the timer or the waker of another waiter does. With a key, such a panic is caught, so that the key reaches the caller.
    ///
    /// # Cancel safety
    /// Dropping the future takes no key. If the future had already been woken for a key, another getter is woken instead.
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
    pub fn get(&self) -> Get<'_, K, O, L, T> {
        Get::new(self)
    }

    /// Waits for a key like [`get`](Self::get), then also takes the other keys that are Ready, up to `most` keys in total. Returns an empty batch
    /// once the queue is closed. If `most` is 0, returns an empty batch immediately, like tokio's `recv_many`.
    ///
    /// # Panics
    /// Panics like `get`.
    ///
    /// # Cancel safety
    /// Like `get`.
    ///
    /// # Examples
    /// A thread waits with `block_on`. (If the queue's timer is that of a runtime, the runtime must be running meanwhile. Without it, call `blocking_get`, and
    /// then `try_get_many`.)
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::{Lease, Queue};
    ///
    /// let queue = Queue::new();
    /// queue.add_many([1, 2, 3]);
    /// queue.shut_down();
    /// let mut batches = Vec::new();
    /// loop {
    ///     let leases = block_on(queue.get_many(2));
    ///     if leases.is_empty() { break }
    ///     batches.push(leases.len());
    ///     leases.into_iter().for_each(Lease::succeed);
    /// }
    /// assert_eq!(batches, [2, 1]);
    /// ```
    pub fn get_many(
        &self,
        most: usize,
    ) -> impl Future<Output = Vec<Lease<K>>> + Send + Unpin + use<'_, K, O, L, T> {
        GetMany { first: self.get(), most }
    }

    /// Returns a stream of leases, which ends once the queue is closed. The stream is as cancel-safe as [`get`](Self::get), and yields to other tasks
    /// as often.
    #[cfg(feature = "stream")]
    pub fn stream(&self) -> LeaseStream<'_, K, O, L, T> {
        LeaseStream::new(self.get())
    }

    /// Takes a key if one is Ready. Never waits.
    ///
    /// # Errors
    /// Returns [`TryGetError::Empty`] if no key can be handed out now, and [`TryGetError::Closed`] if the queue is closed.
    ///
    /// # Panics
    /// Panics like [`get`](Self::get).
    #[inline]
    pub fn try_get(&self) -> Result<Lease<K>, TryGetError> {
        match self.shared.now_if_timed() {
            // Inlined without a time: most queues need none.
            None => self.try_get_at(None),
            now => self.try_get_timed(now),
        }
    }

    #[inline(never)]
    fn try_get_timed(&self, now: Option<Nanos>) -> Result<Lease<K>, TryGetError> {
        self.try_get_at(now)
    }

    #[inline(always)]
    fn try_get_at(&self, now: Option<Nanos>) -> Result<Lease<K>, TryGetError> {
        let mut locked = self.shared.lock();
        let next = self.shared.next(&mut locked, now);
        match next {
            NextKey::Key(id, key) => Ok(self.lease(locked, now, id, key)),
            NextKey::Closed => Err(TryGetError::Closed),
            NextKey::Wait(_) | NextKey::Empty => Err(TryGetError::Empty),
            NextKey::GatherMore => {
                drop(locked);
                self.try_get_gathering()
            }
        }
    }

    #[cold]
    fn try_get_gathering(&self) -> Result<Lease<K>, TryGetError> {
        loop {
            let now = Some(self.shared.now());
            let mut locked = self.shared.lock();
            match self.shared.next(&mut locked, now) {
                NextKey::Key(id, key) => return Ok(self.lease(locked, now, id, key)),
                NextKey::Closed => return Err(TryGetError::Closed),
                NextKey::Wait(_) | NextKey::Empty => return Err(TryGetError::Empty),
                NextKey::GatherMore => {}
            }
        }
    }

    /// Takes the keys that are Ready, up to `most`, under one lock. Never waits. If `most` is 0, returns `Ok` with an empty batch.
    ///
    /// # Errors
    /// Like [`try_get`](Self::try_get).
    ///
    /// # Panics
    /// Panics like [`get`](Self::get), with `Clone` of the first key; no key is handed out in that case. If `Clone`
    /// of a later key panics, the batch ends before that key, which moves to the tail of the queue.
    ///
    /// # Examples
    /// The batch contains the keys that are Ready now, even if they are fewer than `most`:
    /// ```
    /// use flyball_workqueue::Queue;
    ///
    /// let queue = Queue::new();
    /// queue.add_many([1, 2, 3]);
    /// let first = queue.try_get_many(2)?;
    /// let rest = queue.try_get_many(2)?;
    /// assert_eq!((first.len(), rest.len()), (2, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_get_many(&self, most: usize) -> Result<Vec<Lease<K>>, TryGetError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let now = self.shared.now_if_timed();
        let mut taken = Vec::with_capacity(most.min(64));
        let mut hand_outs = Vec::new();
        let mut locked = self.shared.lock();
        let mut panicked = None;
        let end = loop {
            // The panic is caught, so that leases are created for the keys that were taken before it; otherwise these keys would be lost.
            match catch_unwind(AssertUnwindSafe(|| self.shared.next(&mut locked, now))) {
                Ok(NextKey::Key(id, key)) => {
                    taken.push((id, key));
                    hand_outs.extend(self.shared.handed_out(&locked));
                }
                Ok(NextKey::Closed) => break TryGetError::Closed,
                Ok(NextKey::Wait(_) | NextKey::Empty) => break TryGetError::Empty,
                Ok(NextKey::GatherMore) => {
                    drop(locked);
                    locked = self.shared.lock();
                }
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
        self.wake_others(effects);
        hand_outs.into_iter().for_each(|one| self.report_hand_out(one));
        match panicked {
            Some(panic) if leases.is_empty() => resume_unwind(panic),
            Some(panic) => {
                forget(panic);
                Ok(leases)
            }
            None if leases.is_empty() => Err(end),
            None => Ok(leases),
        }
    }

    /// Unlocks the queue, and returns a lease for the key that was taken.
    ///
    /// The lease is created before any call that may panic, so that the key is not lost. It is created after unlocking, so that no thread waits for
    /// the lock while the reference count of the queue changes.
    #[inline]
    pub(crate) fn lease(
        &self,
        mut locked: MutexGuard<'_, Locked<K, O::ReadyQueue>>,
        now: Option<Nanos>,
        id: LeaseId,
        key: K,
    ) -> Lease<K> {
        let effects = self.shared.collect_wakeups(&mut locked, now);
        let hand_out = now.and_then(|_| self.shared.handed_out(&locked));
        drop(locked);
        let lease = Lease::new(key, id, self.shared.clone());
        self.wake_others(effects);
        if let Some(hand_out) = hand_out {
            self.report_hand_out(hand_out);
        }
        lease
    }

    /// Reports a hand-out. Called only when nothing can prevent the lease from reaching the caller.
    pub(super) fn report_hand_out(&self, hand_out: HandedOut) {
        self.shared.report(|sink| sink.dequeued(hand_out.queued, hand_out.delayed));
    }

    /// Wakes other waiters. If one of their wakers or the timer panics, the panic is caught: the keys that were taken must reach the caller, because a key
    /// that is put back after a shutdown would not be handed out again.
    fn wake_others(&self, effects: Option<Effects>) {
        if let Some(effects) = effects {
            caught(|| self.shared.perform(effects));
        }
    }

    /// Waits for a key, and blocks the thread meanwhile; returns `None` once the queue is closed. Needs no runtime, even with delays.
    ///
    /// # Panics
    /// Panics like [`get`](Self::get).
    #[must_use = "a lease that is dropped without an outcome counts as a failure"]
    #[inline]
    pub fn blocking_get(&self) -> Option<Lease<K>> {
        match self.try_get() {
            Ok(lease) => Some(lease),
            Err(TryGetError::Closed) => None,
            Err(TryGetError::Empty) => self.block(None).ok(),
        }
    }

    /// Waits for a key for at most `limit`, and blocks the thread meanwhile. The limit is in real time, even if the queue has a different clock.
    ///
    /// # Errors
    /// Returns [`GetTimeoutError::TimedOut`] if no key becomes Ready within `limit`, and [`GetTimeoutError::Closed`] once the queue is closed.
    ///
    /// # Panics
    /// Panics like [`get`](Self::get).
    pub fn blocking_get_timeout(&self, limit: Duration) -> Result<Lease<K>, GetTimeoutError> {
        self.block(Some(Monotonic.now() + limit))
    }

    /// Returns a batch of at most `most` leases: `first`, and leases of keys that are Ready now.
    pub(crate) fn more(&self, first: Lease<K>, most: usize) -> Vec<Lease<K>> {
        let mut leases = vec![first];
        if most > 1 {
            // If `Clone` of a key panics, that key stays in the queue, and `first` is still returned.
            let others = caught(|| self.try_get_many(most - 1));
            leases.extend(others.into_iter().flatten().flatten());
        }
        leases
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Shared<K, O, L, T> {
    /// Hands out a key, if one is Ready.
    #[inline]
    pub(crate) fn next(&self, locked: &mut Locked<K, O::ReadyQueue>, now: Option<Nanos>) -> NextKey<K> {
        match now {
            // A queue with metrics has always read the clock here.
            None => locked.state.get(None),
            Some(_) => locked.state.get_metered(now),
        }
    }
}
