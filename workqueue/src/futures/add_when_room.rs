//! SHELL. The async add that waits while the queue is full.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use flyball_sync::{ThreadTimer, Timer};

use crate::error::{AddError, AddErrorKind};
use crate::key::Key;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::queue::Queue;
use crate::queue::adders::AdderPlace;
use crate::state::order::Order;
use crate::state::order::fifo::Fifo;
use crate::state::order::sealed::Tag;
use crate::state::types::{Added, NewKey};

/// The future of [`Queue::add_when_room`].
///
/// # Panics
/// Panics if it is polled again after it has completed.
///
/// # Cancel safety
/// If the future is dropped, the key is not added, and is dropped too. If the future had already been woken because there is room, another adder is
/// woken instead. If a woken future is neither polled nor dropped, its wake-up is not passed on to another adder, so drop a future that you no longer
/// poll.
///
/// # Examples
/// If the future is dropped, the key is not added:
/// ```
/// use flyball_workqueue::{AddWhenRoom, KeyState, Queue};
///
/// let queue = Queue::new();
/// let adding: AddWhenRoom<'_, &str> = queue.add_when_room("a");
/// drop(adding);
/// assert_eq!(queue.state(&"a"), KeyState::Absent);
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct AddWhenRoom<'a, K: Key, O: Order<K> = Fifo, L: QueueLimiter<K> = NoLimiter, T: Timer = ThreadTimer>
{
    queue: &'a Queue<K, O, L, T>,
    /// `new.key` is `Some` until the key is added or returned to the caller.
    new: NewKey<K, Tag<O::ReadyQueue>>,
    ticket: Option<AdderPlace>,
    /// See `Get::has_yielded`.
    has_yielded: bool,
}

impl<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> AddWhenRoom<'a, K, O, L, T> {
    pub(crate) fn new(queue: &'a Queue<K, O, L, T>, key: K, tag: Tag<O::ReadyQueue>) -> Self {
        Self { queue, new: queue.shared.new_key(key, tag), ticket: None, has_yielded: false }
    }

    /// Returns the key, if it has not been added or returned yet. So a caller can stop waiting, and keep the key.
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::block_on_timeout;
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().capacity(1).build();
    /// queue.add(String::from("a"))?;
    /// let mut adding = queue.add_when_room(String::from("b"));
    /// let limit = Duration::from_millis(10);
    /// assert!(block_on_timeout(&mut adding, limit).is_none()); // no room
    /// assert_eq!(adding.into_key().as_deref(), Some("b"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_key(mut self) -> Option<K> {
        self.leave();
        self.new.key.take()
    }

    fn leave(&mut self) {
        let shared = &self.queue.shared;
        let Some(ticket) = self.ticket.take() else {
            if std::mem::take(&mut self.has_yielded) && self.new.key.is_some() {
                shared.lock().cancel_yield();
            }
            return;
        };
        let mut locked = shared.lock();
        let old = locked.unpark_adder(ticket);
        // If this adder was woken, `finish` wakes another adder instead. This does not read the clock, because a clock may panic.
        shared.finish(locked, None);
        drop(old);
    }
}

/// `poll` never pins the key, so the future can be `Unpin`.
impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Unpin for AddWhenRoom<'_, K, O, L, T> {}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Future for AddWhenRoom<'_, K, O, L, T> {
    type Output = Result<Added, AddError<K>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shared = &this.queue.shared;
        assert!(this.new.key.is_some(), "polled after it was ready");
        let waited = this.ticket.is_some();
        if waited {
            shared.renew(None, &mut this.new);
        }
        let mut waker = None;
        loop {
            let now = shared.now_if_timed();
            let mut locked = shared.lock_to_add(None, &mut this.new);
            if locked.must_yield() && !this.has_yielded && !waited && !locked.state.is_full_for(&mut this.new)
            {
                // `is_full_for` may have updated the limits of a group, so there may be room for other adders. `finish` wakes them.
                shared.finish(locked, now);
                this.has_yielded = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let added = locked.state.add(&mut this.new, now);
            if added == Err(AddErrorKind::Full) && waker.is_none() {
                let is_parked = |own| locked.adder_waits_for(own, &this.new.tag, context.waker());
                if this.ticket.as_ref().is_some_and(is_parked) {
                    // `add` may have updated the limits of the group, so there may be room for other adders of that group. `finish` wakes them.
                    shared.finish(locked, now);
                    return Poll::Pending;
                }
                // As in `Get`, the waker is cloned outside the lock. A key may leave the queue before the lock is taken again, so the next iteration
                // checks for room again.
                drop(locked);
                waker = Some(context.waker().clone());
                continue;
            }
            let own = this.ticket.take();
            if let (Err(AddErrorKind::Full), Some(waker)) = (added, waker.take()) {
                // The task takes its new place in the wait queue before it leaves the old one. If it left first, its class of keys might have no
                // parked adder for a moment, and the record of the class could be dropped.
                this.ticket = Some(locked.park_adder(&this.new.tag, waker));
                let old = own.and_then(|own| locked.unpark_adder(own));
                shared.finish(locked, now);
                drop(old);
                return Poll::Pending;
            }
            let old = own.and_then(|own| locked.unpark_adder(own));
            if !waited {
                locked.count_immediate();
            }
            shared.finish(locked, now);
            drop(old);
            return Poll::Ready(shared.answer(added, this.new.key.take()));
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drop for AddWhenRoom<'_, K, O, L, T> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> fmt::Debug for AddWhenRoom<'_, K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddWhenRoom").field("parked", &self.ticket.is_some()).finish_non_exhaustive()
    }
}
