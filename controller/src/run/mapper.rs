//! SHELL. Calls the mapper with each change. If the mapper panics at a change, calls it again with this change until it returns or the change is given
//! up. Also maps the objects that existed when the watch started, and all objects again at each resync.
//!
//! | guarded by | |
//! |---|---|
//! | `initial` | a lock, which is held only to set or to take the snapshot |
//! | `failed` | a `watch` channel: the informer adds failed changes, at most [`MAX_CHANGES`], and the run future takes them out. No user code runs under its lock |
//! | `waiting` | the changes that the run future has taken out of `failed`, with a backoff for each object. `Hash`, `Eq` and `Clone` of keys run under its lock, which is never contended |

use std::future::poll_fn;
use std::hash::Hash;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use flyball_informer_cache::{Change, Informer, Snapshot};
use flyball_sync::locks::Mutex;
use tokio::sync::watch;

use crate::report::ReportCounters;
use crate::run::failed_changes::{FailedChanges, FailedObject, MAX_CHANGES, RetryKey, discard};
use crate::run::spread::slice_of;
use flyball_sync::panics;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex as AsyncMutex;

/// The maximum number of objects that a resync looks at in one poll.
const LOOKED_AT: usize = 16;

/// The mapper of one informer, and its failed changes: the changes at which it panicked.
pub(crate) struct Mapper<OK, V, M> {
    /// `None` only while this `Mapper` is being dropped.
    map: Option<M>,
    informer: Informer<OK, V>,
    resync_every: Option<Duration>,
    /// The objects that existed when the watch started, until they are mapped.
    initial: Mutex<Option<Snapshot<OK, V>>>,
    failed: watch::Sender<Vec<Change<OK, V>>>,
    waiting: AsyncMutex<FailedChanges<OK, V>>,
    counters: Arc<ReportCounters>,
}

/// A type-erased [`Mapper`].
pub(crate) trait RetryMapping: Send + Sync {
    /// Moves new failed changes from `failed` to `waiting`. Returns the time at which the next waiting change must be mapped again, or `None` if no
    /// change waits.
    fn next_due(&self, now: Duration) -> Option<Duration>;

    /// Maps the changes of one due object again; returns `false` if no object is due.
    fn remap_due(&self, now: Duration) -> bool;

    /// Returns the keys of the objects that have failed changes, to [map them again](Self::remap_object).
    fn retry_keys(&self, now: Duration) -> Vec<RetryKey>;

    /// Maps the failed changes of an object again, whether they are due or not. Has no effect if they were mapped again since `retry_keys` was called.
    fn remap_object(&self, retry_key: RetryKey, now: Duration);

    /// Returns the number of failed changes.
    fn pending(&self, now: Duration) -> usize;

    /// Waits until there is a new failed change.
    fn failed(&self) -> BoxFuture<'static, ()>;

    /// Returns the period after which all objects are mapped again; `None` if resyncs are off.
    fn resync_every(&self) -> Option<Duration>;

    /// Maps the existing objects of a [slice](slice_of), in pieces: each poll maps one object, or looks at [`LOOKED_AT`] others. The returned future never
    /// wakes its task, so the caller must poll it repeatedly.
    fn resync(self: Arc<Self>, slice: u32) -> BoxFuture<'static, ()>;

    /// Maps the objects that existed when the watch started, in pieces: each poll maps one object. The returned future never wakes its task, so the caller
    /// must poll it repeatedly.
    fn map_initial(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

impl<OK: Clone + Eq + Hash, V, M: Fn(&Change<OK, V>, bool)> Mapper<OK, V, M> {
    /// The second argument of `map` is `true` if an object is mapped because of a resync, and `false` if a change is mapped.
    pub(crate) fn new(
        map: M,
        informer: Informer<OK, V>,
        resync_every: Option<Duration>,
        counters: Arc<ReportCounters>,
    ) -> Self {
        Self {
            map: Some(map),
            informer,
            resync_every,
            initial: Mutex::new(None),
            failed: watch::Sender::new(Vec::new()),
            waiting: AsyncMutex::new(FailedChanges::new()),
            counters,
        }
    }

    /// Sets the objects that are mapped first. Called once, before the run future calls this mapper.
    pub(crate) fn set_initial(&self, objects: Snapshot<OK, V>) {
        *self.initial.lock() = Some(objects);
    }

    pub(crate) fn changed(&self, change: &Change<OK, V>) {
        if self.maps(change, false) {
            return;
        }
        let mut new = panics::attempt(|| change.clone()).ok();
        let mut added = false;
        self.failed.send_if_modified(|failed| {
            added = new.is_some() && failed.len() < MAX_CHANGES;
            if added {
                failed.extend(new.take());
            }
            added
        });
        discard(new);
        // If `Clone` of the key panics, too, or there are too many failed changes, the change is given up.
        if !added {
            self.counters.mapper_failures.count();
        }
    }

    fn maps(&self, change: &Change<OK, V>, resync: bool) -> bool {
        let mapped = panics::caught(|| self.map.as_ref().map(|map| map(change, resync))).is_some();
        if !mapped {
            self.counters.callback_panics.count();
        }
        mapped
    }
}

/// Discards its value when it is dropped.
struct DiscardOnDrop<T>(Option<T>);

impl<T> Drop for DiscardOnDrop<T> {
    fn drop(&mut self) {
        discard(self.0.take());
    }
}

impl<OK, V, M> Mapper<OK, V, M>
where
    OK: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    M: Fn(&Change<OK, V>, bool),
{
    /// Calls `act` with the waiting changes. Only the run future calls this method, and never recursively, so `try_lock` succeeds.
    fn waiting<T>(&self, act: impl FnOnce(&mut FailedChanges<OK, V>) -> T) -> Option<T> {
        Some(act(&mut *self.waiting.try_lock().ok()?))
    }

    /// Moves new failed changes from `failed` to `waiting`; they are mapped again after a wait.
    fn take_failed(&self, now: Duration) {
        let mut taken = Vec::new();
        self.failed.send_if_modified(|failed| {
            taken = std::mem::take(failed);
            false
        });
        for change in taken {
            let added = panics::attempt(|| self.waiting(|waiting| waiting.add(change, now)));
            match added {
                Ok(given_up) => {
                    let given_up = given_up.unwrap_or_default();
                    self.given_up(given_up.len());
                    given_up.into_iter().for_each(discard);
                }
                Err(_) => {
                    self.counters.callback_panics.count();
                    // `Hash`, `Eq` or `Clone` of the key has panicked, so the change is given up.
                    self.given_up(1);
                }
            }
        }
    }

    fn remap(&self, mut failed: FailedObject<OK, V>, now: Duration) {
        // If the lookup panics, in `Hash` or `Eq` of the key or in the drop of the object, the object counts as stored.
        let is_stored = |key: &OK| panics::caught(|| self.informer.store().get(key).is_some());
        let is_deleted = failed.key().is_some_and(|key| is_stored(key) == Some(false));
        self.given_up(failed.remap(now, is_deleted, |change| self.maps(change, false)));
        self.waiting(|waiting| waiting.put_back(failed, now));
    }

    fn given_up(&self, changes: usize) {
        (0..changes).for_each(|_| self.counters.mapper_failures.count());
    }
}

impl<OK, V, M> RetryMapping for Mapper<OK, V, M>
where
    OK: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    M: Fn(&Change<OK, V>, bool) + Send + Sync + 'static,
{
    fn next_due(&self, now: Duration) -> Option<Duration> {
        self.take_failed(now);
        self.waiting(|waiting| waiting.next_due())?
    }

    fn remap_due(&self, now: Duration) -> bool {
        let due = self.waiting(|waiting| waiting.take_due(now)).flatten();
        due.map(|failed| self.remap(failed, now)).is_some()
    }

    fn retry_keys(&self, now: Duration) -> Vec<RetryKey> {
        self.take_failed(now);
        self.waiting(|waiting| waiting.retry_keys()).unwrap_or_default()
    }

    fn remap_object(&self, retry_key: RetryKey, now: Duration) {
        let object = self.waiting(|waiting| waiting.take(retry_key)).flatten();
        object.into_iter().for_each(|failed| self.remap(failed, now));
    }

    fn pending(&self, now: Duration) -> usize {
        self.take_failed(now);
        self.waiting(|waiting| waiting.len()).unwrap_or(0)
    }

    fn failed(&self) -> BoxFuture<'static, ()> {
        let mut changes = self.failed.subscribe();
        // The new receiver is not notified of changes that are already in the channel.
        let there = !self.failed.borrow().is_empty();
        Box::pin(async move {
            if !there {
                // The wait cannot fail, because the mapper holds the sender.
                let _ = changes.changed().await;
            }
        })
    }

    fn resync_every(&self) -> Option<Duration> {
        self.resync_every
    }

    fn resync(self: Arc<Self>, slice: u32) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // The snapshot may hold the last reference to an object, and the drop of that object may panic.
            let objects = DiscardOnDrop(Some(self.informer.snapshot()));
            let mut looked_at = 0;
            // A key whose `Hash` panics is in the first slice.
            let is_own = |key: &_| panics::caught(|| slice_of(key)).unwrap_or_default() == slice;
            for own in objects.0.iter().flat_map(|objects| objects.initial_changes_where(is_own)) {
                looked_at += 1;
                let mapped = own.is_some();
                if let Some(change) = own {
                    // A stopped informer is not resynced, because the keys of each resync could keep the controller from ever becoming idle.
                    if self.informer.is_stopped() {
                        return;
                    }
                    self.maps(&change, true);
                    discard(change);
                }
                if mapped || looked_at >= LOOKED_AT {
                    looked_at = 0;
                    pending_once().await;
                }
            }
        })
    }

    fn map_initial(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // The snapshot may hold the last reference to an object, and the drop of that object may panic.
            let objects = DiscardOnDrop(self.initial.lock().take());
            for change in objects.0.iter().flat_map(|objects| objects.initial_changes()) {
                self.changed(&change);
                discard(change);
                pending_once().await;
            }
        })
    }
}

impl<OK, V, M> Drop for Mapper<OK, V, M> {
    fn drop(&mut self) {
        let initial = self.initial.lock().take();
        discard(initial);
        // A panic in one drop must affect neither the other drops nor the caller.
        discard(self.map.take());
        let failed = self.failed.send_replace(Vec::new());
        failed.into_iter().for_each(discard);
    }
}

/// Returns `Pending` at the first poll, without a wake-up.
async fn pending_once() {
    let mut polled = false;
    poll_fn(|_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}
