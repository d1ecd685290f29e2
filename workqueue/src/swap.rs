//! EDGE. A small trait for each capability of a queue, so that generic code also works with queues other than [`Queue`].
//!
//! Cancel safety: depends on the queue behind the trait. For [`Queue`], [`GetKeys::get`] is as cancel-safe as [`Queue::get`].

use std::future::Future;
use std::time::Duration;

use flyball_sync::Timer;

use crate::error::AddError;
use crate::key::Key;
use crate::lease::Lease;
use crate::limiter::QueueLimiter;
use crate::queue::Queue;
use crate::state::order::Order;

/// A queue that keys can be added to: the part of a queue that an event handler needs.
///
/// Every [`Queue`] implements this trait. `dyn AddKeys<K>` erases order, limiter and timer, so that one handler can
/// feed queues of several types.
///
/// # Examples
/// ```
/// use flyball_workqueue::{AddKeys, Queue};
///
/// let (plain, delaying) = (Queue::new(), Queue::new());
/// let queues: [&dyn AddKeys<&str>; 2] = [&plain, &delaying];
/// for queue in queues {
///     queue.add("a")?;
/// }
/// assert_eq!((plain.ready_len(), delaying.ready_len()), (1, 1));
/// # Ok::<(), &str>(())
/// ```
pub trait AddKeys<K> {
    /// Adds a key; a leased key runs once more after its lease has ended. Never waits.
    ///
    /// # Errors
    /// Returns the key if the queue refuses it, because the queue is shut down or full.
    fn add(&self, key: K) -> Result<(), K>;
}

/// A queue that keys can be added to with a delay.
///
/// Every [`Queue`] with delays implements this trait.
///
/// # Examples
/// ```
/// use flyball_workqueue::{DelayKeys, Queue};
/// use std::time::Duration;
///
/// /// A certificate is to be renewed before it expires.
/// fn schedule_renewal(queue: &dyn DelayKeys<String>, name: &str, valid_for: Duration) -> Result<(), String> {
///     queue.add_after(name.to_owned(), valid_for / 2)
/// }
///
/// let queue = Queue::new();
/// schedule_renewal(&queue, "web", Duration::from_secs(3_600))?;
/// assert_eq!(queue.stats().waiting, 1);
/// # Ok::<(), String>(())
/// ```
pub trait DelayKeys<K>: AddKeys<K> {
    /// Adds a key that becomes Ready after `delay`, or earlier if the key is added without a delay. If several deadlines are requested for a key, the
    /// earliest one applies.
    ///
    /// A worker may call this for the key that it has leased: the key becomes Ready after `delay`, but not before the lease has ended.
    ///
    /// # Errors
    /// Like [`add`](AddKeys::add).
    fn add_after(&self, key: K, delay: Duration) -> Result<(), K>;
}

/// A queue that can end the work on a key: the part of a queue that a worker needs besides [`GetKeys`] or
/// [`BlockingGetKeys`].
///
/// Every [`Queue`] implements this trait; the type that it hands out is [`Lease`]. For a queue with client-go's interface, which hands out bare keys,
/// the implementation takes three lines: `succeed` calls `forget` and `done`, and `retry` calls `add_rate_limited` and `done`. The type that is
/// handed out determines what happens if a worker drops it: a dropped [`Lease`] counts as a failure, and its key runs again; a dropped bare key never
/// runs again.
///
/// # Examples
/// ```
/// use flyball_workqueue::{EndKeys, Queue};
///
/// fn finish<Q: EndKeys<Key = &'static str>>(queue: &Q, leased: Q::Leased, result: Result<(), String>) {
///     match result {
///         Ok(()) => queue.succeed(leased),
///         Err(error) => {
///             println!("{}: {error}", queue.key(&leased));
///             queue.retry(leased);
///         }
///     }
/// }
///
/// let queue = Queue::new();
/// queue.add("a")?;
/// finish(&queue, queue.try_get()?, Err("not yet".to_owned()));
/// assert!(queue.has_ready());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait EndKeys {
    /// The type of the queued keys.
    type Key;

    /// The type that the queue hands out: a lease, or the bare key.
    type Leased;

    /// Returns the key of a leased item.
    fn key<'a>(&self, leased: &'a Self::Leased) -> &'a Self::Key;

    /// Ends the work on the key with a success, and forgets the failures of the key.
    fn succeed(&self, leased: Self::Leased);

    /// Ends the work on the key with a failure: the queue schedules the key again.
    fn retry(&self, leased: Self::Leased);
}

/// A queue that threads take keys from.
///
/// Every [`Queue`] implements this trait. It is dyn-compatible: `dyn BlockingGetKeys<Key = K, Leased = H>`.
///
/// # Examples
/// A worker for any queue with this trait:
/// ```
/// use flyball_workqueue::{BlockingGetKeys, Queue};
///
/// fn work<Q: BlockingGetKeys>(queue: &Q, run: impl Fn(&Q::Key) -> bool) {
///     while let Some(leased) = queue.blocking_get() {
///         if run(queue.key(&leased)) { queue.succeed(leased) } else { queue.retry(leased) }
///     }
/// }
///
/// let queue = Queue::new();
/// queue.add("a")?;
/// queue.shut_down();
/// work(&queue, |key| *key == "a");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait BlockingGetKeys: EndKeys {
    /// Waits for a key, blocking the thread; `None` once the queue is closed.
    fn blocking_get(&self) -> Option<Self::Leased>;
}

/// A queue that tasks take keys from.
///
/// Every [`Queue`] with an async `get` implements this trait. The future is `Send`, so that a generic worker can be
/// spawned on any runtime.
///
/// # Examples
/// A worker for any queue with this trait:
/// ```
/// use flyball_sync::block_on;
/// use flyball_workqueue::{GetKeys, Queue};
///
/// async fn work<Q: GetKeys>(queue: &Q, run: impl AsyncFn(&Q::Key) -> bool) {
///     while let Some(leased) = queue.get().await {
///         if run(queue.key(&leased)).await { queue.succeed(leased) } else { queue.retry(leased) }
///     }
/// }
///
/// let queue = Queue::new();
/// queue.add("a")?;
/// queue.shut_down();
/// block_on(work(&queue, async |key| *key == "a"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait GetKeys: EndKeys {
    /// Waits for a key; `None` once the queue is closed.
    ///
    /// # Cancel safety
    /// An implementation must ensure that no key is lost if the future is dropped before it completes.
    fn get(&self) -> impl Future<Output = Option<Self::Leased>> + Send;
}

// === impl Queue ===

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> AddKeys<K> for Queue<K, O, L, T> {
    fn add(&self, key: K) -> Result<(), K> {
        Queue::add(self, key).map(drop).map_err(AddError::into_key)
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> DelayKeys<K> for Queue<K, O, L, T> {
    fn add_after(&self, key: K, delay: Duration) -> Result<(), K> {
        Queue::add_after(self, key, delay).map(drop).map_err(AddError::into_key)
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> EndKeys for Queue<K, O, L, T> {
    type Key = K;
    type Leased = Lease<K>;

    fn key<'a>(&self, leased: &'a Lease<K>) -> &'a K {
        leased.key()
    }

    fn succeed(&self, leased: Lease<K>) {
        leased.succeed();
    }

    fn retry(&self, leased: Lease<K>) {
        leased.retry();
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> BlockingGetKeys for Queue<K, O, L, T> {
    fn blocking_get(&self) -> Option<Lease<K>> {
        self.blocking_get()
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> GetKeys for Queue<K, O, L, T> {
    fn get(&self) -> impl Future<Output = Option<Lease<K>>> + Send {
        self.get()
    }
}
