//! SHELL. Ending a lease and taking the next key, in one step under the lock.
//!
//! If a worker ended the lease and took the next key separately, it would lock the queue twice and change the
//! reference count of the queue twice. Here it locks once, and the new lease takes over the old lease's handle to the
//! queue.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use flyball_sync::panics::{Panic, caught};
use flyball_sync::{Nanos, Timer};

use super::Queue;
use super::end::{first, panic_of};
use crate::error::TryGetError;
use crate::futures::end_and_get::EndAndGet;
use crate::key::Key;
use crate::lease::Lease;
use crate::lease::leasing::Leasing;
use crate::lease::outcome::LeaseOutcome;
use crate::limiter::QueueLimiter;
use crate::queue::shared::effects::Effects;
use crate::queue::shared::locked::Locked;
use crate::state::order::Order;
use crate::state::types::{NextKey, Transition};

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Ends a lease and waits asynchronously for the next key; resolves to `None` once the queue is closed.
    ///
    /// A worker calls this between two keys. The call combines [`Lease::succeed`], or a different outcome, with
    /// [`get`](Self::get) in one step under one lock. If the key of the ended lease is Ready again, it is queued at
    /// the tail before the next key is taken. If the lease belongs to a different queue, it ends in that queue.
    ///
    /// # Panics
    /// The future panics in the cases in which `get` or [ending a lease](Lease#panics) panics. Then the lease has
    /// ended and no key is handed out. If the future is polled again after a panic, it behaves like the future of
    /// `get`.
    ///
    /// # Cancel safety
    /// The lease ends with `outcome` at the first poll, or when the future is dropped before its first poll. Apart from
    /// that, the future is as cancel-safe as `get`.
    ///
    /// # Examples
    /// ```
    /// # use flyball_workqueue::{LeaseOutcome, Queue};
    /// # async fn work(_: &str) -> bool { true }
    /// # flyball_sync::block_on(async {
    /// let queue = Queue::new();
    /// queue.add_many(["a", "b", "c"]);
    /// queue.shut_down();
    /// let mut worked = 0;
    /// let mut next = queue.get().await;
    /// while let Some(lease) = next {
    ///     let outcome = match work(*lease).await {
    ///         true => LeaseOutcome::Succeeded,
    ///         false => LeaseOutcome::Failed { at_least: std::time::Duration::ZERO },
    ///     };
    ///     worked += 1;
    ///     next = queue.end_and_get(lease, outcome).await;
    /// }
    /// assert_eq!(worked, 3);
    /// # });
    /// ```
    pub fn end_and_get(&self, lease: Lease<K>, outcome: LeaseOutcome) -> EndAndGet<'_, K, O, L, T> {
        EndAndGet::new(self.get(), lease, outcome)
    }

    /// Like [`end_and_get`](Self::end_and_get), but never waits. The lease ends even if no key is Ready.
    ///
    /// # Errors
    /// Like [`try_get`](Self::try_get).
    ///
    /// # Panics
    /// Panics in the cases in which `try_get` or [ending a lease](Lease#panics) panics. Then the lease has ended and no key is handed out.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{LeaseOutcome, Queue, TryGetError};
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// let lease = queue.try_get()?;
    /// let next = queue.try_end_and_get(lease, LeaseOutcome::Succeeded);
    /// assert_eq!(next.unwrap_err(), TryGetError::Empty);
    /// assert_eq!(queue.stats().leased, 0); // the lease has ended
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_end_and_get(&self, lease: Lease<K>, outcome: LeaseOutcome) -> Result<Lease<K>, TryGetError> {
        self.end_and_take(lease, outcome, |locked, now| self.shared.next(locked, now))
    }

    /// Like [`end_and_get`](Self::end_and_get), but blocks the thread.
    ///
    /// # Panics
    /// Panics like [`try_end_and_get`](Self::try_end_and_get).
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{LeaseOutcome, Queue};
    ///
    /// let queue = Queue::new();
    /// queue.add_many(["a", "b", "c"]);
    /// queue.shut_down();
    /// let mut next = queue.blocking_get();
    /// while let Some(lease) = next {
    ///     println!("working on {}", lease.key());
    ///     next = queue.blocking_end_and_get(lease, LeaseOutcome::Succeeded);
    /// }
    /// assert_eq!(queue.stats().ready, 0);
    /// ```
    #[must_use = "a lease that is dropped without an outcome counts as a failure"]
    pub fn blocking_end_and_get(&self, lease: Lease<K>, outcome: LeaseOutcome) -> Option<Lease<K>> {
        match self.try_end_and_get(lease, outcome) {
            Ok(lease) => Some(lease),
            Err(TryGetError::Closed) => None,
            Err(TryGetError::Empty) => self.block(None, None).ok(),
        }
    }

    /// Ends a lease and takes the key that `take` finds, under one lock.
    #[inline]
    pub(crate) fn end_and_take(
        &self,
        mut lease: Lease<K>,
        outcome: LeaseOutcome,
        take: impl FnOnce(&mut Locked<K, O::ReadyQueue>, Option<Nanos>) -> NextKey<K>,
    ) -> Result<Lease<K>, TryGetError> {
        let shared = &self.shared;
        let Some(handle_of_queue) = lease.take_queue_if(shared) else {
            lease.end(outcome);
            let now = shared.now_if_timed();
            let mut locked = shared.lock();
            return match take(&mut locked, now) {
                NextKey::Key(id, key) => Ok(self.lease(locked, now, id, key)),
                NextKey::Closed => Err(TryGetError::Closed),
                NextKey::Wait(_) | NextKey::Empty => Err(TryGetError::Empty),
            };
        };
        let id = lease.lease_id();
        match shared.ends_at_once(outcome) {
            true => self.take_next(
                handle_of_queue,
                None,
                |locked| locked.state.end(id, Transition::Leave, None),
                take,
                |gone, effects| {
                    let woken = effects.and_then(|effects| panic_of(|| shared.perform(effects)));
                    // `gone` and `lease` are dropped separately, because each contains a key, and the drop of either key may panic.
                    first(first(woken, panic_of(|| drop(gone))), panic_of(|| drop(lease)))
                },
            ),
            false => self.decided_end_and_take(lease, handle_of_queue, outcome, take),
        }
    }

    /// This is a separate function, so that ending a lease without user code does not become slower.
    #[inline(never)]
    fn decided_end_and_take(
        &self,
        lease: Lease<K>,
        handle_of_queue: Arc<dyn Leasing<K>>,
        outcome: LeaseOutcome,
        take: impl FnOnce(&mut Locked<K, O::ReadyQueue>, Option<Nanos>) -> NextKey<K>,
    ) -> Result<Lease<K>, TryGetError> {
        let shared = &self.shared;
        let ending = shared.decided(lease.key(), outcome);
        let (id, now) = (lease.lease_id(), ending.now());
        // The caller receives the panic in place of a key, and a key that was taken and requeued would lose its position.
        let has_panicked = ending.has_panicked();
        self.take_next(
            handle_of_queue,
            now,
            |locked| {
                let ended = shared.end_locked(locked, id, &ending);
                (ending, ended)
            },
            |locked, now| if has_panicked { NextKey::Empty } else { take(locked, now) },
            |(ending, ended), effects| {
                let panic = shared.finish_end(lease.key(), ending, ended, effects);
                // `lease` is dropped separately, because the drop of its key may panic, too.
                first(panic, panic_of(|| drop(lease)))
            },
        )
    }

    /// Calls `end`, which ends a lease, and `take`, which finds the next key, under one lock. Then creates a lease of that key, and calls `finish`,
    /// which does the rest of the work for the ended lease and returns a panic, if any.
    #[inline]
    fn take_next<E>(
        &self,
        handle_of_queue: Arc<dyn Leasing<K>>,
        now: Option<Nanos>,
        end: impl FnOnce(&mut Locked<K, O::ReadyQueue>) -> E,
        take: impl FnOnce(&mut Locked<K, O::ReadyQueue>, Option<Nanos>) -> NextKey<K>,
        finish: impl FnOnce(E, Option<Effects>) -> Option<Panic>,
    ) -> Result<Lease<K>, TryGetError> {
        let shared = &self.shared;
        let mut locked = shared.lock();
        let ended = end(&mut locked);
        // If `Clone` of the next key panics, `take` changes nothing, but `end` has ended the old lease.
        let next = catch_unwind(AssertUnwindSafe(|| take(&mut locked, now)));
        let hand_out = if matches!(next, Ok(NextKey::Key(..))) {
            now.and_then(|_| shared.handed_out(&locked))
        } else {
            None
        };
        let effects = shared.collect_wakeups(&mut locked, now);
        drop(locked);
        // The lease is created before any call that may panic, so that the key is not lost.
        let (next, panic) = match next {
            Ok(NextKey::Key(id, key)) => (Ok(Lease::new(key, id, handle_of_queue)), None),
            Ok(NextKey::Closed) => (Err(TryGetError::Closed), None),
            Ok(NextKey::Wait(_) | NextKey::Empty) => (Err(TryGetError::Empty), None),
            Err(panic) => (Err(TryGetError::Empty), Some(panic)),
        };
        if let Some(panic) = first(panic, finish(ended, effects)) {
            // The caller will not receive the new lease, so its key is requeued, and neither a hand-out nor a failure is counted.
            if let Ok(lease) = next {
                caught(|| lease.end(LeaseOutcome::Requeued));
            }
            resume_unwind(panic);
        }
        if let Some(hand_out) = hand_out {
            self.report_hand_out(hand_out);
        }
        next
    }
}
