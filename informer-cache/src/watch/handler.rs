//! EDGE. An event handler: a function, and a future that calls the function with the changes of a subscription. Any executor can run the future.
//!
//! Cancel safety: the run future may be dropped at any point. It takes a change and delivers it in the same poll, so a change is never taken without
//! being delivered. The handler ends if its subscription ends, if it is unsubscribed, or if the future is dropped, even before its first poll.
//! In each case, the subscription and the function are dropped, and all waiters are woken.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use flyball_sync::locks::{AtomicU64, Ordering};
use flyball_sync::panics::caught;

use crate::signal::stop_signal::StopSignal;
use crate::signal::synced::Synced;
use crate::watch::subscription::SubscriptionItem;
use crate::{InitialProcessed, Subscription};

/// A handle to a registered event handler, which is a function that is called with the changes of a subscription. [`Subscription::for_each`] creates
/// it. Clones refer to the same event handler.
///
/// The function is called as long as its run future is polled, even if all handles were dropped.
#[derive(Clone)]
pub struct HandlerRegistration {
    shared: Arc<Shared>,
}

/// The state that the run future and the handles share.
struct Shared {
    stop: StopSignal,
    /// Set when the run future has ended.
    over: Synced,
    panics: AtomicU64,
    initial_processed: InitialProcessed,
}

/// The reason why an event handler ended. This is the result of the future that [`Subscription::for_each`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerExit {
    /// The store was closed, or the [index](crate::SubscriptionBuilder::by_index) of the subscription was removed. In both cases, every change was
    /// delivered.
    Closed,
    /// [`HandlerRegistration::unsubscribe`] was called.
    Unsubscribed,
}

/// The future of [`Subscription::for_each`].
struct HandlerFuture<K, V, E, F> {
    /// `None` after the end.
    work: Option<(Subscription<K, V, E>, F)>,
    end: HandlerExit,
    shared: Arc<Shared>,
}

impl<K, V, E> Subscription<K, V, E>
where
    K: Clone + Eq + Hash,
    E: SubscriptionItem<K, V>,
{
    /// Returns a future that calls `f` with the changes, one after the other, and a handle to it. If `f` is slow, it receives coalesced changes;
    /// other subscribers are not delayed.
    ///
    /// The future calls `f` on the thread that polls it, and completes when the subscription has ended (see [`HandlerExit`]) or the handler is
    /// [unsubscribed](HandlerRegistration::unsubscribe). If `f` panics, the panic is [counted](HandlerRegistration::panic_count), and the change
    /// counts as processed: `f` is then called with the next change, and the wait for [`initial_processed`](HandlerRegistration::initial_processed)
    /// can still complete. A filter and the function of [`with_identity`](crate::Schema::with_identity) are called before `f`. If one of them panics,
    /// the panic propagates to the caller of `poll`, as with [`next`](Self::next). If the future is polled again, it continues with the same change.
    ///
    /// # Cancel safety
    /// Dropping the future unsubscribes, even before its first poll: the subscription and `f` are dropped, and pending changes are not delivered. A
    /// change is taken and passed to `f` in the same poll, so no change is taken without a call of `f`.
    ///
    /// # Examples
    /// ```
    /// # use flyball_informer_cache::{HandlerExit, Schema, Store, Version};
    /// # use std::sync::mpsc;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let mut store = Store::builder(Schema::new(|pod: &(u8, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let (sender, received) = mpsc::channel();
    /// let (handler, run) = store.subscribe().for_each(move |change| sender.send(*change.key()).unwrap());
    /// let running = tokio::spawn(run);
    ///
    /// store.replace([(1, 1), (2, 1)], Version::new(1));
    /// handler.initial_processed().await?;
    /// assert_eq!(received.try_iter().collect::<Vec<_>>(), [1, 2]);
    ///
    /// handler.unsubscribe();
    /// handler.unsubscribed().await; // no call begins any more, and none is in progress
    /// assert_eq!(running.await?, HandlerExit::Unsubscribed);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_each<F: FnMut(E)>(
        self,
        f: F,
    ) -> (HandlerRegistration, impl Future<Output = HandlerExit> + Unpin + use<K, V, E, F>) {
        let shared = Arc::new(Shared {
            stop: StopSignal::default(),
            over: Synced::default(),
            panics: AtomicU64::new(0),
            initial_processed: self.initial_processed(),
        });
        let run =
            HandlerFuture { work: Some((self, f)), end: HandlerExit::Unsubscribed, shared: shared.clone() };
        (HandlerRegistration { shared }, run)
    }
}

impl HandlerRegistration {
    /// Stops the calls of the function. Pending changes are not delivered. This method does not wait for a call that is in progress, and a call that
    /// another thread is about to make may still begin. Idempotent.
    ///
    /// The function and the subscription are dropped when the run future is polled the next time, or when it is dropped.
    pub fn unsubscribe(&self) {
        self.shared.stop.request();
    }

    /// Waits until the run future has ended, for any reason. At that time, no call is in progress, no call will begin any more, and the function has
    /// been dropped. Any number of tasks may wait, and all of them are woken. If the function itself blocks its thread on this wait, there is a
    /// deadlock.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    pub async fn unsubscribed(&self) {
        // `wait` does not return an error here, because this signal is always set in the end and never fails.
        let _ = self.shared.over.wait().await;
    }

    /// Returns a future that completes when the function has processed the initial state, see [`Subscription::initial_processed`].
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    pub fn initial_processed(&self) -> InitialProcessed {
        self.shared.initial_processed.clone()
    }

    /// Returns the number of calls that panicked. A panic while the function is dropped is also counted.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{HandlerExit, HandlerRegistration, Schema, Store, Version};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let (handler, run): (HandlerRegistration, _) =
    ///     pods.subscribe().for_each(|change| assert_ne!(*change.key(), "b", "no handler for this one"));
    /// pods.replace([("a", 1), ("b", 2)], Version::new(2));
    /// drop(pods); // closes the store, which ends the future
    /// assert_eq!(flyball_sync::block_on(run), HandlerExit::Closed);
    /// assert_eq!(handler.panic_count(), 1);
    /// assert!(handler.initial_processed().is_done());
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    #[must_use]
    pub fn panic_count(&self) -> u64 {
        // Ordering: Relaxed, because the counter publishes no other memory.
        self.shared.panics.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Calls user code, and counts a panic in it.
    fn isolate(&self, foreign: impl FnOnce()) {
        if caught(foreign).is_none() {
            // Ordering: Relaxed, because the counter publishes no other memory.
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<K, V, E, F> HandlerFuture<K, V, E, F> {
    /// Drops the subscription and the function, and then signals the end. Never panics. A second call has no effect.
    fn finish(&mut self, end: HandlerExit) -> HandlerExit {
        if let Some((changes, function)) = self.work.take() {
            self.end = end;
            // The following lines call user code: destructors of objects, and wakers. Panics of these are ignored.
            let _ = caught(|| drop(changes));
            self.shared.isolate(|| drop(function));
            let _ = caught(|| self.shared.stop.exited());
            self.shared.over.set();
        }
        self.end
    }
}

// The future does not need to be pinned: it calls the function through a reference and contains no other future.
impl<K, V, E, F> Unpin for HandlerFuture<K, V, E, F> {}

impl<K, V, E, F> Future for HandlerFuture<K, V, E, F>
where
    K: Clone + Eq + Hash,
    E: SubscriptionItem<K, V>,
    F: FnMut(E),
{
    type Output = HandlerExit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // The waker is registered before the stop signal is checked below. So if a request to stop comes after the check, it wakes this task.
        this.shared.stop.poll(cx);
        for _ in 0..BATCH {
            let Some((changes, function)) = &mut this.work else { return Poll::Ready(this.end) };
            // The stop signal is checked before each call, so that at most one call begins after a request to stop.
            if this.shared.stop.is_requested() {
                return Poll::Ready(this.finish(HandlerExit::Unsubscribed));
            }
            match changes.poll_next(cx) {
                Poll::Ready(Some(change)) => this.shared.isolate(|| function(change)),
                Poll::Ready(None) => return Poll::Ready(this.finish(HandlerExit::Closed)),
                Poll::Pending => return Poll::Pending,
            }
        }
        // Returns to the executor, so that other tasks on this thread can run.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<K, V, E, F> Drop for HandlerFuture<K, V, E, F> {
    fn drop(&mut self) {
        self.finish(HandlerExit::Unsubscribed);
    }
}

impl fmt::Debug for HandlerRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerRegistration")
            .field("over", &self.shared.over)
            .field("panics", &self.panic_count())
            .finish()
    }
}

/// The maximum number of calls of the function in one poll.
const BATCH: usize = 64;
