//! EDGE. Adds watches to a running controller, and removes them.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use flyball_informer_cache::{Change, Informer};
use flyball_ratelimit::Exponential;
use flyball_workqueue::{Fifo, Key, Order, QueueLimiter, ThreadTimer, Timer};

use crate::error::AddWatchError;
use crate::run::into_keys::IntoKeys;
use crate::run::watch_options::WatchOptions;
use crate::run::watch_set::{WatchSet, WeakSet};
use crate::run::watched_informer::{KeySink, watched};

/// A handle that adds watches to a controller, and removes them: before the run, while the controller waits for its caches, in standby, and while it
/// reconciles. Created by [`Controller::handle`](crate::Controller::handle). A clone costs two reference counts. Dropping all handles changes
/// nothing. A handle does not keep an ended controller alive.
///
/// # Examples
/// Adds a watch to a running controller, and removes it again:
/// ```
/// # use flyball_controller::{Action, Controller, TokioTimer};
/// # use flyball_informer_cache::testing::TestServer;
/// # use flyball_informer_cache::{Informer, Schema, Version};
/// # use flyball_workqueue::Queue;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # const NAMES: Schema<u32, u32> = Schema::new(|number: &u32| *number, |_| Version::ZERO);
/// # let server = TestServer::new(NAMES, |_, _, _| {});
/// # server.put(7);
/// # let (done, mut reconciled) = tokio::sync::mpsc::unbounded_channel();
/// # let queue = Queue::<u32>::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
/// let controller = Controller::new(queue);
/// let handle = controller.handle();
/// let running = tokio::spawn(controller.run(move |key, _| {
///     done.send(key).unwrap();
///     async { Ok::<_, String>(Action::await_change()) }
/// }));
///
/// let informer = Informer::builder(NAMES, server.clone()).start()?;
/// let watch = handle.add_watch(&informer, |change| *change.key())?;
/// assert_eq!(reconciled.recv().await, Some(7));
///
/// assert!(handle.remove_watch(&watch));
/// informer.shut_down(); // the run goes on
/// # tokio::task::yield_now().await;
/// # assert!(!running.is_finished());
/// # running.abort();
/// # Ok(())
/// # }
/// ```
pub struct ControllerHandle<K, O: Order<K> = Fifo, L = Exponential<K>, T = ThreadTimer> {
    pub(crate) watches: WatchSet,
    /// Weak, so that a handle that outlives its controller keeps neither the queue nor the key filter alive.
    pub(crate) sink: Weak<OnceLock<KeySink<K, O, L, T>>>,
}

/// The id of a watch that was added through a [`ControllerHandle`]. Use it to [remove](ControllerHandle::remove_watch) the watch.
///
/// # Examples
/// ```
/// # use flyball_controller::{Controller, TokioTimer};
/// # use flyball_informer_cache::testing::TestServer;
/// # use flyball_informer_cache::{Informer, Schema, Version};
/// # use flyball_workqueue::Queue;
/// use flyball_controller::{AddWatchError, WatchId, WatchOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let schema = Schema::new(|number: &u32| *number, |_| Version::ZERO);
/// # let hints = Informer::builder(schema, TestServer::new(schema, |_, _, _| {})).start()?;
/// # let queue = Queue::<u32>::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
/// let controller = Controller::new(queue);
/// let (handle, health) = (controller.handle(), controller.health());
/// let watch: WatchId = handle.add_watch_with(&hints, |change| *change.key(), WatchOptions::new())?;
/// assert_eq!(health.watches()[0].index, watch.index());
///
/// drop(controller);
/// assert_eq!(handle.add_watch(&hints, |change| *change.key()).err(), Some(AddWatchError::Ended));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct WatchId {
    index: usize,
    watches: WeakSet,
}

impl<K, O, L, T> ControllerHandle<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    /// Watches one more informer, like [`Controller::watches`](crate::Controller::watches).
    ///
    /// | the controller | the effect |
    /// |---|---|
    /// | has not started | the same as [`Controller::watches`](crate::Controller::watches) |
    /// | waits for its caches | workers also wait for its cache; the keys of its objects are added, or, if a standby follows, when the standby ends |
    /// | is in standby | its keys are added when the standby ends; then a new [timeout](crate::ControllerConfig::start_timeout) starts |
    /// | reconciles | the run adds the keys of its existing objects, in pieces; workers do not wait if its cache syncs later |
    /// | shuts down, or has ended | an error |
    ///
    /// The existing objects are mapped by the run future, not by this call. [`Health::watches`](crate::Health::watches) lists the watch from now on.
    ///
    /// # Errors
    /// [`AddWatchError::Ended`] once the controller shuts down. In that case the watch is not added. If the shutdown
    /// began during the call, keys of its objects may be left in the queue. [`AddWatchError::InformerEnded`] if the controller has started, and the
    /// informer has ended already, so that it would end the run.
    pub fn add_watch<OK, V, R, M>(
        &self,
        informer: &Informer<OK, V>,
        mapper: impl Fn(&Change<OK, V>) -> R + Send + Sync + 'static,
    ) -> Result<WatchId, AddWatchError>
    where
        OK: Key + Sync,
        V: Send + Sync + 'static,
        R: IntoKeys<K, M>,
    {
        self.add_watch_with(informer, mapper, WatchOptions::new())
    }

    /// Like [`add_watch`](Self::add_watch), with [options](WatchOptions).
    ///
    /// # Errors
    /// Returns the errors of `add_watch`, and [`AddWatchError::ZeroResyncPeriod`] if the resync period is 0.
    pub fn add_watch_with<OK, V, R, M>(
        &self,
        informer: &Informer<OK, V>,
        mapper: impl Fn(&Change<OK, V>) -> R + Send + Sync + 'static,
        options: WatchOptions<OK, V, K, O, L, T>,
    ) -> Result<WatchId, AddWatchError>
    where
        OK: Key + Sync,
        V: Send + Sync + 'static,
        R: IntoKeys<K, M>,
    {
        if options.resync_every == Some(Duration::ZERO) {
            return Err(AddWatchError::ZeroResyncPeriod);
        }
        let sink = self.sink.upgrade().ok_or(AddWatchError::Ended)?;
        let index = self.watches.add(watched(informer, mapper, options, &sink))?;
        Ok(WatchId { index, watches: self.watches.downgrade() })
    }

    /// Removes a watch. Returns `false` if the controller has no such watch.
    ///
    /// Changes that are published after this call add no keys. A thread that is mapping a change during this call may still add one key. Keys that
    /// are already in the queue stay there. Changes whose mapper panicked are not mapped again, and the end of the informer no longer ends the run.
    /// The informer itself keeps running.
    pub fn remove_watch(&self, watch: &WatchId) -> bool {
        self.watches.is(&watch.watches) && self.watches.remove(watch.index)
    }
}

impl WatchId {
    /// Returns the number of the watch, as in [`WatchStatus::index`](crate::WatchStatus::index). A controller never reuses
    /// a number.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }
}

impl<K, O: Order<K>, L, T> Clone for ControllerHandle<K, O, L, T> {
    fn clone(&self) -> Self {
        Self { watches: self.watches.clone(), sink: self.sink.clone() }
    }
}

impl<K, O: Order<K>, L, T> fmt::Debug for ControllerHandle<K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerHandle").field("watches", &self.watches.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for WatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchId").field("index", &self.index).finish_non_exhaustive()
    }
}
