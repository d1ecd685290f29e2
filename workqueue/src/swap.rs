//! EDGE. What a queue looks like from outside: small traits, one for an ability.
//!
//! Cancel safety: as the queue behind them says; for ours, [`GetKeys::get`] is [`Queue::get`].

use std::future::Future;
use std::time::Duration;

use crate::error::AddError;
use crate::key::Key;
use crate::lease::Lease;
use crate::limiter::QueueLimiter;
use crate::queue::Queue;
use crate::state::order::Order;
use crate::time_mode::{SupportsAsync, SupportsDelays, TimeMode};

/// Where keys are added: what an event handler needs of a queue.
///
/// Every [`Queue`] is one. As `dyn AddKeys<K>` it hides order, limiter and time, so that one handler feeds queues of
/// several types.
///
/// # Examples
/// ```
/// use flyball_workqueue::{AddKeys, Queue};
///
/// let (plain, delaying) = (Queue::new(), Queue::builder().with_delays().build());
/// let queues: [&dyn AddKeys<&str>; 2] = [&plain, &delaying];
/// for queue in queues {
///     queue.add("a")?;
/// }
/// assert_eq!((plain.ready_len(), delaying.ready_len()), (1, 1));
/// # Ok::<(), &str>(())
/// ```
pub trait AddKeys<K> {
    /// Has a key run, once more if it runs already. Never waits.
    ///
    /// # Errors
    /// The key, if the queue does not take it: it is shut down, or full.
    fn add(&self, key: K) -> Result<(), K>;
}

/// Where keys are added for later.
///
/// Every [`Queue`] with delays is one.
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
/// let queue = Queue::builder().with_delays().build();
/// schedule_renewal(&queue, "web", Duration::from_secs(3_600))?;
/// assert_eq!(queue.stats().waiting, 1);
/// # Ok::<(), String>(())
/// ```
pub trait DelayKeys<K>: AddKeys<K> {
    /// Has a key run no earlier than after `delay`, unless it is added meanwhile; the earliest of several times holds.
    ///
    /// A worker may call it for the key that it holds: the key comes back then, after that.
    ///
    /// # Errors
    /// As [`add`](AddKeys::add).
    fn add_after(&self, key: K, delay: Duration) -> Result<(), K>;
}

/// How work on a key ends: what a worker needs of a queue, besides [`GetKeys`] or [`BlockingGetKeys`].
///
/// Every [`Queue`] is one, and hands out its [`Lease`]. A queue in client-go's shape hands out the bare key and has
/// three lines here: `succeed` is `forget` and `done`, `retry` is `add_rate_limited` and `done`. What is leased and then
/// dropped is for the queue to say: a lease is a failure then, and comes back; a bare key never runs again.
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
    /// What is queued.
    type Key;

    /// What is handed out: a lease, or the bare key.
    type Leased;

    /// The key that is leased.
    fn key<'a>(&self, leased: &'a Self::Leased) -> &'a Self::Key;

    /// The work is done, and the failures of the key are forgotten.
    fn succeed(&self, leased: Self::Leased);

    /// The work failed: the key comes back, when the queue thinks fit.
    fn retry(&self, leased: Self::Leased);
}

/// Where threads take keys.
///
/// Every [`Queue`] is one. There is a `dyn BlockingGetKeys<Key = K, Leased = H>`.
///
/// # Examples
/// A worker for any such queue:
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
    /// Waits for a key, blocking the thread; `None` once there will be none.
    fn blocking_get(&self) -> Option<Self::Leased>;
}

/// Where tasks take keys.
///
/// Every [`Queue`] whose keys can be awaited is one. The future is `Send`, so that a generic worker can be spawned
/// on any runtime.
///
/// # Examples
/// A worker for any such queue:
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
    /// Waits for a key; `None` once there will be none.
    ///
    /// # Cancel safety
    /// Dropping the future must take no key.
    fn get(&self) -> impl Future<Output = Option<Self::Leased>> + Send;
}

// === impl Queue ===

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> AddKeys<K> for Queue<K, O, L, T> {
    fn add(&self, key: K) -> Result<(), K> {
        Queue::add(self, key).map(drop).map_err(AddError::into_key)
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: SupportsDelays> DelayKeys<K> for Queue<K, O, L, T> {
    fn add_after(&self, key: K, delay: Duration) -> Result<(), K> {
        Queue::add_after(self, key, delay).map(drop).map_err(AddError::into_key)
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> EndKeys for Queue<K, O, L, T> {
    type Key = K;
    type Leased = Lease<K, T>;

    fn key<'a>(&self, leased: &'a Lease<K, T>) -> &'a K {
        leased.key()
    }

    fn succeed(&self, leased: Lease<K, T>) {
        leased.succeed();
    }

    fn retry(&self, leased: Lease<K, T>) {
        leased.retry();
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> BlockingGetKeys for Queue<K, O, L, T> {
    fn blocking_get(&self) -> Option<Lease<K, T>> {
        self.blocking_get()
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: SupportsAsync> GetKeys for Queue<K, O, L, T> {
    fn get(&self) -> impl Future<Output = Option<Lease<K, T>>> + Send {
        self.get()
    }
}
